#include "tests/sim/select_random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/open_engine.h"

namespace tarn::test {
namespace {

using engine::Engine;
using engine::Event;
using engine::EventType;
using engine::Finish;
using engine::SessionIdx;
using engine::SessionState;

constexpr u32 kSessions = 3;
constexpr u32 kAnswersALife = 12;
constexpr u32 kStepsToRest = 15'000;  // of a millisecond: a slow call takes ten seconds

constexpr SelectMethod kMethods[] = {SelectMethod::pq, SelectMethod::quest, SelectMethod::pq,
                                     SelectMethod::window};

Config config_of(bool streamed, u64 seed) {
  Config config = small_config();
  config.context_tokens = 1024;
  config.page_tokens = 16;
  config.sessions_max = kSessions;
  config.batch_rows_max = 48;
  config.select.method = kMethods[seed / 3 % 4];
  config.select.code_bits = 2;
  config.select.n_subspaces = 2;
  config.select.n_sinks = 5;
  config.select.n_local = 30;
  config.select.k = 20;
  config.select.iterations = 2;
  config.select.swap_tokens = 4;
  config.select.context_min = 1;
  config.select.codebooks = seed / 12 % 2 == 0 ? 1 : 3;
  if (!streamed) return config;
  // Groups of 8 KiB, of 134; with many a cache and extents, which take some of them.
  config.kv_memory_bytes = (seed % 3 == 0 ? 120 : 44) * u64{8192};
  config.store.quota_bytes = 64 * kMiB;
  set_text(config.store.path, "store");
  return config;
}

class SelectLife {
 public:
  SelectLife(u64 seed, const std::string& model, SelectCounts& counts)
      : random_(seed),
        counts_(counts),
        disk_(seed),
        io_(disk_, clock_, 32),
        resident_(model, config_of(false, seed)),
        open_(model, config_of(true, seed), &clock_, &io_) {
    faulty_ = seed % 4 != 0;
    fault_ = static_cast<u32>(seed / 4 * 3 + seed % 4) % kSimFaults;
  }
  ~SelectLife() {
    disk_.script.ppm = {};
    io_.let_stuck_go();
  }

  void run() {
    const u64 until = counts_.answers + kAnswersALife;
    for (u32 i = 0; i < 40 * kAnswersALife && counts_.answers < until; ++i) act();
    disk_.script.ppm = {};
    io_.let_stuck_go();
    for (u32 i = 0; i < kStepsToRest && engine().has_work(); ++i) step();
    CAPTURE(random_.seed());
    CHECK_FALSE(engine().has_work());
    engine().pool().check_invariants();
    engine().kv_stream().residency().check_invariants();
    const kv::MoverStats& stats = engine().kv_stream().stats();
    counts_.loads += stats.n_loads;
    counts_.gathered += stats.n_gather_reads;
    counts_.lost += stats.n_lost;
    counts_.faults.add(disk_);
  }

 private:
  // A session, and the one that was told the same in memory.
  struct Pair {
    SessionIdx resident = 0;
    bool is_apart = false;  // something has befallen the one that the other was spared
    u32 n_inputs = 0;
    bool has_chosen = false;
    std::optional<std::vector<u32>> wanted{};  // of the answer under way
    std::vector<u32> said{};
  };

  Engine& engine() { return open_.engine; }
  Engine& resident() { return resident_.engine; }
  const engine::Session& state(SessionIdx s) { return engine().session_state(s); }
  bool chance(u32 percent) { return random_.below(100) < percent; }

  std::optional<SessionIdx> any_idle() {
    std::vector<SessionIdx> found;
    for (SessionIdx s = 0; s < kSessions; ++s) {
      if (state(s).state == SessionState::idle) found.push_back(s);
    }
    if (found.empty()) return std::nullopt;
    return found[random_.below(found.size())];
  }

  void act() {
    if (faulty_ && chance(8)) change_disk();
    const u64 what = random_.below(100);
    if (what < 6) return create();
    if (what < 24) return feed();
    if (what < 50) return generate();
    if (what < 54) return truncate();
    if (what < 58) return fork();
    if (what < 59) return destroy();
    for (u64 n = random_.below(20); n > 0 && engine().has_work(); --n) step();
  }

  void change_disk() {
    disk_.script.ppm = {};
    if (chance(50)) return;
    disk_.script.errors = {chance(50) ? 5 : 28};  // EIO, ENOSPC
    disk_.script.ppm[fault_] = chance(50) ? 30'000 : 300'000;
    if (chance(50)) io_.let_stuck_go();
  }

  void create() {
    const Result<SessionIdx> session = engine().create_session();
    if (!session) return;
    const Result<SessionIdx> other = resident().create_session();
    REQUIRE(other.has_value());
    pairs_[*session] = {.resident = *other};
  }

  void feed() {
    const auto s = any_idle();
    if (!s) return create();
    if (end_if_apart(*s)) return;
    std::vector<u32> ids(1 + random_.below(chance(40) ? 250 : 40));
    for (u32& id : ids) id = static_cast<u32>(random_.below(1024));
    if (!engine().feed(*s, ids)) return;
    Pair& pair = pairs_[*s];
    ++pair.n_inputs;
    if (!resident().feed(pair.resident, ids)) pair.is_apart = true;
    resident_.run();
  }

