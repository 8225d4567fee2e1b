// Goal    a session's life: what is refused and why, how a generation ends, that a slow reader or a
//         cancelled neighbour changes nobody else, that everything comes back.
// Method  small random models, pumped by the test; counters of reservations.
#include <doctest/doctest.h>

#include <algorithm>

#include "runtime/lab/probe.h"
#include "runtime/text/tables.h"
#include "tests/support/failing_reserve.h"
#include "tests/support/open_engine.h"

namespace tarn::engine::sessions_test {
namespace {

using test::OpenEngine;
using test::SmallModel;

TEST_CASE("what cannot be served is refused with its reason, and nothing changes") {
  const SmallModel model("llama", "f16");
  Config config = test::small_config();
  config.context_tokens = 128;
  config.sessions_max = 2;
  OpenEngine open(model.path(), config);
  Engine& engine = open.engine;
  const SessionIdx session = *engine.sessions().create();

  CHECK(engine.sessions().generate(session, {}).error().status ==
        Status::invalid_request);  // nothing fed
  const u32 unknown[] = {1024};
  CHECK(engine.sessions().feed(session, unknown).error().status == Status::invalid_request);
  CHECK(engine.sessions().feed(session, test::random_ids(1, 129)).error().status ==
        Status::invalid_request);
  CHECK(engine.sessions().state(session).tokens.n_ids == 0);
  CHECK(engine.sessions().truncate(session, 1).error().status == Status::invalid_request);

  REQUIRE(engine.sessions().feed(session, test::random_ids(1, 100)).has_value());
  CHECK(engine.sessions().fork(session).error().status ==
        Status::invalid_request);  // it still computes
  open.run();
  CHECK(engine.sessions().state(session).sequence.n_slots() == 99);  // the last one waits
  const SessionIdx other = *engine.sessions().create();
  CHECK(engine.sessions().create().error().status == Status::would_block);
  // Two pages are taken, one tail a session is spare: 64 slots more fit, 65 do not.
  CHECK(engine.sessions().feed(other, test::random_ids(2, 128)).has_value());
  CHECK(engine.sessions().truncate(other, 0).has_value());
  lab::Probe::pool(engine).check_invariants();

  SamplerParams params;
  params.temperature = -1.0f;
  CHECK(engine.sessions().generate(session, {.sampler = params}).error().status ==
        Status::invalid_request);
  const std::string_view empty_stop[] = {""};
  CHECK(engine.sessions().generate(session, {.stops = empty_stop}).error().status ==
        Status::invalid_request);
  CHECK(engine.sessions().generate(session, {.max_tokens = 4, .ignore_end = true}).has_value());
  CHECK(engine.sessions().feed(session, test::random_ids(3, 1)).error().status ==
        Status::invalid_request);
  CHECK(test::read_all(engine, session).tokens.size() == 4);

  // What the next session in its place would save is not this one's.
  engine.sessions().destroy(session);
  const Generation& next = engine.sessions().state(*engine.sessions().create()).generation;
  CHECK(next.max_tokens == 0);
  CHECK_FALSE(next.ignore_end);
}

TEST_CASE("forced draws read a text by decode steps, with a prompt's logits") {
  const SmallModel model("llama", "q4_k_m");
  OpenEngine open(model.path(), test::small_config());
  Engine& engine = open.engine;
  const std::vector<u32> ids = test::random_ids(5, 60);
  test::LogitsRecord fed, forced;
  const SessionIdx by_feed = *engine.sessions().create();
  lab::Probe(engine).watch_logits(by_feed, test::LogitsRecord::on_logits, &fed);
  REQUIRE(engine.sessions().feed(by_feed, ids).has_value());
  open.run();

  const SessionIdx by_steps = open.session_with({ids.begin(), ids.begin() + 20});
  lab::Probe(engine).watch_logits(by_steps, test::LogitsRecord::on_logits, &forced);
  const std::span<const u32> rest = std::span(ids).subspan(20);
  REQUIRE(lab::Probe(engine).generate(by_steps, {.max_tokens = 40, .ignore_end = true}, rest));
  const test::Said said = test::read_all(engine, by_steps);
  CHECK(std::equal(said.tokens.begin(), said.tokens.end(), rest.begin(), rest.end()));
  forced.rows.resize(60);
  for (u32 i = 20; i < 59; ++i) {
    CAPTURE(i);
    REQUIRE(forced.rows[i].size() == fed.rows[i].size());
    CHECK(std::equal(forced.rows[i].begin(), forced.rows[i].end(), fed.rows[i].begin()));
  }

  const u32 unknown[] = {1, 1024};
  CHECK(lab::Probe(engine).generate(by_steps, {}, unknown).error().status ==
        Status::invalid_request);
  // Fewer than the generation has: the rest is the model's.
  REQUIRE(
      lab::Probe(engine).generate(by_steps, {.max_tokens = 4, .ignore_end = true}, rest.first(2)));
  const test::Said more = test::read_all(engine, by_steps);
  REQUIRE(more.tokens.size() == 4);
  CHECK(more.tokens[1] == rest[1]);
}

TEST_CASE("a generation ends by length, by the context, by a stop, by its end token, by a cancel") {
  const SmallModel model("llama", "f16");
  Config config = test::small_config();
  config.context_tokens = 64;
  config.sessions_max = 1;
  OpenEngine open(model.path(), config);
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with(test::random_ids(5, 20));
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 10, .ignore_end = true}).has_value());
  const test::Said ten = test::read_all(engine, session);
  CHECK(ten.tokens.size() == 10);
  CHECK(ten.done.finish == Finish::length);
  CHECK(ten.done.n_tokens == 10);

  REQUIRE(engine.sessions().truncate(session, 20).has_value());
  REQUIRE(engine.sessions().generate(session, {.ignore_end = true}).has_value());
  const test::Said all = test::read_all(engine, session);
  CHECK(all.done.finish == Finish::length);
  CHECK(all.tokens.size() == 64 - 20 + 1);  // the last one has no place any more
  CHECK(std::equal(ten.tokens.begin(), ten.tokens.end(), all.tokens.begin()));

  REQUIRE(engine.sessions().truncate(session, 20).has_value());
  const std::string_view stops[] = {std::string_view(all.text).substr(5, 3)};
  REQUIRE(engine.sessions().generate(session, {.ignore_end = true, .stops = stops}).has_value());
  const test::Said stopped = test::read_all(engine, session);
  CHECK(stopped.done.finish == Finish::stop);
  CHECK(stopped.text == all.text.substr(0, all.text.find(stops[0])));

  REQUIRE(engine.sessions().truncate(session, 20).has_value());
  SamplerParams biased;
  biased.n_logit_biases = 1;
  biased.logit_biases[0] = {engine.text().tokenizer().tables().eos, 1000.0f};
  REQUIRE(engine.sessions().generate(session, {.sampler = biased}).has_value());
  const test::Said ended = test::read_all(engine, session);
  CHECK(ended.done.finish == Finish::end);
  CHECK(ended.tokens == std::vector<u32>{engine.text().tokenizer().tables().eos});
  CHECK(ended.text.empty());

  REQUIRE(engine.sessions().truncate(session, 20).has_value());
  REQUIRE(engine.sessions().generate(session, {.ignore_end = true}).has_value());
  engine.step();
  engine.sessions().request_cancel(session);
  CHECK(test::read_all(engine, session).done.finish == Finish::cancelled);
  CHECK_FALSE(engine.has_work());
}

