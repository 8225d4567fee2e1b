// Goal    the recall that tarn-bench tells is that of the selection which runs: of its budget,
//         whether absolute or a share of the context, and of its blocks.
// Method  a small random model's keys, drawn queries, an index of 2 bits: almost all chosen, few
//         chosen, and a share of the context beside the numbers that it comes to.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "runtime/lab/probe.h"
#include "runtime/method/token_ranges.h"
#include "tests/runtime/engine/answer_bits.h"

namespace tarn::engine::recall_of_codes_native_test {
namespace {

using test_bits::few;

constexpr u32 kTokens = 600;

// Of the mean over some queries.
f64 recall_of(const test::SmallModel& model, const SelectConfig& select) {
  test::OpenEngine open(model.path(), test_bits::selecting(select));
  const SessionIdx session = open.session_with(test::random_ids(7, kTokens));
  open.run();
  const model::ModelSpec& spec = open.engine.spec();
  test::Random random(11);
  constexpr u32 kQueries = 8;
  f64 sum = 0;
  for (u32 i = 0; i < kQueries; ++i) {
    std::vector<f32> q(u64{spec.n_heads / spec.n_kv_heads} * spec.head_dim);
    for (f32& value : q) value = random.normal();
    sum += lab::Probe(open.engine).recall({.session = session, .cache_layer = 1, .q = q.data()});
  }
  return sum / kQueries;
}

SelectConfig absolute(u32 n_local, u32 k) {
  SelectConfig select = few(SelectMethod::pq, 1);
  select.n_local = n_local;
  select.k = k;
  return select;
}

TEST_CASE("recall is of the budget that the selection has, and of its blocks") {
  const test::SmallModel model("llama", "f16");
  const f64 few_chosen = recall_of(model, absolute(8, 16));
  const f64 most_chosen = recall_of(model, absolute(8, 580));
  MESSAGE("recall of 16 and of 580 tokens: " << few_chosen << ", " << most_chosen);
  CHECK(few_chosen > 16.0 / kTokens);
  CHECK(few_chosen < 0.9);
  CHECK(most_chosen > 0.97);  // of 588 eight are left out
  CHECK(std::isnan(recall_of(model, absolute(8, 588))));

  SelectConfig share = absolute(8, 16);
  share.context_divisor = 4;
  share.tokens_min = 0;
  const method::Budget budget = method::budget(method::budget_rule(share), kTokens);
  REQUIRE(budget.k > 32);
  CHECK(recall_of(model, share) == recall_of(model, absolute(budget.n_local, budget.k)));
  CHECK(recall_of(model, share) != few_chosen);
  share.k = kTokens;  // has no say beside a share
  CHECK(recall_of(model, share) == recall_of(model, absolute(budget.n_local, budget.k)));
}

}  // namespace
}  // namespace tarn::engine::recall_of_codes_native_test
