#include "runtime/reuse/manifest.h"

#include <algorithm>
#include <cmath>
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
  SamplerState sampler{};
  ManifestSegments segments{};
  u32 n_slots = 0;
  u32 n_groups = 0;
  u32 n_codebooks = 0;
  u32 n_tokens = 0;
  u32 n_turns = 0;
  u32 n_biases = 0;
  u32 name_bytes = 0;
  u32 policy_bytes = 0;
  u64 saved_at_s = 0;
  u32 first_approx_slot = 0;
  u32 n_indexes = 0;
  u32 n_answers = 0;
  u32 n_fed = 0;
  std::array<u32, 14> reserved{};
};
static_assert(sizeof(ManifestHead) == 320);
constexpr u64 kPartAlignment = 8;

template <class T>
constexpr u64 part_bytes(u64 n) {
  return align_up(n * sizeof(T), kPartAlignment);
}

// The limits keep the sum far below what wraps, and a record can hold it.
u64 body_bytes(const ManifestHead& head) {
  return part_bytes<store::Key>(head.n_groups) + part_bytes<ManifestCodebook>(head.n_codebooks) +
         part_bytes<u32>(head.n_tokens) + part_bytes<u32>(head.n_turns) +
         part_bytes<ManifestBias>(head.n_biases) + part_bytes<char>(head.name_bytes) +
         part_bytes<char>(head.policy_bytes) + part_bytes<ManifestIndex>(head.n_indexes) +
         part_bytes<ManifestAnswer>(head.n_answers);
}
static_assert(sizeof(ManifestHead) + 16 * u64{kManifestGroupsMax} + 4 * u64{kManifestTokensMax} +
                  (32 + 4) * u64{kManifestTurnsMax} + 8 * u64{kManifestBiasesMax} +
                  kManifestNameBytesMax + kManifestPolicyBytesMax + sizeof(ManifestIndex) +
                  sizeof(ManifestAnswer) * u64{kManifestAnswersMax} <=
              store::kPayloadBytesMax);

