#include "tests/sim/store_random.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstdio>

#include "tests/sim/event_counts.h"
#include "tests/sim/store_world.h"

namespace tarn::test {
namespace {

using store::Begun;
using store::Mode;
using store::Outcome;
using Got = StoreHarness::Got;

constexpr u32 kFrames = 14;
constexpr u32 kSteps = 200;

// The silent faults: a disk that has them keeps no promise, and may lose what was flushed.
constexpr bool lies(SimFault fault) {
  return fault == SimFault::lost_write || fault == SimFault::misdirected_write ||
         fault == SimFault::flipped_write || fault == SimFault::zeroed_write ||
         fault == SimFault::flipped_read;
}

class RandomLife {
 public:
  RandomLife(u64 seed, RandomRunCounts& counts)
      : random_(seed), counts_(counts), box_(seed, kFrames) {
    // A third of the disks is well, a third has one kind of fault, a third has them all.
    box_.disk.script.errors = {EIO, ENOSPC, EDQUOT, EINTR, EAGAIN, ENOMEM, EROFS, EBADF, ECANCELED};
    const u64 character = random_.below(3);
    for (u32 i = 0; i < kSimFaults; ++i) {
      const bool has = character == 2 || (character == 1 && random_.below(kSimFaults) == i);
      if (!has) continue;
      box_.disk.script.ppm[i] = static_cast<u32>(random_.below(character == 1 ? 60'000 : 8'000));
      if (lies(static_cast<SimFault>(i))) honest_ = false;
    }
    is_meddled_with_ = random_.below(6) == 0;
  }

  void live() {
    boot();
    for (u32 step = 0; step < kSteps; ++step) {
      act();
      take_events();
      box_.bench->check();
    }
    end_life(false);
    counts_.faults.add(box_.disk);
    counts_.unreadable += box_.disk.n_spoiled_reads();
    counts_.cut_reads += box_.disk.n_cut_reads();
  }

 private:
  struct Read {
    u64 id = 0, version_min = 0;
    std::span<std::byte> payload;
    std::vector<u32> sectors;
    std::vector<u32> token_ids;
    bool other_tokens = false;
  };

  store::Store& store() { return box_.bench->store; }
  u64 random_id() { return random_.below(5) == 0 ? 100 + random_.below(2) : 1 + random_.below(16); }

  void boot() {
    // Even a box whose disk fails at every start comes up in the end, or lives without a store.
    for (u32 attempt = 0; attempt < 5 && box_.boot() != Mode::on; ++attempt) {
      CHECK(box_.bench->store.why().hint[0] != '\0');
      box_.io->let_stuck_go();
    }
    check_promises();
  }

  // Checks that what was flushed, and still was in the index when the box went down, is there.
  void check_promises() {
    const bool all_is_well = honest_ && store().mode() == Mode::on &&
                             store().stats().n_read_errors == 0 &&
                             store().stats().n_unread_at_start == 0;
    for (const auto& [id, version] : promised_) {
      if (!all_is_well) break;
      const Got got = box_.get(id, id >= 100 ? version : 0);
      ++counts_.flushed_checks;
      CHECK(got != Got::wrong);
      const bool disk_failed = store().stats().n_read_errors > 0 || store().mode() != Mode::on;
      if (disk_failed) break;
      if (got != Got::right) FAIL_CHECK("lost record ", id, " version ", version);
    }
    promised_.clear();
    flushed_.clear();
    published_.clear();
  }

  // Meddles with the file while the store has it open: a cut, another file's bytes, a medium that
  // cannot read a sector any more. No promise holds from then on but the first one: right bytes or
  // none.
  void meddle() {
    honest_ = false;
    const u64 size = box_.disk.file_bytes("store").size();
    if (size == 0) return;
    switch (random_.below(8)) {
      case 0:
        box_.disk.truncate_file("store", random_.below(size));
        ++counts_.truncated;
        return;
      case 1:
        earlier_.resize(size);  // of itself, as from a backup; or nothing but zeros
        box_.disk.write_file("store", earlier_);
        ++counts_.replaced_files;
        return;
      case 2:
        box_.disk.write_file("store", other_file());
        ++counts_.replaced_files;
        return;
      case 3:
        earlier_ = box_.disk.file_bytes("store");
        return;
      default:
        box_.disk.spoil_sector("store", random_.below(size) / kSectorBytes * kSectorBytes);
        ++counts_.spoiled;
    }
  }

  // A store of another secret with records of the same keys.
  static const std::vector<std::byte>& other_file() {
    static const std::vector<std::byte> bytes = [] {
      SimBox other(99, kFrames);
      other.power_on();
      other.bench =
          std::make_unique<StoreHarness>(*other.io, other.clock, "store", sim_limits(kFrames), 99);
      REQUIRE(other.bench->open() == Mode::on);
      for (u64 id = 1; id <= 16; ++id) (void)other.bench->put(world_record(id));
      other.shut_down();
      return other.disk.file_bytes("store");
    }();
    return bytes;
  }

