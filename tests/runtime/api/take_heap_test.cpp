// Goal    conversations over one descriptor ask nothing of the allocator, and no memory of the
//         system, on any thread.
// Method  counters of both over turns that are submitted and taken, after a first one. Skipped
//         where a sanitizer has the allocator.
#include <doctest/doctest.h>

#include <cstring>

#include "runtime/api/tarn_chat.h"
#include "tests/runtime/api/event_loop.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"
#include "tests/support/skip.h"
#include "tools/support/alloc_counter.h"

namespace tarn::take_heap_test {
namespace {

constexpr const char* kTurns[] = {
    R"([{"role":"user","content":"bakeri"}])",
    (R"([{"role":"user","content":"bakeri"},{"role":"assistant","content":"so"},)"
     R"({"role":"user","content":"tel"}])"),
    R"([{"role":"user","content":"bakeri"}])"};

// Calls of each kind, and an answer; the number of replies and events.
u32 turn(tarn_engine* engine, tarn_session* session, const char* messages) {
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = 4;
  options.ignore_end = 1;
  u32 ids[64];
  u64 n_ids = 0;
  tarn_session* copy = nullptr;
  int32_t submitted =
      tarn_submit_feed_chat(session, messages, std::strlen(messages), nullptr, nullptr);
  submitted |= tarn_submit_wait(session, -1, nullptr);
  submitted |= tarn_submit_generate(session, &options, nullptr);
  submitted |= tarn_submit_tokenize(engine, messages, 20, 0, ids, 64, &n_ids, nullptr);
  submitted |= tarn_submit_create(engine, nullptr, &copy, nullptr);
  u32 n_taken = 0, n_replies = 0;
  tarn_event event = TARN_INIT(tarn_event);
  bool is_done = false;
  while (submitted == TARN_OK && !(is_done && n_replies == 5)) {
    submitted = test::take_next(engine, &event);
    ++n_taken;
    is_done = is_done || event.type == TARN_EVENT_DONE;
    if (event.type == TARN_EVENT_REPLY) n_replies += event.status == TARN_OK ? 1 : 100;
  }
  tarn_session_destroy(copy);
  return submitted == TARN_OK ? n_taken : 0;
}

TEST_CASE("turns over the descriptor ask nothing of the allocator or the system") {
  if (!tools::alloc_counter_works()) TARN_SKIP("the allocator belongs to a sanitizer here");
  const test::SmallModel model("qwen2", "f16");
  test::Host host(model.path(), "kv.context_tokens = 512\n", "chatml");
  tarn_session* const session = host.session();
  CHECK(turn(host.engine, session, kTurns[0]) > 5);
  for (const char* messages : kTurns) {
    const tools::AllocScope scope;
    const u32 n_taken = turn(host.engine, session, messages);
    const tools::AllocCounts counts = scope.so_far();
    CHECK(n_taken > 5);
    CHECK(counts.n_allocations == 0);
    CHECK(counts.n_maps == 0);
  }
}

}  // namespace
}  // namespace tarn::take_heap_test
