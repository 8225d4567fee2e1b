#include "tests/sim/select_random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/lab/probe.h"
#include "tests/sim/next_io.h"
#include "tests/support/cancelling_clock.h"
#include "tests/support/kv_invariants.h"
#include "tests/support/method_rows.h"
#include "tests/support/open_engine.h"

namespace tarn::test {
namespace {

using engine::Engine;
using engine::Event;
using engine::EventType;
using engine::Finish;
using engine::SessionIdx;
using engine::SessionState;

constexpr u32 kLayers = 2;
constexpr u32 kSessions = 3;
constexpr u32 kAnswersALife = 12;
constexpr u32 kStepsToRest = 15'000;  // of a millisecond: a slow call takes ten seconds

bool has_many(u64 seed) { return seed % 3 == 0; }
bool keeps(u64 seed) { return seed / 7 % 2 == 1; }
bool has_exact_answers(u64 seed) { return seed % 5 == 4; }

// Every second life is by a trained method.
const char* method_of(u64 seed) {
  const auto share = [&](const MethodRow& row) -> u64 {
    return row.streams && row.trains == (seed / 3 % 2 == 0) ? row.n_lives : 0;
  };
  u64 n_all = 0;
  for (const MethodRow& row : kMethodRows) n_all += share(row);
  u64 n = seed / 6 % n_all;
  const MethodRow* row = kMethodRows;
  for (; n >= share(*row); ++row) n -= share(*row);
  return row->name;
}

Config config_of(bool streamed, u64 seed) {
  Config config = small_config();
  config.context_tokens = has_many(seed) ? 2048 : 1024;
  config.page_tokens = 16;
  config.sessions_max = kSessions;
  config.batch_rows_max = 48;
  lab::set_method(config.select, method_of(seed));
  config.select.code_bits = 2;
  config.select.n_subspaces = 2;
  config.select.n_sinks = 5;
  config.select.n_local = 30;
  config.select.k = 20;
  config.select.iterations = 2;
  config.select.index_delay_tokens = 4;
  config.select.context_min = 1;
  config.select.exact_answers = has_exact_answers(seed);
  if (!streamed) return config;
  // Groups of 8 KiB, of 134; with many, of 262, a cache and extents, which take
  // some of them.
  config.kv_memory_bytes = (has_many(seed) ? 250 : 44) * u64{8192};
  config.store.quota_bytes = 64 * kMiB;
  config.store.sessions = keeps(seed);
  if (keeps(seed)) config.store.checkpoint_ms = 3;
  set_text(config.store.path, "store");
  return config;
}

Config full_config(u64 seed) {
  Config config = config_of(/*streamed=*/false, seed);
  config.select.method = SelectMethod::full;
  return config;
}

class SelectLife {
 public:
  SelectLife(u64 seed, const std::string& model, SelectCounts& counts)
      : random_(seed),
        model_(model),
        config_(config_of(true, seed)),
        counts_(counts),
        disk_(seed),
        io_(std::make_unique<SimIo>(disk_, clock_.disk, 32)),
        resident_(model, config_of(false, seed)) {
    open();
    if (has_exact_answers(seed)) full_.emplace(model, full_config(seed));
    keeps_ = keeps(seed);
    faulty_ = seed % 4 != 0;
    fault_ = static_cast<u32>(seed / 4 * 3 + seed % 4) % kSimFaults;
  }
  ~SelectLife() {
    disk_.script.ppm = {};
    io_->let_stuck_go();
  }

  void run() {
    const u64 until = counts_.answers + kAnswersALife;
    for (u32 i = 0; i < 40 * kAnswersALife && counts_.answers < until; ++i) act();
    disk_.script.ppm = {};
    io_->let_stuck_go();
    for (u32 i = 0; i < kStepsToRest && engine().has_work(); ++i) step();
    CAPTURE(random_.seed());
    CHECK_FALSE(engine().has_work());
    lab::Probe::pool(engine()).check_invariants();
    check_invariants(lab::Probe::tiers(engine()).residency);
    count_moves();
    counts_.faults.add(disk_);
  }

