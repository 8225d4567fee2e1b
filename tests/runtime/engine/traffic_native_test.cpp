// Goal    bytes over the link to the disk in a step of one row are (k - hits) slots a head, in
//         whole sectors, and a head sector for each group that is read: no copy of the middle, no
//         codes (they lie in memory), nothing for what the cache takes in. What leaves memory goes
//         the other way and is counted apart (METHODS 14.2, Traffic).
// Method  a simulated disk that counts what passes. By a method whose choice is a function of the
//         slot, where the test works out every sector; then by codes, with caches and extents,
//         where the selector counts hits, the mover and the extents bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "platform/base/random_at.h"
#include "runtime/lab/methods.h"
#include "runtime/lab/probe.h"
#include "tests/runtime/engine/selected_answers.h"
#include "tests/support/sim_disk.h"

namespace tarn::engine::traffic_native_test {
namespace {

using namespace test_selected;

constexpr u32 kLayers = 2, kKvHeads = 2, kLongPrompt = 1700, kSteps = 60;
constexpr u32 kSinks = 20, kLocal = 70, kChosen = 48;  // of config_of()
constexpr u64 kSlotBytes = 256, kSector = 4096;
static_assert(kPage * kSlotBytes == kSector);  // a head's page of a group

// Sinks and local windows stay in memory, the middle's 200 groups do not. Further groups are for a
// cache and extents.
Config config_with(SelectMethod method, u64 cache_groups, bool has_extents) {
  Config config = config_of(method, Memory::little);
  config.kv_memory_bytes = (104 + cache_groups) * kGroupBytes;
  config.select.disk_reorder = has_extents;
  return config;
}

struct World {
  World(const SmallModel& model, const Config& config)
      : io(disk, clock, 64), open(model.path(), config, &clock, &io) {
    opening_bytes = disk.bytes_written();
    opening_bytes_read = disk.bytes_read();
    session = open.session_with(test::random_ids(1, kLongPrompt));
    const GenerateParams params{.max_tokens = kSteps + config.select.index_delay_tokens,
                                .ignore_end = true};
    REQUIRE(open.engine.sessions().generate(session, params).has_value());
  }
  // Groups of the session that no frame has, layer by layer.
  std::vector<bool> away() const {
    const kv::Sequence& sequence = open.engine.sessions().state(session).sequence;
    const kv::Residency& residency = lab::Probe::tiers(open.engine).residency;
    std::vector<bool> away;
    for (u32 layer = 0; layer < kLayers; ++layer) {
      for (u32 group = 0; group < sequence.n_groups(); ++group) {
        away.push_back(residency.where(sequence.group(layer, group).idx) == kv::Where::disk);
      }
    }
    return away;
  }
  // A step of one row that selects, and what passed in it; false: there are no more.
  bool step() {
    const Engine& engine = open.engine;
    for (;;) {
      if (!open.engine.has_work()) return false;
      const std::vector<bool> was_away = away();
      const u64 read = disk.bytes_read();
      const u64 loads = lab::Probe::tiers(engine).mover.stats().n_loads;
      trace = open.engine.step();
      if (trace.n_slots_chosen == 0) continue;
      bytes_read = disk.bytes_read() - read;
      n_loads = lab::Probe::tiers(engine).mover.stats().n_loads - loads;
      n_tokens = engine.sessions().state(session).sequence.n_slots();
      is_steady = away() == was_away;
      return true;
    }
  }
  // All that passed since then, prompt, clustering and extents too, was told step by step.
  void check_counters() {
    while (lab::Probe::kv(open.engine).is_moving()) open.engine.step();
    const DiskTrace& sum = open.engine.status().counters.disk;
    CHECK(sum.bytes_read == disk.bytes_read() - opening_bytes_read);
    CHECK(sum.bytes_written == disk.bytes_written() - opening_bytes);
    CHECK(sum.bytes_read > 0);
    CHECK(sum.bytes_written > 0);
  }

