#include "tests/sim/reuse_random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/lab/probe.h"
#include "tests/sim/event_counts.h"
#include "tests/sim/next_io.h"
#include "tests/support/kv_invariants.h"
#include "tests/support/open_engine.h"

namespace tarn::test {
namespace {

using engine::Engine;
using engine::Event;
using engine::EventType;
using engine::Finish;
using engine::SessionIdx;
using engine::SessionState;

constexpr u32 kContext = 1024;
constexpr u32 kPage = 16;
constexpr u32 kLayers = 2;
constexpr u32 kSessions = 3;
constexpr u64 kFrames = 44;  // of the 128 groups that the context has, and the sessions' tails
constexpr u64 kGroupBytes = 8192;
constexpr u32 kRequestsALife = 10;
constexpr std::array<const char*, 2> kTenants = {"", "other"};
constexpr u32 kStepsToRest = 15'000;  // of a millisecond: a slow call takes ten seconds

// The kind of a life, beside its disk's faults.
struct Kind {
  bool q8_0 = false;
  bool keeps = false;      // sessions, which are saved, and the engine goes and another one comes
  bool in_memory = false;  // all KV
};

Config config_of(bool streamed, const Kind& kind) {
  Config config = small_config();
  config.context_tokens = kContext;
  config.page_tokens = kPage;
  config.sessions_max = kSessions;
  config.batch_rows_max = 48;
  config.kv_type = kind.q8_0 ? KvTypeChoice::q8_0 : KvTypeChoice::f16;
  config.reuse.prefix = streamed;
  if (!streamed || kind.in_memory) return config;
  config.store.sessions = kind.keeps;
  if (kind.keeps) config.store.checkpoint_ms = 3;
  config.kv_memory_bytes = kFrames * kGroupBytes;
  config.store.quota_bytes = 32 * kMiB;
  set_text(config.store.path, "store");
  return config;
}

// A session's request, and what it has said so far.
struct Request {
  std::vector<u32> ids;
  engine::SamplerParams sampler{};
  u32 max_tokens = 0;
  std::vector<u64> said;  // bits
};

// The history of a name: a digest of its tokens, and the last moment at which they were these.
struct NameHistory {
  std::map<u64, u64> seen_at;
  u64 saved_at = 0;  // 0: never
};

u64 digest_of(std::span<const u32> ids) {
  u64 digest = ids.size();
  for (const u32 id : ids) digest = (digest ^ id) * 0x100000001b3;
  return digest;
}

// Answers from an empty cache.
class Reference {
 public:
  Reference(const std::string& path, const Config& config) : open_(path, config) {}
  std::vector<u64> answer(const Request& request) {
    Engine& engine = open_.engine;
    const SessionIdx session = open_.session_with(request.ids);
    REQUIRE(engine.sessions()
                .generate(session, {.sampler = request.sampler,
                                    .max_tokens = request.max_tokens,
                                    .ignore_end = true})
                .has_value());
    std::vector<u64> bits = bits_of(read_all(engine, session));
    engine.sessions().destroy(session);
    return bits;
  }

 private:
  OpenEngine open_;
};

class Life {
 public:
  Life(u64 seed, const std::string& model, Reference& reference, const Kind& kind,
       ReuseCounts& counts)
      : random_(seed),
        model_(model),
        kind_(kind),
        reference_(reference),
        counts_(counts),
        disk_(seed),
        io_(std::make_unique<SimIo>(disk_, clock_, 32)) {
    faulty_ = seed % 4 != 0;
    fault_ = static_cast<u32>(seed / 4 * 3 + seed % 4) % kSimFaults;
    open();
  }
  ~Life() {
    disk_.script.ppm = {};
    io_->let_stuck_go();
  }

  void run() {
    const u64 until = counts_.requests + kRequestsALife;
    for (u32 i = 0; i < 40 * kRequestsALife && counts_.requests < until; ++i) act();
    disk_.script.ppm = {};
    io_->let_stuck_go();
    for (u32 i = 0; i < kStepsToRest && engine().has_work(); ++i) step();
    CAPTURE(random_.seed());
    CHECK_FALSE(engine().has_work());
    lab::Probe::pool(engine()).check_invariants();
    lab::Probe::kv(engine()).prefixes().index().check_invariants();
    if (!kind_.in_memory) check_invariants(lab::Probe::tiers(engine()).residency);
    count_moves();
    counts_.faults.add(disk_);
  }

