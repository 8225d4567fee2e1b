// Goal    every task of a run is run exactly once and its writes are seen, however many workers
// there
//         are and whatever they did before; workers keep off the host's signals; the machine's
//         cores, quotas and caches are read right.
// Method  counters per task over random runs from a printed seed, more workers than CPUs included;
//         made-up /sys trees of other machines.
#include <doctest/doctest.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "platform/cpu/topology_under.h"
#include "platform/cpu/worker_pool.h"
#include "tests/support/forked.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

namespace tarn::cpu_test {
namespace {

TEST_CASE("every task runs exactly once, in runs of every size") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const u32 n_workers : {1u, 2u, 3u, 8u}) {
    CAPTURE(n_workers);
    WorkerPool pool;
    REQUIRE(pool.start({.n_workers = n_workers}).has_value());
    CHECK(pool.n_workers() == n_workers);
    std::vector<u32> n_times(4000);  // plain: run() must make the tasks' writes visible
    std::atomic<u32> worst_worker{0};
    for (u32 round = 0; round < 3000; ++round) {
      // Mostly few tasks, as in decoding; sometimes many, sometimes none.
      const u64 most = round % 16 == 0 ? n_times.size() : 9;
      const u32 n_tasks = static_cast<u32>(random.below(most + 1));
      const u32 work = static_cast<u32>(random.below(40));
      std::fill_n(n_times.begin(), n_tasks, 0);
      pool.run(n_tasks, [&](u32 task_idx, u32 worker_idx) {
        volatile u32 sink = 0;
        for (u32 i = 0; i < work; ++i) sink = sink + i;
        ++n_times[task_idx];
        if (worker_idx > worst_worker) worst_worker = worker_idx;
      });
      for (u32 i = 0; i < n_tasks; ++i) REQUIRE(n_times[i] == 1);
      if (round % 512 == 0) usleep(200);  // let them fall asleep
    }
    CHECK(worst_worker < n_workers);
  }
}

TEST_CASE("many empty tasks, so that workers meet at every claim") {
  for (const u32 n_workers : {2u, 8u}) {
    CAPTURE(n_workers);
    WorkerPool pool;
    REQUIRE(pool.start({.n_workers = n_workers}).has_value());
    constexpr u32 kTasks = 100'000;
    std::vector<std::atomic<u32>> n_times(kTasks);
    for (u32 round = 1; round <= 10; ++round) {
      pool.run(kTasks, [&](u32 task_idx, u32) { n_times[task_idx].fetch_add(1); });
      for (const auto& n : n_times) REQUIRE(n.load() == round);
    }
  }
}

TEST_CASE("workers that sleep wake up, and a pool of sleepers stops") {
  WorkerPool pool;
  REQUIRE(pool.start({.n_workers = 3}).has_value());
  for (u32 round = 0; round < 50; ++round) {
    usleep(500);  // far beyond the time they spin
    // Two tasks that wait for each other can end only if a second worker has come.
    std::atomic<u32> n_here{0};
    pool.run(2, [&](u32, u32) {
      ++n_here;
      while (n_here < 2) sched_yield();
    });
    REQUIRE(n_here == 2);
  }
  usleep(500);
  pool.stop();
  pool.stop();
  CHECK(pool.n_workers() == 0);
  REQUIRE(pool.start({.n_workers = 2}).has_value());  // and again
  u32 total = 0;
  pool.run(1, [&](u32, u32) { ++total; });
  CHECK(total == 1);
}

