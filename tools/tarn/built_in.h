// tools/tarn/built_in.h
//
// What each built-in model is asked when nobody asks anything.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"
#include "tools/builtin/built_in_model.h"

namespace tarn::tools {

struct SampleQuestion {
  std::string text;      // as a person reads it
  std::string expected;  // without the space in front
  std::vector<u32> ids;  // behind the document's
  std::vector<u32> expected_ids;
};

// A document, and questions about it.
struct Sample {
  std::string model;     // what answers, in one line
  std::string document;  // what it reads, in one line
  std::vector<u32> document_ids;
  std::vector<SampleQuestion> questions;
};

// n_tokens: of the document; the log book has a length of its own.
Sample built_in_sample(BuiltIn which, const BuiltInModel& model, u32 n_tokens);

}  // namespace tarn::tools
