// One sequence and its mover over a store on a simulated disk, in virtual time.
#pragma once

#include "runtime/kv/extents.h"
#include "runtime/kv/mover.h"
#include "tests/support/carved.h"
#include "tests/support/kv_invariants.h"
#include "tests/support/store_harness.h"

namespace tarn::test {

inline constexpr u32 kLayers = 4;
inline constexpr u32 kGroups = 32;  // a layer
inline constexpr kv::GroupShape kShape{.n_kv_heads = 1, .page_tokens = 4, .vector_bytes = 512};
inline constexpr u64 kRecordBytes = 2 * kSectorBytes;

struct MoverWorld {
  explicit MoverWorld(u32 n_frames, store::StoreLimits limits = {})
      : region(n_frames * kShape.group_bytes()),
        disk(1),
        io(disk, clock, 32),
        bench(io, clock, "store", with_sizes(limits)) {
    bench.open();
    constexpr u32 kGroupsMax = kLayers * (kGroups + 1);
    sequence_table.resize(kv::Sequence::n_entries(kLayers, (kGroups + 1) * 4, kShape.page_tokens));
    tables = carved([&](Carver& carver) {
      residency.init(carver, {kShape, kGroupsMax, n_frames, region.span(), &bench.store});
      pool.init(carver, kShape, kGroupsMax);
      pages.init(carver, {.n_pages = kGroupsMax / kLayers,
                          .n_cache_layers = kLayers,
                          .page_tokens = kShape.page_tokens,
                          .pool = &pool,
                          .secret = &bench.store.secret()});
      mover_memory = kv::MoverMemory::carve(carver, kShape, 1, kLayers);
    });
    pool.lie_in(&residency);
    pool.belong_to(&pages);
    mover.init({.residency = &residency,
                .store = &bench.store,
                .clock = &clock,
                .n_cache_layers = kLayers,
                .pin_set_groups = 4,
                .loads_max = 8,
                .spills_max = 8,
                .nonce = 1,
                .pages = &pages,
                .on_other = &MoverWorld::on_other,
                .other_context = this},
               mover_memory);
    sequence.init(&pool, kLayers, (kGroups + 1) * 4, sequence_table);
  }
  ~MoverWorld() {
    sequence.clear();
    mover.stop();
    while (!mover.idle() || !bench.store.idle()) mover.pump(1'000'000'000);
    bench.close();
  }
  static store::StoreLimits with_sizes(store::StoreLimits limits) {
    if (limits.file_bytes == 0) limits.file_bytes = store::kFramesBegin + 256 * kRecordBytes;
    limits.frame_bytes = kRecordBytes;
    limits.ops_max = std::min(limits.ops_max, 32u);
    return limits;
  }

  Result<void> append(u32 n) {
    REQUIRE(sequence.reserve(n));
    const Result<void> writable = mover.make_writable(sequence, n);
    if (writable) {
      sequence.commit(n);
    } else {
      sequence.abandon();
    }
    return writable;
  }
  void plan(const kv::Visit& visit) {
    mover.uses().begin();
    mover.uses().add(visit);
    mover.uses().end();
  }
  static void on_other(void* context, const store::Event& event) {
    kv::Extents* extents = static_cast<MoverWorld*>(context)->extents;
    if (extents != nullptr && event.tag >= kv::kExtentTag) extents->on_event(event);
  }
  // Waits until that many records are published, whose puts no event has told of.
  void publish(u64 n) {
    for (u32 i = 0; bench.store.stats().n_published < n; ++i) {
      REQUIRE(i < 10'000);
      bench.store.poll({}, 1'000'000);
    }
  }
  // Attention of one step, `compute_ns` a pin set.
  void attend(u64 compute_ns) {
    const kv::Visit visit{&sequence, sequence.n_groups()};
    plan(visit);
    for (u32 layer = 0; layer < kLayers; ++layer) {
      for (u32 begin = 0; begin < visit.n_groups;) {
        const Result<u32> n = mover.pin(sequence, layer, begin, visit.n_groups);
        REQUIRE(n.has_value());
        clock.advance_ns(compute_ns);
        mover.unpin(sequence, layer, begin, begin + *n);
        begin += *n;
      }
    }
    check_invariants(residency);
  }

  SectorBuffer region;
  SimDisk disk;
  VirtualClock clock;
  SimIo io;
  StoreHarness bench;
  std::vector<kv::GroupRef> sequence_table;
  std::vector<std::byte> tables;
  kv::MoverMemory mover_memory;
  kv::Residency residency;
  kv::PrefixIndex pages;
  kv::GroupPool pool;
  kv::Mover mover;
  kv::Sequence sequence;
  kv::Extents* extents = nullptr;  // of a world that has some
};

}  // namespace tarn::test
