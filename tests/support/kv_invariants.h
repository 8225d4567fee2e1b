// Invariants of KV as its accessors tell them (residency.h, sequence.h).
#pragma once

#include <doctest/doctest.h>

#include <numeric>

#include "runtime/kv/residency.h"
#include "runtime/kv/sequence.h"

namespace tarn::test {

inline const char* where_name(kv::Where where) {
  constexpr const char* kNames[kv::kWheres] = {"free", "reserved", "writing", "memory", "storing",
                                               "both", "disk",     "loading", "lost"};
  return kNames[static_cast<u32>(where)];
}

inline void check_invariants(const kv::Residency& residency) {
  using kv::Where;
  const kv::ResidencyStats& stats = residency.stats();
  const u32 n_groups = std::accumulate(stats.counts.begin(), stats.counts.end(), 0u);
  std::array<u32, kv::kWheres> counts{};
  u32 n_held = 0, n_dirty = 0, n_clean = 0, n_unused = 0;
  for (u32 i = 0; i < n_groups; ++i) {
    const kv::Residency::Entry& entry = residency.entry(i);
    const Where where = entry.where;
    ++counts[static_cast<u32>(where)];
    const bool is_recorded =
        where == Where::both || where == Where::disk || where == Where::loading;
    const bool is_framed = where == Where::writing || where == Where::memory ||
                           where == Where::storing || where == Where::both ||
                           where == Where::loading;
    REQUIRE(is_framed == (entry.frame != kv::Residency::kNone));
    REQUIRE(is_recorded == (entry.record.frame_idx != store::kNoFrame));
    if (entry.pins > 0) REQUIRE((is_framed && where != Where::loading));
    if (entry.is_unused) REQUIRE((is_recorded && is_framed && entry.pins == 0));
    n_held += is_framed;
    n_unused += entry.is_unused;
    n_dirty += where == Where::memory && entry.pins == 0;
    n_clean += where == Where::both && entry.pins == 0;
  }
  REQUIRE(counts == stats.counts);
  REQUIRE(n_unused == stats.n_unused);
  REQUIRE(n_dirty == residency.queue().n_dirty());
  REQUIRE(n_clean == residency.queue().n_clean());
  REQUIRE(n_held + stats.n_lent_frames + residency.n_free_frames() == residency.n_frames());
  residency.queue().check_invariants();
}

inline void check_invariants(const kv::Sequence& sequence, const kv::GroupPool& pool,
                             u32 n_cache_layers) {
  REQUIRE(sequence.n_slots() <= sequence.n_reserved());
  const u32 n_full = sequence.n_slots() / pool.shape().page_tokens;
  for (u32 layer = 0; layer < n_cache_layers; ++layer) {
    for (u32 i = 0; i < sequence.n_groups(); ++i) {
      REQUIRE(pool.is_sealed(sequence.group(layer, i)) == (i < n_full));
      if (i >= n_full) REQUIRE(pool.references(sequence.group(layer, i)) == 1);
    }
  }
}

}  // namespace tarn::test