  void generate() {
    const auto s = any_idle();
    if (!s || end_if_apart(*s) || state(*s).n_ids == 0) return;
    engine::GenerateParams params{.max_tokens = static_cast<u32>(2 + random_.below(12)),
                                  .ignore_end = true};
    if (chance(50)) params.sampler.temperature = 0.9f;
    params.sampler.seed = random_.next();
    if (!engine().generate(*s, params)) return;
    Pair& pair = pairs_[*s];
    pair.said.clear();
    pair.has_chosen = false;
    if (!resident().generate(pair.resident, params)) {
      pair.is_apart = true;
      pair.wanted.emplace();
      return;
    }
    pair.wanted = read_all(resident(), pair.resident).tokens;
  }

  void truncate() {
    const auto s = any_idle();
    if (!s || end_if_apart(*s)) return;
    const u32 n = static_cast<u32>(random_.below(state(*s).n_ids + 1u));
    if (!engine().truncate(*s, n)) {
      pairs_[*s].is_apart = true;
      return;
    }
    REQUIRE(resident().truncate(pairs_[*s].resident, n).has_value());
    ++counts_.truncations;
  }

  void fork() {
    const auto s = any_idle();
    if (!s || end_if_apart(*s)) return;
    const Result<SessionIdx> copy = engine().fork(*s);
    if (!copy) return;
    const Result<SessionIdx> other = resident().fork(pairs_[*s].resident);
    REQUIRE(other.has_value());
    pairs_[*copy] = {.resident = *other, .n_inputs = pairs_[*s].n_inputs};
    ++counts_.forks;
  }

  void destroy() {
    const auto s = any_idle();
    if (!s) return;
    engine().destroy_session(*s);
    resident().destroy_session(pairs_[*s].resident);
  }

  bool end_if_apart(SessionIdx s) {
    if (!pairs_[s].is_apart) return false;
    ++counts_.given_up;
    engine().destroy_session(s);
    resident().destroy_session(pairs_[s].resident);
    return true;
  }

  void step() {
    const engine::StepTrace& trace = engine().step();
    counts_.clusterings += trace.n_cluster_units;
    counts_.beside += trace.n_sequences > 1;
    for (SessionIdx s = 0; s < kSessions; ++s) {
      if (state(s).state == SessionState::free) continue;
      Pair& pair = pairs_[s];
      if (trace.n_slots_chosen > 0 && pair.wanted) pair.has_chosen = true;
      // Its KV was lost, and is computed anew: as one input.
      if (state(s).given_up.status != Status::ok) pair.is_apart = true;
      if (pair.wanted) drain(s, pair);
    }
  }

  void drain(SessionIdx s, Pair& pair) {
    Event event;
    char text[engine::EventRing::kTextBytes];
    while (pair.wanted && engine().take_event(s, &event, text)) {
      if (event.type == EventType::token) pair.said.push_back(event.token.token);
      if (event.type == EventType::done) compare(pair, event);
    }
  }

  void compare(Pair& pair, const Event& event) {
    const std::vector<u32> wanted = *std::exchange(pair.wanted, std::nullopt);
    CAPTURE(random_.seed());
    CAPTURE(counts_.answers);
    const u64 n = std::min(wanted.size(), pair.said.size());
    CHECK(std::equal(wanted.begin(), wanted.begin() + static_cast<i64>(n), pair.said.begin()));
    if (event.done.finish == Finish::error) {
      CHECK((faulty_ || event.done.status == Status::would_block));
    }
    // One of them had no room for more: they differ from here on.
    const bool is_whole = wanted.size() == pair.said.size();
    pair.is_apart = pair.is_apart || !is_whole || event.done.finish == Finish::error;
    ++counts_.answers;
    counts_.whole += is_whole;
    counts_.by_selection += pair.has_chosen;
    counts_.later_inputs += pair.n_inputs > 1;
  }

  Random random_;
  SelectCounts& counts_;
  VirtualClock clock_;
  SimDisk disk_;
  SimIo io_;
  OpenEngine resident_;
  OpenEngine open_;
  bool faulty_ = false;
  u32 fault_ = 0;  // of this life
  std::array<Pair, kSessions> pairs_{};
};

}  // namespace

void run_select(u64 first_seed, u64 n_answers, SelectCounts& counts) {
  const SmallModel model("llama", "q8_0");
  for (u64 seed = first_seed; counts.answers < n_answers; ++seed) {
    SelectLife(seed, model.path(), counts).run();
  }
}

void check_select_counts(const SelectCounts& counts, u64 n_min) {
  const EventCount events[] = {
      {"answer", counts.answers},
      {"whole", counts.whole},
      {"by selection", counts.by_selection},
      {"behind more inputs", counts.later_inputs},
      {"session given up", counts.given_up},
      {"truncation", counts.truncations},
      {"fork", counts.forks},
      {"step of several", counts.beside},
      {"clustered layer", counts.clusterings},
      {"load", counts.loads},
      {"group gathered from", counts.gathered},
      {"lost group", counts.lost},
  };
  check_events(events, n_min);
  check_faults(counts.faults, n_min > 1 ? n_min : 0);  // of a slice one kind may be missing
  CHECK(counts.whole >= counts.answers / 2);  // or the comparison says little
}

}  // namespace tarn::test
