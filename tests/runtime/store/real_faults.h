// One scenario of the store over a real file, by ring and by threads, with each of its calls failed
// in turn in every way that a call can end at once (ROBUSTNESS R8; late and missing ends are the
// simulated disk's: tests/sim/store_faults.h). The fast slice takes every `stride`-th.
#pragma once

#include <doctest/doctest.h>

#include <cerrno>
#include <map>

#include "platform/clock/clock.h"
#include "tests/support/failing_io.h"
#include "tests/support/store_harness.h"

namespace tarn::store::test_faults {

using test::FailingIo;
using test::record_of;
using test::StoreHarness;
using Got = StoreHarness::Got;

inline constexpr u64 kFrameBytes = 16 * kKiB;
// Room for all that is put: nothing is evicted, so what was flushed stays.
inline constexpr StoreLimits kLimits{.file_bytes = kFramesBegin + 24 * kFrameBytes,
                                     .frame_bytes = kFrameBytes,
                                     .ops_max = 8,
                                     .lock_wait_ns = 100'000'000};
inline constexpr int kShort = 0, kNothing = -1;
inline constexpr int kErrors[] = {EIO,   ENOSPC, EDQUOT,    EINTR,  EAGAIN,  ENOMEM,
                                  EROFS, EBADF,  ECANCELED, kShort, kNothing};

// The versions that a flush has kept, by record.
using Kept = std::map<u64, u64>;

// Opens, puts, replaces, reads and flushes, whatever fails of it.
inline Kept run_scenario(IoBackend& io, const char* path) {
  SystemClock clock;
  StoreHarness bench(io, clock, path, kLimits);
  Kept kept, put;
  if (bench.open() == Mode::on) {
    const u64 versions[][2] = {{1, 0}, {2, 0}, {0, 0}, {1, 1}, {3, 0}, {0, 0}, {2, 1}};
    for (const auto& [id, version] : versions) {
      if (id == 0) {
        if (bench.flush()) kept = put;
        continue;
      }
      const auto record = record_of(id, {.version = version});
      if (bench.put(record, PutArgs::If::replace)) {
        put[id] = version;
        CHECK(bench.get(record) != Got::wrong);
      }
    }
  }
  bench.check();
  bench.close();
  return kept;
}

// The disk is well again: a start has of each record the bytes of a version, and nothing older than
// what was flushed.
inline void check_after(IoBackend& io, const char* path, const Kept& kept) {
  SystemClock clock;
  StoreHarness bench(io, clock, path, kLimits);
  REQUIRE(bench.open() == Mode::on);
  for (u64 id = 1; id <= 3; ++id) {
    const auto at_least = kept.find(id);
    bool is_right = false;
    for (u64 version = at_least == kept.end() ? 0 : at_least->second; version < 2; ++version) {
      is_right = is_right || bench.get(record_of(id, {.version = version})) == Got::right;
    }
    CHECK((is_right || at_least == kept.end()));
    const bool is_there = bench.store.find(test::key_of(id)).has_value();
    CHECK((is_right || !is_there));
  }
  CHECK(bench.put(record_of(9)));
  bench.check();
  bench.close();
}

// Runs that were made.
inline u64 try_failing_calls_for_real(u64 stride) {
  u64 n_runs = 0, n_failed = 0;
  for (const IoKind kind : test::io_kinds_here()) {
    CAPTURE(static_cast<u32>(kind));
    u64 n_calls = 0;
    {
      const test::ScratchFile file("real_faults");
      test::OwnedIo real({.kind = kind});
      FailingIo io(*real);
      CHECK(run_scenario(io, file.path()).size() == 3);
      n_calls = io.n_calls();
      check_after(*real, file.path(), {{1, 1}, {2, 0}, {3, 0}});
    }
    const u64 n_all = n_calls * std::size(kErrors) * 2;
    for (u64 i = test::seed_from_environment() % stride; i < n_all; i += stride) {
      const FailingIo::Script script{.call = i / 2 / std::size(kErrors),
                                     .error = kErrors[i / 2 % std::size(kErrors)],
                                     .for_ever = i % 2 == 1};
      CAPTURE(script.call);
      CAPTURE(script.error);
      CAPTURE(script.for_ever);
      const test::ScratchFile file("real_faults");
      test::OwnedIo real({.kind = kind});
      FailingIo io(*real);
      io.set(script);
      const Kept kept = run_scenario(io, file.path());
      n_failed += io.n_failed() > 0;
      check_after(*real, file.path(), kept);
      ++n_runs;
    }
  }
  CHECK(n_failed == n_runs);
  MESSAGE(n_runs << " runs");
  return n_runs;
}

}  // namespace tarn::store::test_faults
