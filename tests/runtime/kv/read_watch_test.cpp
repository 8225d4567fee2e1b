// Goal    what looks at the disk say of its speed are bounds of what it was, and near each other
//         where it is busy for longer than from look to look.
// Method  a table of begins and looks, and a disk of a known rate looked at at random.
#include "runtime/kv/read_watch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>

#include "tests/support/seed.h"

namespace tarn::kv::read_watch_test {
namespace {

TEST_CASE("busy from look to look is a lower bound, until all have ended an upper one") {
  ReadWatch watch;
  ReadTimes times;
  watch.look(5, 0, 0, 0, &times);  // nothing was begun
  watch.begin(100, 0);
  watch.begin(110, 1);
  watch.look(150, 1, 64, 1, &times);  // 50 ns, the second one goes on
  watch.look(170, 0, 0, 1, &times);   // and on
  watch.look(300, 1, 64, 0, &times);  // it ended within 130 ns
  watch.look(900, 0, 0, 0, &times);   // idle time is nobody's
  watch.begin(1000, 0);
  watch.look(1001, 1, 64, 0, &times);
  CHECK(times.n == 3);
  CHECK(times.bytes == 192);
  CHECK(times.least_ns == 70);
  CHECK(times.most_ns == 201);
}

TEST_CASE("a disk of a known rate, looked at at random") {
  constexpr u64 kReadNs = 1000, kBytes = 4096;  // one after another
  constexpr u64 kLookNs = 8000;                 // from look to look, at most
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
    now += random.below(kLookNs);
    u64 n_ended = 0;
    for (; !ends.empty() && ends.front() <= now; ++n_ended) ends.pop_front();
    watch.look(now, n_ended, n_ended * kBytes, static_cast<u32>(ends.size()), &times);
    n_idle += n_ended > 0 && ends.empty();
  }
  REQUIRE(times.n > 10'000);
  // What is under way at the end counts with its time so far.
  const u64 took_ns = times.n * kReadNs, under_way_ns = (ends.size() + 1) * kReadNs;
  CHECK(times.least_ns <= took_ns + under_way_ns);
  CHECK(times.most_ns + under_way_ns >= took_ns);
  CHECK(times.bytes == times.n * kBytes);
  CHECK(times.most_ns - times.least_ns <= n_idle * kLookNs);
}

}  // namespace
}  // namespace tarn::kv::read_watch_test
