#include "tests/sim/mover_random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

#include "runtime/kv/mover.h"
#include "tests/sim/event_counts.h"
#include "tests/support/carved.h"
#include "tests/support/kv_invariants.h"
#include "tests/support/store_harness.h"

namespace tarn::test {
namespace {

using kv::GroupPool;
using kv::GroupShape;
using kv::Mover;
using kv::Residency;
using kv::Sequence;
using kv::Visit;
using kv::Where;

constexpr u32 kLayers = 2;
constexpr u32 kSequences = 3;
constexpr u32 kSlotsMax = 40;
constexpr u32 kSteps = 40;
constexpr u32 kRowsMax = 28;                                                          // of a step
constexpr GroupShape kShape{.n_kv_heads = 2, .page_tokens = 4, .vector_bytes = 400};  // two sectors
constexpr u32 kSlotBytes = 16;  // that are looked at
constexpr u64 kRecordBytes = 3 * kSectorBytes;
constexpr u32 kGroupsMax = kLayers * (kSequences * kSlotsMax / 4 + kSequences);
constexpr u32 kPages = kGroupsMax / kLayers;

// Byte `i` of slot `slot` of a sequence whose tokens chain to `history` there.
u8 byte_of(u64 history, u32 layer, u32 head, u32 i) {
  return static_cast<u8>((history >> (8 * (i % 8))) + layer * 31 + head * 7 + i);
}

class MoverLife {
 public:
  MoverLife(u64 seed, MoverRunCounts& counts)
      : random_(seed), counts_(counts), disk_(seed), region_(kShape.group_bytes() * 64) {
    choose_character();
    // The least that a plan asks for (plan::tier_frames_least), and often no frame more.
    const u32 n_least = kLayers * (2 * kSequences + kRowsMax / kShape.page_tokens) + 4;
    const u32 n_frames = n_least + static_cast<u32>(random_.below(2) * random_.below(12));
    io_ = std::make_unique<SimIo>(disk_, clock_, 8);
    bench_ = std::make_unique<StoreHarness>(*io_, clock_, "store", limits_, seed);
    bench_->open();
    has_names_ = random_.below(2) == 0;
    root_ = store::root_key(bench_->store.secret(), std::as_bytes(std::span("life")));
    tables_ = test::carved([&](Carver& carver) {
      residency_.init(carver, {.shape = kShape,
                               .n_groups = kGroupsMax,
                               .n_frames = n_frames,
                               .frames = region_.span(),
                               .store = &bench_->store});
      pool_.init(carver, kShape, kGroupsMax);
      pages_.init(carver, {.n_pages = kPages,
                           .n_cache_layers = kLayers,
                           .page_tokens = kShape.page_tokens,
                           .keeps_idle = has_names_ && random_.below(2) == 0,
                           .pool = &pool_,
                           .secret = &bench_->store.secret()});
      mover_memory_ = kv::MoverMemory::carve(carver, kShape, kSequences, kLayers);
    });
    pool_.lie_in(&residency_);
    pool_.belong_to(&pages_);
    mover_.init({.residency = &residency_,
                 .store = &bench_->store,
                 .clock = &clock_,
                 .n_cache_layers = kLayers,
                 .pin_set_groups = static_cast<u32>(1 + random_.below(4)),
                 .loads_max = static_cast<u32>(1 + random_.below(5)),
                 .spills_max = static_cast<u32>(1 + random_.below(5)),
                 .nonce = random_.next(),
                 .pages = &pages_},
                mover_memory_);
    for (u32 i = 0; i < kSequences; ++i) {
      sequence_tables_[i].resize(Sequence::n_entries(kLayers, kSlotsMax, kShape.page_tokens));
      sequences_[i].init(&pool_, kLayers, kSlotsMax, sequence_tables_[i]);
    }
  }

  void live() {
    for (u32 step = 0; step < kSteps; ++step) {
      act();
      check_invariants(residency_);
      pool_.check_invariants();
      pages_.check_invariants();
      for (u32 i = 0; i < kv::kWheres; ++i) counts_.wheres[i] += residency_.stats().counts[i];
    }
    end();
  }

