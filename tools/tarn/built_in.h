// The sample document and questions of each built-in model.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"
#include "tools/builtin/built_in_model.h"

namespace tarn::tools {

struct SampleQuestion {
  std::string text;      // for people
  std::string expected;  // without the leading space
  std::vector<u32> ids;  // to append to the document's
  std::vector<u32> expected_ids;
};

// A document, and questions about it.
struct Sample {
  std::string model;     // the model, in one line
  std::string document;  // the document, in one line
  std::vector<u32> document_ids;
  std::vector<SampleQuestion> questions;
};

// n_tokens: the document's length; the log book has a fixed one.
Sample built_in_sample(BuiltIn which, const BuiltInModel& model, u32 n_tokens);

}  // namespace tarn::tools