bool is_finite(const SamplerState& s) {
  for (const f32 value : {s.temperature, s.top_p, s.min_p, s.repetition_penalty,
                          s.frequency_penalty, s.presence_penalty}) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

const char* codebooks_fault(const Manifest& manifest) {
  u64 end = 0;
  for (const ManifestCodebook& codebook : manifest.codebooks) {
    if (codebook.reserved != 0 || codebook.first_slot < end) return "codebooks";
    if (codebook.n_slots == 0) return "codebooks";
    end = u64{codebook.first_slot} + codebook.n_slots;
    if (end > manifest.n_slots) return "codebooks";
  }
  if (manifest.first_approx_slot != 0 && manifest.first_approx_slot >= manifest.n_slots)
    return "first_approx_slot";
  const ManifestSegments& s = manifest.segments;
  if (s.middle_begin > s.middle_end || s.middle_end > manifest.n_slots) return "segments";
  return nullptr;
}

const char* index_fault(const Manifest& manifest) {
  const u64 n_tokens = manifest.token_ids.size();
  if (manifest.index.empty()) {
    if (!manifest.answers.empty()) return "answers";
    return manifest.n_fed != 0 ? "n_fed" : nullptr;
  }
  if (manifest.index.size() > 1) return "n_indexes";
  if (manifest.index[0].reserved != std::array<u32, 2>{}) return "index";
  if (manifest.n_fed > n_tokens || (manifest.n_fed == 0) != (n_tokens == 0)) return "n_fed";
  if (manifest.answers.size() > kManifestAnswersMax) return "n_answers";
  u64 end = 0;
  for (const ManifestAnswer& answer : manifest.answers) {
    if (answer.begin <= end || answer.end <= answer.begin) return "answers";
    end = answer.end;
  }
  return manifest.answers.empty() || end < manifest.n_fed ? nullptr : "answers";
}

const char* counts_fault(const ManifestHead& head) {
  if (head.n_groups > kManifestGroupsMax) return "n_groups";
  if (head.n_codebooks > kManifestTurnsMax) return "n_codebooks";
  if (head.n_tokens > kManifestTokensMax) return "n_tokens";
  if (head.n_turns > kManifestTurnsMax) return "n_turns";
  if (head.n_biases > kManifestBiasesMax) return "n_biases";
  if (head.name_bytes > kManifestNameBytesMax) return "name";
  if (head.policy_bytes > kManifestPolicyBytesMax) return "policy";
  if (head.n_indexes > 1) return "n_indexes";
  if (head.n_answers > kManifestAnswersMax) return "n_answers";
  return nullptr;
}

ManifestHead head_of(const Manifest& manifest) {
  return {.magic = kManifestMagic,
          .version = kManifestVersion,
          .revision = manifest.revision,
          .identity = manifest.identity,
          .tail = manifest.tail,
          .sampler = manifest.sampler,
          .segments = manifest.segments,
          .n_slots = manifest.n_slots,
          .n_groups = static_cast<u32>(manifest.groups.size()),
          .n_codebooks = static_cast<u32>(manifest.codebooks.size()),
          .n_tokens = static_cast<u32>(manifest.token_ids.size()),
          .n_turns = static_cast<u32>(manifest.turn_begins.size()),
          .n_biases = static_cast<u32>(manifest.biases.size()),
          .name_bytes = static_cast<u32>(manifest.name.size()),
          .policy_bytes = static_cast<u32>(manifest.policy.size()),
          .saved_at_s = manifest.saved_at_s,
          .first_approx_slot = manifest.first_approx_slot,
          .n_indexes = static_cast<u32>(manifest.index.size()),
          .n_answers = static_cast<u32>(manifest.answers.size()),
          .n_fed = manifest.n_fed};
}

Unexpected damaged(const char* part) {
  return fail({.status = Status::io_failed,
               .hint = "a saved session is damaged and cannot be taken up: begin a new one",
               .detail = Detail(part)});
}

u32 crc_of(const Crc32c& crc, std::span<const std::byte> bytes, ManifestHead head) {
  head.crc = 0;
  const u32 body = crc.bytes(bytes.data() + sizeof head, bytes.size() - sizeof head);
  alignas(8) std::array<std::byte, sizeof head + sizeof body> both;
  std::memcpy(both.data(), &head, sizeof head);
  std::memcpy(both.data() + sizeof head, &body, sizeof body);
  return crc.bytes(both.data(), both.size());
}

// Writes parts one behind the other; what pads them is zero already.
class PartWriter {
 public:
  explicit PartWriter(std::byte* at) : at_(at) {}
  template <class T>
  void put(std::span<const T> items) {
    if (!items.empty()) std::memcpy(at_, items.data(), items.size_bytes());
    at_ += part_bytes<T>(items.size());
  }

 private:
  std::byte* at_;
};

class PartReader {
 public:
  explicit PartReader(const std::byte* at) : at_(at) {}
  template <class T>
  std::span<const T> take(u64 n) {
    const std::span<const T> items(reinterpret_cast<const T*>(at_), n);
    for (u64 i = n * sizeof(T); i < part_bytes<T>(n); ++i) {
      padding_is_zero_ = padding_is_zero_ && at_[i] == std::byte{0};
    }
    at_ += part_bytes<T>(n);
    return items;
  }
  bool padding_is_zero() const { return padding_is_zero_; }

 private:
  const std::byte* at_;
  bool padding_is_zero_ = true;
};

}  // namespace

