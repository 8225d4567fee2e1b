// The streaming side of tokenizer.h: bytes of tokens in, well-formed UTF-8 out.
#include <algorithm>

#include "platform/base/assert.h"
#include "runtime/text/tokenizer.h"

namespace tarn::text {
namespace {

constexpr std::string_view kReplacementBytes = "\xEF\xBF\xBD";

// Bytes of the well-formed character (Unicode 15, table 3-7) that starts with `lead`; 0 if none
// does.
u32 strict_bytes(u8 lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Whether `byte` may be the second one after `lead`: not in overlong forms, surrogates and code
// points above U+10FFFF.
bool may_follow(u8 lead, u8 byte) {
  const u8 low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const u8 high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return byte >= low && byte <= high;
}

}  // namespace

u64 Detokenizer::push(TokenId id, std::span<char> out) {
  const u64 piece_bytes_max = tokenizer_->piece_bytes_max();
  TARN_ASSERT(out.size() >= 3 * (piece_bytes_max + 4));
  // The piece lies at the end of `out`. Output from the front never reaches it, because each of its
  // bytes, and each held one, gives at most three.
  const std::span<char> piece = out.last(piece_bytes_max);
  const u64 n_piece = tokenizer_->piece(id, false, piece);
  u64 n_out = 0;
  const auto flush_held = [&] {
    std::copy(held_, held_ + n_held_, out.begin() + static_cast<std::ptrdiff_t>(n_out));
    n_out += n_held_;
    n_held_ = 0;
  };
  for (u64 i = 0; i < n_piece; ++i) {
    const u8 byte = static_cast<u8>(piece[i]);
    if (n_held_ > 0) {
      if (may_follow(n_held_ == 1 ? held_[0] : 0, byte)) {
        held_[n_held_++] = byte;
        if (n_held_ == strict_bytes(held_[0])) flush_held();
        continue;
      }
      n_out += finish(out.subspan(n_out));
    }
    held_[n_held_++] = byte;
    const u32 n_bytes = strict_bytes(byte);
    if (n_bytes == 0) n_out += finish(out.subspan(n_out));
    if (n_bytes == 1) flush_held();
  }
  return n_out;
}

u64 Detokenizer::finish(std::span<char> out) {
  if (n_held_ == 0) return 0;
  n_held_ = 0;
  TARN_ASSERT(out.size() >= kReplacementBytes.size());
  return kReplacementBytes.copy(out.data(), kReplacementBytes.size());
}

}  // namespace tarn::text