 private:
  // A session, and the one that was told the same in memory.
  struct Pair {
    SessionIdx resident = 0;
    bool is_apart = false;  // something has befallen the one that the other was spared
    u32 n_inputs = 0;
    bool has_chosen = false;
    std::string name{};  // that it is kept under
    bool is_saved = false;
    engine::GenerateParams params{};           // of its last answer
    std::optional<std::vector<u64>> wanted{};  // of the answer under way, its bits
    bool was_full = false;                     // the other one's pool, then
    std::vector<u64> said{};
    bool is_cancelled = false;  // the answer under way is, or will be
    std::optional<Finish> ended{};
  };

  Engine& engine() { return open_->engine; }
  void open() { open_ = std::make_unique<OpenEngine>(model_, config_, &clock_, io_.get()); }
  void count_moves() {
    const kv::MoverStats& stats = lab::Probe::tiers(engine()).mover.stats();
    counts_.loads += stats.n_loads;
    counts_.gathered += stats.n_gather_reads;
    counts_.lost += stats.n_lost;
    const kv::ExtentStats& extents = lab::Probe::tiers(engine()).extents.stats();
    counts_.codebooks_read += extents.n_codebooks_read;
    counts_.extents_adopted += extents.n_adopted;
  }
  static std::vector<u32> ids_of(const engine::Session& s) {
    return {s.tokens.ids.begin(), s.tokens.ids.begin() + s.tokens.n_ids};
  }
  Engine& resident() { return resident_.engine; }
  const engine::Session& state(SessionIdx s) { return engine().sessions().state(s); }
  // Whether other sessions hold what the next token would need.
  static bool is_full(Engine& engine) { return lab::Probe::pool(engine).groups_free() < kLayers; }
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
    if (what < 44) return generate();
    if (what < 50) return cancel();
    if (what < 54) return truncate();
    if (what < 58) return fork();
    if (what < 59) return destroy();
    if (keeps_ && what < (faulty_ ? 62 : 66)) return restart();
    for (u64 n = random_.below(20); n > 0 && engine().has_work(); --n) step();
  }

  void change_disk() {
    disk_.script.ppm = {};
    if (chance(50)) return;
    disk_.script.errors = {chance(50) ? 5 : 28};  // EIO, ENOSPC
    disk_.script.ppm[fault_] = chance(50) ? 30'000 : 300'000;
    if (chance(50)) io_->let_stuck_go();
  }

  // In every life under another name.
  void keep(SessionIdx s) {
    if (!keeps_) return;
    pairs_[s].name = "talk " + std::to_string(n_names_++);
    if (!engine().sessions().autosave(s, pairs_[s].name)) pairs_[s].is_apart = true;
  }

  // The engine goes, and another one restores what was saved, or its last checkpoint.
  void restart() {
    const bool saves = faulty_ || chance(50);
    std::vector<Pair> pairs;
    for (SessionIdx s = 0; s < kSessions; ++s) {
      if (state(s).state == SessionState::free || end_if_apart(s)) continue;
      Pair& pair = pairs_[s];
      const bool is_quiet = !pair.wanted && state(s).state == SessionState::idle;
      pair.is_saved = saves && is_quiet && engine().sessions().save(s, pair.name).has_value();
      pairs.push_back(std::exchange(pair, {}));
    }
    count_moves();
    // Writes while the engine ends, and bytes that the disk has not synced, may be lost.
    std::optional<SimDisk> image;
    if (chance(50)) {
      image = disk_;
      image->power_loss({.kept = SimKept::some, .torn = chance(50), .seed = random_.next()});
      ++counts_.power_losses;
    }
    open_.reset();
    io_ = next_io(disk_, clock_.disk, std::move(io_));
    if (image) disk_ = *image;
    disk_.script.ppm = {};  // an engine opens over a disk that works
    open();
    ++counts_.restarts;
    for (Pair& pair : pairs) restore(pair);
  }

