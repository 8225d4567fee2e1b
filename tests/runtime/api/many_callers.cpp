#include "tests/runtime/api/many_callers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "platform/clock/clock.h"
#include "runtime/api/tarn_store.h"
#include "runtime/step/admission.h"
#include "tests/runtime/api/caller_talk.h"
#include "tests/runtime/api/caller_texts.h"
#include "tests/runtime/api/event_loop.h"
#include "tests/sim/event_counts.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"
#include "tools/support/alloc_counter.h"

namespace tarn::test {
namespace {

constexpr u32 kSlots = 68;      // conversations that the host wants
constexpr u32 kSessions = 64;   // and those that the engine has room for
constexpr u32 kAnswerMax = 40;  // tokens
constexpr u32 kCallsMax = 256;  // unanswered ones, as tarn.h says
constexpr u32 kPiecesMax = 6;   // that the host lets pile up before it asks what is there
// Lengths in tokens: of the KV, which holds about a sixth of what all want; and of a conversation
// that is cut, or given up. Over a disk memory holds the tails of all sessions, so they are longer.
struct Lengths {
  u32 context = 0, conversation = 0, feed = 0;
};
constexpr Lengths kInMemory{.context = 1152, .conversation = 220, .feed = 40};
constexpr Lengths kOverDisk{.context = 3072, .conversation = 520, .feed = 100};
constexpr const char* kTenants[] = {nullptr, "one", "other"};

// Events that the engine may tell of others while an interactive call waits: each of them may pass
// it so often, with an answer's tokens and texts, and the replies of a turn.
constexpr u64 kEventsAnAnswer = 2 * kAnswerMax + 16;
constexpr u64 kPatience = u64{kSlots} * (step::kOvertakenMax + 1) * kEventsAnAnswer;

// Opened without a hook that would use the heap on the engine's threads.
struct Opened {
  Opened(const std::string& path, const std::string& toml) {
    tarn_options options = TARN_INIT(tarn_options);
    options.model_path = path.c_str();
    options.config_toml = toml.c_str();
    options.chat_template = "chatml";
    options.budget_bytes = kGiB;
    if (tarn_open(&options, &engine) != TARN_OK) FAIL(std::string(tarn_error_text()));
  }
  ~Opened() { tarn_close(engine); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  tarn_engine* engine = nullptr;
};

class Life {
 public:
  Life(u64 seed, const std::string& model, const Texts& texts, bool q8_0, CallerCounts& counts)
      : random_(seed),
        texts_(texts),
        counts_(counts),
        folder_("many_callers"),
        keeps_(seed / 2 % 2 == 1),
        lengths_(keeps_ ? kOverDisk : kInMemory),
        waiting_max_(random_.below(2) == 0 ? kSessions : 12),
        n_tenants_(2 + static_cast<u32>(random_.below(2))),
        host_(model, toml(q8_0)) {
    for (std::vector<u32>& document : documents_) document = draw_ids(40 + random_.below(60));
  }

  void run(u64 n_acts) {
    CAPTURE(random_.seed());
    tarn_plan before = TARN_INIT(tarn_plan), after = TARN_INIT(tarn_plan);
    REQUIRE(tarn_engine_plan(host_.engine, &before) == TARN_OK);
    const bool closes_at_once = random_.below(6) == 0;
    for (u64 acts = 0; acts < n_acts;) {
      loop();
      for (u64 n = chance(30) ? random_.below(6) : 0; n > 0; --n, ++acts) act();
    }
    if (closes_at_once) {
      counts_.closed_in_flight += n_in_flight_;
    } else {
      drain();
      end_all();
    }
    CHECK(n_allocated_ == 0);
    REQUIRE(tarn_engine_plan(host_.engine, &after) == TARN_OK);
    CHECK(std::memcmp(&before, &after, sizeof before) == 0);
    ++counts_.lives;
  }
  // To be compared with what each says alone.
  const std::vector<HeardRef>& answers() const { return answers_; }

