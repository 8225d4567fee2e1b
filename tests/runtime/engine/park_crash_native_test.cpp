// Goal    killed with -9 at any moment while it reads a prompt, answers, or parks, a kept session
//         goes on after a restart with no more than 5 s of work lost, and says what one says that
//         was never killed; with full attention and by selection.
// Method  children that take the session up, or begin it, on a real file, and are killed after a
//         random time, one after the other, until one comes to the end; their memory has frames for
//         a seventh of the KV, so that they write, evict and read groups all the time. Most lives
//         end unharmed once the prompt is on disk, so that most kills meet groups that are being
//         written; in every eighth one the answer and the park are killed, too, and another
//         eighth's memory has room for extents, so that its index is kept. When a page was last
//         computed, and what the disk was about, stands in shared memory. Work is measured in the
//         children's CPU time: on a busy machine they stand still now and then, and lose nothing by
//         it. TARN_PARK_KILLS asks for more than the slice.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"

namespace tarn::engine {
namespace {

constexpr u32 kPage = 16;
constexpr u32 kPrompt = 1500;
constexpr u32 kAnswer = 40;
constexpr u32 kPagesMax = 128;
constexpr u64 kFrameBytes = 8192;  // a group of the model's KV
constexpr u32 kFrames = 28;        // of 190 groups
constexpr u32 kManyFrames = 250;
constexpr u64 kLostNsMax = 5'000'000'000;

struct Shared {
  u64 base_ns;  // CPU time of the children before this one
  u32 answer[kAnswer];
  u32 n_answered;
  u64 page_at_ns[kPagesMax];  // when the page was last computed by a child; 0: never
  u32 n_resumed_slots;        // of the last child; ~0: it began anew
  u32 n_ready;                // children that have come so far
  u32 n_gone_on;              // answers that were cut off, and said to their end
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

void note_moves(const KvStream& kv, volatile Shared* shared) {
  const kv::MoverStats& stats = kv.stats();
  shared->bytes_spilled = stats.bytes_spilled;
  shared->bytes_loaded = stats.bytes_loaded;
  shared->n_evictions = stats.n_evictions;
  shared->n_storing = kv.residency().n(kv::Where::storing);
  shared->n_loading = kv.residency().n(kv::Where::loading);
  shared->n_laid_out = kv.extents().stats().bytes_written;
  shared->n_found = kv.extents().stats().n_adopted;
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

Config config_of(const std::string& folder, bool selects, u32 n_frames = kFrames) {
  Config config = test::small_config();
  config.context_tokens = 2048;
  config.page_tokens = kPage;
  config.sessions_max = 1;
  config.batch_rows_max = 32;
  config.store.sessions = !folder.empty();
  config.store.publish_ms = 5;
  config.store.quota_bytes = kGiB;
  if (!folder.empty()) config.kv_memory_bytes = n_frames * kFrameBytes;
  test::set_text(config.store.path, folder);
  if (!selects) return config;
  config.select.method = SelectMethod::pq;
  config.select.code_bits = 2;
  config.select.n_sinks = 20;
  config.select.n_local = 70;
  config.select.k = 48;
  config.select.swap_tokens = 4;
  config.select.context_min = 1;
  return config;
}

// What a host does after any start, whatever happened before.
void live(const std::string& model, const Config& config, volatile Shared* shared) {
  test::OpenEngine open(model, config);
  Engine& engine = open.engine;
  SessionIdx session = 0;
  u32 n = 0;  // tokens of the answer
  bool goes_on = false;
  const auto resumed = engine.resume("talk");
  if (resumed) {
    session = resumed->idx;
    // An answer that was cut off goes on; one that has ended is said again.
    goes_on = resumed->is_cut_off && resumed->n_drawn > 0;
    const bool cuts = resumed->n_tokens > kPrompt && !goes_on;
    if (cuts && !engine.truncate(session, kPrompt)) _exit(4);
    const Session& state = engine.session_state(session);
    for (; goes_on && n < resumed->n_drawn; ++n) shared->answer[n] = state.ids[kPrompt + n];
    shared->n_resumed_slots = std::min(resumed->n_computed, kPrompt);
  } else {
    if (resumed.error().status != Status::not_found) _exit(5);
    session = *engine.create_session();
    if (!engine.keep(session, "talk")) _exit(6);
    if (!engine.feed(session, test::random_ids(3, kPrompt))) _exit(7);
    shared->n_resumed_slots = ~u32{0};
  }
  shared->n_ready = shared->n_ready + 1;
  shared->n_gone_on = shared->n_gone_on + (goes_on ? 1 : 0);
  const GenerateParams rest{.max_tokens = kAnswer - n, .ignore_end = true, .first_draw = n};
  if (!engine.generate(session, rest)) _exit(8);
  Event event;
  char text[256];
  u32 n_seen = engine.session_state(session).sequence.n_slots() / kPage;
  for (bool is_done = false; !is_done;) {
    while (!is_done && engine.take_event(session, &event, text)) {
      if (event.type == EventType::token) shared->answer[n++] = event.token.token;
      is_done = event.type == EventType::done;
    }
    engine.step();
    note_moves(engine.kv_stream(), shared);
    const u32 n_pages = engine.session_state(session).sequence.n_slots() / kPage;
    for (; n_seen < n_pages; ++n_seen) {
      shared->page_at_ns[n_seen] = shared->base_ns + cpu_ns(0);
    }
  }
  if (!engine.park(session, "talk")) _exit(9);
  shared->n_answered = n;
  engine.close();
  _exit(0);
}

std::vector<u32> answer_without_kills(const std::string& model, bool selects) {
  test::OpenEngine open(model, config_of("", selects));
  const SessionIdx session = open.session_with(test::random_ids(3, kPrompt));
  REQUIRE(open.engine.generate(session, {.max_tokens = kAnswer, .ignore_end = true}).has_value());
  const std::vector<u32> tokens = test::read_all(open.engine, session).tokens;
  CHECK((open.engine.session_state(session).lossy_from != Session::kExact) == selects);
  return tokens;
}

TEST_CASE("killed with -9 at any moment, a kept session goes on, and says the same") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const char* asked = std::getenv("TARN_PARK_KILLS");
  const u64 n_kills_wanted = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 12;
  const test::SmallModel model("llama", "q8_0");
  const std::vector<u32> want[] = {answer_without_kills(model.path(), false),
                                   answer_without_kills(model.path(), true)};
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* shared = static_cast<volatile Shared*>(memory);
  const test::TempDir folder("park_crash");
  {
    test::OpenEngine roomy(model.path(), config_of(folder.path(), true, kManyFrames));
    REQUIRE(roomy.engine.plan().tiers.extents.is_on());
  }
  u64 n_kills = 0, n_ends = 0, n_taken_up = 0;
  u64 lost_ns_max = 0, n_gone_on = 0;
  std::vector<u64> page_at_ns(kPagesMax);  // when the last child was killed
  u64 killed_at_ns = 0;
  Moved moved;
  while (n_kills < n_kills_wanted || n_ends == 0) {
    const bool selects = n_ends % 2 == 1, kills_answers = n_ends % 8 >= 6;
    const u32 n_frames = n_ends % 8 == 7 ? kManyFrames : kFrames;
    folder.remove();
    std::memset(memory, 0, sizeof(Shared));
    std::fill(page_at_ns.begin(), page_at_ns.end(), u64{0});
    for (bool has_ended = false; !has_ended;) {
      const u32 n_ready = shared->n_ready;
      forget_moves(shared);
      const pid_t child = fork();
      if (child == 0) live(model.path(), config_of(folder.path(), selects, n_frames), shared);
      // While it starts, or at any moment of its work.
      const bool waits = random.below(8) != 0;
      int status = 0;
      while (waits && shared->n_ready == n_ready && waitpid(child, &status, WNOHANG) == 0) {
        usleep(500);
      }
      const bool has_prompt = shared->n_resumed_slots == kPrompt;
      const bool may_end = n_kills >= n_kills_wanted || (has_prompt && !kills_answers);
      if (!may_end) usleep(static_cast<useconds_t>(random.below(has_prompt ? 1'200'000 : 300'000)));
      const u64 at_ns = shared->base_ns + cpu_ns(child);
      if (!may_end) kill(child, SIGKILL);
      if (waitpid(child, &status, 0) < 0) FAIL("the child ended before its time");
      has_ended = WIFEXITED(status);
      shared->base_ns = at_ns;
      if (has_ended) CHECK(WEXITSTATUS(status) == 0);
      n_kills += has_ended ? 0 : 1;
      add_moves(shared, !has_ended, &moved);
      if (shared->n_ready == n_ready) continue;
      // What it had to compute again, since the first such page was computed.
      const u32 n_resumed = shared->n_resumed_slots;
      n_taken_up += n_resumed != ~u32{0};
      for (u32 page = n_resumed == ~u32{0} ? 0 : n_resumed / kPage; page < kPagesMax; ++page) {
        if (page_at_ns[page] == 0) continue;
        // It may have computed a page after its time was read and before it was dead.
        lost_ns_max =
            std::max(lost_ns_max, killed_at_ns - std::min(killed_at_ns, page_at_ns[page]));
        break;
      }
      for (u32 page = 0; page < kPagesMax; ++page) page_at_ns[page] = shared->page_at_ns[page];
      killed_at_ns = at_ns;
    }
    ++n_ends;
    n_gone_on += shared->n_gone_on;
    REQUIRE(shared->n_answered == kAnswer);
    for (u32 i = 0; i < kAnswer; ++i) CHECK(shared->answer[i] == want[selects][i]);
  }
  CHECK(n_taken_up >= 1);
  if (n_kills_wanted >= 100) CHECK(n_gone_on >= 5);
  CHECK(lost_ns_max < kLostNsMax);
  CHECK(moved.bytes_spilled > kFrames * kFrameBytes);
  CHECK(moved.bytes_loaded > 20 * kFrames * kFrameBytes);
  CHECK(moved.n_evictions > kFrames);
  if (n_kills_wanted >= 100) CHECK(moved.n_kills_storing >= n_kills_wanted / 8);
  if (n_kills_wanted >= 100) CHECK(moved.n_kills_loading >= 5);
  if (n_kills_wanted >= 500) CHECK(moved.n_kills_laid_out >= 5);
  if (n_kills_wanted >= 500) CHECK(moved.n_found >= 5);
  MESSAGE(n_kills, " kills in ", n_ends, " lives, of them ", moved.n_kills_storing,
          " while groups were written and ", moved.n_kills_loading, " while they were read; ",
          moved.bytes_spilled, " B spilled, ", moved.bytes_loaded, " B loaded, ", moved.n_evictions,
          " evictions; ", n_taken_up, " times taken up, ", n_gone_on, " of them within an answer, ",
          lost_ns_max / 1'000'000, " ms of work lost at most; ", moved.n_kills_laid_out,
          " kills behind or within the writing of an index, of which ", moved.n_found,
          " heads were found again");
  munmap(memory, sizeof(Shared));
}

}  // namespace
}  // namespace tarn::engine
