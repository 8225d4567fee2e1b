// tools/tarn/built_in.h
//
// The models that are inside of the program, and what each is asked when nobody asks anything.
//
//   logbook   trained: reads a plant's log book and answers questions about it (tools/train)
//   recall    computed, not trained: finds what stood behind a word before, at any length
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::tools {

enum class BuiltIn : u8 { logbook, recall };
inline constexpr const char* kBuiltInNames[] = {"logbook", "recall"};

// A built-in model as a file that lives in memory only, for as long as the object does.
class BuiltInModel {
 public:
  explicit BuiltInModel(BuiltIn which);  // throws Failure where the system gives no memory file
  BuiltInModel(const BuiltInModel&) = delete;
  BuiltInModel& operator=(const BuiltInModel&) = delete;
  ~BuiltInModel();
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

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