 private:
  std::string toml(bool q8_0) {
    std::string text = "kv.page_tokens = 16\nengine.sessions_max = 64\ncpu.threads = 1\n";
    const auto add = [&](const char* key, u64 value) {
      text += std::string(key) + " = " + std::to_string(value) + "\n";
    };
    add("kv.context_tokens", lengths_.context);
    add("engine.running_max", 4 + random_.below(13));
    add("engine.waiting_max", waiting_max_);
    add("engine.batch_rows_max", u64{64} << random_.below(2));
    if (q8_0) text += "kv.type = 'q8_0'\n";
    if (!keeps_) return text;
    text += "store.path = '" + folder_.path() + "'\nstore.quota_bytes = '64MiB'\n";
    text += "store.sessions = true\nstore.checkpoint_ms = 0\n";
    add("kv.memory_bytes", 2304 * kKiB);
    return text;
  }
  std::vector<u32> draw_ids(u64 n) {
    std::vector<u32> ids(n);
    for (u32& id : ids) id = static_cast<u32>(random_.below(1024));
    return ids;
  }
  bool chance(u64 percent) { return random_.below(100) < percent; }

  // ---- The loop -----------------------------------------------------------------------------

  bool is_busy() const {
    return n_in_flight_ > 0 ||
           std::ranges::any_of(slots_, [](const Talk* t) { return t != nullptr && t->answer; });
  }

  void loop() {
    if (is_busy()) {
      const tools::AllocScope scope;
      const bool is_told = is_readable(host_.engine, kLoopMs);
      const tools::AllocCounts asked = scope.so_far();
      n_allocated_ += asked.n_allocations + asked.n_maps;
      REQUIRE(is_told);  // the engine goes on
    }
    // Sometimes a slow reader.
    u64 n_most = chance(20) ? random_.below(8) : ~u64{0};
    int32_t status = TARN_OK;
    while (n_most-- > 0 && status == TARN_OK) {
      tarn_event event = TARN_INIT(tarn_event);
      status = tarn_engine_take(host_.engine, &event);
      if (status != TARN_OK) break;
      ++n_taken_;
      event.type == TARN_EVENT_REPLY ? on_reply(event) : on_event(event);
    }
    REQUIRE((status == TARN_OK || status == TARN_WOULD_BLOCK));
    if (++n_loops_ % 16 == 0) look_at_all();
  }

  // All ends, where nothing is begun. Then each session has the tokens that it should have.
  void drain() {
    is_draining_ = true;
    for (Talk* talk : slots_) {
      if (talk != nullptr) talk->moved_at = n_taken_;
    }
    while (is_busy()) loop();
    for (Talk* talk : slots_) {
      if (talk != nullptr) resolve(*talk);
    }
    while (is_busy()) loop();
  }

  // Progress of each, KV that was given up, and who waits too long.
  void look_at_all() {
    tarn_session_row rows[kSessions] = {TARN_INIT(tarn_session_row)};
    u64 n_rows = 0;
    REQUIRE(tarn_session_list(host_.engine, rows, kSessions, &n_rows) == TARN_OK);
    for (u64 i = 0; i < n_rows; ++i) {
      const auto at = by_handle_.find(rows[i].session);
      if (at == by_handle_.end()) continue;
      Talk& talk = *at->second;
      CHECK(rows[i].n_computed <= rows[i].n_tokens);
      const bool has_moved =
          rows[i].n_tokens != talk.n_tokens || rows[i].n_computed != talk.n_computed;
      // A place alone may take the last token's back, whose logits are wanted again.
      const bool is_evicted = rows[i].n_computed + 1 < talk.n_computed;
      counts_.evictions += is_evicted && talk.listed_epoch == talk.epoch;
      talk.listed_epoch = talk.epoch;
      talk.n_tokens = rows[i].n_tokens;
      talk.n_computed = rows[i].n_computed;
      if (has_moved) talk.moved_at = n_taken_;
    }
    for (const Talk* talk : slots_) {
      if (talk == nullptr || talk->is_resting()) continue;
      if (talk->is_background && !is_draining_) continue;  // while interactive ones come
      CHECK(n_taken_ - talk->moved_at <= kPatience);
    }
  }

  // ---- What is told -------------------------------------------------------------------------

  void on_event(const tarn_event& event) {
    const auto at = by_handle_.find(event.session);
    REQUIRE(at != by_handle_.end());  // none of a destroyed one
    Talk& talk = *at->second;
    CHECK(event.user == (talk.has_user ? &talk : nullptr));
    CHECK(event.request == nullptr);
    REQUIRE(talk.answer != nullptr);  // not before the reply, nor after DONE
    talk.moved_at = n_taken_;
    Heard& answer = *talk.answer;
    answer.take(event);
    if (event.type != TARN_EVENT_DONE) return;
    CAPTURE(talk.history);
    note(talk, "done", What::generate, event.finish);
    check_end(answer);
    counts_.tokens += answer.tokens.size();
    counts_.from_memory += event.reused_from_memory > 0;
    counts_.from_disk += event.reused_from_disk > 0;
    talk.answer = nullptr;
    CHECK(talk.told.end_answer());
    collect(talk);
  }

