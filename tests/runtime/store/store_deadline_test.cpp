// Goal    a disk that does not answer turns the store off after io_deadline_ns; a process that was
//         stopped for longer, with requests on their way, goes on as if nothing had been.
// Method  the simulated disk with requests that do not end until they are let go, and time that
//         passes behind the back of who waits for them.
#include <doctest/doctest.h>

#include "runtime/store/store.h"
#include "tests/runtime/store/store_box.h"

namespace tarn::store::store_deadline_test {
namespace {

using test::record_of;
using test::SimFault;
using test::StoreHarness;
using Got = StoreHarness::Got;

constexpr u64 kSecondNs = 1'000'000'000;
constexpr u64 kFrozenNs = 100 * kSecondNs;
constexpr u64 kLookNs = 10'000'000;

// A disk that keeps all requests while the process is stopped again and again inside of the wait
// for it, as by SIGSTOP, and has them all at once when that is over.
class FreezingIo final : public IoBackend {
 public:
  FreezingIo(test::SimDisk& disk, VirtualClock& clock)
      : disk_(disk), clock_(clock), inner_(disk, clock) {}

  void freeze(u32 n_times) {
    n_left_ = n_times;
    disk_.script.faults = {
        {.fault = SimFault::never, .first_call = disk_.n_calls(), .n_calls = ~u64{0}}};
  }
  u32 n_left() const { return n_left_; }
  void thaw() {
    disk_.script.faults.clear();
    inner_.let_stuck_go();
  }

  const char* name() const override { return inner_.name(); }
  u32 in_flight_max() const override { return inner_.in_flight_max(); }
  Result<IoFile> open(const IoOpenArgs& args) override { return inner_.open(args); }
  bool is_direct(IoFile file) const override { return inner_.is_direct(file); }
  Result<u64> size_bytes(IoFile file) override { return inner_.size_bytes(file); }
  Result<void> allocate(IoFile file, u64 bytes) override { return inner_.allocate(file, bytes); }
  void close(IoFile file) override { inner_.close(file); }
  bool register_buffers(std::span<const std::span<std::byte>> buffers) override {
    return inner_.register_buffers(buffers);
  }
  bool submit(const IoRequest& request) override { return inner_.submit(request); }
  u32 reap(std::span<IoCompletion> completions, u32 n_min, u64 timeout_ns) override {
    const u32 n = inner_.reap(completions, n_min, timeout_ns);
    if (n_left_ == 0) return n;
    clock_.advance_ns(kFrozenNs);
    if (--n_left_ == 0) thaw();
    return n;
  }

 private:
  test::SimDisk& disk_;
  VirtualClock& clock_;
  test::SimIo inner_;
  u32 n_left_ = 0;
};

TEST_CASE("a process that was stopped for longer than the deadline goes on with its store") {
  constexpr u64 kTag = 1000;
  struct Case {
    const char* name;
    Begun (*begin)(StoreHarness&);
  };
  const Case cases[] = {
      {"a put", [](StoreHarness& bench) { return bench.begin_put(record_of(9), kTag); }},
      {"a sync", [](StoreHarness& bench) { return bench.store.flush(kTag); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    test::SimDisk disk(1);
    VirtualClock clock;
    FreezingIo io(disk, clock);
    StoreHarness bench(io, clock, "store", test::box_limits(8));
    io.freeze(5);  // while it opens
    REQUIRE(bench.open() == Mode::on);
    REQUIRE(io.n_left() == 0);
    REQUIRE(bench.put(record_of(1)));
    io.freeze(10);
    REQUIRE(c.begin(bench) == Begun::begun);
    CHECK(bench.wait_for(kTag).outcome == Outcome::ok);
    CHECK(io.n_left() == 0);
    CHECK(bench.store.mode() == Mode::on);
    CHECK(bench.get(record_of(1)) == Got::right);
    bench.close();
  }
}

TEST_CASE("whoever looks seldom gives a request up too, and one who waits does at its deadline") {
  struct Case {
    const char* name;
    u64 away_ns, timeout_ns;  // between two polls, and in each
    u64 off_after_ns_min, off_after_ns_max;
  };
  const u64 deadline_ns = StoreLimits{}.io_deadline_ns;
  const Case cases[] = {
      {"looks all the time", 0, kLookNs, deadline_ns, deadline_ns + kSecondNs},
      {"waits", 0, 300 * kSecondNs, deadline_ns, deadline_ns + kSecondNs},
      {"looks each half second", kSecondNs / 2, 0, deadline_ns, deadline_ns + kSecondNs},
      {"looks each minute", 60 * kSecondNs, 0, 30 * 60 * kSecondNs, 31 * 60 * kSecondNs},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    test::SimDisk disk(1);
    VirtualClock clock;
    FreezingIo io(disk, clock);
    StoreHarness bench(io, clock, "store", test::box_limits(8));
    REQUIRE(bench.open() == Mode::on);
    io.freeze(0);
    REQUIRE(bench.begin_put(record_of(1), 2) == Begun::begun);
    const u64 begin_ns = clock.now_ns();
    for (u32 i = 0; bench.store.mode() == Mode::on; ++i) {
      REQUIRE(i < 10'000);
      clock.advance_ns(c.away_ns);
      bench.poll(c.timeout_ns);
    }
    CHECK(clock.now_ns() - begin_ns >= c.off_after_ns_min);
    CHECK(clock.now_ns() - begin_ns <= c.off_after_ns_max);
    CHECK(bench.wait_for(2).outcome == Outcome::stalled);
    io.thaw();
    bench.close();
  }
}

}  // namespace
}  // namespace tarn::store::store_deadline_test
