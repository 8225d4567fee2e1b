// A session as bytes: what must be known, beside the KV, codes and codebooks in records of their
// own, to go on with a conversation after a restart, bit-equal. FORMAT.md has the layout. It is the
// payload of a record of Kind::manifest under named_key(), and a part of a pack.
//
//   pages        the group of cache layer l lies under layer_key(page_key(), l). Its chain key
//                follows from its tokens. From the page of first_approx_slot on KV was computed by
//                selection, or from what was, and the keys are private
//   index        its key owns the records that were written of it (part_key()); what is not there
//                is made again. A key of zeros: nothing was written
//   memory       decode() copies nothing: its spans point into the bytes, which are 8-byte aligned
//   errors       bytes are checked, never believed: a damaged manifest is a session that is not
//                there (Status::io_failed with the part at fault), another format is unsupported
#pragma once

#include <span>
#include <string_view>

#include "platform/base/result.h"
#include "platform/cpu/crc32c.h"
#include "runtime/reuse/kv_identity.h"
#include "runtime/store/key.h"

namespace tarn::reuse {

inline constexpr u32 kManifestVersion = 3;
inline constexpr u32 kManifestTokensMax = 1u << 23;
inline constexpr u32 kManifestGroupsMax = 1u << 20;
inline constexpr u32 kManifestNameBytesMax = 128;  // a tenant's, too
inline constexpr u32 kManifestModelBytesMax = 64;
inline constexpr u32 kManifestPolicyBytesMax = 4096;
inline constexpr u32 kManifestAnswersMax = 4096;
inline constexpr u32 kKeptAnswersMax = 32;  // that an engine writes

// method::KeptLife and what goes with it, as the engine has it; checked there.
struct ManifestIndex {
  store::Key key{};
  std::array<u32, 6> life{};
  u32 n_rows = 0;  // of the codebook; 0: there is none
  u32 turn_end = 0;
  friend bool operator==(const ManifestIndex&, const ManifestIndex&) = default;
};
static_assert(sizeof(ManifestIndex) == 48);

// Tokens [begin, end) were generated, and there is an input behind them.
struct ManifestAnswer {
  u32 begin = 0, end = 0;
  friend bool operator==(const ManifestAnswer&, const ManifestAnswer&) = default;
};
static_assert(sizeof(ManifestAnswer) == 8);

struct Manifest {
  KvIdentity identity{};
  u64 revision = 0;           // of this session: grows with every save
  u32 n_slots = 0;            // tokens that are in the KV, the first of token_ids
  store::Key tail{};          // zero where the last group is full
  bool is_cut_off = false;    // in an answer, or the last input has none yet
  u64 n_drawn = 0;            // tokens of the answer that was cut off
  u32 first_approx_slot = 0;  // 0: all KV follows from the tokens
  u64 saved_at_s = 0;  // by the wall clock, as its owner says: to be shown, and for nothing else
  std::span<const store::Key> groups{};  // n_slots / page_tokens
  std::span<const u32> token_ids{};
  u32 turn_begin = 0;  // where the last input begins; the number of tokens: there is none
  std::string_view name{};
  std::string_view policy{};  // what choices depend on, as the owner writes it; compared
  std::span<const ManifestIndex> index{};     // one, or none: made anew of all tokens
  std::span<const ManifestAnswer> answers{};  // the last ones, ascending
  u32 n_fed = 0;                              // tokens up to the last that was fed
  std::string_view tenant{};  // whose key identity.tenant is; "": the default one's, zero
  std::string_view model{};   // the name of its file: to be shown, and no more
};

// Whether a manifest holds together; encode() asserts it and decode() has checked it. nullptr, or
// the part at fault.
const char* manifest_fault(const Manifest& manifest);

// Pages that it names, the tail among them, and the key of each.
inline bool has_tail(const Manifest& manifest) {
  return manifest.n_slots % manifest.identity.page_tokens != 0;
}
inline u32 pages_of(const Manifest& manifest) {
  return static_cast<u32>(manifest.groups.size()) + (has_tail(manifest) ? 1 : 0);
}
inline const store::Key& page_key(const Manifest& manifest, u32 page) {
  return page < manifest.groups.size() ? manifest.groups[page] : manifest.tail;
}
// The first page under a private key; none where all keys follow from the tokens.
inline u32 first_private_page(const Manifest& manifest) {
  if (manifest.first_approx_slot == 0) return ~u32{0};
  return manifest.first_approx_slot / manifest.identity.page_tokens;
}
// Makes the keys of its pages in the store with this secret: out has pages_of(). Private keys of
// one nonce belong to no other session.
void make_keys(const store::Secret& secret, const Manifest& manifest, u64 nonce,
               std::span<store::Key> out);
// nullptr, or the first part whose keys are not those of its tokens. Private ones are what
// they are.
const char* keys_fault(const store::Secret& secret, const Manifest& manifest);

// Names the part at fault to the user.
Unexpected damaged_manifest(std::string_view part);

u64 manifest_bytes(const Manifest& manifest);
// The most that one of so many tokens takes, as an engine writes it.
u64 manifest_bytes_max(u32 n_tokens, u32 page_tokens);
// `out` has manifest_bytes().
void encode_manifest(const Crc32c& crc, const Manifest& manifest, std::span<std::byte> out);
Result<Manifest> decode_manifest(const Crc32c& crc, std::span<const std::byte> bytes);

}  // namespace tarn::reuse