  void check_end(const Heard& answer) {
    const tarn_event& done = answer.done;
    const bool has_begun = !answer.tokens.empty();
    CHECK(done.n_tokens == answer.tokens.size());
    CHECK(done.status == TARN_OK);
    const u64 late_ns = u64{answer.options.deadline_ms} * 1'000'000;
    switch (done.finish) {
      case TARN_FINISH_END:
        CHECK(answer.options.ignore_end == 0);
        ++counts_.ends;
        break;
      case TARN_FINISH_STOP:
        CHECK(answer.options.n_stops > 0);
        ++counts_.stops;
        break;
      case TARN_FINISH_LENGTH:
        ++(done.n_tokens == answer.options.max_tokens ? counts_.lengths : counts_.context_full);
        break;
      case TARN_FINISH_CANCELLED:
        CHECK(answer.is_cancelled);
        ++(has_begun ? counts_.answer_cancels : counts_.prompt_cancels);
        break;
      case TARN_FINISH_DEADLINE:
        CHECK(late_ns > 0);
        CHECK(clock_.now_ns() - answer.asked_ns >= late_ns);
        ++(has_begun ? counts_.answer_deadlines : counts_.prompt_deadlines);
        break;
      default:
        FAIL_CHECK("an answer ended with ", tarn_finish_name(done.finish));
    }
  }

  // Answers whose history is known now.
  void collect(Talk& talk) {
    for (const HeardRef& answer : talk.told.take_known()) {
      if (answer->tokens.empty()) continue;
      answers_.push_back(answer);
      const Heard& a = *answer;
      if (a.done.finish != TARN_FINISH_LENGTH || a.done.n_tokens == a.options.max_tokens) continue;
      CHECK(a.base.size() + a.tokens.size() == lengths_.context + 1);  // the KV is full
    }
  }

  void on_reply(const tarn_event& reply) {
    Call& call = *static_cast<Call*>(reply.request);
    REQUIRE(call.is_in_flight);  // one reply each
    call.is_in_flight = false;
    --n_in_flight_;
    const int32_t status = reply.status;
    CHECK((status == TARN_OK) == (reply.text_bytes == 0));
    const std::string why = reply.text;
    CAPTURE(why);
    CAPTURE(status);
    const int what = static_cast<int>(call.what);
    CAPTURE(what);
    const std::string history = call.talk != nullptr ? call.talk->history : "";
    CAPTURE(history);
    if (Talk* const talk = call.talk) {
      note(*talk, "reply", call.what, status);
      CHECK(reply.session == talk->handle);
      CHECK(reply.user == (talk->has_user ? talk : nullptr));
      talk->moved_at = n_taken_;
      if (call.what == What::wait) {
        --talk->n_waits;
      } else {
        REQUIRE(talk->calls.front() == &call);  // in their order
        talk->calls.pop_front();
        if (status != TARN_OK) {
          for (Call* behind : talk->calls) behind->is_behind_failed = behind->what != What::destroy;
        }
      }
    }
    if (call.is_behind_destroy) {
      CHECK(status == TARN_INVALID_REQUEST);
      ++counts_.calls_behind;
    } else if (call.is_behind_failed) {
      CHECK((status == TARN_CANCELLED || (call.text != nullptr && status == TARN_INVALID_REQUEST)));
      ++counts_.calls_behind_failed;
      if (call.what != What::tokens) answered(call, reply);
    } else {
      CHECK(is_allowed(call, status, why));
      answered(call, reply);
    }
    free_.push_back(&call);
  }

