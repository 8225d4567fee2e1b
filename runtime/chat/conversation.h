// A rendered conversation as tokens.
#pragma once

#include <span>

#include "runtime/chat/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace tarn::chat {

struct Conversation {
  std::span<const text::TokenId> ids{};
  std::span<const u8> origins{};  // [ids.size()]
};

// Writes where the text that begins with each id comes from: from a message, if the template wrote
// that text for one. Near enough for a message to people: characters that the vocabulary lacks may
// shift it. `piece` has room for a piece of the vocabulary.
void note_origins(const Rendered& rendered, std::span<const text::TokenId> ids,
                  const text::Tokenizer& tokenizer, std::span<char> piece, std::span<u8> origins);

}  // namespace tarn::chat