  test::SimDisk disk{1};
  VirtualClock clock;
  test::SimIo io;
  OpenEngine open;
  SessionIdx session = 0;
  StepTrace trace;
  u64 opening_bytes = 0;  // of the store's file
  u64 opening_bytes_read = 0;
  u64 bytes_read = 0;  // over the link
  u64 n_loads = 0;     // of groups, or parts of them
  u32 n_tokens = 0;
  bool is_steady = false;  // no frame changed hands
};

// What one head draws of a middle: the k best by the slot's hash, the lowest of equal ones.
std::set<u32> drawn(u32 head, const method::TokenRanges& s) {
  const u64 seed = random_at(lab::kRandomSeed, head);
  std::vector<std::pair<u64, u32>> ranked;
  for (u32 slot = s.middle_begin; slot < s.middle_end; ++slot) {
    ranked.push_back({~(random_at(seed, slot) >> 40), slot});
  }
  std::sort(ranked.begin(), ranked.end());
  std::set<u32> slots;
  for (u32 i = 0; i < kChosen; ++i) slots.insert(ranked[i].second);
  return slots;
}

// Of groups that lie in the middle as a whole.
struct Wanted {
  u64 n_slots = 0;
  u64 n_slots_away = 0, n_pages_away = 0, n_groups_away = 0;
};

Wanted wanted_of(u32 n_tokens, const std::vector<bool>& away) {
  const method::TokenRanges s = method::token_ranges(n_tokens, kSinks, kLocal);
  Wanted sum;
  for (u32 layer = 0; layer < kLayers; ++layer) {
    std::set<u32> groups, pages;
    for (u32 head = 0; head < kKvHeads; ++head) {
      for (const u32 slot : drawn(layer * kKvHeads + head, s)) {
        const u32 group = slot / kPage;
        const bool is_far = group * kPage >= s.middle_begin && (group + 1) * kPage <= s.middle_end;
        if (!is_far) continue;
        ++sum.n_slots;
        if (!away[layer * (away.size() / kLayers) + group]) continue;
        ++sum.n_slots_away;
        groups.insert(group);
        pages.insert(group * kKvHeads + head);
      }
    }
    sum.n_groups_away += groups.size();
    sum.n_pages_away += pages.size();
  }
  return sum;
}

TEST_CASE("a step reads the sectors of what is chosen and a head for each group, nothing else") {
  const SmallModel model("llama", "q8_0");
  Config config = config_with(SelectMethod::window, 0, false);
  config.select.lab_method = lab::method_named("random");
  World world(model, config);
  REQUIRE(world.open.engine.plan().tiers.cache_slots == 0);
  u32 n_steady = 0;
  while (world.step()) {
    CAPTURE(world.n_tokens);
    const DiskTrace& disk = world.trace.disk;
    const Wanted wanted = wanted_of(world.n_tokens, world.away());
    CHECK(world.trace.n_slots_chosen == u64{kLayers} * kKvHeads * (kSinks + kLocal + kChosen));
    CHECK(disk.n_far_slots == wanted.n_slots);
    CHECK(disk.n_cached_slots == 0);
    CHECK(disk.bytes_of_slots + disk.bytes_here == disk.n_far_slots * kSlotBytes);
    if (!world.is_steady || world.n_loads != disk.n_sector_reads) continue;
    ++n_steady;
    CHECK(disk.bytes_of_slots == wanted.n_slots_away * kSlotBytes);
    CHECK(disk.bytes_sectors == wanted.n_pages_away * kSector);
    CHECK(disk.n_sector_reads == wanted.n_groups_away);
    CHECK(disk.bytes_read == world.bytes_read);
    CHECK(world.bytes_read == (wanted.n_pages_away + wanted.n_groups_away) * kSector);
    CHECK(wanted.n_groups_away > 50);
  }
  CHECK(n_steady >= kSteps / 3);
  // The other way, since the store was opened: each group once, and its head.
  const Engine& engine = world.open.engine;
  while (lab::Probe::kv(engine).is_moving()) world.open.engine.step();
  const kv::MoverStats& stats = lab::Probe::tiers(engine).mover.stats();
  CHECK(stats.bytes_spilled == stats.n_spills * kGroupBytes);
  CHECK(world.disk.bytes_written() - world.opening_bytes ==
        stats.n_spills * (kGroupBytes + kSector));
  world.check_counters();
}

TEST_CASE("what a cache has does not pass, and what it takes in passes once") {
  const SmallModel model("llama", "q8_0");
  for (const bool has_extents : {false, true}) {
    CAPTURE(has_extents);
    World world(model, config_with(SelectMethod::pq, has_extents ? 146 : 60, has_extents));
    REQUIRE(world.open.engine.plan().tiers.cache_slots > 0);
    REQUIRE(world.open.engine.plan().tiers.extents.is_on() == has_extents);
    u64 n_far = 0, n_cached = 0, n_bytes = 0;
    u32 n_plain = 0;  // steps that load no group as a whole
    while (world.step()) {
      CAPTURE(world.n_tokens);
      const DiskTrace& disk = world.trace.disk;
      const u64 n_hits = disk.n_cached_slots;
      CHECK(disk.bytes_of_slots + disk.bytes_here == (disk.n_far_slots - n_hits) * kSlotBytes);
      CHECK(disk.bytes_read >= disk.bytes_sectors + disk.n_sector_reads * kSector);
      if (world.n_loads != disk.n_sector_reads) continue;
      ++n_plain;
      CHECK(world.bytes_read == disk.bytes_read);
      CHECK(world.bytes_read == disk.bytes_sectors + disk.n_sector_reads * kSector);
      n_far += disk.n_far_slots, n_cached += n_hits, n_bytes += world.bytes_read;
    }
    MESSAGE("a step of " << n_far / n_plain << " slots: " << n_cached / n_plain << " in the cache, "
                         << n_bytes / n_plain << " bytes over the link");
    world.check_counters();
    CHECK(n_plain >= kSteps / 2);
    CHECK(n_cached > n_far / 10);
    const u64 middle_bytes = u64{kLayers} * (kLongPrompt - kSinks - kLocal) / kPage * kGroupBytes;
    CHECK(n_bytes / n_plain < middle_bytes / (has_extents ? 16 : 2));
  }
}

}  // namespace
}  // namespace tarn::engine::traffic_native_test