 private:
  Engine& engine() { return open_->engine; }
  void open() {
    open_ = std::make_unique<OpenEngine>(model_, config_of(true, kind_), &clock_, io_.get());
  }
  void count_moves() {
    const kv::MoverStats& stats = lab::Probe::tiers(engine()).mover.stats();
    counts_.loads += stats.n_loads;
    counts_.spills += stats.n_spills;
    counts_.lost += stats.n_lost;
  }
  const engine::Session& state(SessionIdx s) { return engine().sessions().state(s); }
  bool chance(u32 percent) { return random_.below(100) < percent; }

  // The sessions that there are, each a slot of `requests_`.
  std::optional<SessionIdx> any(bool (*fits)(SessionState)) {
    std::vector<SessionIdx> found;
    for (SessionIdx s = 0; s < kSessions; ++s) {
      if (state(s).state != SessionState::free && fits(state(s).state)) found.push_back(s);
    }
    if (found.empty()) return std::nullopt;
    return found[random_.below(found.size())];
  }
  static bool is_any(SessionState) { return true; }
  static bool is_idle(SessionState s) { return s == SessionState::idle; }
  static bool is_quiet(SessionState s) { return s != SessionState::generating; }
  static bool is_busy(SessionState s) { return s != SessionState::idle; }

  void note_names() {
    ++moment_;
    for (SessionIdx s = 0; kind_.keeps && s < kSessions; ++s) {
      if (state(s).state == SessionState::free || state(s).saved.name_bytes == 0) continue;
      NameHistory& history = names_[std::string(state(s).saved.name())];
      history.seen_at[digest_of(state(s).tokens.ids.first(state(s).tokens.n_ids))] = moment_;
    }
  }

  void act() {
    note_names();
    if (faulty_ && chance(10)) change_disk();
    const u64 what = random_.below(100);
    if (what < 8) return create();
    if (what < 30) return feed();
    if (what < 50) return generate();
    if (what < 58) return truncate();
    if (what < 64) return fork();
    if (what < 66) return destroy();
    if (what < 69) return cancel();
    if (kind_.keeps && what < 74) return keep();
    if (kind_.keeps && what < 79) return restart();
    for (u64 n = random_.below(30); n > 0 && engine().has_work(); --n) step();
  }

  void change_disk() {
    disk_.script.ppm = {};
    if (chance(40)) return;
    disk_.script.errors = {chance(50) ? 5 : 28};  // EIO, ENOSPC
    disk_.script.ppm[fault_] = chance(50) ? 30'000 : 300'000;
    if (chance(50)) io_->let_stuck_go();
  }

  // Creates a session of one of two tenants, but where names are kept.
  void create() {
    const u32 tenant = kind_.keeps ? 0 : static_cast<u32>(random_.below(2));
    const Result<SessionIdx> session = engine().sessions().create({.tenant = kTenants[tenant]});
    if (!session) return;
    requests_[*session].reset();
    tenants_[*session] = tenant;
  }

  // Returns what goes on from here in a text that was said once, by any session; empty: nothing
  // does.
  std::vector<u32> said_before(SessionIdx s) {
    if (texts_.empty()) return {};
    const std::vector<u32>& text = texts_[random_.below(texts_.size())];
    const auto own = state(s).tokens.ids.first(state(s).tokens.n_ids);
    if (text.size() <= own.size() || !std::equal(own.begin(), own.end(), text.begin())) return {};
    const auto rest = std::span(text).subspan(own.size());
    const auto next = rest.first(1 + random_.below(rest.size()));
    return {next.begin(), next.end()};
  }
  void note_text(SessionIdx s) {
    const auto own = state(s).tokens.ids.first(state(s).tokens.n_ids);
    if (own.size() < kPage) return;
    if (texts_.size() < 8) texts_.emplace_back();
    texts_[random_.below(texts_.size())].assign(own.begin(), own.end());
    begun_[tenants_[s]].insert(digest_of(own.first(kPage)));
  }

