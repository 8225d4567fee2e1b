// A rendered conversation as tokens.
#pragma once

#include <span>

#include "runtime/chat/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace tarn::chat {

struct Conversation {
  Rendered rendered{};
  std::span<const text::TokenId> ids{};
};

// The origin of the text that begins with ids[idx]: of a message where the template wrote that text
// for one. Near enough for a message to people: characters that the vocabulary lacks may shift it.
u8 origin_of_token(const Conversation& conversation, u64 idx, const text::Tokenizer& tokenizer,
                   std::span<char> piece);

}  // namespace tarn::chat