  void restore(Pair& pair) {
    CAPTURE(random_.seed());
    CAPTURE(pair.name);
    const auto restored = engine().sessions().restore(pair.name);
    if (!restored) {
      // Taken up, sessions do not share groups as forks do, so there may be no room for all.
      const bool has_room = restored.error().status != Status::would_block;
      CHECK((faulty_ || !pair.is_saved || !has_room));
      return resident().sessions().destroy(pair.resident);
    }
    const engine::Session& mine = state(restored->idx);
    const engine::Session& theirs = resident().sessions().state(pair.resident);
    const std::vector<u32> ids = ids_of(mine), wanted_ids = ids_of(theirs);
    pairs_[restored->idx] = pair;
    Pair& own = pairs_[restored->idx];
    const bool is_older = restored->is_cut_off && restored->n_drawn > 0 && !pair.wanted;
    if (ids == wanted_ids && !is_older && !(pair.wanted && restored->is_cut_off)) {
      own.wanted.reset();
      own.is_apart = !has_same_index(restored->idx, pair.resident);
      CHECK((faulty_ || !own.is_apart));
      ++counts_.restored;
    } else if (!faulty_ && is_part(pair, *restored, wanted_ids.size()) &&
               std::equal(ids.begin(), ids.end(), wanted_ids.begin())) {
      say_the_rest(restored->idx, restored->n_drawn, wanted_ids);
    } else {
      own.is_apart = true;  // the last checkpoint is older
      own.wanted.reset();
      CHECK((faulty_ || !pair.is_saved));
    }
  }

  // Its KV, and what it chooses by, are what they were; one that tells its index of a turn later
  // says the same in the end.
  bool has_same_index(SessionIdx s, SessionIdx other) {
    if (state(s).approx.first_slot != resident().sessions().state(other).approx.first_slot)
      return false;
    // One that has read its input is ahead of one that goes on reading, and else like it.
    const u32 n_slots = resident().sessions().state(other).sequence.n_slots();
    const bool is_behind = state(s).sequence.n_slots() != n_slots;
    if (is_behind && (faulty_ || state(s).state != SessionState::computing)) return false;
    const method::KeptIndex mine = lab::Probe::selector(engine()).kept(s);
    const method::KeptIndex theirs = lab::Probe::selector(resident()).kept(other);
    return mine.turn_end != 0 || theirs.turn_end != 0 || mine == theirs;
  }

  // Whether the checkpoint is from the middle of the answer that the engine's end cut off.
  static bool is_part(const Pair& pair, const engine::SessionPool::Restored& restored,
                      u64 n_wanted) {
    if (!pair.wanted || !restored.is_cut_off || restored.n_drawn == 0) return false;
    return restored.n_tokens == n_wanted - pair.wanted->size() + restored.n_drawn;
  }

  void say_the_rest(SessionIdx s, u64 n_said, const std::vector<u32>& wanted_ids) {
    Pair& pair = pairs_[s];
    const std::vector<u32> ids = ids_of(state(s));
    const u64 n_before = wanted_ids.size() - pair.wanted->size();
    const u64 n_there = ids.size() - n_before;  // as many of them are as wanted
    pair.said.assign(pair.wanted->begin(), pair.wanted->begin() + static_cast<i64>(n_there));
    // It may have been cut off before; n_said counts from its beginning.
    pair.params.max_tokens += static_cast<u32>(pair.params.first_draw);
    pair.params.max_tokens -= static_cast<u32>(n_said);
    pair.params.first_draw = n_said;
    REQUIRE(engine().sessions().generate(s, pair.params).has_value());
    ++counts_.went_on;
  }

  void create() {
    const Result<SessionIdx> session = engine().sessions().create();
    if (!session) return;
    const Result<SessionIdx> other = resident().sessions().create();
    REQUIRE(other.has_value());
    pairs_[*session] = {.resident = *other};
    keep(*session);
  }

  void feed() {
    const auto s = any_idle();
    if (!s) return create();
    if (end_if_apart(*s)) return;
    std::vector<u32> ids(1 + random_.below(chance(40) ? 250 : 40));
    for (u32& id : ids) id = static_cast<u32>(random_.below(1024));
    if (!engine().sessions().feed(*s, ids)) return;
    Pair& pair = pairs_[*s];
    ++pair.n_inputs;
    if (!resident().sessions().feed(pair.resident, ids)) pair.is_apart = true;
    resident_.run();
  }

