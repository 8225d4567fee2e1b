// Goal    killed with -9 at any moment while it reads a prompt, answers, or saves, a kept session
//         goes on after a restart, and says what one says that was never killed, with full
//         attention and by selection. What is lost was computed since the last checkpoint that has
//         ended; the next one begins with the step in which it is due, and from then on the disk
//         has something of it to do.
// Method  children that take the session up, or begin it, on a real file, and are killed after a
//         random time, one after the other, until one comes to the end; their memory has the least
//         frames that the plan allows, so that they write, evict and read groups all the time.
//         Every third life reads the text of the one before, over that one's store, under another
//         name. Most lives end unharmed once the prompt is on disk, so that kills meet groups that
//         are being written (a quarter of them do); in every eighth one the answer and the save are
//         killed, too, and another eighth's memory has room for extents, so that its index is kept.
//         When a page was last computed, what was saved, and what the disk was about, stands in
//         shared memory. Work is measured in the children's CPU time: on a busy machine they stand
//         still now and then, and lose nothing by it. How long a checkpoint takes is the disk's
//         affair, so it is measured, and the bound of what is lost is made of that.
//         TARN_CHECKPOINT_KILLS asks for more than the slice.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "runtime/lab/probe.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"

namespace tarn::engine::checkpoint_crash_native_test {
namespace {

constexpr u32 kPage = 16;
constexpr u32 kPrompt = 1500;
constexpr u32 kAnswer = 40;
constexpr u32 kPagesMax = 128;
constexpr u64 kFrameBytes = 8192;  // a group of the model's KV
constexpr u32 kManyFrames = 250;   // of 190 groups; without this, the least
constexpr u32 kCheckpointMs = 5;

struct Shared {
  u64 base_ns;  // CPU time of the children before this one
  u32 answer[kAnswer];
  u32 n_answered;
  u64 page_at_ns[kPagesMax];  // when the page was computed by the last child; 0: it was not
  u64 at_ns;                  // the last end of a step
  u32 n_slots;                // then
  u32 n_restored_slots;       // of the last child; ~0: it began anew
  u32 n_ready;                // children that have come so far
  u32 n_gone_on;              // answers that were cut off, and said to their end
  // Checkpoints, of all children.
  u32 n_saved;    // slots that a manifest names, as the last child has heard
  u32 n_ended;    // of them
  u32 n_late;     // steps behind which one was due, and has not begun
  u32 n_stalled;  // steps behind which one was under way, and the disk had nothing to do
  u64 step_ns_max, save_ns_max;
  // Of the last child, as they stood between two steps.
  u64 bytes_spilled, bytes_loaded, n_evictions;
  u32 n_storing, n_loading;  // groups that were on their way
  u64 n_laid_out, n_found;   // bytes of extents and codes, and heads that were found again
};

// What all children did, and what was under way when they were killed.
struct Moved {
  u64 bytes_spilled = 0, bytes_loaded = 0, n_evictions = 0;
  u64 n_kills_storing = 0, n_kills_loading = 0;
  u64 n_kills_laid_out = 0, n_found = 0;
};

void note_moves(const kv::KvCache& kv, volatile Shared* shared) {
  const kv::MoverStats& stats = kv.tiers().mover.stats();
  shared->bytes_spilled = stats.bytes_spilled;
  shared->bytes_loaded = stats.bytes_loaded;
  shared->n_evictions = stats.n_evictions;
  shared->n_storing = kv.tiers().residency.stats().n(kv::Where::storing);
  shared->n_loading = kv.tiers().residency.stats().n(kv::Where::loading);
  shared->n_laid_out = kv.tiers().extents.stats().bytes_written;
  shared->n_found = kv.tiers().extents.stats().n_adopted;
}

void add_moves(const volatile Shared* shared, bool was_killed, Moved* moved) {
  moved->bytes_spilled += shared->bytes_spilled;
  moved->bytes_loaded += shared->bytes_loaded;
  moved->n_evictions += shared->n_evictions;
  moved->n_kills_storing += was_killed && shared->n_storing > 0;
  moved->n_kills_loading += was_killed && shared->n_loading > 0;
  moved->n_kills_laid_out += was_killed && shared->n_laid_out > 0;
  moved->n_found += shared->n_found;
}

void forget_moves(volatile Shared* shared) {
  shared->bytes_spilled = 0;
  shared->bytes_loaded = 0;
  shared->n_evictions = 0;
  shared->n_storing = 0;
  shared->n_loading = 0;
  shared->n_laid_out = 0;
  shared->n_found = 0;
}

// Of a process, its own with 0.
u64 cpu_ns(pid_t process) {
  clockid_t clock{};
  timespec spent{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &spent) != 0) return 0;
  return static_cast<u64>(spent.tv_sec) * 1'000'000'000 + static_cast<u64>(spent.tv_nsec);
}

Config config_of(const std::string& folder, bool selects, u64 kv_memory_bytes = 0) {
  Config config = test::small_config();
  config.context_tokens = 2048;
  config.page_tokens = kPage;
  config.sessions_max = 1;
  config.batch_rows_max = 32;
  config.store.sessions = !folder.empty();
  config.store.checkpoint_ms = kCheckpointMs;
  config.store.quota_bytes = kGiB;
  config.kv_memory_bytes = kv_memory_bytes;
  test::set_text(config.store.path, folder);
  if (!selects) return config;
  config.select.method = SelectMethod::pq;
  config.select.code_bits = 2;
  config.select.n_sinks = 20;
  config.select.n_local = 70;
  config.select.k = 48;
  config.select.index_delay_tokens = 4;
  config.select.context_min = 1;
  return config;
}

// What becomes of a child's checkpoints from step to step.
class CheckpointWatch {
 public:
  CheckpointWatch(test::OpenEngine& open, SessionIdx session, volatile Shared* shared)
      : open_(open), session_(open.engine.sessions().state(session)), shared_(shared) {
    n_pages_ = session_.sequence.n_slots() / kPage;
    for (u32 page = n_pages_; page < kPagesMax; ++page) shared_->page_at_ns[page] = 0;
    note();
  }

