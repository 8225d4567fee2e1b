#include "tests/sim/store_faults.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "tests/sim/store_world.h"

namespace tarn::test {
namespace {

using store::Mode;
using Got = StoreHarness::Got;

constexpr u32 kFrames = 14;

// The records that the scenario has begun, and those that were flushed and not given up since.
struct Ledger {
  std::map<u64, u64> begun;    // id -> youngest version
  std::map<u64, u64> flushed;  // id -> version that must be there, or a younger one
};

// Puts, evicts and replaces one after the other, flushing now and then; goes on where a call fails.
void run_scenario(SimBox& box, Ledger& ledger) {
  StoreHarness& bench = *box.bench;
  u64 tag = 1;
  const auto finish = [&](store::Begun begun, u64 of_tag) {
    if (begun != store::Begun::begun) return false;
    for (u64 i = 0; i < 10'000; ++i) {
      bench.poll(5'000'000);
      for (const store::Event& event : bench.events) {
        if (event.tag != of_tag || event.outcome == store::Outcome::returned) continue;
        const bool ok = event.outcome == store::Outcome::ok;
        bench.events.clear();
        return ok;
      }
    }
    FAIL("an operation never ended");
    return false;
  };
  std::map<u64, u64> published;
  for (const u64 id : {1u, 2u, 3u, 100u, 0u, 4u, 5u, 100u, 0u, 8u, 9u, 100u, 0u}) {
    if (id == 0) {
      ++tag;
      if (finish(bench.store.flush(tag), tag)) ledger.flushed = published;
      continue;
    }
    const u64 version = id >= 100 ? ledger.begun[id] + 1 : 0;
    ledger.begun[id] = version;
    ++tag;
    const auto known = id >= 100 ? store::PutArgs::If::replace : store::PutArgs::If::absent;
    const bool is_put = finish(bench.begin_put(world_record(id, version), tag, known), tag);
    if (is_put) published[id] = version;
    if (!is_put && id >= 100) continue;  // an older version may be there
    const Got got = bench.get(world_record(id, version));
    CHECK(got != Got::wrong);
  }
}

// Bursts of puts that are on their way together, then a flush: many writes that no sync has kept.
void run_bursts(SimBox& box, Ledger& ledger, const std::function<void()>& look) {
  StoreHarness& bench = *box.bench;
  constexpr u64 kBursts[][4] = {{1, 2, 3, 100}, {4, 5, 8, 9}, {100, 10, 15, 16}};
  for (const auto& burst : kBursts) {
    std::map<u64, u64> begun;
    for (const u64 id : burst) {
      const u64 version = id >= 100 ? ledger.begun[id] + 1 : 0;
      const auto known = id >= 100 ? store::PutArgs::If::replace : store::PutArgs::If::absent;
      ledger.begun[id] = version;
      REQUIRE(bench.begin_put(world_record(id, version), id, known) == store::Begun::begun);
      begun[id] = version;
    }
    REQUIRE(bench.store.flush(1000) == store::Begun::begun);
    for (u64 i = 0; !bench.store.idle(); ++i) {
      REQUIRE(i < 10'000);
      bench.poll(20'000);
      look();
    }
    for (const store::Event& event : bench.events) CHECK(event.outcome == store::Outcome::ok);
    bench.events.clear();
    ledger.flushed = begun;  // older ones may be evicted by what follows
  }
}

// The right bytes of some version, or nothing; and of what was flushed nothing less.
void check_records(SimBox& box, const Ledger& ledger, bool keeps_promises) {
  for (const auto& [id, last] : ledger.begun) {
    bool found = false;
    const auto flushed = ledger.flushed.find(id);
    for (u64 version = 0; version <= last; ++version) {
      if (!box.bench->store.find(key_of(id))) break;
      const auto there = box.bench->store.find(key_of(id));
      const auto record = world_record(id, version);
      const auto payload = box.bench->buffer(record.payload.size());
      if (box.bench->store.read({.ref = *there, .payload = payload, .tag = 7}) !=
          store::Begun::begun) {
        break;
      }
      if (box.bench->wait_for(7).outcome != store::Outcome::ok) break;
      if (std::equal(payload.begin(), payload.end(), record.payload.begin())) {
        found = flushed == ledger.flushed.end() || version >= flushed->second;
        break;
      }
      REQUIRE(version < last);  // bytes of no version at all
    }
    if (keeps_promises && flushed != ledger.flushed.end() && !found) {
      FAIL_CHECK("lost record ", id);
    }
  }
}

void open_and_check(const SimDisk& image, const Ledger& ledger, u64 seed) {
  SimBox box(image, kFrames);
  REQUIRE(box.boot() == Mode::on);
  check_records(box, ledger, true);
  box.bench->check();
  box.shut_down();
  // A second loss of power, at some moment of the recovery and of the first write after it.
  SimBox again(image, kFrames);
  Random random(seed);
  again.power_on();
  CHECK(again.bench->open() == Mode::on);
  Ledger more = ledger;
  more.begun[11] = 0;
  again.bench->begin_put(world_record(11), 1);
  for (u64 n = random.below(8); n > 0; --n) again.bench->poll(200'000);
  SimDisk after = again.disk;
  after.power_loss({.kept = SimKept::some, .torn = true, .seed = seed});
  again.kill();
  again.disk = after;
  REQUIRE(again.boot() == Mode::on);
  check_records(again, more, false);  // the new record may have taken another's extent
  again.shut_down();
}

// Bursts on some boxes, and of each what a power loss may leave of the disk at every moment.
template <class Check>
void at_every_power_loss(u32 n_frames, u64 stride, Check&& check) {
  constexpr u64 kSeeds = 24;
  u64 n_outcomes = 0;
  for (u64 seed = 0; seed < kSeeds; ++seed) {
    u64 seen_events = ~u64{0};
    SimBox box(seed, n_frames);
    REQUIRE(box.boot() == Mode::on);
    Ledger ledger;
    run_bursts(box, ledger, [&] {
      if (box.disk.n_write_events() == seen_events) return;
      seen_events = box.disk.n_write_events();
      const u64 n_writes = box.disk.unsynced_writes();
      const u64 n_subsets = n_writes <= 8 ? u64{1} << n_writes : 64;
      for (u64 subset = 0; subset < n_subsets; ++subset) {
        for (const bool torn : {false, true}) {
          if (n_outcomes++ % stride != 0) continue;
          SimPowerLoss how{
              .kept = SimKept::by_mask, .mask = subset, .torn = torn, .seed = n_outcomes};
          if (n_writes > 8) how.kept = SimKept::some;
          SimDisk image = box.disk;
          image.power_loss(how);
          CAPTURE(n_outcomes);
          check(image, ledger, n_outcomes);
        }
      }
    });
    box.shut_down();
  }
}

}  // namespace

u64 try_power_losses(u64 stride) {
  u64 n_images = 0;
  at_every_power_loss(kFrames, stride, [&](const SimDisk& image, const Ledger& ledger, u64 idx) {
    open_and_check(image, ledger, idx);
    n_images += 2;
  });
  return n_images;
}

u64 try_publication_order(u64 stride) {
  constexpr u32 kFramesForAll = 60;  // nothing is evicted, so no head outlives its payload
  u64 n_images = 0;
  at_every_power_loss(kFramesForAll, stride, [&](const SimDisk& image, const Ledger& ledger, u64) {
    SimBox box(image, kFramesForAll);
    REQUIRE(box.boot() == Mode::on);
    check_records(box, ledger, true);
    CHECK(box.bench->store.stats().n_dropped == 0);
    box.shut_down();
    ++n_images;
  });
  return n_images;
}

u64 try_replacements() {
  constexpr u64 kSession = 100;
  u64 n_images = 0, n_both = 0;
  for (u64 seed = 0; seed < 12; ++seed) {
    SimBox box(seed, kFrames);
    REQUIRE(box.boot() == Mode::on);
    for (const u64 id : {u64{1}, kSession, u64{2}}) REQUIRE(box.bench->put(world_record(id)));
    REQUIRE(box.bench->flush());
    const auto known = store::PutArgs::If::replace;
    REQUIRE(box.bench->begin_put(world_record(kSession, 1), 4, known) == store::Begun::begun);
    u64 seen_events = ~u64{0};
    while (!box.bench->store.idle()) {
      box.bench->poll(20'000);
      if (box.disk.n_write_events() == seen_events) continue;
      seen_events = box.disk.n_write_events();
      for (const SimKept kept : {SimKept::none, SimKept::all, SimKept::some}) {
        SimBox after(box.disk, kFrames);
        after.disk.power_loss({.kept = kept, .torn = kept == SimKept::some, .seed = seed});
        const u64 n_before = after.disk.n_write_events();
        REQUIRE(after.boot() == Mode::on);
        const u64 n_written = after.disk.n_write_events();
        n_both += n_written > n_before;  // the older version was erased
        const bool is_new = after.get(kSession, 1) == Got::right;
        CHECK((is_new || after.get(kSession, 0) == Got::right));
        // Deleted is deleted, whatever older version lay about.
        const auto ref = *after.bench->store.find(key_of(kSession));
        REQUIRE(after.bench->store.erase(ref, 9) == store::Begun::begun);
        CHECK(after.bench->wait_for(9).outcome == store::Outcome::ok);
        REQUIRE(after.bench->flush());
        REQUIRE(after.disk.n_write_events() > n_written);
        after.shut_down();
        REQUIRE(after.boot() == Mode::on);
        CHECK_FALSE(after.bench->store.find(key_of(kSession)).has_value());
        CHECK(after.get(1) == Got::right);
        after.bench->check();
        after.shut_down();
        ++n_images;
      }
    }
    box.shut_down();
  }
  CHECK(n_both > 0);
  return n_images;
}

u64 try_failing_calls(u64 stride, u64 n_latency_seeds) {
  struct Run {
    u64 n_calls, n_hits;
  };
  const auto run = [](const SimScriptedFault* fault, u64 latency_seed) {
    SimBox box(latency_seed, kFrames);
    REQUIRE(box.boot() == Mode::on);
    if (fault != nullptr) {
      box.disk.script.faults = {*fault};
      box.disk.script.faults[0].first_call += box.disk.n_calls();
    }
    const u64 before = box.disk.n_calls();
    Ledger ledger;
    run_scenario(box, ledger);
    const u64 n_calls = box.disk.n_calls() - before;
    const u64 n_hits = fault == nullptr ? 1 : box.disk.hits(fault->fault);
    // The fault is over, late answers come in, and the next start is as if nothing had been.
    box.disk.script.faults.clear();
    box.shut_down();
    REQUIRE(box.boot() == Mode::on);
    check_records(box, ledger, false);
    CHECK(box.bench->put(world_record(12)));
    CHECK(box.get(12) == Got::right);
    box.bench->check();
    box.shut_down();
    return Run{n_calls, n_hits};
  };
  std::vector<SimScriptedFault> faults;
  for (const int error : {EIO, ENOSPC, EDQUOT, EINTR, EAGAIN, ENOMEM, EROFS, EBADF, ECANCELED}) {
    faults.push_back({.fault = SimFault::error, .error = error});
  }
  for (const SimFault fault :
       {SimFault::short_call, SimFault::no_progress, SimFault::slow, SimFault::never}) {
    faults.push_back({.fault = fault});
  }
  u64 n_runs = 0, n_tried = 0;
  std::map<std::pair<SimFault, u64>, u64> n_met;  // by how many calls are to fail
  for (u64 latency_seed = 1; latency_seed <= n_latency_seeds; ++latency_seed) {
    const u64 n_calls = run(nullptr, latency_seed).n_calls;
    for (u64 call = 0; call < n_calls; ++call) {
      for (SimScriptedFault fault : faults) {
        for (const u64 n : {u64{1}, ~u64{0}}) {
          if (n_tried++ % stride != 0) continue;
          fault.first_call = call;
          fault.n_calls = n;
          CAPTURE(latency_seed);
          CAPTURE(call);
          CAPTURE(n);
          CAPTURE(fault.error);
          CAPTURE(std::string(sim_fault_name(fault.fault)));
          const u64 n_hits = run(&fault, latency_seed).n_hits;
          // These befall no sync, a short call no single sector, and nothing else may be left.
          const bool may_miss =
              fault.fault == SimFault::no_progress || fault.fault == SimFault::short_call;
          if (n_hits == 0 && may_miss) continue;
          CHECK(n_hits > 0);
          ++n_runs;
          ++n_met[{fault.fault, n}];
        }
      }
    }
  }
  for (const SimScriptedFault& fault : faults) {
    CAPTURE(std::string(sim_fault_name(fault.fault)));
    CHECK(n_met[{fault.fault, 1}] > 0);
    CHECK(n_met[{fault.fault, ~u64{0}}] > 0);
  }
  return n_runs;
}

namespace {

// Records on a disk, each kind, with and without meta sectors, and where they lie.
struct Laid {
  struct Extent {
    u64 id, begin, end;
  };
  SimDisk disk{1};
  std::vector<Extent> extents;
};

Laid lay(const std::vector<TestRecord>& records, u32 n_frames) {
  SimBox box(1, n_frames);
  REQUIRE(box.boot() == Mode::on);
  for (const TestRecord& record : records) REQUIRE(box.bench->put(record));
  REQUIRE(box.bench->flush());
  Laid laid;
  for (const TestRecord& record : records) {
    const u64 id = record.key.high;
    const auto ref = *box.bench->store.find(key_of(id));
    const auto& entry = box.bench->store.index().entry(ref);
    const store::RecordShape shape{entry.payload_bytes, entry.n_tokens};
    const u64 begin = store::kFramesBegin + ref.frame_idx * kSimFrameBytes;
    laid.extents.push_back({id, begin, begin + shape.record_bytes()});
  }
  box.shut_down();
  laid.disk = box.disk;
  return laid;
}

std::vector<TestRecord> world_records(const std::vector<u64>& ids, u64 version) {
  std::vector<TestRecord> records;
  records.reserve(ids.size());
  for (const u64 id : ids) records.push_back(world_record(id, id >= 100 ? version : 0));
  return records;
}

// Each kind, with and without meta sectors, none longer than four sectors.
std::vector<TestRecord> records_of_each_kind(u32 n) {
  constexpr TestRecordShape kShapes[] = {
      {.payload_bytes = 5000, .n_tokens = 16},
      {.payload_bytes = 100, .n_tokens = 1200},
      {.payload_bytes = 8000, .n_tokens = 64, .kind = store::Kind::extent},
      {.payload_bytes = 8192, .n_tokens = 0, .kind = store::Kind::codebook},
      {.payload_bytes = 3000, .n_tokens = 0, .kind = store::Kind::manifest}};
  std::vector<TestRecord> records;
  for (u32 i = 0; i < n; ++i) records.push_back(record_of(1 + i, kShapes[i % std::size(kShapes)]));
  return records;
}

}  // namespace

u64 try_flipped_bits(u64 stride) {
  constexpr u32 kRecords = 100, kFramesForAll = 2 * kRecords;
  const std::vector<TestRecord> records = records_of_each_kind(kRecords);
  const Laid laid = lay(records, kFramesForAll);
  u64 n_bytes = 0, n_bits_most = 0, n_flips = 0;
  for (const Laid::Extent& extent : laid.extents) {
    n_bytes += extent.end - extent.begin;
    n_bits_most = std::max(n_bits_most, (extent.end - extent.begin) * 8);
  }
  REQUIRE(n_bytes >= kMiB);
  for (u64 n = 0; n < 2 * n_bits_most; n += stride) {
    // One bit of every second record; those between them show that nothing else is lost.
    const u64 bit = n / 2, turn = n % 2;
    SimBox box(laid.disk, kFramesForAll);
    std::vector<bool> is_harmed(kRecords);
    for (u64 i = turn; i < kRecords; i += 2) {
      const Laid::Extent& extent = laid.extents[i];
      if (bit >= (extent.end - extent.begin) * 8) continue;
      box.disk.flip_bit("store", extent.begin * 8 + bit);
      is_harmed[i] = true;
      ++n_flips;
    }
    REQUIRE(box.boot() == Mode::on);
    CAPTURE(bit);
    for (u64 i = 0; i < kRecords; ++i) {
      CAPTURE(i);
      CHECK(box.bench->get(records[i]) == (is_harmed[i] ? Got::absent : Got::right));
      // It was dropped, and is not asked again.
      if (is_harmed[i]) CHECK_FALSE(box.bench->store.find(records[i].key).has_value());
    }
    box.bench->check();
    box.shut_down();
  }
  return n_flips;
}

u64 try_flipped_label_bits(u64 stride) {
  const std::vector<u64> ids = {1, 4, 100};
  const Laid laid = lay(world_records(ids, 0), kFrames);
  u64 n_flips = 0;
  for (u64 bit = 0; bit < store::kFramesBegin * 8; bit += stride, ++n_flips) {
    SimBox box(laid.disk, kFrames);
    box.disk.flip_bit("store", bit);
    REQUIRE(box.boot() == Mode::on);
    CAPTURE(bit);
    for (const u64 id : ids) CHECK(box.get(id) == Got::right);
    box.shut_down();
  }
  return n_flips;
}

namespace {

// The store over these bytes: what was harmed is absent, or right where it was not needed; all else
// is right; and what is new finds its frames.
void check_damaged(const Laid& laid, const std::vector<std::byte>& bytes,
                   const std::function<bool(const Laid::Extent&)>& is_harmed,
                   const std::vector<u64>& never_here) {
  SimBox box(laid.disk, kFrames);
  box.disk.write_file("store", bytes);
  REQUIRE(box.boot() == Mode::on);
  for (const Laid::Extent& extent : laid.extents) {
    const u64 id = extent.id, version = id >= 100 ? 2 : 0;
    CAPTURE(id);
    CHECK(box.get(id, version) == (is_harmed(extent) ? Got::absent : Got::right));
  }
  for (const u64 id : never_here) CHECK(box.get(id, 1) == Got::absent);
  CHECK(box.bench->put(world_record(2)));
  CHECK(box.get(2) == Got::right);
  box.bench->check();
  box.shut_down();
}

}  // namespace

u64 try_damaged_blocks() {
  // A record of the same shape lay at each extent before, under another key or in another version.
  const std::vector<u64> old_ids = {8, 10, 11, 12, 100}, ids = {1, 3, 4, 5, 100};
  const std::vector<u64> never_here = {8, 10, 11, 12};
  const Laid stale = lay(world_records(old_ids, 1), kFrames);
  const Laid laid = lay(world_records(ids, 2), kFrames);
  const std::vector<std::byte> old_bytes = stale.disk.file_bytes("store");
  const std::vector<std::byte> bytes = laid.disk.file_bytes("store");
  u64 n = 0;
  const auto sector = [](auto& of, u64 at) { return std::span(of).subspan(at, kSectorBytes); };
  const auto try_one = [&](const std::vector<std::byte>& damaged, u64 a, u64 b) {
    const auto has = [&](const Laid::Extent& extent, u64 at) {
      return extent.begin <= at && at < extent.end &&
             !std::ranges::equal(sector(damaged, at), sector(bytes, at));
    };
    CAPTURE(a);
    CAPTURE(b);
    check_damaged(
        laid, damaged, [&](const Laid::Extent& extent) { return has(extent, a) || has(extent, b); },
        never_here);
    ++n;
  };
  for (u64 p = 0; p < laid.extents.size(); ++p) {
    const Laid::Extent& extent = laid.extents[p];
    REQUIRE(extent.begin == stale.extents[p].begin);
    for (u64 at = extent.begin; at < extent.end; at += kSectorBytes) {
      std::vector<std::byte> damaged = bytes;
      std::ranges::fill(sector(damaged, at), std::byte{0});
      try_one(damaged, at, at);
      std::ranges::copy(sector(old_bytes, at), sector(damaged, at).begin());
      try_one(damaged, at, at);
      damaged.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
      CAPTURE(at);
      check_damaged(
          laid, damaged, [&](const Laid::Extent& of) { return of.end > at; }, never_here);
      ++n;
      for (const Laid::Extent& other : laid.extents) {
        for (u64 from = other.begin; from < other.end; from += kSectorBytes) {
          if (from == at) continue;
          damaged = bytes;
          std::ranges::copy(sector(bytes, from), sector(damaged, at).begin());
          try_one(damaged, at, at);
          if (from < at) continue;
          std::ranges::copy(sector(bytes, at), sector(damaged, from).begin());
          try_one(damaged, at, from);
        }
      }
    }
  }
  return n;
}

}  // namespace tarn::test
