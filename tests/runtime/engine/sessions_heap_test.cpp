// Goal    an open engine asks nothing of the allocator, and no memory of the system.
// Method  counters of both over a thousand tokens. Skipped where a sanitizer has the allocator.
#include <doctest/doctest.h>

#include "tests/support/open_engine.h"
#include "tests/support/skip.h"
#include "tools/support/alloc_counter.h"

namespace tarn::engine::sessions_heap_test {
namespace {

using test::OpenEngine;
using test::SmallModel;

TEST_CASE("1,000 tokens ask nothing of the allocator or the system") {
  if (!tools::alloc_counter_works()) TARN_SKIP("the allocator belongs to a sanitizer here");
  const SmallModel model("llama", "q4_k");
  Config config = test::small_config();
  config.context_tokens = 2048;
  config.n_threads = 2;
  OpenEngine open(model.path(), config);
  const SessionIdx session = open.session_with(test::random_ids(4, 300));
  SamplerParams params;
  params.temperature = 0.8f;
  params.top_k = 40;
  params.repetition_penalty = 1.1f;
  REQUIRE(open.engine.sessions()
              .generate(session, {.sampler = params, .max_tokens = 1000, .ignore_end = true})
              .has_value());
  const tools::AllocScope scope;
  Event event;
  char text[256];
  u32 n_tokens = 0;
  for (bool done = false; !done;) {
    if (!open.engine.sessions().take_event(session, &event, text)) {
      open.engine.step();
      continue;
    }
    n_tokens += event.type == EventType::token ? 1 : 0;
    done = event.type == EventType::done;
  }
  const tools::AllocCounts counts = scope.so_far();
  CHECK(n_tokens == 1000);
  CHECK(counts.n_allocations == 0);
  CHECK(counts.n_maps == 0);
}

}  // namespace
}  // namespace tarn::engine::sessions_heap_test
