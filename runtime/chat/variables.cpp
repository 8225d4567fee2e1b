#include "runtime/chat/variables.h"

namespace tarn::chat {

std::span<const Variable> variables_of(const text::Tokenizer& tokenizer, VocabVariables& out) {
  using text::SpecialToken;
  const Variable all[] = {{"bos_token", tokenizer.special_text(SpecialToken::bos)},
                          {"eos_token", tokenizer.special_text(SpecialToken::eos)},
                          {"unk_token", tokenizer.special_text(SpecialToken::unknown)},
                          {"pad_token", tokenizer.special_text(SpecialToken::padding)}};
  u64 n = 0;
  for (const Variable& variable : all) {
    if (!variable.text.empty()) out[n++] = variable;
  }
  return std::span(out).first(n);
}

}  // namespace tarn::chat