  bool is_allowed(const Call& call, int32_t status, const std::string& why) {
    const bool is_full = status == TARN_WOULD_BLOCK;
    const bool is_refused = status == TARN_INVALID_REQUEST;
    const bool may_be_destroyed = call.talk != nullptr && call.talk->is_destroying;
    if (status == TARN_OK) return true;
    switch (call.what) {
      case What::create:
        ++counts_.no_session;
        return is_full && call.n_sessions_most > kSessions;
      case What::restore:
        return is_full || (status == TARN_NOT_FOUND);
      case What::fork:
        counts_.refused += is_refused;
        counts_.no_session += is_full;
        return is_refused || is_full;
      case What::feed:
      case What::generate:
      case What::chat: {
        if (is_full) {
          ++counts_.no_turn;
          return waiting_max_ < kSessions && why.find("wait for their turn") != std::string::npos;
        }
        const ToldTokens& told = call.talk->told;
        const bool is_too_long =
            call.what == What::feed && told.n_max() + call.ids.size() > lengths_.context;
        const bool has_nothing = call.what == What::generate && told.n_min() == 0;
        counts_.refused += call.may_generate;
        return is_refused && (call.may_generate || is_too_long || has_nothing);
      }
      case What::truncate:
        return is_refused && (call.n > call.talk->told.n_min());
      case What::wait:
        counts_.waits_over += is_full;
        return (is_full && call.timeout_ms >= 0) || (is_refused && may_be_destroyed);
      case What::save:
        return is_full;
      default:
        return false;
    }
  }

  void answered(Call& call, const tarn_event& reply) {
    const bool is_ok = reply.status == TARN_OK;
    Talk* const talk = call.talk;
    switch (call.what) {
      case What::create:
      case What::restore:
      case What::fork:
        return begun(call, reply);
      case What::feed:
        if (!is_ok) return;
        counts_.texts += call.text != nullptr;
        return talk->told.feed(call.ids, call.is_cancelled);
      case What::generate:
        if (!is_ok) return;
        REQUIRE(talk->answer == nullptr);
        talk->answer = call.answer;
        return talk->told.begin_answer(call.answer);
      case What::chat:
        if (!is_ok) return;
        ++counts_.chats;
        talk->told.replace(call.text->ids);
        if (call.is_cancelled) talk->told.may_cut();
        return;
      case What::truncate:
        if (!is_ok) return;
        ++counts_.truncations;
        return talk->told.truncate(call.n);
      case What::wait:
        if (call.resolves && is_ok && call.epoch == talk->epoch && talk->is_quiet())
          submit_tokens(*talk, true);
        return;
      case What::tokens:
        return read_tokens(call);
      case What::save:
        return saved(call, is_ok);
      case What::destroy:
        return destroyed(*talk);
      case What::tokenize:
        CHECK(call.n_out == call.text->ids.size());
        CHECK(std::equal(call.text->ids.begin(), call.text->ids.end(), call.ids.begin()));
        return;
      case What::status:
        CHECK(call.status.n_sessions <= kSessions);
        CHECK(call.status.kv_groups_free <= call.status.kv_groups_max);
        return;
    }
  }

  void begun(Call& call, const tarn_event& reply) {
    Talk& made = *call.made;
    if (reply.status != TARN_OK) {
      slots_[made.slot] = nullptr;
      --n_sessions_;
      return;
    }
    made.handle = call.session;
    REQUIRE(!by_handle_.contains(made.handle));
    by_handle_[made.handle] = &made;
    made.moved_at = n_taken_;
    if (call.what == What::fork) {
      made.told = call.talk->told;
      (void)made.told.take_known();
      ++counts_.forks;
      return;
    }
    CHECK(reply.session == made.handle);
    CHECK(reply.user == &made);
    if (call.what == What::create) return;
    ++counts_.restores;
    const Kept& kept = kept_[name_of(made)];
    made.is_unknown = !kept.is_exact;
    if (kept.is_exact) {
      CHECK(call.restored.n_tokens == kept.ids.size());
      made.told.learn(kept.ids);
    }
  }

  void read_tokens(Call& call) {
    Talk& talk = *call.talk;
    call.ids.resize(call.n_out);
    if (!call.resolves || call.epoch != talk.epoch) {
      if (!talk.is_unknown) CHECK(talk.told.look(call.ids));
      return;
    }
    REQUIRE(talk.answer == nullptr);
    counts_.feeds_cut += call.n_out < talk.told.n_max();
    if (talk.is_unknown) talk.told.learn(call.ids);
    CHECK(talk.told.settle(call.ids));
    talk.is_unknown = false;
    collect(talk);
  }

  void saved(const Call& call, bool is_ok) {
    if (!is_ok) return;
    ++counts_.saves;
    const Talk& talk = *call.talk;
    Kept& kept = kept_[name_of(talk)];
    kept.is_exact = talk.told.is_certain() && !talk.is_unknown;
    if (kept.is_exact) kept.ids = talk.told.ids();
  }