TEST_CASE("a cancelled prefill gives back what it had not computed") {
  const SmallModel model("llama", "f16");
  Config config = test::small_config();
  config.batch_rows_max = 16;
  OpenEngine open(model.path(), config);
  const SessionIdx session = open.session_with(test::random_ids(6, 200));
  open.engine.step();
  open.engine.sessions().request_cancel(session);
  open.run();
  CHECK(open.engine.sessions().state(session).tokens.n_ids == 16);
  open.engine.sessions().destroy(session);
  lab::Probe::pool(open.engine).check_invariants();
  CHECK(lab::Probe::pool(open.engine).groups_free() == lab::Probe::pool(open.engine).groups_max());
}

TEST_CASE("a reader that stays away stops its own session alone") {
  const SmallModel model("llama", "f16");
  Config config = test::small_config();
  config.context_tokens = 1024;
  OpenEngine open(model.path(), config);
  Engine& engine = open.engine;
  const SessionIdx slow = open.session_with(test::random_ids(1, 4));
  const SessionIdx fast = open.session_with(test::random_ids(2, 4));
  const GenerateParams params{.max_tokens = 300, .ignore_end = true};
  REQUIRE(engine.sessions().generate(slow, params).has_value());
  REQUIRE(engine.sessions().generate(fast, params).has_value());
  CHECK(test::read_all(engine, fast).tokens.size() == 300);
  open.run();
  CHECK_FALSE(engine.has_work());
  CHECK(engine.sessions().state(slow).generation.n_generated < EventRing::kEvents);
  CHECK(test::read_all(engine, slow).tokens.size() == 300);
}