  void before_step() {
    // Nothing that happens in the step makes it less due.
    was_due_ = session_.state != SessionState::idle && !sessions().is_busy() &&
               open_.clock.now_ns() - session_.saved.saved_ns >= u64{kCheckpointMs} * 1'000'000 &&
               session_.sequence.n_slots() / kPage > session_.saved.n_slots / kPage;
    revision_ = session_.saved.revision;
    n_saved_ = session_.saved.n_slots;
    step_at_ns_ = shared_->at_ns;
  }

  void after_step() {
    note();
    const u64 at_ns = shared_->at_ns;
    const bool has_begun = session_.saved.revision != revision_;
    if (has_begun) save_at_ns_ = at_ns;
    const bool is_stalled =
        sessions().is_busy() && lab::Probe::tiers(open_.engine).store.store().idle();
    shared_->n_late = shared_->n_late + (was_due_ && !has_begun ? 1 : 0);
    shared_->n_stalled = shared_->n_stalled + (is_stalled ? 1 : 0);
    shared_->n_ended = shared_->n_ended + (session_.saved.n_slots > n_saved_ ? 1 : 0);
    shared_->step_ns_max = std::max(u64{shared_->step_ns_max}, at_ns - step_at_ns_);
    const u64 save_ns = sessions().is_busy() ? at_ns - save_at_ns_ : 0;
    shared_->save_ns_max = std::max(u64{shared_->save_ns_max}, save_ns);
  }

 private:
  const reuse::Archive& sessions() const { return lab::Probe::archive(open_.engine); }

  void note() {
    shared_->at_ns = shared_->base_ns + cpu_ns(0);
    shared_->n_slots = session_.sequence.n_slots();
    for (; n_pages_ < shared_->n_slots / kPage; ++n_pages_) {
      shared_->page_at_ns[n_pages_] = shared_->at_ns;
    }
    shared_->n_saved = session_.saved.n_slots;
  }

