#include "runtime/chat/conversation.h"

#include <algorithm>

namespace tarn::chat {
namespace {

// Where the text of `ids` ends. A vocabulary may put a space before a piece, and a BOS that the
// text does not have before all.
u64 text_end(std::string_view text, std::span<const text::TokenId> ids,
             const text::Tokenizer& tokenizer, std::span<char> memory) {
  u64 at = 0;
  for (const text::TokenId id : ids) {
    std::string_view piece(memory.data(), tokenizer.piece(id, /*special=*/true, memory));
    const std::string_view rest = text.substr(at);
    if (!rest.starts_with(piece) && piece.starts_with(' ')) piece.remove_prefix(1);
    const bool is_added = at == 0 && !rest.starts_with(piece);
    if (!is_added) at = std::min(at + piece.size(), text.size());
  }
  return at;
}

}  // namespace

u8 origin_of_token(const Conversation& conversation, u64 idx, const text::Tokenizer& tokenizer,
                   std::span<char> piece) {
  const Rendered& rendered = conversation.rendered;
  const auto is_of_caller = [](u8 origin) { return origin != kFromTemplate; };
  const u64 at = text_end(rendered.text, conversation.ids.first(idx), tokenizer, piece);
  const auto after = std::ranges::find_if(rendered.origins.subspan(at), is_of_caller);
  if (after != rendered.origins.end()) return *after;
  const auto before =
      std::find_if(rendered.origins.rbegin(), rendered.origins.rend(), is_of_caller);
  return before != rendered.origins.rend() ? *before : kFromTemplate;
}

}  // namespace tarn::chat
