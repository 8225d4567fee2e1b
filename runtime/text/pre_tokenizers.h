// The known names of tokenizer.ggml.pre, each with its splitter and its other rules.
#pragma once

#include <string_view>

#include "runtime/text/tokenizer.h"

namespace tarn::text {

struct PreTokenizerRules {
  std::string_view name;
  PreTokenizer splitter = PreTokenizer::none;
  bool whole_words_first = false;  // a pre-token that is a token is not merged
  bool adds_bos = false;           // unless the file says otherwise
};

// nullptr for a name that is not in the table.
const PreTokenizerRules* find_pre_tokenizer(std::string_view name);

}  // namespace tarn::text