  void feed() {
    const auto s = any(is_quiet);
    if (!s) return create();
    std::vector<u32> ids(1 + random_.below(chance(20) ? 300 : 60));
    for (u32& id : ids) id = static_cast<u32>(random_.below(1024));
    if (chance(70)) {
      const std::vector<u32> again = said_before(*s);
      ids.insert(ids.begin(), again.begin(), again.end());
    }
    const kv::Reused before = state(*s).generation.reused;
    if (!engine().sessions().feed(*s, ids)) return void(++counts_.refused);
    const bool is_own = begun_[tenants_[*s]].contains(digest_of(state(*s).tokens.ids.first(kPage)));
    note_text(*s);
    if (chance(30)) return;
    step();
    const kv::Reused& now = state(*s).generation.reused;
    counts_.reused_from_memory += now.n_from_memory > before.n_from_memory;
    counts_.reused_from_disk += now.n_from_disk > before.n_from_disk;
    CAPTURE(random_.seed());
    if (now.n_tokens() > before.n_tokens()) CHECK(is_own);
  }

  void generate() {
    const auto s = any(is_quiet);
    if (!s || state(*s).tokens.n_ids == 0) return;
    Request request;
    request.ids.assign(state(*s).tokens.ids.begin(),
                       state(*s).tokens.ids.begin() + state(*s).tokens.n_ids);
    request.max_tokens = static_cast<u32>(1 + random_.below(10));
    if (chance(50)) {
      request.sampler.temperature = 0.9f;
      request.sampler.seed = random_.next();
    }
    const Result<void> begun = engine().sessions().generate(
        *s, {.sampler = request.sampler, .max_tokens = request.max_tokens, .ignore_end = true});
    if (!begun) {
      CHECK((faulty_ || begun.error().status == Status::would_block));
      ++counts_.refused;
      return;
    }
    requests_[*s] = std::move(request);
  }

  void truncate() {
    const auto s = any(is_quiet);
    if (!s) return;
    const u32 n = static_cast<u32>(random_.below(state(*s).tokens.n_ids + 1u));
    const Result<void> cut = engine().sessions().truncate(*s, n);
    if (cut) CHECK(state(*s).tokens.n_ids == n);
    if (!cut) CHECK((faulty_ || cut.error().status == Status::would_block));
    ++counts_.truncations;
  }

  void fork() {
    const auto s = any(is_idle);
    if (!s) return;
    const Result<SessionIdx> copy = engine().sessions().fork(*s);
    if (!copy) return void(++counts_.refused);
    requests_[*copy].reset();
    tenants_[*copy] = tenants_[*s];
    ++counts_.forks;
  }

  void destroy() {
    const auto s = any(is_idle);
    if (!s) return;
    engine().sessions().destroy(*s);
    ++counts_.destroyed;
  }

  // Under the name of its number, for good or as it is now.
  void keep() {
    const auto s = any(is_idle);
    if (!s) return;
    const std::string name(1, static_cast<char>('a' + *s));
    const bool saves = chance(70);
    Status status = Status::ok;
    if (saves) {
      const auto saved = engine().sessions().save(*s, name);
      if (!saved) status = saved.error().status;
    } else if (const Result<void> kept = engine().sessions().autosave(*s, name); !kept) {
      status = kept.error().status;
    }
    // Another one may have that name already.
    const bool may_fail = faulty_ || status == Status::invalid_request;
    CHECK((may_fail || status == Status::ok || status == Status::would_block));
    if (!saves || status != Status::ok) return;
    ++counts_.saved;
    note_names();
    names_[name].saved_at = moment_;
  }

  // Restarts the engine. What was not saved is gone, whatever was on its way; what was is taken up,
  // or refused where the disk has lost it.
  void restart() {
    count_moves();
    if (chance(50)) disk_.script.ppm = {};
    requests_ = {};
    open_.reset();
    disk_.script.ppm = {};  // an engine opens over a disk that works
    io_ = next_io(disk_, clock_, std::move(io_));
    open();
    ++counts_.restarts;
    if (faulty_ && chance(50)) change_disk();
    for (const char* name : {"a", "b", "c"}) {
      const auto restored = engine().sessions().restore(name);
      const NameHistory& history = names_[name];
      CAPTURE(random_.seed());
      CAPTURE(name);
      if (!restored) {
        const bool was_saved = history.saved_at > 0;
        CAPTURE(std::string(restored.error().hint));
        const Status status = restored.error().status;
        // They shared pages: together they find room when the first one has computed them again.
        const bool is_full = status == Status::would_block;
        CHECK((faulty_ || is_full || (!was_saved && status == Status::not_found)));
        continue;
      }
      ++counts_.restored;
      tenants_[restored->idx] = 0;
      const engine::Session& taken = state(restored->idx);
      const auto found =
          history.seen_at.find(digest_of(taken.tokens.ids.first(taken.tokens.n_ids)));
      REQUIRE(found != history.seen_at.end());
      CHECK((faulty_ || found->second >= history.saved_at));  // the last that was saved, or later
    }
  }