 private:
  // A third of the disks is well, a third has one kind of fault, a third has them all; some stores
  // are small or may write little.
  void choose_character() {
    disk_.script.errors = {EIO, ENOSPC, EDQUOT, EINTR, EAGAIN, ENOMEM, EROFS, EBADF, ECANCELED};
    const u64 character = random_.below(3);
    for (u32 i = 0; i < kSimFaults; ++i) {
      const bool has = character == 2 || (character == 1 && random_.below(kSimFaults) == i);
      if (!has) continue;
      disk_.script.ppm[i] = static_cast<u32>(random_.below(character == 1 ? 60'000 : 8'000));
      may_fail_ = true;
    }
    const u64 size = random_.below(4);
    const u64 n_frames = size == 0 ? 4 + random_.below(20) : 100;
    limits_ = {.file_bytes = store::kFramesBegin + n_frames * kRecordBytes,
               .frame_bytes = kRecordBytes,
               .ops_max = static_cast<u32>(3 + random_.below(6)),
               .io_deadline_ns = 5'000'000'000};
    if (size == 1) limits_.write_bytes_per_day = (1 + random_.below(60)) * kRecordBytes;
    may_be_stuck_ = may_fail_ || size <= 1;
  }

  // Pages are listed in half of the lives: what was forgotten is said again, and finds them in
  // memory, or their records, or is adopted from them.
  static std::array<u32, kShape.page_tokens> ids_of(const std::vector<u64>& history, u32 page) {
    std::array<u32, kShape.page_tokens> ids;
    for (u32 t = 0; t < ids.size(); ++t) {
      ids[t] = static_cast<u32>(history[page * kShape.page_tokens + t]);
    }
    return ids;
  }
  void name_pages(u32 i) {
    if (!has_names_) return;
    u32 before = kv::kNoPage;
    for (u32 at = 0; at < sequences_[i].n_slots() / kShape.page_tokens; ++at) {
      u32 page = pages_.page_of(sequences_[i], at);
      if (page == kv::kNoPage) {
        const auto ids = ids_of(histories_[i], at);
        const store::Key chain = pages_.chain_of(root_, before, ids);
        page = pages_.find(chain, ids);
        if (page != kv::kNoPage && !has_lost_part(page)) {
          pages_.note_hit(page, before);
          sequences_[i].replace(at, pages_.groups(page));
          ++counts_.replaced;
        } else {
          if (page != kv::kNoPage) pages_.is_idle(page) ? pages_.drop(page) : pages_.unlist(page);
          page =
              pages_.add({.chain = chain, .before = before, .token_ids = ids}, sequences_[i], at);
        }
      }
      before = page;
    }
  }
  bool has_lost_part(u32 page) {
    return std::ranges::any_of(pages_.groups(page), [&](kv::GroupRef group) {
      return residency_.where(group.idx) == Where::lost;
    });
  }

  // Takes up what was forgotten last, as far as its pages are in memory, or all their records are
  // found.
  void take_up(u32 i) {
    if (forgotten_.empty()) return;
    clear(i);
    const std::vector<u64> history = forgotten_;
    u32 before = kv::kNoPage;
    for (u32 at = 0; at < history.size() / kShape.page_tokens; ++at) {
      const auto ids = ids_of(history, at);
      const store::Key chain = pages_.chain_of(root_, before, ids);
      const u32 page = pages_.find(chain, ids);
      if (page != kv::kNoPage) {
        if (has_lost_part(page)) break;
        pages_.note_hit(page, before);
        sequences_[i].adopt(pages_.groups(page));
        ++counts_.taken_from_memory;
      } else if (!take_records(i, chain)) {
        break;
      }
      const auto said = history.begin() + at * kShape.page_tokens;
      histories_[i].insert(histories_[i].end(), said, said + kShape.page_tokens);
      name_pages(i);
      before = pages_.page_of(sequences_[i], at);
    }
    counts_.taken_up += before != kv::kNoPage;
  }
  bool take_records(u32 i, const store::Key& chain) {
    const store::Store& store = bench_->store;
    const auto find = [&](u32 layer) {
      return store.find(store::layer_key(store.secret(), chain, layer));
    };
    const u32 at = sequences_[i].n_slots() / kShape.page_tokens;
    for (u32 layer = 0; layer < kLayers; ++layer) {
      if (!find(layer)) return false;
    }
    if (!sequences_[i].reserve(kShape.page_tokens)) return false;
    for (u32 layer = 0; layer < kLayers; ++layer) {
      residency_.adopt(sequences_[i].group(layer, at).idx, *find(layer));
    }
    sequences_[i].commit(kShape.page_tokens);
    return true;
  }

  u64 next_of(u32 i) {
    const std::vector<u64>& history = histories_[i];
    const bool is_begun = history.size() < forgotten_.size() &&
                          std::equal(history.begin(), history.end(), forgotten_.begin());
    if (is_begun && says_again_) return forgotten_[history.size()];
    const u64 before = history.empty() ? 1 : history.back();
    return Random(before ^ random_.next()).next();
  }

  u32 any() { return static_cast<u32>(random_.below(kSequences)); }

  void act() {
    const u64 what = random_.below(12);
    if (has_names_ && random_.below(12) == 0) return take_up(any());
    if (what < 7) return step();
    if (what == 7) return truncate(any());
    if (what == 8) return fork(any(), any());
    if (what == 9 && random_.below(3) == 0) return clear(any());
    mover_.pump(random_.below(300'000));
  }

  // As where a session is kept: the store has all sealed pages of what is said again.
  void save(u32 i) {
    for (u32 round = 0; round < 20; ++round) {
      for (u32 page = 0; page < sequences_[i].n_slots() / kShape.page_tokens; ++page) {
        for (u32 layer = 0; layer < kLayers; ++layer) {
          (void)mover_.save(sequences_[i].group(layer, page).idx);
        }
      }
      mover_.pump(1'000'000);
    }
  }

  // A sequence without its KV: what the engine does when a part of it was lost.
  void clear(u32 i) {
    if (has_names_ && !histories_[i].empty() && random_.below(2) == 0) {
      forgotten_ = histories_[i];
      says_again_ = random_.below(2) == 0;
      if (random_.below(2) == 0) save(i);
    }
    sequences_[i].clear();
    histories_[i].clear();
    ++counts_.clears;
  }

  // Whether an error is one that this life allows.
  void note(const Error& error, bool is_lost) {
    CAPTURE(std::string(error.hint));
    CHECK(std::strlen(error.hint) > 40);
    if (is_lost) {
      CHECK(may_fail_);
      ++counts_.lost;
    } else {
      CHECK(may_be_stuck_);
      counts_.over_budget += std::strstr(error.hint, "write budget") != nullptr;
      ++counts_.stuck;
    }
  }
  bool has_lost(u32 i) {
    for (u32 layer = 0; layer < kLayers; ++layer) {
      for (u32 group = 0; group < sequences_[i].n_groups(); ++group) {
        const u32 idx = sequences_[i].group(layer, group).idx;
        if (residency_.where(idx) == Where::lost) return true;
      }
    }
    return false;
  }

  // Some sequences get some slots, and attend to all they have.
  void step() {
    std::array<Visit, kSequences> visits;
    std::array<u32, kSequences> who{}, n_new{};
    u32 n = 0, n_rows_left = kRowsMax;
    constexpr std::array<u64, 4> kMost = {2, 2, 7, kRowsMax};  // decode, a short and a long slice
    for (u32 i = 0; i < kSequences && n_rows_left > 0; ++i) {
      if (random_.below(3) == 0) continue;
      const u64 most = std::min<u64>(kMost[random_.below(kMost.size())], n_rows_left);
      const u32 n_slots = static_cast<u32>(1 + random_.below(most));
      n_rows_left -= n_slots;
      if (!sequences_[i].reserve(n_slots)) continue;
      const Result<void> writable = mover_.make_writable(sequences_[i], n_slots);
      if (!writable) {
        note(writable.error(), false);
        sequences_[i].abandon();
        continue;
      }
      for (u32 s = 0; s < n_slots; ++s) histories_[i].push_back(next_of(i));
      n_new[n] = n_slots;
      who[n] = i;
      visits[n] = {&sequences_[i], (sequences_[i].n_slots() + n_slots + 3) / 4};
      if (random_.below(3) == 0) {  // this one selects
        visits[n].offloaded_begin = static_cast<u32>(random_.below(visits[n].n_groups));
        visits[n].offloaded_end =
            visits[n].offloaded_begin +
            static_cast<u32>(random_.below(visits[n].n_groups - visits[n].offloaded_begin));
      }
      ++n;
    }
    mover_.uses().begin();
    for (u32 v = 0; v < n; ++v) mover_.uses().add(visits[v]);
    mover_.uses().end();
    for (u32 i = 0; i < sequences_.size(); ++i) {
      const bool runs = std::find(who.begin(), who.begin() + n, i) != who.begin() + n;
      if (runs || random_.below(3) != 0) continue;
      mover_.uses().add_later({&sequences_[i], sequences_[i].n_slots() / 4});
    }
    std::set<u32> failed;
    for (u32 layer = 0; layer < kLayers; ++layer) {
      for (u32 v = 0; v < n; ++v) write(who[v], layer, n_new[v]);
      if (random_.below(2) == 0) mover_.pump(0);
      for (u32 v = 0; v < n; ++v) {
        if (!failed.contains(who[v]) && !attend(who[v], layer, visits[v])) {
          failed.insert(who[v]);
        }
      }
    }
    for (u32 v = 0; v < n; ++v) {
      if (failed.contains(who[v])) {
        clear(who[v]);
      } else {
        sequences_[who[v]].commit(n_new[v]);
        name_pages(who[v]);
      }
    }
  }

  void write(u32 i, u32 layer, u32 n_new) {
    Sequence& sequence = sequences_[i];
    for (u32 slot = sequence.n_slots(); slot < sequence.n_slots() + n_new; ++slot) {
      for (u32 head = 0; head < kShape.n_kv_heads; ++head) {
        u8* bytes = sequence.slot_for_write(layer, head, slot);
        for (u32 b = 0; b < kSlotBytes; ++b)
          bytes[b] = byte_of(histories_[i][slot], layer, head, b);
      }
    }
  }

  bool attend(u32 i, u32 layer, const Visit& visit) {
    if (visit.offloaded_end > visit.offloaded_begin) return gather(i, layer, visit);
    for (u32 begin = 0; begin < visit.n_groups;) {
      const Result<u32> n = mover_.pin(sequences_[i], layer, begin, visit.n_groups);
      if (!n) {
        note(n.error(), has_lost(i));
        return false;
      }
      REQUIRE(*n > 0);
      for (u32 group = begin; group < begin + *n; ++group) check_bytes(i, layer, group);
      mover_.unpin(sequences_[i], layer, begin, begin + *n);
      begin += *n;
      ++counts_.pin_sets;
    }
    return true;
  }

  // Some slots of each head, all or few.
  bool gather(u32 i, u32 layer, const Visit& visit) {
    constexpr u64 kOutBytes = u64{2} * kShape.vector_bytes;
    std::array<std::vector<kv::WantedSlot>, kShape.n_kv_heads> wanted;
    std::array<std::span<const kv::WantedSlot>, kShape.n_kv_heads> views;
    std::array<std::vector<u8>, kShape.n_kv_heads> got;
    std::array<u8*, kShape.n_kv_heads> out;
    const u64 one_in = 1 + random_.below(6);
    for (u32 head = 0; head < kShape.n_kv_heads; ++head) {
      for (u32 slot = 0; slot < histories_[i].size(); ++slot) {
        const u32 place = static_cast<u32>(wanted[head].size());
        if (random_.below(one_in) == 0) wanted[head].push_back({slot, place});
      }
      got[head].resize(wanted[head].size() * kOutBytes + 1);
      views[head] = wanted[head];
      out[head] = got[head].data();
    }
    const Result<void> gathered = mover_.gather({.sequence = &sequences_[i],
                                                 .cache_layer = layer,
                                                 .offloaded_begin = visit.offloaded_begin,
                                                 .offloaded_end = visit.offloaded_end,
                                                 .wanted = views,
                                                 .out = out});
    if (!gathered) {
      note(gathered.error(), has_lost(i));
      return false;
    }
    for (u32 head = 0; head < kShape.n_kv_heads; ++head) {
      for (const kv::WantedSlot& w : wanted[head]) {
        for (u32 b = 0; b < kSlotBytes; ++b) {
          if (got[head][w.rank * kOutBytes + b] != byte_of(histories_[i][w.slot], layer, head, b)) {
            FAIL("sequence ", i, " layer ", layer, " slot ", w.slot, " was gathered wrong");
          }
        }
      }
    }
    ++counts_.gathers;
    return true;
  }

  void check_bytes(u32 i, u32 layer, u32 group) {
    const u32 page_tokens = kShape.page_tokens;
    for (u32 head = 0; head < kShape.n_kv_heads; ++head) {
      const u8* page = pool_.page(sequences_[i].group(layer, group), head);
      for (u32 t = 0; t < page_tokens; ++t) {
        const u32 slot = group * page_tokens + t;
        if (slot >= histories_[i].size()) return;
        for (u32 b = 0; b < kSlotBytes; ++b) {
          if (page[t * 2 * kShape.vector_bytes + b] !=
              byte_of(histories_[i][slot], layer, head, b)) {
            FAIL("sequence ", i, " layer ", layer, " slot ", slot, " has other bytes");
          }
        }
      }
    }
  }

  void truncate(u32 i) {
    Sequence& sequence = sequences_[i];
    if (sequence.n_slots() == 0) return;
    const u32 n = static_cast<u32>(random_.below(sequence.n_slots() + 1));
    const bool reopens = n % kShape.page_tokens != 0;
    const u32 group = n / kShape.page_tokens;
    if (reopens) {
      Result<void> held = mover_.hold(sequence, group);
      const bool is_lost = !held && has_lost(i);
      if (held) {
        held = mover_.make_room(kLayers);
        if (!held) mover_.drop_hold();
      }
      if (!held) {
        note(held.error(), is_lost);
        if (is_lost) clear(i);
        return;
      }
    }
    if (sequence.truncate(n)) {
      histories_[i].resize(n);
      ++counts_.truncations;
    }
    if (reopens) mover_.drop_hold();
  }

  void fork(u32 from, u32 to) {
    if (from == to) return;
    clear(to);
    const Result<void> room = mover_.make_room(kLayers);
    if (!room) return note(room.error(), false);
    if (!sequences_[to].fork_from(sequences_[from])) return;
    histories_[to] = histories_[from];
    ++counts_.forks;
  }

  // Every frame comes back, however late.
  void end() {
    for (u32 i = 0; i < kSequences; ++i) sequences_[i].clear();
    check_invariants(residency_);
    while (pages_.free_one()) {
    }
    CHECK(pages_.n_pages() == 0);
    mover_.stop();
    counts_.late_frames += residency_.stats().n_lent_frames > 0;
    for (u32 i = 0; !mover_.idle() || !bench_->store.idle(); ++i) {
      REQUIRE(i < 10'000);
      mover_.pump(1'000'000'000);
      io_->let_stuck_go();
    }
    check_invariants(residency_);
    CHECK(residency_.n_free_frames() == residency_.n_frames());
    bench_->check();
    bench_->close();
    const kv::MoverStats& stats = mover_.stats();
    counts_.hits += stats.n_hits;
    counts_.waited += stats.n_waited;
    counts_.loads += stats.n_loads;
    counts_.parts += stats.n_gather_reads;
    counts_.spills += stats.n_spills;
    counts_.known += stats.n_known;
    counts_.dropped += stats.n_dropped_pages;
    counts_.spill_failures += stats.n_spill_failures;
    counts_.evictions += stats.n_evictions;
    counts_.faults.add(disk_);
  }

  Random random_;
  MoverRunCounts& counts_;
  SimDisk disk_;
  VirtualClock clock_;
  store::StoreLimits limits_{};
  bool may_fail_ = false, may_be_stuck_ = false, has_names_ = false, says_again_ = false;
  SectorBuffer region_;
  std::vector<std::byte> tables_;
  kv::MoverMemory mover_memory_{};
  std::array<std::vector<kv::GroupRef>, kSequences> sequence_tables_;
  std::unique_ptr<SimIo> io_;
  std::unique_ptr<StoreHarness> bench_;
  store::Key root_{};
  Residency residency_;
  GroupPool pool_;
  kv::PrefixIndex pages_;
  Mover mover_;
  std::array<Sequence, kSequences> sequences_;
  std::array<std::vector<u64>, kSequences> histories_;  // of each slot, all before it included
  std::vector<u64> forgotten_;                          // of a sequence that was cleared
};

}  // namespace

void run_mover_lives(u64 first_seed, u64 n_seeds, MoverRunCounts& counts) {
  for (u64 seed = first_seed; seed < first_seed + n_seeds; ++seed) {
    CAPTURE(seed);
    MoverLife(seed, counts).live();
  }
}

void check_mover_counts(const MoverRunCounts& counts, u64 n_min) {
  for (u32 i = 0; i < kv::kWheres; ++i) {
    const Where where = static_cast<Where>(i);
    if (where == Where::reserved) continue;  // none is left by an act
    CAPTURE(std::string(where_name(where)));
    CHECK(counts.wheres[i] >= n_min);
  }
  check_faults(counts.faults, n_min);
  check_errors(counts.faults, n_min);
  const EventCount others[] = {
      {"pin set", counts.pin_sets},
      {"hit", counts.hits},
      {"waited for", counts.waited},
      {"lost", counts.lost},
      {"nothing could move", counts.stuck},
      {"of them, write budget", counts.over_budget},
      {"load", counts.loads},
      {"gather", counts.gathers},
      {"load of sectors", counts.parts},
      {"spill", counts.spills},
      {"record was known", counts.known},
      {"spill failed", counts.spill_failures},
      {"eviction", counts.evictions},
      {"truncation", counts.truncations},
      {"fork", counts.forks},
      {"clear", counts.clears},
      {"taken up", counts.taken_up},
      {"page taken from memory", counts.taken_from_memory},
      {"page replaced by an equal one", counts.replaced},
      {"idle page dropped for its frames", counts.dropped},
      {"frame returned late", counts.late_frames},
  };
  check_events(others, n_min);
}

}  // namespace tarn::test