  void generate() {
    const auto s = any_idle();
    if (!s || end_if_apart(*s) || state(*s).tokens.n_ids == 0) return;
    const u64 n_max = keeps_ ? 40 : 12;
    engine::GenerateParams params{.max_tokens = static_cast<u32>(2 + random_.below(n_max)),
                                  .ignore_end = true};
    if (chance(50)) params.sampler.temperature = 0.9f;
    params.sampler.seed = random_.next();
    if (!engine().sessions().generate(*s, params)) return;
    Pair& pair = pairs_[*s];
    pair.params = params;
    pair.said.clear();
    pair.has_chosen = false;
    const bool ends_input = ends_with_input(pair.resident);
    const bool is_told = resident().sessions().generate(pair.resident, params).has_value();
    // Where KV was lost, what selection had left in it is computed anew, exactly. Without faults
    // nothing is, and tokens tell.
    const u32 first_approx_slot = resident().sessions().state(pair.resident).approx.first_slot;
    const bool is_same = !faulty_ || state(*s).approx.first_slot == first_approx_slot;
    bool had_room = is_told;
    if (is_told) {
      const test::Said said = read_all(resident(), pair.resident);
      pair.wanted = bits_of(said);
      had_room = said.done.status != Status::would_block;
      if (full_ && ends_input && !pair.wanted->empty())
        check_exact(*s, params, pair.wanted->front());
    }
    if (!had_room || !is_same) {
      pair.is_apart = true;
      pair.wanted.emplace();
      return;
    }
    pair.was_full = is_full(resident());
    CHECK((pair.wanted->size() == params.max_tokens || pair.was_full));
  }

  bool ends_with_input(SessionIdx resident_idx) {
    const engine::Tokens& tokens = resident().sessions().state(resident_idx).tokens;
    return tokens.turns.n_fed() == tokens.n_ids;
  }
  // With exact answers the first token behind an input is that of an engine that selects nothing.
  void check_exact(SessionIdx s, engine::GenerateParams params, u64 said) {
    const SessionIdx session = full_->session_with(ids_of(state(s)));
    params.max_tokens = 1;
    REQUIRE(full_->engine.sessions().generate(session, params).has_value());
    CAPTURE(random_.seed());
    CHECK(bits_of(read_all(full_->engine, session)) == std::vector<u64>{said});
    full_->engine.sessions().destroy(session);
    ++counts_.exact;
  }

  // An answer that is cancelled at any moment of any step; the other one has as many tokens, and no
  // cancel.
  void cancel() {
    const auto s = any_idle();
    if (!s || end_if_apart(*s) || state(*s).tokens.n_ids == 0) return;
    engine::GenerateParams params{.max_tokens = 40, .ignore_end = true};
    params.sampler.seed = random_.next();
    if (!engine().sessions().generate(*s, params)) return;
    Pair& pair = pairs_[*s];
    pair.said.clear();
    pair.is_cancelled = true;
    pair.ended.reset();
    clock_.arm(engine(), *s, 1 + random_.below(chance(50) ? 100 : 3000));
    for (u32 i = 0; i < 400 && !pair.ended; ++i) step();
    clock_.disarm();
    if (!pair.ended) engine().sessions().request_cancel(*s);
    for (u32 i = 0; i < 400 && !pair.ended; ++i) step();
    pair.is_cancelled = false;
    params.max_tokens = static_cast<u32>(pair.said.size());
    pair.is_apart = pair.is_apart || !pair.ended || *pair.ended == Finish::error ||
                    params.max_tokens == 0 ||  // its input may not be computed to the end
                    !resident().sessions().generate(pair.resident, params);
    if (!pair.ended) pair.wanted.emplace();
    if (pair.is_apart) return;
    CAPTURE(random_.seed());
    const engine::Session& other = resident().sessions().state(pair.resident);
    const std::vector<u64> wanted = bits_of(read_all(resident(), pair.resident));
    const bool is_lossy_alike = state(*s).approx.first_slot == other.approx.first_slot;
    pair.is_apart = wanted.size() != pair.said.size() || (faulty_ && !is_lossy_alike);
    CHECK((pair.is_apart || wanted == pair.said));
    CHECK((!pair.is_apart || faulty_ || is_full(resident())));
    counts_.cancelled += *pair.ended == Finish::cancelled;
  }

  void truncate() {
    const auto s = any_idle();
    if (!s || end_if_apart(*s)) return;
    // Anywhere, or a little in front of the end, where an index and its caches stay.
    const u32 n_ids = state(*s).tokens.n_ids;
    const u32 n_less_max = chance(50) ? n_ids : std::min(n_ids, 3 * config_.select.n_local);
    const u32 n = n_ids - static_cast<u32>(random_.below(n_less_max + 1u));
    if (!engine().sessions().truncate(*s, n)) {
      pairs_[*s].is_apart = true;
      return;
    }
    REQUIRE(resident().sessions().truncate(pairs_[*s].resident, n).has_value());
    ++counts_.truncations;
  }