  // A second process gets no store while this one has it, and harms nothing.
  void intrude() {
    if (store().mode() != Mode::on) return;
    SimIo io(box_.disk, box_.clock, 8);
    store::StoreLimits limits = sim_limits(kFrames);
    limits.lock_wait_ns = 0;
    StoreHarness second(io, box_.clock, "store", limits, 7);
    CHECK(second.open() == Mode::off);
    CHECK(second.store.why().hint[0] != '\0');
    second.close();
    ++counts_.intruders;
  }

  void act() {
    if (is_meddled_with_ && random_.below(40) == 0) meddle();
    if (random_.below(400) == 0) intrude();
    switch (random_.below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        return put();
      case 5:
      case 6:
      case 7:
        return read();
      case 8:
        return pin_or_unpin();
      case 9:
        return erase();
      case 10:
        if (store().flush(next_tag_) == Begun::begun) flushes_[next_tag_++] = published_;
        return;
      case 11:
        if (random_.below(3) == 0) end_life(true);
        return;
      default:
        box_.bench->poll(random_.below(3) == 0 ? 0 : random_.below(3'000'000));
    }
  }

  void put() {
    const u64 id = random_id();
    const u64 version = id >= 100 ? ++versions_[id] : 0;
    const bool replaces = id >= 100 && store().find(key_of(id)).has_value();
    const auto known = id >= 100 ? store::PutArgs::If::replace : store::PutArgs::If::absent;
    const TestRecord record = world_record(id, version);
    if (box_.bench->begin_put(record, next_tag_, known) != Begun::begun) return;
    CHECK(store().mode() == Mode::on);
    if (replaces) ++counts_.replaced;
    puts_[next_tag_++] = {id, version};
  }

  void read() {
    const u64 id = random_id();
    const auto found = store().find(key_of(id));
    if (!found) return;
    const auto& entry = store().index().entry(*found);
    Read read{.id = id, .version_min = 0, .payload = {}, .sectors = {}, .token_ids = {}};
    read.payload = box_.bench->buffer(align_up(entry.payload_bytes, kSectorBytes));
    read.token_ids = world_record(id).token_ids;
    if (id >= 100) read.token_ids.clear();
    if (!read.token_ids.empty() && random_.below(10) == 0) {
      read.token_ids[0] ^= 1;
      read.other_tokens = true;
    }
    for (u32 s = 0; random_.below(2) == 0 && s < read.payload.size() / kSectorBytes; ++s) {
      if (random_.below(2) == 0) read.sectors.push_back(s);
    }
    const u64 tag = next_tag_++;
    Read& kept = reads_[tag] = std::move(read);
    const Begun begun = store().read({.ref = *found,
                                      .token_ids = kept.token_ids,
                                      .payload = kept.payload,
                                      .sectors = kept.sectors,
                                      .tag = tag});
    if (begun != Begun::begun) reads_.erase(tag);
  }

  void pin_or_unpin() {
    if (!pins_.empty() && random_.below(2) == 0) {
      store().unpin(pins_.back());
      pins_.pop_back();
      ++counts_.unpins;
      return;
    }
    const auto found = store().find(key_of(random_id()));
    if (!found || pins_.size() >= 3) return;
    store().pin(*found);
    pins_.push_back(*found);
    ++counts_.pins;
  }

  void erase() {
    const u64 id = random_id();
    const auto found = store().find(key_of(id));
    if (!found || random_.below(3) != 0) return;
    if (store().erase(*found, next_tag_++) != Begun::begun) return;
    ++counts_.erased;
    published_.erase(id);
    flushed_.erase(id);
  }

  void take_events() {
    for (const store::Event& event : box_.bench->events) take_event(event);
    box_.bench->events.clear();
  }

  void take_event(const store::Event& event) {
    if (event.outcome == Outcome::returned) {
      ++counts_.returned;
      return;
    }
    if (const auto put = puts_.find(event.tag); put != puts_.end()) {
      CHECK(event.op == store::Op::put);
      if (event.outcome == Outcome::ok) published_[put->second.first] = put->second.second;
      puts_.erase(put);
    } else if (const auto flush = flushes_.find(event.tag); flush != flushes_.end()) {
      CHECK(event.op == store::Op::flush);
      if (event.outcome == Outcome::ok) {
        for (const auto& [id, version] : flush->second)
          flushed_[id] = std::max(flushed_[id], version);
      }
      flushes_.erase(flush);
    } else if (const auto read = reads_.find(event.tag); read != reads_.end()) {
      CHECK(event.op == store::Op::read);
      if (event.outcome == Outcome::ok) check_read(read->second);
      if (event.outcome == Outcome::corrupt) ++counts_.corrupt;
      if (event.outcome == Outcome::other_tokens) ++counts_.other_tokens;
      if (event.outcome != Outcome::ok) ++counts_.misses;
      if (!event.lent) reads_.erase(read);
    }
  }

