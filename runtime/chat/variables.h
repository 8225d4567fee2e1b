// The variables that a vocabulary gives to a template: bos_token, eos_token, unk_token, pad_token.
#pragma once

#include <array>

#include "runtime/chat/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace tarn::chat {

using VocabVariables = std::array<Variable, 4>;

// Fills `out` with those that the vocabulary has, and returns them. The texts are the tokenizer's.
std::span<const Variable> variables_of(const text::Tokenizer& tokenizer, VocabVariables& out);

}  // namespace tarn::chat
