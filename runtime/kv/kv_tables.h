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
  std::span<std::byte> pool;      // GroupPool's
  std::span<GroupRef> sequences;  // [sessions_max, Sequence::n_entries()]
  std::span<std::byte> residency, names;
  MoverMemory mover;

  static KvTables carve(Carver& carver, const KvSizes& sizes) {
    const u32 page_tokens = sizes.shape.page_tokens;
    const bool has_frames = sizes.n_frames > 0;
    const auto take = [&](const char* name, bool is_there, auto&& init) {
      Carver counting;
      if (is_there) init(counting);
      return carver.take<std::byte>(name, counting.n_bytes());
    };
    return {
        .pool = take("pool", true,
                     [&](Carver& c) { GroupPool().init(c, sizes.shape, sizes.groups_max); }),
        .sequences = carver.rows<GroupRef>(
            "sequence", sizes.sessions_max,
            Sequence::n_entries(sizes.n_cache_layers, sizes.context_tokens, page_tokens)),
        .residency = take("residency", has_frames,
                          [&](Carver& c) {
                            Residency().init(
                                c, {.n_groups = sizes.groups_max, .n_frames = sizes.n_frames});
                          }),
        .names = take("names", sizes.n_names > 0,
                      [&](Carver& c) { PageNames().init(c, sizes.n_names, page_tokens, nullptr); }),
        .mover = has_frames ? MoverMemory::carve(carver, sizes.shape, sizes.sessions_max,
                                                 sizes.n_cache_layers)
                            : MoverMemory{}};
  }
};

}  // namespace tarn::kv