  void destroyed(Talk& talk) {
    by_handle_.erase(talk.handle);
    slots_[talk.slot] = nullptr;
    talk.answer = nullptr;
    --n_sessions_;
  }

  static void note(Talk& talk, const char* event, What what, i64 value) {
    talk.history += std::string(" ") + event + " " + std::to_string(static_cast<int>(what)) + ":" +
                    std::to_string(value);
  }

  // ---- What the host does -------------------------------------------------------------------

  Call& new_call(What what, Talk* talk) {
    if (free_.empty()) {
      calls_.push_back(std::make_unique<Call>());
      free_.push_back(calls_.back().get());
    }
    Call& call = *free_.back();
    free_.pop_back();
    call = Call{};
    call.what = what;
    call.talk = talk;
    call.n_sessions_most = n_sessions_;
    if (talk == nullptr) return call;
    call.is_behind_destroy = talk->is_destroying;
    call.may_generate = talk->may_generate();
    call.epoch = talk->epoch;
    return call;
  }
  // Whether it was queued. It is refused where 256 are unanswered, and nowhere else.
  bool is_queued(Call& call, int32_t status) {
    CHECK((status == TARN_OK) == (n_in_flight_ < kCallsMax));
    if (status != TARN_OK) {
      CHECK(status == TARN_WOULD_BLOCK);
      ++counts_.no_slot;
      free_.push_back(&call);
      return false;
    }
    ++n_in_flight_;
    ++counts_.calls;
    call.is_in_flight = true;
    if (call.talk == nullptr) return true;
    note(*call.talk, "call", call.what, static_cast<i64>(call.ids.size()));
    if (call.talk->is_resting()) call.talk->moved_at = n_taken_;
    call.what == What::wait ? void(++call.talk->n_waits) : call.talk->calls.push_back(&call);
    return true;
  }

  void act() {
    if (chance(1)) return burst();
    const u32 slot = static_cast<u32>(random_.below(kSlots));
    Talk* const talk = slots_[slot];
    if (talk == nullptr) return begin(slot);
    if (talk->handle == nullptr) return;
    if (talk->is_destroying) return call_behind(*talk);
    if (talk->is_unknown) return chance(90) ? resolve(*talk) : destroy(*talk);
    if (talk->may_generate()) return disturb(*talk);
    const u64 what = random_.below(100);
    if (talk->told.n_max() > lengths_.conversation && what < 60) return shorten(*talk);
    if (talk->told.n_pieces() > kPiecesMax) return resolve(*talk);
    if (what < 40) return turn(*talk);
    if (what < 50) return feed(*talk);
    if (what < 60) return generate(*talk);
    if (what < 66) return truncate(*talk);
    if (what < 73) return fork(*talk);
    if (what < 76) return destroy(*talk);
    if (what < 79) return save(*talk);
    if (what < 83) return wait(*talk, static_cast<i32>(random_.below(20)));
    if (what < 87) return submit_tokens(*talk, false);
    if (what < 93) return cancel(*talk);
    resolve(*talk);
  }

  // While it answers, or is about to.
  void disturb(Talk& talk) {
    const u64 what = random_.below(100);
    if (what < 6) return cancel(talk);
    if (what < 10) return submit_tokens(talk, false);
    if (what < 12) return feed(talk);
    if (what < 14) return generate(talk);
    if (what < 16) return wait(talk, static_cast<i32>(random_.below(20)));
    if (what < 17) return destroy(talk);
    if (what < 18) return save(talk);
    tarn_session_info info = TARN_INIT(tarn_session_info);
    CHECK(tarn_session_info_get(talk.handle, &info) == TARN_OK);
  }

  // More calls than the engine has places for.
  void burst() {
    while (n_in_flight_ < kCallsMax) chance(50) ? ask_status() : tokenize();
    ask_status();
  }
  void ask_status() {
    Call& call = new_call(What::status, nullptr);
    is_queued(call, tarn_submit_engine_status_get(host_.engine, &call.status, &call));
  }
  void tokenize() {
    Call& call = new_call(What::tokenize, nullptr);
    call.text = &texts_.plain[random_.below(texts_.plain.size())];
    call.ids.resize(call.text->ids.size());
    is_queued(call, tarn_submit_tokenize(host_.engine, call.text->text.data(),
                                         call.text->text.size(), call.text->flags, call.ids.data(),
                                         call.ids.size(), &call.n_out, &call));
  }