const char* manifest_fault(const Manifest& manifest) {
  const u32 page_tokens = manifest.identity.page_tokens;
  if (page_tokens == 0 || page_tokens > store::kTokensMax) return "kv.page_tokens";
  if (manifest.token_ids.size() > kManifestTokensMax) return "n_tokens";
  if (manifest.n_slots > manifest.token_ids.size()) return "n_slots";
  if (manifest.groups.size() > kManifestGroupsMax) return "n_groups";
  if (manifest.groups.size() != manifest.n_slots / page_tokens) return "n_groups";
  const bool has_tail = manifest.n_slots % page_tokens != 0;
  if (has_tail == (manifest.tail == store::Key{})) return "tail";
  if (manifest.turn_begins.size() > kManifestTurnsMax) return "n_turns";
  for (u64 i = 0; i < manifest.turn_begins.size(); ++i) {
    const u32 begin = manifest.turn_begins[i];
    if (begin >= manifest.token_ids.size()) return "turn_begins";
    if (i > 0 && begin <= manifest.turn_begins[i - 1]) return "turn_begins";
  }
  if (manifest.codebooks.size() > kManifestTurnsMax) return "n_codebooks";
  if (const char* fault = codebooks_fault(manifest)) return fault;
  if (const char* fault = index_fault(manifest)) return fault;
  if (manifest.biases.size() > kManifestBiasesMax) return "n_biases";
  for (const ManifestBias& bias : manifest.biases) {
    if (std::isnan(bias.bias)) return "biases";
  }
  if (!is_finite(manifest.sampler)) return "sampler";
  if (manifest.sampler.is_generating > 1 || manifest.sampler.ignores_end > 1) return "sampler";
  if (manifest.name.empty() || manifest.name.size() > kManifestNameBytesMax) return "name";
  if (manifest.policy.size() > kManifestPolicyBytesMax) return "policy";
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

u64 manifest_bytes(const Manifest& manifest) {
  return sizeof(ManifestHead) + body_bytes(head_of(manifest));
}

u64 manifest_bytes_max(const ManifestLimits& limits) {
  TARN_ASSERT(limits.n_tokens <= kManifestTokensMax && limits.n_turns <= kManifestTurnsMax);
  TARN_ASSERT(limits.n_codebooks <= kManifestTurnsMax && limits.n_answers <= kManifestAnswersMax);
  const ManifestHead head{.n_groups = limits.n_tokens / limits.page_tokens,
                          .n_codebooks = limits.n_codebooks,
                          .n_tokens = limits.n_tokens,
                          .n_turns = limits.n_turns,
                          .n_biases = kManifestBiasesMax,
                          .name_bytes = kManifestNameBytesMax,
                          .policy_bytes = kManifestPolicyBytesMax,
                          .n_indexes = 1,
                          .n_answers = limits.n_answers};
  return sizeof head + body_bytes(head);
}

void encode_manifest(const Crc32c& crc, const Manifest& manifest, std::span<std::byte> out) {
  TARN_ASSERT(manifest_fault(manifest) == nullptr);
  ManifestHead head = head_of(manifest);
  head.n_bytes = sizeof head + body_bytes(head);
  TARN_ASSERT(out.size() == head.n_bytes);
  std::memset(out.data(), 0, out.size());
  PartWriter parts(out.data() + sizeof head);
  parts.put(manifest.groups);
  parts.put(manifest.codebooks);
  parts.put(manifest.token_ids);
  parts.put(manifest.turn_begins);
  parts.put(manifest.biases);
  parts.put(std::span<const char>(manifest.name));
  parts.put(std::span<const char>(manifest.policy));
  parts.put(manifest.index);
  parts.put(manifest.answers);
  head.crc = crc_of(crc, out, head);
  std::memcpy(out.data(), &head, sizeof head);
}

Result<Manifest> decode_manifest(const Crc32c& crc, std::span<const std::byte> bytes) {
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(bytes.data()) % kPartAlignment == 0);
  ManifestHead head;
  if (bytes.size() < sizeof head) return damaged("length");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kManifestMagic) return damaged("magic");
  if (head.n_bytes != bytes.size()) return damaged("length");
  // Later formats keep the magic, the version, the length and the checksum of all behind 320 bytes.
  if (head.crc != crc_of(crc, bytes, head)) return damaged("checksum");
  if (head.version > kManifestVersion) {
    return fail({.status = Status::unsupported,
                 .hint = "this session was saved by a newer version of Tarn: take it up with that "
                         "one, or begin a new session",
                 .figures = {{{"version", head.version}, {"version_max", kManifestVersion}}}});
  }
  if (head.version != kManifestVersion) return damaged("version");
  if (const char* fault = counts_fault(head)) return damaged(fault);
  if (sizeof head + body_bytes(head) != bytes.size()) return damaged("length");
  for (const u32 word : head.reserved) {
    if (word != 0) return damaged("reserved");
  }
  PartReader parts(bytes.data() + sizeof head);
  Manifest manifest{.identity = head.identity,
                    .revision = head.revision,
                    .n_slots = head.n_slots,
                    .tail = head.tail,
                    .sampler = head.sampler,
                    .segments = head.segments,
                    .first_approx_slot = head.first_approx_slot,
                    .saved_at_s = head.saved_at_s,
                    .n_fed = head.n_fed};
  manifest.groups = parts.take<store::Key>(head.n_groups);
  manifest.codebooks = parts.take<ManifestCodebook>(head.n_codebooks);
  manifest.token_ids = parts.take<u32>(head.n_tokens);
  manifest.turn_begins = parts.take<u32>(head.n_turns);
  manifest.biases = parts.take<ManifestBias>(head.n_biases);
  const auto name = parts.take<char>(head.name_bytes);
  const auto policy = parts.take<char>(head.policy_bytes);
  manifest.name = {name.data(), name.size()};
  manifest.policy = {policy.data(), policy.size()};
  manifest.index = parts.take<ManifestIndex>(head.n_indexes);
  manifest.answers = parts.take<ManifestAnswer>(head.n_answers);
  if (!parts.padding_is_zero()) return damaged("padding");
  if (const char* fault = manifest_fault(manifest)) return damaged(fault);
  return manifest;
}

}  // namespace tarn::reuse