TEST_CASE("a straggler is waited for, far beyond the time that the caller spins") {
  WorkerPool pool;
  REQUIRE(pool.start({.n_workers = 2}).has_value());
  u32 done[2] = {};
  std::atomic<u32> n_here{0};
  pool.run(2, [&](u32, u32 worker_idx) {
    ++n_here;
    while (n_here < 2) sched_yield();  // one task each
    if (worker_idx == 1) usleep(20'000);
    done[worker_idx] = 1;
  });
  CHECK(done[0] == 1);
  CHECK(done[1] == 1);
}

TEST_CASE("who waits for a straggler looks up meanwhile, and no more when it is done") {
  WorkerPool pool;
  REQUIRE(pool.start({.n_workers = 2}).has_value());
  std::atomic<u32> n_here{0}, n_looks{0};
  auto task = [&](u32, u32 worker_idx) {
    ++n_here;
    while (n_here < 2) sched_yield();  // one task each
    while (worker_idx == 1 && n_looks < 3) usleep(100);
  };
  pool.run(2, {[](void* n) { ++*static_cast<std::atomic<u32>*>(n); }, &n_looks}, task);
  CHECK(n_looks >= 3);
  const u32 n_before = n_looks;
  n_here = 0;
  pool.run(2, task);  // with nothing to do, which the first run's looks have not stayed for
  CHECK(n_looks == n_before);
}

TEST_CASE("workers block every signal, carry the sink and stay where they were pinned") {
  const CpuTopology topology = cpu_topology();
  const FatalSink sink{};
  WorkerPool pool;
  REQUIRE(pool.start({.n_workers = 2,
                      .cpus = std::span(topology.cpus).first(topology.n_cpus),
                      .sink = &sink})
              .has_value());
  std::atomic<u32> n_here{0};
  sigset_t blocked[2];
  cpu_set_t allowed[2];
  pool.run(2, [&](u32, u32 worker_idx) {
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked[worker_idx]);
    sched_getaffinity(0, sizeof allowed[0], &allowed[worker_idx]);
    ++n_here;
    while (n_here < 2) sched_yield();  // one each
  });
  for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGPROF, SIGXFSZ}) {
    CAPTURE(number);
    CHECK(sigismember(&blocked[1], number) == 1);
    CHECK(sigismember(&blocked[0], number) == 0);  // the caller's are the caller's business
  }
  CHECK(CPU_COUNT(&allowed[1]) == 1);
  CHECK(CPU_ISSET(topology.cpus[1 % topology.n_cpus], &allowed[1]));
  CHECK(CPU_COUNT(&allowed[0]) >= static_cast<int>(topology.n_cpus));
}

TEST_CASE("a pool that cannot start says why and leaves no thread behind") {
  WorkerPool pool;
  for (const u32 n_workers : {0u, kWorkersMax + 1}) {
    const auto started = pool.start({.n_workers = n_workers});
    REQUIRE_FALSE(started.has_value());
    CHECK(started.error().status == Status::invalid_config);
  }
  const u32 no_such_cpu[] = {CPU_SETSIZE + 5};
  CHECK_FALSE(pool.start({.n_workers = 2, .cpus = no_such_cpu}).has_value());
  CHECK_FALSE(pool.start({.n_workers = 1, .cpus = no_such_cpu, .pin_caller = true}).has_value());
  const int outcome = test::in_child([] {
    if (getuid() == 0 && setuid(65534) != 0) return 77;
    const rlimit limit = {1, 1};  // this user's threads, of which this one is the first
    setrlimit(RLIMIT_NPROC, &limit);
    WorkerPool limited;
    const auto started = limited.start({.n_workers = 4});
    if (started || std::strstr(started.error().hint, "ulimit -u") == nullptr) return 1;
    return limited.start({.n_workers = 1}) ? 0 : 2;
  });
  if (outcome == 77) TARN_SKIP("root cannot become another user here");
  CHECK(outcome == 0);
}

struct FakeFile {
  std::string path, text;
};
struct FakeMachine {
  std::string name;
  std::vector<FakeFile> files;
  std::vector<u32> allowed;
  std::vector<u32> want_cpus;
  u32 want_cores;
  u64 want_l2, want_l3;
};

std::string cpu_file(u32 cpu, const char* file) {
  return "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + file;
}