  Talk& new_talk(u32 slot) {
    talks_.push_back(std::make_unique<Talk>(slot, lengths_.context));
    return *talks_.back();
  }
  std::string name_of(const Talk& talk) const {
    return std::to_string(talk.slot) + "." + std::to_string(talk.tenant);
  }
  void note_begun(Call& call, Talk& talk) {
    call.made = &talk;
    slots_[talk.slot] = &talk;
    ++n_sessions_;
    for (const auto& other : calls_) {
      if (other->is_in_flight)
        other->n_sessions_most = std::max(other->n_sessions_most, n_sessions_);
    }
  }
  void begin(u32 slot) {
    Talk& talk = new_talk(slot);
    talk.tenant = static_cast<u32>(random_.below(n_tenants_));
    talk.is_background = chance(25);
    tarn_session_options options = TARN_INIT(tarn_session_options);
    options.tenant = kTenants[talk.tenant];
    options.user = &talk;
    options.priority = talk.is_background ? TARN_BACKGROUND : TARN_INTERACTIVE;
    const auto kept = kept_.find(name_of(talk));
    if (kept != kept_.end() && chance(90)) {
      Call& call = new_call(What::restore, nullptr);
      if (is_queued(call, tarn_submit_restore(host_.engine, &options, kept->first.c_str(),
                                              &call.session, &call.restored, &call))) {
        note_begun(call, talk);
      }
      return;
    }
    Call& call = new_call(What::create, nullptr);
    if (is_queued(call, tarn_submit_create(host_.engine, &options, &call.session, &call)))
      note_begun(call, talk);
  }
  void fork(Talk& talk) {
    if (talk.may_generate()) return;
    const auto free = std::ranges::find(slots_, nullptr);
    if (free == slots_.end()) return;
    Talk& copy = new_talk(static_cast<u32>(free - slots_.begin()));
    copy.tenant = talk.tenant;
    copy.is_background = talk.is_background;
    copy.has_user = false;
    Call& call = new_call(What::fork, &talk);
    if (is_queued(call, tarn_submit_fork(talk.handle, &call.session, &call)))
      note_begun(call, copy);
  }
  void destroy(Talk& talk) {
    counts_.busy_destroys += !talk.is_resting();
    Call& call = new_call(What::destroy, &talk);
    if (!is_queued(call, tarn_submit_destroy(talk.handle, &call))) return;
    talk.is_destroying = true;
    if (chance(50)) call_behind(talk);
  }
  // The handle may be another session's as soon as one is created.
  void call_behind(Talk& talk) {
    const bool may_be_another = std::ranges::any_of(
        calls_, [](const auto& call) { return call->is_in_flight && call->made != nullptr; });
    if (may_be_another) return;
    chance(50) ? submit_tokens(talk, false) : generate(talk);
  }