TEST_CASE("a draw depends on seed and position alone; a seed makes a difference") {
  const SmallModel model("llama", "q8_0");
  OpenEngine open(model.path(), test::small_config());
  const auto drawn = [&](u64 seed) {
    const SessionIdx session = open.session_with(test::random_ids(3, 12));
    SamplerParams params;
    params.temperature = 1.0f;
    params.top_k = 200;
    params.top_p = 0.95f;
    params.seed = seed;
    params.n_top_logprobs = 3;
    REQUIRE(open.engine.sessions()
                .generate(session, {.sampler = params, .max_tokens = 30, .ignore_end = true})
                .has_value());
    const test::Said said = test::read_all(open.engine, session);
    for (const Sampled& sampled : said.sampled) {
      CHECK(sampled.n_top == 3);
      CHECK(sampled.top[0].logprob >= sampled.top[1].logprob);
      CHECK(sampled.logprob <= sampled.top[0].logprob);
    }
    open.engine.sessions().destroy(session);
    return said.tokens;
  };
  CHECK(drawn(1) == drawn(1));
  CHECK(drawn(1) != drawn(2));
}

TEST_CASE("every reservation that fails at start gives a clean error and leaves nothing") {
  const SmallModel model("llama", "f16");
  SystemClock clock;
  test::FailingReserve counting;
  {
    Engine engine;
    REQUIRE(engine
                .open({.model_path = model.path().c_str(),
                       .config = test::small_config(),
                       .reserve = &counting,
                       .clock = &clock})
                .has_value());
    engine.close();
  }
  CHECK(counting.n_held() == 0);
  REQUIRE(counting.n_calls() >= 2);
  for (u64 call = 0; call < counting.n_calls(); ++call) {
    for (const auto mode :
         {test::FailingReserve::Mode::once, test::FailingReserve::Mode::from_then_on}) {
      CAPTURE(call);
      test::FailingReserve failing(call, mode);
      Engine engine;
      const Result<void> opened = engine.open({.model_path = model.path().c_str(),
                                               .config = test::small_config(),
                                               .reserve = &failing,
                                               .clock = &clock});
      REQUIRE_FALSE(opened.has_value());
      CHECK(opened.error().status == Status::over_budget);
      CHECK(failing.n_held() == 0);
      SystemReserve system;
      REQUIRE(engine
                  .open({.model_path = model.path().c_str(),
                         .config = test::small_config(),
                         .reserve = &system,
                         .clock = &clock})
                  .has_value());
      engine.close();
    }
  }
}

TEST_CASE("a step's trace says what it did") {
  const SmallModel model("llama", "f16");
  OpenEngine open(model.path(), test::small_config());
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with(test::random_ids(4, 100));
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 2, .ignore_end = true}).has_value());
  const StepTrace prefill = engine.step();
  CHECK(prefill.n_rows == 100);
  CHECK(prefill.n_prefill_rows == 100);
  CHECK(prefill.n_logit_rows == 1);
  CHECK(prefill.n_tokens_out == 1);
  const StepTrace decode = engine.step();
  CHECK(decode.n_decode_rows == 1);
  CHECK(decode.n_prefill_rows == 0);
  const auto& layers = decode.phases[static_cast<u64>(Phase::layers)];
  // 2 layers, 2 KV heads of 64, K and V in f16, 101 tokens.
  CHECK(layers.kv_bytes == 2 * 2 * 64 * 2 * 2 * 101);
  CHECK(layers.weight_bytes > 0);
  CHECK(layers.busy_ns <= decode.end_ns - decode.start_ns);
  CHECK_FALSE(engine.has_work());
  CHECK(engine.step().n_rows == 0);
}

}  // namespace
}  // namespace tarn::engine::sessions_test
