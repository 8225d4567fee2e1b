// The tables of the KV cache: of the pool, of every session's sequence, and over a disk of what
// moves groups.
#pragma once

#include "runtime/arena/carver.h"
#include "runtime/kv/mover.h"
#include "runtime/kv/page_names.h"
#include "runtime/kv/residency.h"
#include "runtime/kv/sequence.h"

namespace tarn::kv {

struct KvSizes {
  GroupShape shape{};
  u32 groups_max = 0;
  u32 sessions_max = 0;
  u32 n_cache_layers = 0;
  u32 context_tokens = 0;  // of one session at most
  u32 n_frames = 0;        // of memory; 0: each group has its place for good
  u32 n_names = 0;         // of pages; 0: groups have none, and are of no use to a later opening
};

struct KvTables {
  std::span<std::byte> pool;       // GroupPool's
  std::span<std::byte> sequences;  // [sessions_max, n], Sequence's
  std::span<std::byte> residency, mover, names;

  static KvTables carve(Carver& carver, const KvSizes& sizes) {
    const u32 page_tokens = sizes.shape.page_tokens;
    const auto take = [&](const char* name, bool is_there, u64 n_bytes) {
      return carver.take<std::byte>(name, is_there ? n_bytes : 0);
    };
    return {.pool = take("pool", true, GroupPool::bookkeeping_bytes(sizes.groups_max)),
            .sequences = carver.rows<std::byte>(
                "sequence", sizes.sessions_max,
                align_up(Sequence::bookkeeping_bytes(sizes.n_cache_layers, sizes.context_tokens,
                                                     page_tokens),
                         Carver::kAlignment)),
            .residency = take("residency", sizes.n_frames > 0,
                              Residency::bookkeeping_bytes(sizes.groups_max, sizes.n_frames)),
            .mover = take(
                "mover", sizes.n_frames > 0,
                Mover::bookkeeping_bytes(sizes.shape, sizes.sessions_max, sizes.n_cache_layers)),
            .names = take("names", sizes.n_names > 0,
                          PageNames::bookkeeping_bytes(sizes.n_names, page_tokens))};
  }
};

}  // namespace tarn::kv
