#include "runtime/reuse/manifest.h"

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/store/record.h"

namespace tarn::reuse {
namespace {

constexpr std::array<char, 8> kManifestMagic = {'T', 'A', 'R', 'N', 'S', 'E', 'S', 'S'};

struct ManifestHead {
  std::array<char, 8> magic{};
  u32 version = 0;
  u32 crc = 0;  // of everything, with this field as zero
  u64 n_bytes = 0;
  u64 revision = 0;
  KvIdentity identity{};
  store::Key tail{};
  u64 n_drawn = 0;
  u64 saved_at_s = 0;
  u32 n_slots = 0;
  u32 n_groups = 0;
  u32 n_tokens = 0;
  u32 turn_begin = 0;
  u32 first_approx_slot = 0;
  u32 n_indexes = 0;
  u32 n_answers = 0;
  u32 n_fed = 0;
  u32 is_cut_off = 0;  // 0 or 1
  u32 name_bytes = 0;
  u32 policy_bytes = 0;
  u32 tenant_bytes = 0;
  u32 model_bytes = 0;
  std::array<u32, 31> reserved{};
};
static_assert(sizeof(ManifestHead) == 320);
constexpr u64 kPartAlignment = 8;

// Calls fn(count, part) for each part, in the format's order.
template <class Head, class Parts, class Fn>
void each_part(Head& head, Parts& manifest, Fn&& fn) {
  fn(head.n_groups, manifest.groups);
  fn(head.n_tokens, manifest.token_ids);
  fn(head.name_bytes, manifest.name);
  fn(head.policy_bytes, manifest.policy);
  fn(head.n_indexes, manifest.index);
  fn(head.n_answers, manifest.answers);
  fn(head.tenant_bytes, manifest.tenant);
  fn(head.model_bytes, manifest.model);
}

template <class Part>
u64 bytes_of(u64 n, const Part&) {
  return n * sizeof(typename Part::value_type);
}

// The limits keep the sum far below what wraps, and a record can hold it.
u64 body_bytes(const ManifestHead& head) {
  const Manifest types;
  u64 n_bytes = 0;
  each_part(head, types, [&](u32 n, const auto& part) {
    n_bytes += align_up(bytes_of(n, part), kPartAlignment);
  });
  return n_bytes;
}
static_assert(sizeof(ManifestHead) + 16 * u64{kManifestGroupsMax} + 4 * u64{kManifestTokensMax} +
                  2 * u64{kManifestNameBytesMax} + kManifestModelBytesMax +
                  kManifestPolicyBytesMax + sizeof(ManifestIndex) +
                  sizeof(ManifestAnswer) * u64{kManifestAnswersMax} <=
              store::kPayloadBytesMax);

const char* index_fault(const Manifest& manifest) {
  const u64 n_tokens = manifest.token_ids.size();
  if (manifest.first_approx_slot != 0 && manifest.first_approx_slot >= manifest.n_slots)
    return "first_approx_slot";
  for (const ManifestIndex& index : manifest.index) {
    if (index.n_rows > manifest.n_slots) return "index";
    if (index.n_rows == 0 && !(index.key == store::Key{})) return "index";
  }
  if (manifest.n_fed > n_tokens || (manifest.n_fed == 0) != (n_tokens == 0)) return "n_fed";
  u64 end = 0;
  for (const ManifestAnswer& answer : manifest.answers) {
    if (answer.begin <= end || answer.end <= answer.begin) return "answers";
    end = answer.end;
  }
  return manifest.answers.empty() || end < manifest.n_fed ? nullptr : "answers";
}

const char* counts_fault(const ManifestHead& head) {
  if (head.n_groups > kManifestGroupsMax) return "n_groups";
  if (head.n_tokens > kManifestTokensMax) return "n_tokens";
  if (head.name_bytes > kManifestNameBytesMax) return "name";
  if (head.policy_bytes > kManifestPolicyBytesMax) return "policy";
  if (head.n_indexes > 1) return "n_indexes";
  if (head.n_answers > kManifestAnswersMax) return "n_answers";
  if (head.tenant_bytes > kManifestNameBytesMax) return "tenant";
  if (head.model_bytes > kManifestModelBytesMax) return "model";
  return nullptr;
}

ManifestHead head_of(const Manifest& manifest) {
  ManifestHead head{.magic = kManifestMagic,
                    .version = kManifestVersion,
                    .revision = manifest.revision,
                    .identity = manifest.identity,
                    .tail = manifest.tail,
                    .n_drawn = manifest.n_drawn,
                    .saved_at_s = manifest.saved_at_s,
                    .n_slots = manifest.n_slots,
                    .turn_begin = manifest.turn_begin,
                    .first_approx_slot = manifest.first_approx_slot,
                    .n_fed = manifest.n_fed,
                    .is_cut_off = manifest.is_cut_off ? 1u : 0u};
  each_part(head, manifest, [](u32& n, const auto& part) { n = static_cast<u32>(part.size()); });
  head.n_bytes = sizeof head + body_bytes(head);
  return head;
}

u32 crc_of(const Crc32c& crc, std::span<const std::byte> bytes, ManifestHead head) {
  head.crc = 0;
  const u32 body = crc.bytes(bytes.data() + sizeof head, bytes.size() - sizeof head);
  alignas(8) std::array<std::byte, sizeof head + sizeof body> both;
  std::memcpy(both.data(), &head, sizeof head);
  std::memcpy(both.data() + sizeof head, &body, sizeof body);
  return crc.bytes(both.data(), both.size());
}

}  // namespace

Unexpected damaged_manifest(std::string_view part) {
  return fail({.status = Status::io_failed,
               .reason = Reason::store_unreadable,
               .hint = "a saved session is damaged and cannot be taken up: begin a new one",
               .detail = Detail(part)});
}

const char* manifest_fault(const Manifest& manifest) {
  const u32 page_tokens = manifest.identity.page_tokens;
  if (page_tokens == 0 || page_tokens > store::kTokensMax) return "kv.page_tokens";
  if (const char* fault = counts_fault(head_of(manifest))) return fault;
  if (manifest.n_slots > manifest.token_ids.size()) return "n_slots";
  if (manifest.groups.size() != manifest.n_slots / page_tokens) return "n_groups";
  const bool has_tail = manifest.n_slots % page_tokens != 0;
  if (has_tail == (manifest.tail == store::Key{})) return "tail";
  if (manifest.turn_begin > manifest.token_ids.size()) return "turn_begin";
  if (const char* fault = index_fault(manifest)) return fault;
  // A C string carries it.
  if (manifest.name.empty() || manifest.name.find('\0') != std::string_view::npos) return "name";
  if (manifest.tenant.find('\0') != std::string_view::npos) return "tenant";
  const bool is_default = manifest.identity.tenant == store::Key{};
  if (is_default != manifest.tenant.empty()) return "tenant";
  return nullptr;
}

namespace {

// Calls on_key(page, key) for every page whose key follows from tokens, until it says false.
template <class OnKey>
void each_key(const store::Secret& secret, const Manifest& manifest, OnKey&& on_key) {
  const u32 page_tokens = manifest.identity.page_tokens;
  const auto ids = manifest.token_ids.first(manifest.n_slots);
  store::Key key = identity_key(secret, manifest.identity);
  const u32 n_pages = std::min(pages_of(manifest), first_private_page(manifest));
  for (u32 page = 0; page < n_pages; ++page) {
    const u64 begin = u64{page} * page_tokens;
    const u64 n = std::min<u64>(page_tokens, ids.size() - begin);
    key = store::chain_key(secret, key, ids.subspan(begin, n));
    if (!on_key(page, key)) return;
  }
}

}  // namespace

void make_keys(const store::Secret& secret, const Manifest& manifest, u64 nonce,
               std::span<store::Key> out) {
  each_key(secret, manifest, [&](u32 page, const store::Key& key) {
    out[page] = key;
    return true;
  });
  for (u32 page = first_private_page(manifest); page < pages_of(manifest); ++page) {
    const store::Key& theirs = page_key(manifest, page);
    out[page] = store::private_key(secret, {theirs.low, theirs.high, page, nonce});
  }
}

const char* keys_fault(const store::Secret& secret, const Manifest& manifest) {
  const char* fault = nullptr;
  each_key(secret, manifest, [&](u32 page, const store::Key& key) {
    if (!(key == page_key(manifest, page))) {
      fault = page < manifest.groups.size() ? "groups" : "tail";
    }
    return fault == nullptr;
  });
  return fault;
}

u64 manifest_bytes(const Manifest& manifest) { return head_of(manifest).n_bytes; }

u64 manifest_bytes_max(u32 n_tokens, u32 page_tokens) {
  const ManifestHead head{.n_groups = n_tokens / page_tokens,
                          .n_tokens = n_tokens,
                          .n_indexes = 1,
                          .n_answers = kKeptAnswersMax,
                          .name_bytes = kManifestNameBytesMax,
                          .policy_bytes = kManifestPolicyBytesMax,
                          .tenant_bytes = kManifestNameBytesMax,
                          .model_bytes = kManifestModelBytesMax};
  return sizeof head + body_bytes(head);
}

void encode_manifest(const Crc32c& crc, const Manifest& manifest, std::span<std::byte> out) {
  TARN_ASSERT(manifest_fault(manifest) == nullptr);
  ManifestHead head = head_of(manifest);
  TARN_ASSERT(out.size() == head.n_bytes);
  std::memset(out.data(), 0, out.size());
  std::byte* at = out.data() + sizeof head;
  each_part(head, manifest, [&](u32 n, const auto& part) {
    if (n > 0) std::memcpy(at, part.data(), bytes_of(n, part));
    at += align_up(bytes_of(n, part), kPartAlignment);
  });
  head.crc = crc_of(crc, out, head);
  std::memcpy(out.data(), &head, sizeof head);
}

Result<Manifest> decode_manifest(const Crc32c& crc, std::span<const std::byte> bytes) {
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(bytes.data()) % kPartAlignment == 0);
  ManifestHead head;
  if (bytes.size() < sizeof head) return damaged_manifest("length");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kManifestMagic) return damaged_manifest("magic");
  if (head.n_bytes != bytes.size()) return damaged_manifest("length");
  // All formats have the magic, the version, the length and the checksum of all behind 320 bytes.
  if (head.crc != crc_of(crc, bytes, head)) return damaged_manifest("checksum");
  if (head.version != kManifestVersion) {
    return fail({.status = Status::unsupported,
                 .reason = Reason::saved_otherwise,
                 .hint = "this session was saved by another version of Tarn: take it up with that "
                         "one, or begin a new session under another name",
                 .figures = {{{"version", head.version}, {"version_here", kManifestVersion}}}});
  }
  if (const char* fault = counts_fault(head)) return damaged_manifest(fault);
  if (sizeof head + body_bytes(head) != bytes.size()) return damaged_manifest("length");
  for (const u32 word : head.reserved) {
    if (word != 0) return damaged_manifest("reserved");
  }
  if (head.is_cut_off > 1) return damaged_manifest("is_cut_off");
  Manifest manifest{.identity = head.identity,
                    .revision = head.revision,
                    .n_slots = head.n_slots,
                    .tail = head.tail,
                    .is_cut_off = head.is_cut_off != 0,
                    .n_drawn = head.n_drawn,
                    .first_approx_slot = head.first_approx_slot,
                    .saved_at_s = head.saved_at_s,
                    .turn_begin = head.turn_begin,
                    .n_fed = head.n_fed};
  const std::byte* at = bytes.data() + sizeof head;
  bool padding_is_zero = true;
  each_part(head, manifest, [&]<class Part>(u32 n, Part& part) {
    part = Part(reinterpret_cast<const typename Part::value_type*>(at), n);
    const u64 n_bytes = bytes_of(n, part), n_padded = align_up(n_bytes, kPartAlignment);
    for (u64 i = n_bytes; i < n_padded; ++i) padding_is_zero &= at[i] == std::byte{0};
    at += n_padded;
  });
  if (!padding_is_zero) return damaged_manifest("padding");
  if (const char* fault = manifest_fault(manifest)) return damaged_manifest(fault);
  return manifest;
}

}  // namespace tarn::reuse
