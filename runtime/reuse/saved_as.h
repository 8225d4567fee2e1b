// A session as the archive sees it: its name in the store and its parts that are there, and what a
// save writes.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/kv/sequence.h"
#include "runtime/reuse/manifest.h"
#include "runtime/reuse/page_keys.h"

namespace tarn::reuse {

// The kind of end at which an idle session stands.
enum class StoppedAt : u8 { nothing, input, answer };

// The facts of the manifest that a session was restored from. They stand until more is asked of it.
struct Restored {
  bool is_cut_off = false;
  u64 n_drawn = 0;
};

// A session's tenant: the store's key, and the name that goes into manifests.
struct Tenant {
  store::Key key{};
  std::array<char, kManifestNameBytesMax> text{};
  u64 name_bytes = 0;  // more than there is room for: its sessions cannot be kept

  static Tenant of(const store::Secret& secret, std::string_view name) {
    Tenant tenant{.key = store::tenant_key(secret, name), .name_bytes = name.size()};
    std::copy_n(name.begin(), std::min(name.size(), tenant.text.size()), tenant.text.begin());
    return tenant;
  }
  bool fits() const { return name_bytes <= text.size(); }
  std::string_view name() const { return {text.data(), std::min<u64>(name_bytes, text.size())}; }
};

struct SavedAs {
  std::array<char, kManifestNameBytesMax> name_text{};
  u32 name_bytes = 0;                         // 0: it has no name, and is not saved
  Tenant tenant{};                            // whose name it is
  u64 revision = 0;                           // of its last manifest
  u32 n_slots = 0;                            // that a manifest knows of
  StoppedAt stopped_at = StoppedAt::nothing;  // and no manifest with it was begun
  StoppedAt saving_at = StoppedAt::nothing;   // that the one under way has
  u64 refused_ns = 0;                         // when that one failed; 0: it did not
  u64 saved_ns = 0;                           // when a save last began
  PrivateTails tails{};
  std::optional<Restored> restored{};
  std::string_view name() const { return {name_text.data(), name_bytes}; }
  // A generation has ended; without an answer its input was not read.
  void stop(bool has_answer) {
    stopped_at = has_answer ? StoppedAt::answer : StoppedAt::nothing;
    refused_ns = 0;
  }
  // It goes on: what it stood at the end of it stands in the middle of.
  void ask_more() {
    stopped_at = saving_at = StoppedAt::nothing;
    restored.reset();
  }
};

// Spans stay the session's; they are read until the save ends.
struct SessionView {
  static constexpr u32 kNone = ~u32{0};

  SavedAs* saved = nullptr;
  u32 session = 0;
  const kv::Sequence* sequence = nullptr;
  std::span<const u32> ids{};
  store::Key root{};  // of its pages' keys
  bool is_idle = false;
  u32 turn_begin = 0;             // where the last input begins
  u32 first_approx_slot = kNone;  // from there on KV does not follow from the tokens
  u64 n_drawn = 0;                // tokens of the answer that it is in
  // The policy that its choices depend on; without one it makes none.
  std::string_view policy{};
  bool chooses = false;  // now, or has approximate KV
  ManifestIndex index{};
  store::Key index_owner{};  // of the index's records
  std::array<ManifestAnswer, kKeptAnswersMax> answers{};
  u32 n_answers = 0;
  u32 n_fed = 0;
};

}  // namespace tarn::reuse
