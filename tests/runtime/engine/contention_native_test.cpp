// Goal    answers by selection are the same, to the bit, while twice as many busy threads as CPUs
//         run beside the engine: nothing that it clusters, chooses or waits for goes by how long
//         something takes, or by which worker comes first.
// Method  a conversation with KV in memory, one worker, nothing beside; then beside threads that
//         never sleep, with one worker and two, with KV in memory and in part in a real file.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "platform/cpu/topology.h"
#include "runtime/lab/probe.h"
#include "tests/runtime/engine/selected_answers.h"
#include "tests/support/slow_build.h"
#include "tests/support/temp_dir.h"

namespace tarn::engine::contention_native_test {
namespace {

using namespace test_selected;

// All of them run from the first line of this object's life to the last.
class BusyThreads {
 public:
  explicit BusyThreads(u32 n) {
    for (u32 i = 0; i < n; ++i) threads_.emplace_back([this] { spin(); });
    while (n_running_.load() < n) std::this_thread::yield();
  }
  ~BusyThreads() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BusyThreads(const BusyThreads&) = delete;
  BusyThreads& operator=(const BusyThreads&) = delete;

 private:
  void spin() {
    ++n_running_;
    while (!is_over_.load(std::memory_order_relaxed)) {
    }
  }
  std::atomic<u32> n_running_ = 0;
  std::atomic<bool> is_over_ = false;
  std::vector<std::thread> threads_;
};

Config config_with(Memory memory, u32 n_threads, const char* folder) {
  Config config = config_of(SelectMethod::pq, memory);
  config.n_threads = n_threads;
  if (memory != Memory::whole) test::set_text(config.store.path, folder);
  return config;
}

TEST_CASE("twice as many busy threads as CPUs change no bit of an answer by selection") {
  const SmallModel model("llama", "q8_0");
  OpenEngine alone(model.path(), config_with(Memory::whole, 1, ""));
  const Answer want = answer_of(alone);
  const BusyThreads busy(2 * cpu_topology().n_cpus);
  for (const Memory memory : {Memory::whole, Memory::some}) {
    for (const u32 n_threads : {1u, 2u}) {
      if (test::kSlowBuild && (n_threads == 1 || memory == Memory::whole)) continue;
      CAPTURE(memory);
      CAPTURE(n_threads);
      const test::TempDir folder("contention_test");
      OpenEngine open(model.path(), config_with(memory, n_threads, folder.path().c_str()));
      require_same(want, answer_of(open));
      if (memory == Memory::whole) continue;
      CHECK(open.engine.status().counters.disk.n_sector_reads > 0);
      CHECK(lab::Probe::tiers(open.engine).mover.stats().n_lost == 0);
    }
  }
}

}  // namespace
}  // namespace tarn::engine::contention_native_test
