#include "runtime/chat/conversation.h"

#include <algorithm>

namespace tarn::chat {
namespace {

// Origins of a text, in order of its bytes: what the template wrote belongs to what it stands in
// front of.
class Origins {
 public:
  explicit Origins(std::span<const u8> origins) : origins_(origins) {}
  // Returns the origin of the byte `at`, which never becomes smaller.
  u8 of(u64 at) {
    for (; at_ < at; ++at_) {
      if (origins_[at_] != kFromTemplate) last_ = origins_[at_];
    }
    ahead_ = std::max(ahead_, at);
    while (ahead_ < origins_.size() && origins_[ahead_] == kFromTemplate) ++ahead_;
    return ahead_ < origins_.size() ? origins_[ahead_] : last_;
  }

 private:
  std::span<const u8> origins_;
  u64 at_ = 0, ahead_ = 0;
  u8 last_ = kFromTemplate;  // in front of at_
};

}  // namespace

// A vocabulary may put a space before a piece, and a BOS that the text does not have before all.
void note_origins(const Rendered& rendered, std::span<const text::TokenId> ids,
                  const text::Tokenizer& tokenizer, std::span<char> piece, std::span<u8> notes) {
  Origins of_text(rendered.origins);
  u64 at = 0;
  for (u64 i = 0; i < ids.size(); ++i) {
    notes[i] = std::min(of_text.of(at), kIdOriginMax);
    std::string_view shown(piece.data(), tokenizer.piece(ids[i], /*special=*/true, piece));
    const std::string_view rest = rendered.text.substr(at);
    if (!rest.starts_with(shown) && shown.starts_with(' ')) shown.remove_prefix(1);
    const bool is_added = at == 0 && !rest.starts_with(shown);
    if (!is_added) at = std::min(at + shown.size(), rendered.text.size());
  }
}

}  // namespace tarn::chat
