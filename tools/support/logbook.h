// Log books: documents with questions that have one right answer. tools/train/make-logbook writes
// them, one JSON object per line: {seed, kind, tokens, prompt, answer}. Lines of one document are
// consecutive, and each prompt begins with the document.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "platform/base/types.h"

namespace tarn::tools {

struct LogbookLine {
  u64 seed = 0;      // of the document
  std::string kind;  // of the question; "prose": measures the answer's perplexity
  u64 n_tokens = 0;  // of the prompt, as counted by the writer
  std::string prompt;
  std::string answer;
};

// Throws Failure with `where` and the line.
std::vector<LogbookLine> parse_logbook(std::string_view text, const std::string& where);

// A number of successes, and the 95 % interval of their rate: Wilson's score interval (Wilson
// 1927), which is valid for few trials and for rates near 0 and 1.
struct Rate {
  u64 n = 0;
  u64 n_true = 0;
  f64 share() const;
  f64 low() const;
  f64 high() const;
  void count(bool came_true) {
    ++n;
    n_true += came_true ? 1 : 0;
  }
};

// The length class of a prompt: the next power of two, 128 at least.
u64 logbook_length(u64 n_tokens);

}  // namespace tarn::tools