  void turn(Talk& talk) {
    if (chance(25) && talk.is_quiet() && talk.told.is_certain()) {
      chat(talk);
    } else {
      for (u64 n = 1 + random_.below(2); n > 0; --n) feed(talk);
    }
    generate(talk);
  }
  // Tokens of a feed: nearly as many as the KV has, or more, among others.
  u64 draw_n(const Talk& talk) {
    const u64 n_left = lengths_.context - std::min<u64>(talk.told.n_max(), lengths_.context);
    if (chance(1)) return n_left + 1 - std::min(n_left, random_.below(20));
    return 1 + random_.below(chance(10) ? 4 * lengths_.feed : lengths_.feed);
  }
  void feed(Talk& talk) {
    Call& call = new_call(What::feed, &talk);
    ++talk.epoch;
    if (chance(25)) {
      call.text = &texts_.plain[random_.below(texts_.plain.size())];
      call.ids = call.text->ids;
      is_queued(call, tarn_submit_feed_text(talk.handle, call.text->text.data(),
                                            call.text->text.size(), call.text->flags, &call));
      return;
    }
    if (talk.told.n_max() == 0 && chance(60)) call.ids = documents_[random_.below(kDocuments)];
    const std::vector<u32> more = draw_ids(draw_n(talk));
    call.ids.insert(call.ids.end(), more.begin(), more.end());
    is_queued(call, tarn_submit_feed(talk.handle, call.ids.data(), call.ids.size(), &call));
  }
  void chat(Talk& talk) {
    Call& call = new_call(What::chat, &talk);
    ++talk.epoch;
    call.text = &texts_.chats[random_.below(texts_.chats.size())];
    is_queued(call, tarn_submit_feed_chat(talk.handle, call.text->text.data(),
                                          call.text->text.size(), nullptr, &call));
  }
  void generate(Talk& talk) {
    Call& call = new_call(What::generate, &talk);
    ++talk.epoch;
    call.answer = std::make_shared<Heard>();
    Heard& answer = *call.answer;
    tarn_generate_options& options = answer.options;
    const bool is_nearly_full = talk.told.n_max() + kAnswerMax > lengths_.context;
    options.max_tokens = is_nearly_full ? 0 : static_cast<u32>(1 + random_.below(kAnswerMax));
    options.ignore_end = chance(50) ? 1 : 0;
    options.no_logprobs = chance(50) ? 1 : 0;
    if (chance(50)) {
      options.temperature = 0.9f;
      options.seed = random_.next();
      options.top_k = chance(50) ? 40 : 0;
      options.repetition_penalty = chance(30) ? 1.1f : 0.0f;
    }
    if (chance(25)) {
      answer.bias = {.token = texts_.end_token, .bias = 3.0f};
      options.logit_biases = &answer.bias;
      options.n_logit_biases = 1;
    }
    if (chance(25)) {
      answer.stop = std::string(1, static_cast<char>('a' + random_.below(26)));
      answer.stops[0] = answer.stop.c_str();
      options.stops = answer.stops;
      options.n_stops = 1;
    }
    if (chance(20)) options.deadline_ms = static_cast<u32>(random_.below(51));
    answer.asked_ns = clock_.now_ns();
    is_queued(call, tarn_submit_generate(talk.handle, &options, &call));
  }
  void shorten(Talk& talk) { chance(70) ? truncate(talk) : destroy(talk); }
  void truncate(Talk& talk) {
    if (!talk.is_quiet() || !talk.told.is_certain()) return resolve(talk);
    Call& call = new_call(What::truncate, &talk);
    ++talk.epoch;
    call.n = random_.below(talk.told.ids().size() + 3);
    is_queued(call, tarn_submit_truncate(talk.handle, call.n, &call));
  }
  void cancel(Talk& talk) {
    ++talk.epoch;
    note(talk, "cancel", What::status, 0);
    REQUIRE(tarn_session_cancel(talk.handle) == TARN_OK);
    talk.told.may_cut();
    if (talk.answer) talk.answer->is_cancelled = true;
    for (Call* call : talk.calls) {
      call->is_cancelled = true;
      if (call->answer) call->answer->is_cancelled = true;
    }
  }
  void wait(Talk& talk, i32 timeout_ms, bool resolves = false) {
    Call& call = new_call(What::wait, &talk);
    call.timeout_ms = timeout_ms;
    call.resolves = resolves;
    is_queued(call, tarn_submit_wait(talk.handle, timeout_ms, &call));
  }
  // What is there, once nothing is computed.
  void resolve(Talk& talk) {
    if (talk.is_quiet()) wait(talk, -1, true);
  }
  void submit_tokens(Talk& talk, bool resolves) {
    Call& call = new_call(What::tokens, &talk);
    call.resolves = resolves;
    call.ids.resize(lengths_.context + 1);
    is_queued(call, tarn_submit_tokens(talk.handle, 0, call.ids.data(), call.ids.size(),
                                       &call.n_out, &call));
  }
  void save(Talk& talk) {
    if (!keeps_) return;
    const std::string& name = names_.emplace_back(name_of(talk));
    Call& call = new_call(What::save, &talk);
    is_queued(call, tarn_submit_save(talk.handle, name.c_str(), &call));
  }

  // Nothing is left of them.
  void end_all() {
    for (Talk* talk : slots_) {
      if (talk == nullptr) continue;
      destroy(*talk);
    }
    while (is_busy()) loop();
    CHECK(by_handle_.empty());
    CHECK(n_sessions_ == 0);
    tarn_engine_status status = TARN_INIT(tarn_engine_status);
    REQUIRE(tarn_engine_status_get(host_.engine, &status) == TARN_OK);
    CHECK(status.n_sessions == 0);
    CHECK(status.kv_groups_free == status.kv_groups_max);
    CHECK(status.dead == 0);
    tarn_event event = TARN_INIT(tarn_event);
    CHECK(tarn_engine_take(host_.engine, &event) == TARN_WOULD_BLOCK);
    CHECK_FALSE(is_readable(host_.engine));
  }