  void cancel() {
    const auto s = any(is_busy);
    if (!s) return;
    if (state(*s).state == SessionState::computing) ++counts_.prefill_cancels;
    engine().sessions().request_cancel(*s);
  }

  void step() {
    engine().step();
    note_names();
    for (SessionIdx s = 0; s < kSessions; ++s) {
      if (requests_[s]) drain(s);
    }
  }

  void drain(SessionIdx s) {
    Event event;
    char text[engine::EventRing::kTextBytes];
    while (requests_[s] && engine().sessions().take_event(s, &event, text)) {
      if (event.type == EventType::token) requests_[s]->said.push_back(bits_of(event.token));
      if (event.type == EventType::done) compare(*std::exchange(requests_[s], std::nullopt), event);
    }
  }

  void compare(const Request& request, const Event& event) {
    const std::vector<u64> want = reference_.answer(request);
    CAPTURE(random_.seed());
    CAPTURE(counts_.requests);
    REQUIRE(request.said.size() <= want.size());
    CHECK(std::equal(request.said.begin(), request.said.end(), want.begin()));
    ++counts_.requests;
    counts_.tokens += request.said.size();
    switch (event.done.finish) {
      case Finish::error:
        CHECK((faulty_ || event.done.status == Status::would_block));
        ++counts_.failed;
        break;
      case Finish::cancelled:
        ++counts_.cancelled;
        break;
      default:
        // Shorter where other sessions hold what the next token would need.
        CHECK((request.said.size() == want.size() ||
               lab::Probe::pool(engine()).groups_free() < kLayers));
        ++counts_.whole;
    }
  }

  Random random_;
  const std::string& model_;
  Kind kind_;
  Reference& reference_;
  ReuseCounts& counts_;
  VirtualClock clock_;
  SimDisk disk_;
  std::unique_ptr<SimIo> io_;  // of one engine
  std::unique_ptr<OpenEngine> open_;
  bool faulty_ = false;
  u32 fault_ = 0;  // of this life
  std::array<std::optional<Request>, kSessions> requests_{};
  std::array<u32, kSessions> tenants_{};
  std::vector<std::vector<u32>> texts_;  // that were said, the last ones
  std::array<std::set<u64>, 2> begun_;   // first pages that a tenant has said, by digest
  std::map<std::string, NameHistory> names_;
  u64 moment_ = 0;
};

}  // namespace

void run_reuse(u64 first_seed, u64 n_requests, ReuseCounts& counts) {
  const SmallModel model("llama", "q8_0");
  std::array<std::unique_ptr<Reference>, 2> references;
  for (const bool q8_0 : {false, true}) {
    references[q8_0] = std::make_unique<Reference>(model.path(), config_of(false, {q8_0}));
  }
  for (u64 seed = first_seed; counts.requests < n_requests; ++seed) {
    // Over disks without faults, too: one in four is (see Life).
    const u64 place = seed / 4 % 5;
    const Kind kind{.q8_0 = seed % 3 == 1, .keeps = place % 2 == 1, .in_memory = place == 4};
    Life(seed, model.path(), *references[kind.q8_0], kind, counts).run();
  }
}

void check_reuse_counts(const ReuseCounts& counts, u64 n_min) {
  const EventCount events[] = {
      {"answer", counts.requests},
      {"whole", counts.whole},
      {"ended by an error", counts.failed},
      {"cancelled", counts.cancelled},
      {"token", counts.tokens},
      {"refused for room", counts.refused},
      {"truncation", counts.truncations},
      {"fork", counts.forks},
      {"session destroyed", counts.destroyed},
      {"prompt cancelled", counts.prefill_cancels},
      {"session saved", counts.saved},
      {"restart", counts.restarts},
      {"session taken up", counts.restored},
      {"load", counts.loads},
      {"spill", counts.spills},
      {"lost group", counts.lost},
      {"prefix from memory", counts.reused_from_memory},
      {"prefix from the disk", counts.reused_from_disk},
  };
  check_events(events, n_min);
  check_faults(counts.faults, n_min);
  CHECK(counts.whole >= counts.requests / 2);  // or the comparison says little
}

}  // namespace tarn::test
