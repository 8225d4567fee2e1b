// Goal    decoding by selection over KV that lies partly on disk gives the bits of KV in memory.
//         (Slow and failing disks, caches of any size, cuts and forks: sim/select_random.)
// Method  the same calls on an engine with all KV in memory and on one with frames for a part of
//         the context, over a simulated disk; tokens and logits of sampled rows compared as bytes.
#include <doctest/doctest.h>

#include <array>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/selected_answers.h"
#include "tests/support/sim_disk.h"
#include "tests/support/slow_build.h"

namespace tarn::engine::select_stream_native_test {
namespace {

using namespace test_selected;

void check_counters(const Engine& engine) {
  const DiskTrace& disk = engine.status().counters.disk;
  CHECK(lab::Probe::tiers(engine).mover.stats().n_lost == 0);
  if (engine.status().select == std::string_view("window")) return;  // what it reads is near
  CHECK(disk.n_far_slots > 0);
  CHECK(disk.n_sector_reads > 0);
  CHECK(disk.bytes_of_slots > 0);
  CHECK(disk.bytes_of_slots <= disk.bytes_sectors);  // a page of Quest is a sector
  CHECK((disk.n_cached_slots > 0) == (engine.plan().tiers.cache_slots > 0));
}

TEST_CASE("selection over memory and disk gives the bits of KV in memory") {
  const SmallModel model("llama", "q8_0");
  test::each_method(&test::MethodRow::streams, [&](const char* method) {
    const bool is_window = method == std::string_view("window");
    for (const KvTypeChoice type : {KvTypeChoice::f16, KvTypeChoice::q8_0, KvTypeChoice::q4_0}) {
      CAPTURE(type);
      // Types differ in kernels and in bytes of a slot, methods in what they read of it.
      if (test::kSlowBuild && type == KvTypeChoice::q8_0) continue;
      if (test::kSlowBuild && type == KvTypeChoice::q4_0 && method != std::string_view("pq"))
        continue;
      OpenEngine resident(model.path(), config_of(method, Memory::whole, type));
      const Answer want = answer_of(resident);
      for (const Memory memory : {Memory::little, Memory::some}) {
        if (memory == Memory::some && is_window) continue;
        test::SimDisk disk(1);
        VirtualClock clock;
        test::SimIo io(disk, clock, 64);
        OpenEngine streamed(model.path(), config_of(method, memory, type), &clock, &io);
        REQUIRE(lab::Probe::kv(streamed.engine).has_tiers());
        CHECK((streamed.engine.plan().tiers.cache_slots > 0) == (memory == Memory::some));
        require_same(want, answer_of(streamed));
        check_counters(streamed.engine);
      }
    }
  });
}

}  // namespace
}  // namespace tarn::engine::select_stream_native_test