  static constexpr u32 kDocuments = 4;

  Random random_;
  const Texts& texts_;
  CallerCounts& counts_;
  SystemClock clock_;
  TempDir folder_;
  bool keeps_;
  Lengths lengths_;
  u32 waiting_max_;
  u32 n_tenants_;
  std::array<std::vector<u32>, kDocuments> documents_;
  std::vector<std::unique_ptr<Talk>> talks_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<Call*> free_;
  std::deque<std::string> names_;
  std::array<Talk*, kSlots> slots_{};
  std::map<tarn_session*, Talk*> by_handle_;
  std::map<std::string, Kept> kept_;
  std::vector<HeardRef> answers_;
  u64 n_in_flight_ = 0;  // calls
  u64 n_sessions_ = 0;   // that there may be
  u64 n_taken_ = 0, n_loops_ = 0;
  bool is_draining_ = false;
  u64 n_allocated_ = 0;  // by the engine's threads
  Opened host_;          // goes first: its calls point into what is above
};

}  // namespace

void run_callers(const Callers& callers, CallerCounts& counts) {
  const SmallModel model("llama", "q8_0");
  const char* kTypes[] = {"f16", "q8_0"};
  std::vector<std::unique_ptr<Alone>> alone;
  for (const char* type : kTypes) {
    const std::string toml =
        "kv.context_tokens = 4096\nkv.page_tokens = 16\ncpu.threads = 1\nreuse.prefix = false\n"
        "engine.sessions_max = 1\nkv.type = '" +
        std::string(type) + "'\n";
    alone.push_back(std::make_unique<Alone>(model.path(), toml));
  }
  const Texts texts = make_texts(*alone[0]);
  SystemClock clock;
  u64 lived_ns = 0;
  for (u64 i = 0; i < callers.n_lives || lived_ns < callers.seconds * 1'000'000'000; ++i) {
    const u64 seed = callers.first_seed + i;
    CAPTURE(seed);
    const u64 begin_ns = clock.now_ns();
    std::vector<HeardRef> answers;
    {
      Life life(seed, model.path(), texts, seed % 2 == 1, counts);
      life.run(callers.n_acts);
      answers = life.answers();
    }
    lived_ns += clock.now_ns() - begin_ns;
    for (u64 at = 0; at < answers.size(); ++at) {
      CAPTURE(at);
      CHECK(alone[seed % 2]->says_the_same(*answers[at]));
      ++counts.compared;
    }
  }
  counts.seconds = lived_ns / 1'000'000'000;
}

void check_caller_counts(const CallerCounts& counts, u64 n_min) {
  std::printf("lives %llu, %llu s, %llu calls, %llu tokens, %llu answers compared\n",
              static_cast<unsigned long long>(counts.lives),
              static_cast<unsigned long long>(counts.seconds),
              static_cast<unsigned long long>(counts.calls),
              static_cast<unsigned long long>(counts.tokens),
              static_cast<unsigned long long>(counts.compared));
  const EventCount events[] = {{"end of a turn", counts.ends},
                               {"stop string", counts.stops},
                               {"max_tokens", counts.lengths},
                               {"context full", counts.context_full},
                               {"prompt cancelled", counts.prompt_cancels},
                               {"answer cancelled", counts.answer_cancels},
                               {"prompt too late", counts.prompt_deadlines},
                               {"answer too late", counts.answer_deadlines},
                               {"feed cut", counts.feeds_cut},
                               {"text", counts.texts},
                               {"conversation", counts.chats},
                               {"fork", counts.forks},
                               {"truncation", counts.truncations},
                               {"wait over", counts.waits_over},
                               {"KV evicted", counts.evictions},
                               {"busy destroy", counts.busy_destroys},
                               {"call behind destroy", counts.calls_behind},
                               {"call behind a failed one", counts.calls_behind_failed},
                               {"refused", counts.refused},
                               {"no slot", counts.no_slot},
                               {"no session", counts.no_session},
                               {"no turn", counts.no_turn},
                               {"save", counts.saves},
                               {"restore", counts.restores},
                               {"KV from memory", counts.from_memory},
                               {"KV from disk", counts.from_disk},
                               {"closed in flight", counts.closed_in_flight}};
  check_events(events, n_min);
}

}  // namespace tarn::test
