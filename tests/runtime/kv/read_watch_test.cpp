// Goal    what looks at the disk say of its speed is right or a bound: never is a disk seen faster
//         or slower than it was by a time that nobody waited.
// Method  a table of begins and looks, and a disk of a known rate looked at at random.
#include "runtime/kv/read_watch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>

#include "tests/support/seed.h"

namespace tarn::kv::read_watch_test {
namespace {

TEST_CASE("busy from look to look counts; what ended unseen is a bound; idle time is nobody's") {
  ReadWatch watch;
  ReadTimes times;
  watch.look(5, 0, 0, 0, &times);  // nothing was begun
  watch.begin(100, 0);
  watch.begin(110, 1);
  watch.look(150, 1, 64, 1, &times);  // 50 ns, the second one goes on
  watch.look(170, 0, 0, 1, &times);   // and on
  watch.look(300, 1, 64, 0, &times);  // it ended within 130 ns
  watch.look(900, 0, 0, 0, &times);
  watch.begin(1000, 0);
  watch.look(1001, 1, 64, 0, &times);
  CHECK(times.busy_ns == 70);
  CHECK(times.bytes_busy == 64);
  CHECK(times.n_busy == 1);
  CHECK(times.bound_ns == 131);
  CHECK(times.bytes_bound == 128);
  CHECK(times.n_bound == 2);
}

TEST_CASE("a disk of a known rate, looked at at random") {
  constexpr u64 kReadNs = 1000, kBytes = 4096;  // one after another
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  ReadWatch watch;
  ReadTimes times;
  std::deque<u64> ends;  // of reads under way
  u64 now = 1, busy_until = 0, n_idle = 0;
  for (u32 i = 0; i < 20'000; ++i) {
    const u64 n_more = random.below(6);
    for (u64 n = 0; n < n_more && ends.size() < 32; ++n) {
      watch.begin(now, static_cast<u32>(ends.size()));
      busy_until = std::max(busy_until, now) + kReadNs;
      ends.push_back(busy_until);
    }
    now += random.below(8000);
    u64 n_ended = 0;
    for (; !ends.empty() && ends.front() <= now; ++n_ended) ends.pop_front();
    watch.look(now, n_ended, n_ended * kBytes, static_cast<u32>(ends.size()), &times);
    n_idle += n_ended > 0 && ends.empty();
  }
  REQUIRE(times.n_busy > 1000);
  REQUIRE(times.n_bound > 1000);
  // The time of a read that is under way at a look counts there, and the read with the next look.
  // So each time that the disk becomes idle, a part of one read stands on the other side.
  CHECK(times.busy_ns >= times.n_busy * kReadNs);
  CHECK(times.busy_ns <= (times.n_busy + n_idle) * kReadNs);
  CHECK(times.bound_ns >= (times.n_bound - n_idle) * kReadNs);
  CHECK(times.bytes_busy == times.n_busy * kBytes);
  CHECK(times.bytes_bound == times.n_bound * kBytes);
}

}  // namespace
}  // namespace tarn::kv::read_watch_test