TEST_CASE("cores come before their siblings, and quotas and caches are read") {
  std::vector<FakeFile> hyperthreads;  // 2 packages of 2 cores of 2 threads; cpu = thread*4 + core
  for (u32 cpu = 0; cpu < 8; ++cpu) {
    hyperthreads.push_back({cpu_file(cpu, "topology/core_id"), std::to_string(cpu % 2) + "\n"});
    hyperthreads.push_back(
        {cpu_file(cpu, "topology/physical_package_id"), std::to_string(cpu / 2 % 2) + "\n"});
  }
  const auto with = [](std::vector<FakeFile> files, std::vector<FakeFile> more) {
    files.insert(files.end(), more.begin(), more.end());
    return files;
  };
  const FakeMachine machines[] = {
      {"nothing known", {}, {3, 5}, {3, 5}, 2, 0, 0},
      {"hyper-threads", hyperthreads, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}, 4, 0, 0},
      {"neighbours of one core", hyperthreads, {0, 4, 5}, {0, 5, 4}, 2, 0, 0},
      {"a quota of v2",
       with(hyperthreads,
            {{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "250000 100000\n"}}),
       {0, 1, 2, 3, 4},
       {0, 1},
       2,
       0,
       0},
      {"a quota below one CPU, of the parent",
       with(hyperthreads, {{"proc/self/cgroup", "0::/a/b\n"},
                           {"sys/fs/cgroup/a/cpu.max", "50000 100000\n"},
                           {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}}),
       {0, 1, 2},
       {0},
       1,
       0,
       0},
      {"a quota of v1",
       with(hyperthreads, {{"proc/self/cgroup", "3:cpu,cpuacct:/x\n"},
                           {"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000\n"},
                           {"sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"}}),
       {0, 1, 2, 3, 4},
       {0, 1, 2},
       3,
       0,
       0},
      {"v1 without a quota",
       with(hyperthreads, {{"proc/self/cgroup", "3:cpu,cpuacct:/\n"},
                           {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                           {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
       {0, 1},
       {0, 1},
       2,
       0,
       0},
      {"caches",
       {{cpu_file(1, "cache/index0/level"), "1\n"},
        {cpu_file(1, "cache/index0/size"), "48K\n"},
        {cpu_file(1, "cache/index1/level"), "2\n"},
        {cpu_file(1, "cache/index1/size"), "1024K\n"},
        {cpu_file(1, "cache/index2/level"), "3\n"},
        {cpu_file(1, "cache/index2/size"), "32M\n"}},
       {1},
       {1},
       1,
       1024 * kKiB,
       32 * kMiB},
  };
  namespace fs = std::filesystem;
  for (const FakeMachine& machine : machines) {
    CAPTURE(machine.name);
    const fs::path root = fs::temp_directory_path() / ("tarn_cpu_test." + std::to_string(getpid()));
    fs::remove_all(root);
    fs::create_directories(root);
    for (const FakeFile& file : machine.files) {
      fs::create_directories((root / file.path).parent_path());
      std::ofstream(root / file.path) << file.text;
    }
    const CpuTopology got = cpu_topology_under(root.c_str(), machine.allowed);
    CHECK(got.n_cpus == machine.want_cpus.size());
    for (u32 i = 0; i < machine.want_cpus.size(); ++i) CHECK(got.cpus[i] == machine.want_cpus[i]);
    CHECK(got.n_physical_cores == machine.want_cores);
    CHECK(got.l2_bytes == machine.want_l2);
    CHECK(got.l3_bytes == machine.want_l3);
    fs::remove_all(root);
  }
  std::vector<u32> many(100);
  for (u32 i = 0; i < many.size(); ++i) many[i] = i;
  CHECK(cpu_topology_under("/no/such/root", many).n_cpus == 64);  // as many as there is room for
}

TEST_CASE("this machine is described, and agrees with what the compiler's library detects") {
  const CpuTopology topology = cpu_topology();
  CHECK(topology.n_cpus >= 1);
  CHECK(topology.n_physical_cores >= 1);
  CHECK(topology.n_physical_cores <= topology.n_cpus);
  CHECK(topology.model_name[0] != '\0');
#if defined(__x86_64__)
  const CpuFeatures features = cpu_features();
#if defined(__clang__)
  const bool f16c = true;  // clang 14 cannot be asked; CPUs with AVX2 have it
#else
  const bool f16c = __builtin_cpu_supports("f16c");
#endif
  CHECK(features.crc32c == (__builtin_cpu_supports("sse4.2") != 0));
  CHECK(features.avx2 == (__builtin_cpu_supports("avx2") && f16c));
  CHECK(features.avx512 ==
        (features.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni")));
#endif
}

}  // namespace
}  // namespace tarn::cpu_test
