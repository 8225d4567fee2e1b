#include "platform/cpu/sha256.h"

#include <sha2.h>  // libmd-dev

#include <algorithm>
#include <new>

namespace tarn {
namespace {

SHA2_CTX* context(std::byte* state) { return std::launder(reinterpret_cast<SHA2_CTX*>(state)); }

}  // namespace

Sha256::Sha256() {
  static_assert(sizeof(SHA2_CTX) <= sizeof state_ && alignof(SHA2_CTX) <= alignof(u64));
  SHA256Init(new (state_.data()) SHA2_CTX);
}

void Sha256::add(std::span<const std::byte> bytes) {
  SHA256Update(context(state_.data()), reinterpret_cast<const u8*>(bytes.data()), bytes.size());
}

Sha256::Text Sha256::finish() {
  std::array<u8, SHA256_DIGEST_LENGTH> digest;
  SHA256Final(digest.data(), context(state_.data()));
  Text text{};
  for (u64 i = 0; i < digest.size(); ++i) {
    text[2 * i] = "0123456789abcdef"[digest[i] >> 4];
    text[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

bool is_same_sha256(std::string_view digits, const Sha256::Text& text) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(digits, std::string_view(text.data()), {}, lower);
}

}  // namespace tarn
