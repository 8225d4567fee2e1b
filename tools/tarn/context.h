// How many tokens of context a command plans for.
#pragma once

#include <string>

#include "platform/base/types.h"

namespace tarn::tools {

// The context for a prompt and an answer without -c: at most the model's trained length, if the
// prompt fits into it.
u64 context_for(const std::string& model, u64 n_prompt, u64 n_answer);
// On standard error, where the context is longer than what the model was trained for.
void warn_beyond_training(const std::string& model, u64 context_tokens);

}  // namespace tarn::tools
