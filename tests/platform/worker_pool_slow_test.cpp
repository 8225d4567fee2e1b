// Goal    a run is cheap enough to be called 300 times a token, and a busy neighbour on one of the
//         CPUs costs about its share of them, not a multiple (a spin barrier lost 8x there).
// Method  loops of 300 runs of tasks of about 20 us, alone and beside a process that never sleeps,
//         in turns; medians and spread are printed. The limits are loose: the machine is shared.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "platform/clock/clock.h"
#include "platform/cpu/topology.h"
#include "platform/cpu/worker_pool.h"
#include "tests/support/skip.h"

namespace tarn::worker_pool_slow_test {
namespace {

constexpr u32 kRuns = 300;  // of a token
constexpr u32 kTasks = 4;   // of a run

void spin_for(u64 n_rounds) {
  volatile u64 sum = 0;
  for (u64 i = 0; i < n_rounds; ++i) sum = sum + i;
}

// Rounds of spin_for() that take about 20 us here.
u64 calibrate() {
  SystemClock clock;
  u64 best_ns = ~u64{0};
  for (u32 i = 0; i < 20; ++i) {
    const u64 begin_ns = clock.now_ns();
    spin_for(100'000);
    best_ns = std::min(best_ns, clock.now_ns() - begin_ns);
  }
  return 20'000 * 100'000 / best_ns;
}

u64 one_token_ns(WorkerPool& pool, u64 n_rounds) {
  SystemClock clock;
  const u64 begin_ns = clock.now_ns();
  for (u32 i = 0; i < kRuns; ++i) pool.run(kTasks, [&](u32, u32) { spin_for(n_rounds); });
  return clock.now_ns() - begin_ns;
}

u64 median(std::vector<u64> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

TEST_CASE("an empty run costs less than 3 us") {
  if (cpu_topology().n_cpus < 2) TARN_SKIP("one CPU");
  WorkerPool pool;
  REQUIRE(pool.start({.n_workers = 2}).has_value());
  SystemClock clock;
  std::vector<u64> run_ns;
  for (u32 loop = 0; loop < 200; ++loop) {
    const u64 begin_ns = clock.now_ns();
    for (u32 i = 0; i < kRuns; ++i) pool.run(2, [](u32, u32) {});
    run_ns.push_back((clock.now_ns() - begin_ns) / kRuns);
  }
  std::printf("empty run: median %llu ns\n", static_cast<unsigned long long>(median(run_ns)));
  CHECK(median(run_ns) < 3000);
}

TEST_CASE("a busy neighbour costs its share") {
  if (cpu_topology().n_cpus != 2) TARN_SKIP("made for two CPUs");
  const u64 n_rounds = calibrate();
  WorkerPool pool;
  REQUIRE(pool.start({.n_workers = 2}).has_value());
  std::vector<u64> alone_ns, beside_ns;
  for (u32 turn = 0; turn < 10; ++turn) {
    for (u32 i = 0; i < 20; ++i) alone_ns.push_back(one_token_ns(pool, n_rounds));
    const pid_t neighbour = fork();
    if (neighbour == 0) {
      for (;;) spin_for(1'000'000);
    }
    usleep(20'000);
    for (u32 i = 0; i < 20; ++i) beside_ns.push_back(one_token_ns(pool, n_rounds));
    kill(neighbour, SIGKILL);
    waitpid(neighbour, nullptr, 0);
  }
  const f64 ratio = static_cast<f64>(median(beside_ns)) / static_cast<f64>(median(alone_ns));
  std::printf(
      "300 runs of %u tasks: alone median %.2f ms max %.2f ms; beside a busy process "
      "median %.2f ms max %.2f ms; ratio %.2f\n",
      kTasks, static_cast<f64>(median(alone_ns)) / 1e6,
      static_cast<f64>(*std::max_element(alone_ns.begin(), alone_ns.end())) / 1e6,
      static_cast<f64>(median(beside_ns)) / 1e6,
      static_cast<f64>(*std::max_element(beside_ns.begin(), beside_ns.end())) / 1e6, ratio);
  CHECK(ratio < 4.0);
}

}  // namespace
}  // namespace tarn::worker_pool_slow_test