  // The one unforgivable result would be other bytes than were put.
  void check_read(const Read& read) {
    ++counts_.reads_ok;
    REQUIRE_FALSE(read.other_tokens);
    const u64 last = read.id >= 100 ? versions_[read.id] : 0;
    bool is_right = false;
    for (u64 version = 0; version <= last && !is_right; ++version) {
      const TestRecord record = world_record(read.id, version);
      if (record.payload.size() != read.payload.size()) continue;
      is_right = true;
      for (u32 s = 0; s < read.payload.size() / kSectorBytes; ++s) {
        const bool wanted =
            read.sectors.empty() ||
            std::find(read.sectors.begin(), read.sectors.end(), s) != read.sectors.end();
        if (wanted && std::memcmp(read.payload.data() + s * kSectorBytes,
                                  record.payload.data() + s * kSectorBytes, kSectorBytes) != 0) {
          is_right = false;
        }
      }
    }
    REQUIRE(is_right);
  }

  void end_life(bool again) {
    const u64 how = random_.below(3);
    if (how == 2) {  // in order
      for (const store::RecordRef& ref : pins_) store().unpin(ref);
      pins_.clear();
      box_.drain();
      take_events();
    }
    for (const auto& [id, version] : flushed_) {
      const auto found = store().find(key_of(id));
      if (found && published_.count(id) != 0) promised_[id] = published_[id];
      // A newer version was published and not flushed: after a power loss the old or the new one.
      if (found && id >= 100 && published_[id] != version && how == 1) promised_.erase(id);
      if (store().mode() != Mode::on) promised_.erase(id);
      for (const auto& [tag, put] : puts_) {
        if (put.first == id) promised_.erase(id);  // being replaced
      }
    }
    if (how != 0) counts_.evicted += store().index().n_evicted();
    counts_.published += store().stats().n_published;
    counts_.dropped += store().stats().n_dropped;
    counts_.failed_puts += store().stats().n_write_errors;
    counts_.turned_off += store().mode() == Mode::off;
    counts_.read_only += store().mode() == Mode::read_only;
    if (how == 2) box_.shut_down();
    if (how == 1) {
      // The disk loses power while requests are on their way; the process dies with it.
      SimDisk after = box_.disk;
      const bool torn = random_.below(2) == 0;
      const SimKept kept[] = {SimKept::none, SimKept::all, SimKept::some, SimKept::some};
      after.power_loss({.kept = kept[random_.below(4)], .torn = torn, .seed = random_.next()});
      box_.kill();
      box_.disk = after;
      ++counts_.power_losses;
      counts_.torn += torn;
    } else {
      box_.kill();
      counts_.kills += how == 0;
    }
    pins_.clear();
    puts_.clear();
    flushes_.clear();
    reads_.clear();
    if (again) boot();
  }

  Random random_;
  RandomRunCounts& counts_;
  SimBox box_;
  bool honest_ = true, is_meddled_with_ = false;
  std::vector<std::byte> earlier_;  // bytes of the file
  u64 next_tag_ = 1;
  std::map<u64, u64> versions_;                        // of manifests: the last that was begun
  std::map<u64, std::pair<u64, u64>> puts_;            // by tag: id and version
  std::map<u64, std::map<u64, u64>> flushes_;          // by tag: what was published when it began
  std::map<u64, Read> reads_;                          // by tag
  std::map<u64, u64> published_, flushed_, promised_;  // id -> version
  std::vector<store::RecordRef> pins_;
};

}  // namespace

void run_random_lives(u64 first_seed, u64 n_seeds, RandomRunCounts& counts) {
  for (u64 seed = first_seed; seed < first_seed + n_seeds; ++seed) {
    CAPTURE(seed);
    RandomLife(seed, counts).live();
  }
}

void check_counts(const RandomRunCounts& counts, u64 n_min) {
  check_faults(counts.faults, n_min);
  check_errors(counts.faults, n_min);
  const EventCount others[] = {
      {"published", counts.published},
      {"dropped", counts.dropped},
      {"failed put", counts.failed_puts},
      {"pin", counts.pins},
      {"unpin", counts.unpins},
      {"kill", counts.kills},
      {"power loss", counts.power_losses},
      {"torn", counts.torn},
      {"right read", counts.reads_ok},
      {"miss", counts.misses},
      {"corrupt", counts.corrupt},
      {"other tokens", counts.other_tokens},
      {"flushed and found", counts.flushed_checks},
      {"turned off", counts.turned_off},
      {"read-only", counts.read_only},
      {"buffer returned late", counts.returned},
      {"evicted", counts.evicted},
      {"erased", counts.erased},
      {"replaced", counts.replaced},
      {"sector spoiled", counts.spoiled},
      {"read of one", counts.unreadable},
      {"file cut", counts.truncated},
      {"read past its end", counts.cut_reads},
      {"file replaced", counts.replaced_files},
      {"second process", counts.intruders},
  };
  check_events(others, n_min);
}

}  // namespace tarn::test
