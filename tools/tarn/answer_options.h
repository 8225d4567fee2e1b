// How an answer is sampled and where it ends: what `tarn run` and `tarn chat` take.
#pragma once

#include <string>
#include <vector>

#include "runtime/api/tarn.h"
#include "tools/support/answer_fields.h"

namespace tarn::tools {

class AnswerOptions {
 public:
  // Adds the options of the sampler and the stops. The command adds -n itself.
  void add_to(const Command& command);
  // Without --stop, this text ends an answer.
  void stop_by_default(const std::string& text);
  // For at most this many tokens. Borrows the stops.
  tarn_generate_options for_tokens(u32 max_tokens);

 private:
  AnswerFields fields_ = kCommandLineFields;
  std::vector<std::string> stops_;
  std::vector<const char*> stop_texts_;
  bool ignore_end_ = false;
};

}  // namespace tarn::tools
