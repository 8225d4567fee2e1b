// runtime/plan/kv_tables.h
//
// The region kv_tables: bookkeeping of the pool, of every session's sequence, and with a store of
// what moves groups.
#pragma once

#include "runtime/kv/sequence.h"
#include "runtime/plan/plan.h"

namespace tarn::plan {

struct KvTables {
  u64 sequence_bytes = 0;          // from one session's to the next
  std::span<std::byte> pool;       // kv::GroupPool's
  std::span<std::byte> sequences;  // [sessions_max, sequence_bytes], kv::Sequence's
  std::span<std::byte> tiers;      // kv::Residency's, kv::Mover's and others

  static KvTables carve(Carver& carver, const model::ModelSpec& spec, const Plan& plan) {
    const u64 sequence_bytes =
        align_up(kv::Sequence::bookkeeping_bytes(spec.n_cache_layers, plan.context_tokens,
                                                 plan.group_shape.page_tokens),
                 Carver::kAlignment);
    return {
        .sequence_bytes = sequence_bytes,
        .pool = carver.take<std::byte>("pool", kv::GroupPool::bookkeeping_bytes(plan.groups_max)),
        .sequences = carver.rows<std::byte>("sequence", plan.sessions_max, sequence_bytes),
        .tiers = carver.take<std::byte>("tiers", plan.tiers.tables_bytes)};
  }
};

}  // namespace tarn::plan
