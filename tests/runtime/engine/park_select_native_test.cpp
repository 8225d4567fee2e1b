// Goal    a kept conversation that was decoded by selection goes on, in another engine, with the
//         bits of a session that got all of its tokens as one input: what selection left in its KV
//         is not kept but computed anew, exactly, and its index is made from all of it.
// Method  three inputs and answers that select, parked and taken up over one simulated disk, with
//         frames for all KV and for a part; beside it an engine in memory that is fed the same
//         tokens. Then more inputs, answers, a fork and a cut in both; every logit as bytes.
#include <doctest/doctest.h>

#include "tests/runtime/engine/kept_life.h"

namespace tarn::engine {
namespace {

using test::KeptLife;
using test::SimDisk;
using test::SmallModel;

// Three turns; the session's tokens.
std::vector<u32> talk(KeptLife& life, SessionIdx session) {
  test::first_part(life, session, 300);
  for (const u32 n : {41u, 90u}) {
    REQUIRE(life.engine().feed(session, test::random_ids(n, n)).has_value());
    life.generate(session, 30, 0.8f);
  }
  const Session& state = life.engine().session_state(session);
  CHECK(state.lossy_from != Session::kExact);  // else nothing was selected, and this says nothing
  return {state.ids.begin(), state.ids.begin() + state.n_ids};
}

TEST_CASE("a kept conversation that selected goes on as if its tokens had been one input") {
  const SmallModel model("llama", "q8_0");
  for (const bool few_frames : {false, true}) {
    CAPTURE(few_frames);
    const test::KeptHow how{.few_frames = few_frames, .select = test::kept_select()};
    SimDisk disk(1);
    std::vector<u32> ids;
    test::Second went_on;
    {
      KeptLife first(model, how, disk);
      const SessionIdx parked = test::create(first);
      ids = talk(first, parked);
      REQUIRE(first.engine().park(parked, "talk").has_value());
      went_on = test::second_part(first, parked);
    }
    KeptLife whole(model, how);
    const SessionIdx one_input = test::create(whole);
    REQUIRE(whole.engine().feed(one_input, ids).has_value());
    whole.open.run();
    const std::vector<u32> answer = whole.generate(one_input, 24);
    const test::Second want = test::second_part(whole, one_input);
    KeptLife second(model, how, disk);
    const SessionIdx resumed = second.resume();
    CHECK(second.generate(resumed, 24) == answer);
    test::require_same(want, test::second_part(second, resumed));
    CHECK(second.engine().session_state(resumed).lossy_from != Session::kExact);
    // The one that was never parked has what selection left in it.
    CHECK(std::memcmp(want.logits.rows.back().data(), went_on.logits.rows.back().data(),
                      want.logits.rows.back().size() * sizeof(f32)) != 0);
  }
}

}  // namespace
}  // namespace tarn::engine
