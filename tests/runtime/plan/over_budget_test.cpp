// Goal    a plan that does not fit says what to lower, and the value it names fits while the next
//         larger one does not.
// Method  random budgets below random plans; whatever the error proposes is planned again.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "runtime/model/weights.h"
#include "runtime/plan/plan.h"
#include "tests/runtime/plan/model_shapes.h"
#include "tests/support/seed.h"

namespace tarn::plan::over_budget_test {
namespace {

using test::ShapedModel;

u64 figure(const Error& error, std::string_view name) {
  for (const Figure& f : error.figures) {
    if (f.name != nullptr && name == f.name) return f.value;
  }
  return 0;
}

bool fits(const ShapedModel& model, const Config& config) {
  const Result<Plan> plan = plan_memory({.model = &model.description, .config = &config});
  REQUIRE(plan.has_value());
  return plan->fits;
}

TEST_CASE("a budget is kept to the byte, and none means none") {
  const ShapedModel model({});
  Config config;
  const u64 total_bytes =
      plan_memory({.model = &model.description, .config = &config})->total_bytes;
  CHECK(fits(model, config));
  config.budget_bytes = total_bytes;
  CHECK(fits(model, config));
  config.budget_bytes = total_bytes - 1;
  CHECK_FALSE(fits(model, config));
}

TEST_CASE("an 8B in 6 GiB at its full context: the error a user reads") {
  const ShapedModel model(test::kLlama31Of8B);
  Config config;
  config.budget_bytes = 6 * kGiB;
  const Inputs inputs{
      .model = &model.description, .config = &config, .tokenizer_bytes = 32 * kMiB, .n_workers = 2};
  const Result<Plan> plan = plan_memory(inputs);
  REQUIRE(plan.has_value());
  REQUIRE_FALSE(plan->fits);
  const Error error = over_budget_error(*plan, inputs);
  CHECK(error.status == Status::over_budget);
  CHECK(std::string(error.detail.c_str()) ==
        "kv_groups 16416 MiB, weights 4686 MiB, activations 102 MiB");
  char line[512];
  format_error(error, line, sizeof line);
  CHECK(std::string(line).ends_with(")"));  // the whole of it fits in a line
  const std::string wants =
      "the plan wants " + std::to_string(plan->total_bytes) +
      " bytes, the budget is 6442450944: give a folder on a disk for KV beyond "
      "memory (--store DIR, store.path), lower -c (kv.context_tokens) to " +
      std::to_string(figure(error, "context_tokens"));
  CHECK(std::string(line).starts_with(wants));
  CHECK(figure(error, "budget_bytes") == 6 * kGiB);
  CHECK(figure(error, "total_bytes") == plan->total_bytes);
  CHECK(figure(error, "context_tokens") > 8192);
  CHECK(figure(error, "context_tokens_q8_0") > figure(error, "context_tokens"));
}

TEST_CASE("the largest regions that the error names are memory's, not the disk's") {
  const ShapedModel model(test::kLlama31Of8B);
  Config config;
  config.context_tokens = 131072;
  config.budget_bytes = 4 * kGiB;
  config.store.path[0] = '.';
  config.store.quota_bytes = 64 * kGiB;
  const Inputs inputs{.model = &model.description, .config = &config, .n_workers = 2};
  const Result<Plan> plan = plan_memory(inputs);
  REQUIRE(plan.has_value());
  REQUIRE_FALSE(plan->fits);
  REQUIRE(plan->disk_bytes > 8 * kGiB);
  const std::string detail = over_budget_error(*plan, inputs).detail.c_str();
  CHECK(detail.find("weights") == 0);
  CHECK(detail.find("disk") == std::string::npos);
}

TEST_CASE("what the error proposes fits, and nothing larger does") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const ShapedModel wide({.n_layers = 3, .head_dim = 64});
  const ShapedModel odd(
      {.n_layers = 2, .head_dim = 40, .type = kernels::TensorType::q8_0});  // q8_0 is no way out
  std::map<std::string, u32> n_by_hint;
  u32 n_with_store = 0;
  for (u32 i = 0; i < 600; ++i) {
    const ShapedModel& model = i % 3 == 0 ? odd : wide;
    Config config;
    config.context_tokens = 1 + random.below(i % 2 == 0 ? 20000 : 300);
    config.sessions_max = 1 + static_cast<u32>(random.below(6));
    config.batch_rows_max = 8 + static_cast<u32>(random.below(1000));
    const Inputs inputs{.model = &model.description, .config = &config};
    const u64 full_bytes = plan_memory(inputs)->total_bytes;
    // Most of a small plan is the loader's: budgets below it would all end in the same advice.
    const u64 staging_bytes = model::loader_staging_bytes(model.description, false);
    config.budget_bytes =
        full_bytes - 1 -
        random.below(full_bytes > staging_bytes + 2 * kMiB ? full_bytes - staging_bytes
                                                           : full_bytes / 16);
    const Result<Plan> plan = plan_memory(inputs);
    REQUIRE_FALSE(plan->fits);
    const Error error = over_budget_error(*plan, inputs);
    CAPTURE(i);
    CAPTURE(error.hint);
    REQUIRE(error.status == Status::over_budget);
    REQUIRE(figure(error, "total_bytes") == full_bytes);
    ++n_by_hint[error.hint];
    char line[512];
    format_error(error, line, sizeof line);
    const std::string begin = "the plan wants " + std::to_string(full_bytes) +
                              " bytes, the budget is " + std::to_string(config.budget_bytes);
    REQUIRE(std::string(line).starts_with(begin));
    REQUIRE(std::string(line).find('{') == std::string::npos);
    if (std::string(error.hint).find("--store DIR") != std::string::npos) {
      ++n_with_store;
      Config on_disk = config;
      on_disk.store.path[0] = '.';
      on_disk.store.quota_bytes = kStoreBytesMax;
      REQUIRE(fits(model, on_disk));
    }

    if (const u64 least_bytes = figure(error, "least_bytes")) {
      REQUIRE(least_bytes > config.budget_bytes);
      Config least = config;
      least.budget_bytes = least_bytes;
      least.context_tokens = 1;
      least.sessions_max = 1;
      least.batch_rows_max = 1;
      REQUIRE(fits(model, least));
      continue;
    }
    Config lower = config;
    if (std::string(error.hint).find("one session") != std::string::npos) {
      lower.context_tokens = 1;
      REQUIRE_FALSE(fits(model, lower));
      lower.sessions_max = 1;
      lower.batch_rows_max = static_cast<u32>(figure(error, "batch_rows_max"));
      if (lower.batch_rows_max < config.batch_rows_max) {
        lower.batch_rows_max += 1;
        REQUIRE_FALSE(fits(model, lower));
        lower.batch_rows_max -= 1;
      }
    } else if (const u64 rows = figure(error, "batch_rows_max")) {
      lower.batch_rows_max = static_cast<u32>(rows);
      REQUIRE(fits(model, lower));
      lower.batch_rows_max += 1;
      REQUIRE_FALSE(fits(model, lower));
      lower = config;
    }
    lower.context_tokens = figure(error, "context_tokens");
    REQUIRE(lower.context_tokens > 0);
    REQUIRE(lower.context_tokens <= plan->context_tokens);
    REQUIRE(fits(model, lower));
    if (lower.context_tokens < plan->context_tokens) {
      lower.context_tokens += 1;
      REQUIRE_FALSE(fits(model, lower));
    }
    if (const u64 context = figure(error, "context_tokens_q8_0")) {
      lower = config;
      lower.kv_type = KvTypeChoice::q8_0;
      lower.context_tokens = context;
      REQUIRE(fits(model, lower));
      if (context < plan->context_tokens) {
        lower.context_tokens = context + 1;
        REQUIRE_FALSE(fits(model, lower));
      }
    }
  }
  CHECK(n_by_hint.size() >= 5);  // every kind of advice was given
  CHECK(n_with_store > 50);
  CHECK(n_with_store < 550);
}

}  // namespace
}  // namespace tarn::plan::over_budget_test