  void fork() {
    const auto s = any_idle();
    if (!s || end_if_apart(*s)) return;
    const Result<SessionIdx> copy = engine().sessions().fork(*s);
    if (!copy) return;
    const Result<SessionIdx> other = resident().sessions().fork(pairs_[*s].resident);
    if (!other) {  // it holds KV that the other one has lost, or given up
      CHECK(other.error().status == Status::would_block);
      return engine().sessions().destroy(*copy);
    }
    pairs_[*copy] = {.resident = *other, .n_inputs = pairs_[*s].n_inputs};
    keep(*copy);
    ++counts_.forks;
  }

  void destroy() {
    const auto s = any_idle();
    if (!s) return;
    engine().sessions().destroy(*s);
    resident().sessions().destroy(pairs_[*s].resident);
  }

  bool end_if_apart(SessionIdx s) {
    if (!pairs_[s].is_apart) return false;
    ++counts_.given_up;
    engine().sessions().destroy(s);
    resident().sessions().destroy(pairs_[s].resident);
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
      if (state(s).last_error.status != Status::ok) pair.is_apart = true;
      if (pair.wanted || pair.is_cancelled) drain(s, pair);
    }
  }

  void drain(SessionIdx s, Pair& pair) {
    Event event;
    char text[engine::EventRing::kTextBytes];
    while ((pair.wanted || pair.is_cancelled) && engine().sessions().take_event(s, &event, text)) {
      if (event.type == EventType::token) pair.said.push_back(bits_of(event.token));
      if (event.type != EventType::done) continue;
      pair.ended = event.done.finish;
      if (pair.wanted) compare(s, pair, event);
    }
  }

  void compare(SessionIdx s, Pair& pair, const Event& event) {
    const std::vector<u64> wanted = *std::exchange(pair.wanted, std::nullopt);
    CAPTURE(random_.seed());
    CAPTURE(counts_.answers);
    const u64 n = std::min(wanted.size(), pair.said.size());
    CHECK(std::equal(wanted.begin(), wanted.begin() + static_cast<i64>(n), pair.said.begin()));
    // Where one of them had no room for more, or for the last token that it said, which is not kept
    // then, they differ from here on.
    const bool is_whole = wanted.size() == pair.said.size() &&
                          ids_of(state(s)) == ids_of(resident().sessions().state(pair.resident));
    if (event.done.finish == Finish::error) {
      CHECK((faulty_ || event.done.status == Status::would_block));
    } else {
      CHECK((pair.said.size() >= wanted.size() || is_full(engine())));
      CHECK((pair.is_apart || is_whole || pair.was_full || is_full(engine())));
    }
    pair.is_apart = pair.is_apart || !is_whole || event.done.finish == Finish::error;
    ++counts_.answers;
    counts_.whole += is_whole;
    counts_.by_selection += pair.has_chosen;
    counts_.later_inputs += pair.n_inputs > 1;
  }

  Random random_;
  const std::string& model_;
  Config config_;
  SelectCounts& counts_;
  CancellingClock clock_;
  SimDisk disk_;
  std::unique_ptr<SimIo> io_;  // of one engine
  OpenEngine resident_;
  std::optional<OpenEngine> full_;  // where answers are exact
  std::unique_ptr<OpenEngine> open_;
  bool keeps_ = false;
  u32 n_names_ = 0;
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
      {"exact token behind an input", counts.exact},
      {"session given up", counts.given_up},
      {"truncation", counts.truncations},
      {"fork", counts.forks},
      {"cancelled answer", counts.cancelled},
      {"step of several", counts.beside},
      {"clustered layer", counts.clusterings},
      {"load", counts.loads},
      {"group gathered from", counts.gathered},
      {"lost group", counts.lost},
      {"restart", counts.restarts},
      {"loss of power", counts.power_losses},
      {"session taken up", counts.restored},
      {"codebook read", counts.codebooks_read},
      {"extent found again", counts.extents_adopted},
      {"answer that went on", counts.went_on},
  };
  check_events(events, n_min);
  check_faults(counts.faults, n_min > 1 ? n_min : 0);  // of a slice one kind may be missing
  CHECK(counts.whole >= counts.answers / 2);           // or the comparison says little
}

}  // namespace tarn::test