  test::OpenEngine& open_;
  const Session& session_;
  volatile Shared* shared_;
  u32 n_pages_ = 0;  // that were there, or have been noted
  bool was_due_ = false;
  u64 revision_ = 0;
  u32 n_saved_ = 0;
  u64 step_at_ns_ = 0, save_at_ns_ = 0;
};

// What a host does after any start, whatever happened before.
void live(const std::string& model, const Config& config, const char* name,
          volatile Shared* shared) {
  test::OpenEngine open(model, config);
  Engine& engine = open.engine;
  SessionIdx session = 0;
  u32 n = 0;  // tokens of the answer
  bool goes_on = false;
  const auto restored = engine.sessions().restore(name);
  if (restored) {
    session = restored->idx;
    // An answer that was cut off goes on; one that has ended is said again.
    goes_on = restored->is_cut_off && restored->n_drawn > 0;
    const bool cuts = restored->n_tokens > kPrompt && !goes_on;
    if (cuts && !engine.sessions().truncate(session, kPrompt)) _exit(4);
    const Session& state = engine.sessions().state(session);
    for (; goes_on && n < restored->n_drawn; ++n) shared->answer[n] = state.tokens.ids[kPrompt + n];
    shared->n_restored_slots = restored->n_computed;
  } else {
    if (restored.error().status != Status::not_found) _exit(5);
    session = *engine.sessions().create();
    if (!engine.sessions().autosave(session, name)) _exit(6);
    if (!engine.sessions().feed(session, test::random_ids(3, kPrompt))) _exit(7);
    shared->n_restored_slots = ~u32{0};
  }
  CheckpointWatch watch(open, session, shared);
  shared->n_ready = shared->n_ready + 1;
  shared->n_gone_on = shared->n_gone_on + (goes_on ? 1 : 0);
  const GenerateParams rest{.max_tokens = kAnswer - n, .ignore_end = true, .first_draw = n};
  if (!engine.sessions().generate(session, rest)) _exit(8);
  Event event;
  char text[256];
  for (bool is_done = false; !is_done;) {
    while (!is_done && engine.sessions().take_event(session, &event, text)) {
      if (event.type == EventType::token) shared->answer[n++] = event.token.token;
      is_done = event.type == EventType::done;
    }
    watch.before_step();
    engine.step();
    watch.after_step();
    note_moves(lab::Probe::kv(engine), shared);
  }
  if (!engine.sessions().save(session, name)) _exit(9);
  shared->n_answered = n;
  engine.close();
  _exit(0);
}

std::vector<u32> answer_without_kills(const std::string& model, bool selects) {
  test::OpenEngine open(model, config_of("", selects));
  const SessionIdx session = open.session_with(test::random_ids(3, kPrompt));
  REQUIRE(open.engine.sessions()
              .generate(session, {.max_tokens = kAnswer, .ignore_end = true})
              .has_value());
  const std::vector<u32> tokens = test::read_all(open.engine, session).tokens;
  CHECK((open.engine.sessions().state(session).approx.is_any()) == selects);
  return tokens;
}

// What was lost with a child, by what the next one has restored.
struct Lost {
  u64 ns = 0;  // since the first page that is gone was computed, to the last end of a step
  u32 n_slots = 0;
};
Lost lost_of(const Shared& killed, u32 n_restored) {
  Lost lost{.n_slots = killed.n_slots - std::min(killed.n_slots, n_restored)};
  for (u32 page = n_restored / kPage; page < kPagesMax && lost.ns == 0; ++page) {
    if (killed.page_at_ns[page] != 0) lost.ns = killed.at_ns - killed.page_at_ns[page];
  }
  return lost;
}

// A checkpoint that has not ended, checkpoint_ms and a step before it, and before that the one that
// began when the page was computed. Twice as much, since the clock of checkpoint_ms is another one.
u64 lost_ns_bound(const Shared& killed) {
  return 2 * (u64{kCheckpointMs} * 1'000'000 + 2 * killed.save_ns_max + 4 * killed.step_ns_max);
}

TEST_CASE("killed with -9 at any moment, a kept session goes on, and says the same") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const char* asked = std::getenv("TARN_CHECKPOINT_KILLS");
  const u64 n_kills_wanted = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 12;
  const test::SmallModel model("llama", "q8_0");
  const std::vector<u32> want[] = {answer_without_kills(model.path(), false),
                                   answer_without_kills(model.path(), true)};
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* shared = static_cast<volatile Shared*>(memory);
  const test::TempDir folder("checkpoint_crash");
  {
    test::OpenEngine roomy(model.path(), config_of(folder.path(), true, kManyFrames * kFrameBytes));
    REQUIRE(roomy.engine.plan().tiers.extents.is_on());
  }
  const u64 least_bytes =
      test::least_kv_memory_bytes(model.path(), config_of(folder.path(), false));
  u64 n_kills = 0, n_ends = 0, n_after_kill = 0, n_taken_up = 0;
  u64 n_gone_on = 0, n_saved = 0, step_ns_max = 0, save_ns_max = 0;
  Lost lost_max;
  Shared killed{};  // when the last child was
  Moved moved;
  while (n_kills < n_kills_wanted || n_ends < 2) {
    const bool selects = n_ends % 2 == 1, kills_answers = n_ends % 8 >= 6;
    const u64 kv_bytes = n_ends % 8 == 7 ? kManyFrames * kFrameBytes : least_bytes;
    const bool is_same_text = n_ends % 3 == 1;
    if (!is_same_text) folder.remove();
    const char* name = is_same_text ? "talk again" : "talk";
    std::memset(memory, 0, sizeof(Shared));
    killed = {};
    for (bool has_ended = false; !has_ended;) {
      const u32 n_ready = shared->n_ready;
      forget_moves(shared);
      const pid_t child = fork();
      if (child == 0) live(model.path(), config_of(folder.path(), selects, kv_bytes), name, shared);
      // While it starts, or at any moment of its work; every second one when there is something on
      // disk.
      const bool awaits = n_kills % 2 == 1 && n_kills < n_kills_wanted;
      const bool waits = random.below(8) != 0 || awaits;
      int status = 0;
      bool is_gone = false;
      while (!is_gone &&
             ((waits && shared->n_ready == n_ready) || (awaits && shared->n_saved == 0))) {
        usleep(500);
        is_gone = waitpid(child, &status, WNOHANG) == child;
      }
      const u32 n_there = shared->n_restored_slots == ~u32{0} ? 0 : shared->n_restored_slots;
      const bool has_prompt = n_there >= kPrompt;
      const bool may_end = n_kills >= n_kills_wanted || (has_prompt && !kills_answers);
      if (!may_end) usleep(static_cast<useconds_t>(random.below(has_prompt ? 1'200'000 : 300'000)));
      const u64 at_ns = shared->base_ns + cpu_ns(child);
      if (!may_end && !is_gone) kill(child, SIGKILL);
      if (!is_gone) REQUIRE(waitpid(child, &status, 0) == child);
      has_ended = WIFEXITED(status);
      shared->base_ns = at_ns;
      if (has_ended) CHECK(WEXITSTATUS(status) == 0);
      n_kills += has_ended ? 0 : 1;
      add_moves(shared, !has_ended, &moved);
      if (shared->n_ready == n_ready) continue;
      const u32 n_restored = shared->n_restored_slots == ~u32{0} ? 0 : shared->n_restored_slots;
      n_taken_up += n_restored > 0;
      n_after_kill += killed.n_ready > 0;
      // What the one before was told to be saved is there, and what is lost is not much more.
      CHECK(n_restored / kPage >= killed.n_saved / kPage);
      const Lost lost = lost_of(killed, n_restored);
      CHECK(lost.ns <= lost_ns_bound(killed));
      lost_max = {std::max(lost_max.ns, lost.ns), std::max(lost_max.n_slots, lost.n_slots)};
      std::memcpy(&killed, memory, sizeof(Shared));  // nobody writes there now
    }
    ++n_ends;
    n_gone_on += shared->n_gone_on;
    n_saved += shared->n_ended;
    REQUIRE(shared->n_late == 0);
    REQUIRE(shared->n_stalled == 0);
    step_ns_max = std::max(step_ns_max, u64{shared->step_ns_max});
    save_ns_max = std::max(save_ns_max, u64{shared->save_ns_max});
    REQUIRE(shared->n_answered == kAnswer);
    for (u32 i = 0; i < kAnswer; ++i) CHECK(shared->answer[i] == want[selects][i]);
  }
  CHECK(n_taken_up + n_ends >= n_after_kill);  // but for the first kill of a session
  CHECK(n_taken_up >= n_kills / 4);
  if (n_kills_wanted >= 100) CHECK(n_gone_on >= 5);
  CHECK(moved.bytes_spilled > least_bytes);
  CHECK(moved.bytes_loaded > 20 * least_bytes);
  CHECK(moved.n_evictions > least_bytes / kFrameBytes);
  if (n_kills_wanted >= 100) CHECK(moved.n_kills_storing >= n_kills_wanted / 8);
  if (n_kills_wanted >= 100) CHECK(moved.n_kills_loading >= 5);
  if (n_kills_wanted >= 500) CHECK(moved.n_kills_laid_out >= 5);
  if (n_kills_wanted >= 1000) CHECK(moved.n_found >= 5);
  MESSAGE(n_kills, " kills in ", n_ends, " lives, of them ", moved.n_kills_storing,
          " while groups were written and ", moved.n_kills_loading, " while they were read; ",
          moved.bytes_spilled, " B spilled, ", moved.bytes_loaded, " B loaded, ", moved.n_evictions,
          " evictions; ", n_taken_up, " of ", n_after_kill, " times restored, ", n_gone_on,
          " of them within an answer, ", n_saved, " checkpoints, the longest of ",
          save_ns_max / 1'000'000, " ms beside steps of ", step_ns_max / 1'000'000, " ms; at most ",
          lost_max.ns / 1'000'000, " ms of work lost and ", lost_max.n_slots, " slots; ",
          moved.n_kills_laid_out, " kills behind or within the writing of an index, of which ",
          moved.n_found, " heads were found again");
  munmap(memory, sizeof(Shared));
}

}  // namespace
}  // namespace tarn::engine::checkpoint_crash_native_test
