// Goal    a clustering that falls due while another session's prompt is read keeps that one's first
//         token waiting for a layer a step, never for all layers at once: its own session's row
//         waits until its share is done; beside a prompt none is done before it has to be; and when
//         it is done changes no bit.
// Method  a model of six layers; a session that answers beside a prompt of many small slices, over
//         its index's first use and a renewal. Layers that a step clusters are counted, step by
//         step; no time is measured.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tests/runtime/engine/answer_bits.h"
#include "tests/support/slow_build.h"

namespace tarn::engine::cluster_beside_native_test {
namespace {

using test::OpenEngine;

constexpr u32 kLayers = 6;
constexpr u32 kPrompt = 60;  // an index is triggered
constexpr u32 kRowsMax = 4;
constexpr u32 kAnswer = 110;  // and a renewal, and its use

class Model {
 public:
  Model() {
    const synth::SynthShape shape{.name = "layers",
                                  .n_layers = kLayers,
                                  .d_model = 128,
                                  .d_ff = 128,
                                  .n_heads = 2,
                                  .n_kv_heads = 1,
                                  .n_vocab = 1024};
    synth::synth_write(shape, *synth::parse_quant("q8_0"), 1, file_.path(), 1);
  }
  const std::string& path() const { return file_.path(); }

 private:
  test::TempFile file_{"cluster_beside.gguf"};
};

Config config_of(u32 index_delay_tokens) {
  return test_bits::selecting(test_bits::few(SelectMethod::pq, index_delay_tokens), kRowsMax);
}

struct Counted {
  test_bits::Answer answer;
  std::vector<u32> n_units;  // before each token behind the first, in as many steps
  std::vector<bool> has_prompt;
};

// Another one's prompt of n_beside tokens is there from the answer's first token on, or later.
Counted count(const Model& model, u32 index_delay_tokens, u32 n_beside, u32 begins_at = 1) {
  OpenEngine open(model.path(), config_of(index_delay_tokens));
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
  const SessionIdx other = open.session_with({});
  REQUIRE(
      engine.sessions().generate(session, {.max_tokens = kAnswer, .ignore_end = true}).has_value());
  Counted counted;
  Event event;
  std::array<char, 256> text{};
  u32 n_units = 0;
  for (bool is_done = false; !is_done;) {
    const u32 n_generated = engine.sessions().state(session).generation.n_generated;
    if (n_generated == begins_at && engine.sessions().state(other).tokens.n_ids == 0 &&
        n_beside > 0) {
      REQUIRE(engine.sessions().feed(other, test::random_ids(8, n_beside)).has_value());
    }
    const StepTrace& trace = engine.step();
    CHECK(trace.n_cluster_units <= (n_generated == 0 ? 0 : 1));
    n_units += trace.n_cluster_units;
    if (trace.n_decode_rows > 0) {
      counted.n_units.push_back(std::exchange(n_units, 0));
      counted.has_prompt.push_back(trace.n_prefill_rows > 0);
    }
    while (engine.sessions().take_event(session, &event, text)) {
      is_done = is_done || event.type == EventType::done;
      if (event.type == EventType::token) counted.answer.add(event.token);
    }
  }
  return counted;
}

u32 sum_of(const std::vector<u32>& n_units, u64 n) {
  u32 sum = 0;
  for (u64 i = 0; i < n; ++i) sum += n_units[i];
  return sum;
}

TEST_CASE("beside a prompt a step clusters its share, as late as that allows, to the same bits") {
  const Model model;
  for (const u32 index_delay_tokens : {1u, 3u, 6u, 20u}) {
    CAPTURE(index_delay_tokens);
    if (test::kSlowBuild && index_delay_tokens != 3) continue;
    const u32 share = (kLayers + index_delay_tokens - 1) / index_delay_tokens;
    const Counted alone = count(model, index_delay_tokens, 0);
    const Counted beside = count(model, index_delay_tokens, (kAnswer + 2 * kLayers) * kRowsMax);
    CHECK((beside.answer == alone.answer));
    CHECK(sum_of(alone.n_units, kAnswer - 1) == 2 * kLayers);
    CHECK(sum_of(beside.n_units, kAnswer - 1) == 2 * kLayers);
    for (u32 i = 0; i < beside.n_units.size(); ++i) {
      CAPTURE(i);
      REQUIRE(beside.has_prompt[i]);
      CHECK(beside.n_units[i] <= share);
      if (i >= index_delay_tokens)
        continue;  // the first index, which is used from row index_delay_tokens on
      const u32 n_later = share * (index_delay_tokens - 1 - i);
      CHECK(sum_of(beside.n_units, i + 1) == kLayers - std::min(kLayers, n_later));
    }
  }
}

TEST_CASE("a prompt that comes at any token of a job, long or short, waits for a share a step") {
  const Model model;
  constexpr u32 kSwap = 8;
  const Counted alone = count(model, kSwap, 0);
  for (const u32 n_beside : {10u, 30u, 100u}) {
    for (u32 begins_at = 1; begins_at <= kSwap + 1; ++begins_at) {
      if (test::kSlowBuild && (n_beside != 10 || begins_at % 4 != 1)) continue;
      CAPTURE(n_beside);
      CAPTURE(begins_at);
      const Counted beside = count(model, kSwap, n_beside, begins_at);
      CHECK((beside.answer == alone.answer));
      CHECK(*std::max_element(beside.n_units.begin(), beside.n_units.end()) == 1);
      CHECK(sum_of(beside.n_units, kSwap) == kLayers);
      CHECK(std::count(beside.has_prompt.begin(), beside.has_prompt.end(), true) ==
            (n_beside - 1 + kRowsMax - 2) /
                (kRowsMax - 1));  // the last token waits for a generation
    }
  }
}

}  // namespace
}  // namespace tarn::engine::cluster_beside_native_test
