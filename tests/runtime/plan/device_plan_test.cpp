// Goal    the plan for a GPU is what is taken, to the byte: slabs of device memory and the driver's
//         limit beside the host's regions; one budget where both are one memory, two where they are
//         not; and without a GPU no byte of any of it.
// Method  a table of boxes; the plan's slabs reserved on a fake GPU and counted there; the sizes of
//         device regions computed again from first principles; budgets one byte too small.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "platform/gpu/slabs.h"
#include "runtime/model/weights.h"
#include "runtime/plan/plan.h"
#include "tests/runtime/plan/engine_part.h"
#include "tests/runtime/plan/model_shapes.h"
#include "tests/support/fake_device.h"

namespace tarn::plan::device_plan_test {
namespace {

using test::FakeDevice;
using test::kLlama31Of8B;
using test::ShapedModel;

constexpr u64 kTokenizerBytes = 4 * kMiB;

Result<Plan> plan_of(const ShapedModel& model, const Config& config, const DeviceFacts& device) {
  return plan_memory({.model = &model.description,
                      .config = &config,
                      .device = device,
                      .tokenizer_bytes = kTokenizerBytes,
                      .n_workers = 2,
                      .carve = &test::carve_engine_part});
}

u64 figure(const Error& error, std::string_view name) {
  for (const Figure& f : error.figures) {
    if (f.name != nullptr && name == f.name) return f.value;
  }
  return 0;
}

constexpr DeviceFacts kNone{};

struct Box {
  const char* name;
  DeviceFacts facts;
  bool one_budget;
  bool embedding_on_disk = false;
};
constexpr Box kBoxes[] = {{"no GPU", kNone, true},
                          {"integrated", test::kOrinFacts, true},
                          {"integrated, embedding on disk", test::kOrinFacts, true, true},
                          {"discrete", test::kDiscreteFacts, false}};

TEST_CASE("with selection, on a GPU or not, formulas are longer than a line, and none is cut") {
  const ShapedModel eight(kLlama31Of8B);
  ShapedModel small({.n_layers = 4, .n_vocab = 3000, .type = kernels::TensorType::q8_0});
  u64 longest = 0;
  for (const Box& box : kBoxes) {
    CAPTURE(std::string(box.name));
    const bool has_gpu = box.facts.kind == DeviceKind::cuda;  // the fake one is small
    Config config;
    config.context_tokens = has_gpu ? 2048 : 131072;
    config.sessions_max = has_gpu ? 2 : 64;
    config.driver_limit_bytes = 30 * kMiB;
    config.select.method = SelectMethod::pq;
    small.description.spec.embedding_on_disk = box.embedding_on_disk;
    const Result<Plan> plan = plan_of(has_gpu ? small : eight, config, box.facts);
    if (!plan) FAIL(std::string(plan.error().hint));
    for (const Region& region : plan->regions) {
      CAPTURE(region.name);
      const u64 length = std::string_view(region.formula.data()).size();
      CHECK(length < region.formula.size() - 1);
      longest = std::max(longest, length);
    }
  }
  CHECK(longest > 96);
}

TEST_CASE("what the plan says is what a device gives, to the byte") {
  Config config;
  config.context_tokens = 2048;
  config.sessions_max = 2;
  config.driver_limit_bytes = 30 * kMiB;
  for (const Box& box : kBoxes) {
    CAPTURE(box.name);
    ShapedModel model({.n_layers = 4, .n_vocab = 3000, .type = kernels::TensorType::q8_0});
    model.description.spec.embedding_on_disk = box.embedding_on_disk;
    const Result<Plan> plan = plan_of(model, config, box.facts);
    REQUIRE(plan.has_value());
    CHECK(plan->one_budget == box.one_budget);
    CHECK(plan->total_bytes == plan->host_bytes + plan->device_bytes);
    CHECK(plan->host_bytes == RegionArena::total_bytes(plan->regions));
    const bool has_gpu = box.facts.kind == DeviceKind::cuda;
    for (const RegionId id : {RegionId::weights, RegionId::kv_groups, RegionId::activations,
                              RegionId::attention, RegionId::logits}) {
      CAPTURE(plan->of(id).name);
      CHECK((plan->of(id).space == RegionSpace::device) == has_gpu);
    }
    for (const RegionId id : {RegionId::kv_tables, RegionId::tokenizer, RegionId::sessions,
                              RegionId::io_staging, RegionId::text, RegionId::mirror}) {
      CHECK(plan->of(id).space == RegionSpace::host);
    }
    CHECK((plan->of(RegionId::mirror).bytes > 0) == has_gpu);
    CHECK(plan->of(RegionId::driver).kind == RegionKind::driver);
    CHECK(plan->of(RegionId::driver).bytes == (has_gpu ? 30 * kMiB : 0));
    if (!has_gpu) {
      CHECK(plan->device_bytes == 0);
      continue;
    }
    FakeDevice device(box.facts);
    device.driver_takes_bytes = 0;
    DeviceSlabs slabs;
    REQUIRE(slabs.reserve(device, plan->slabs).has_value());
    const u64 taken_bytes = box.facts.memory_free_bytes - device.memory_free_bytes().value();
    CHECK(taken_bytes + 30 * kMiB == plan->device_bytes);
    u64 region_bytes = 0;
    for (const Region& region : plan->regions) {
      if (region.space == RegionSpace::device && region.kind != RegionKind::driver) {
        region_bytes += region.bytes;
      }
    }
    CHECK(slabs.total_bytes() >= region_bytes);
    // Every piece may be followed by up to 255 bytes, every slab by up to one alignment.
    const u64 n_pieces = plan->groups_max + 64;
    CHECK(slabs.total_bytes() <= region_bytes + n_pieces * kDevicePieceAlignment +
                                     plan->slabs.n_slabs() * box.facts.slab_alignment_bytes);
  }
}

TEST_CASE("device regions from first principles: an 8B on an Orin with 8,192 tokens") {
  const ShapedModel model(kLlama31Of8B);
  Config config;
  config.context_tokens = 8192;
  DeviceFacts orin = test::kOrinFacts;
  orin.slab_bytes_max = 256 * kMiB;
  orin.slab_alignment_bytes = 2 * kMiB;
  const Result<Plan> plan = plan_of(model, config, orin);
  REQUIRE(plan.has_value());
  const Result<Plan> on_cpu = plan_of(model, config, kNone);
  REQUIRE(on_cpu.has_value());
  // The same tensors; the table of layers stays with the host.
  CHECK(plan->of(RegionId::weights).bytes ==
        on_cpu->of(RegionId::weights).bytes - model::weights_table_bytes(model.description));
  CHECK(plan->of(RegionId::kv_groups).bytes == u64{32} * (128 + 4) * 262144);
  // 8 rows x 32 heads x 32 spans x 130 floats, and 4 sessions x 32 layers x 128 pages.
  CHECK(plan->of(RegionId::attention).bytes == 8 * 32 * 32 * 130 * 4 + (4 + 2) * 32 * 128 * 8);
  // Logits, and the summary of each 2,048 of them.
  CHECK(plan->of(RegionId::logits).bytes == u64{8} * 128256 * 4 + u64{8} * 63 * 12);
  // No slab above the limit but the one that holds the output matrix, which is a piece of its own.
  u32 n_long = 0;
  for (u32 i = 0; i < plan->slabs.n_slabs(); ++i) n_long += plan->slabs.slab_bytes(i) > 256 * kMiB;
  CHECK(n_long <= 2);
  CHECK(plan->slabs.n_slabs() < 40);
  CHECK(plan->device_bytes > plan->host_bytes);
}

TEST_CASE("an embedding table on disk: its tiles leave the device, its rows come to the host") {
  ShapedModel model(kLlama31Of8B);
  Config config;
  config.context_tokens = 8192;
  config.batch_rows_max = 256;
  const Plan resident = plan_of(model, config, test::kOrinFacts).value();
  model.description.spec.embedding_on_disk = true;
  const Plan on_disk = plan_of(model, config, test::kOrinFacts).value();
  const u64 table_bytes = u64{128256} * 4096 / 256 * 144;  // q4_k
  CHECK(resident.of(RegionId::weights).bytes - on_disk.of(RegionId::weights).bytes == table_bytes);
  // A checksum a row of the table, and the rows of a step.
  CHECK(on_disk.of(RegionId::mirror).bytes - resident.of(RegionId::mirror).bytes ==
        u64{128256} * 4 + u64{256} * 4096 * 4);
  const u64 saved_bytes = resident.device_bytes - on_disk.device_bytes;
  CHECK(saved_bytes >= table_bytes - test::kOrinFacts.slab_bytes_max);
  CHECK(saved_bytes <= table_bytes + test::kOrinFacts.slab_bytes_max);
}

TEST_CASE("one budget or two, each kept to the byte and named by the error") {
  const ShapedModel model({.n_layers = 4, .type = kernels::TensorType::q8_0});
  for (const Box& box : kBoxes) {
    CAPTURE(box.name);
    Config config;
    config.context_tokens = 4096;
    const Plan whole = plan_of(model, config, box.facts).value();
    CHECK(whole.fits);
    config.budget_bytes = box.one_budget ? whole.total_bytes : whole.host_bytes;
    config.device_budget_bytes = whole.device_bytes;
    CHECK(plan_of(model, config, box.facts)->fits);

    Config less = config;
    --less.budget_bytes;
    const Plan over = plan_of(model, less, box.facts).value();
    CHECK_FALSE(over.fits);
    const Inputs inputs{.model = &model.description,
                        .config = &less,
                        .device = box.facts,
                        .tokenizer_bytes = kTokenizerBytes,
                        .n_workers = 2};
    const Error error = over_budget_error(over, inputs);
    CHECK(error.status == Status::over_budget);
    CHECK(figure(error, "budget_bytes") == less.budget_bytes);
    CHECK(figure(error, "total_bytes") == less.budget_bytes + 1);

    Config less_device = config;
    less_device.device_budget_bytes -= whole.device_bytes > 0 ? 1 : 0;
    const Plan over_device = plan_of(model, less_device, box.facts).value();
    CHECK(over_device.fits == box.one_budget);  // one budget knows no second one
    if (box.one_budget) continue;
    Inputs device_inputs = inputs;
    device_inputs.config = &less_device;
    const Error device_error = over_budget_error(over_device, device_inputs);
    CHECK(figure(device_error, "device_budget_bytes") == whole.device_bytes - 1);
    CHECK(figure(device_error, "device_bytes") == whole.device_bytes);
    // What it proposes fits.
    Config proposed = less_device;
    proposed.context_tokens = figure(device_error, "context_tokens");
    REQUIRE(proposed.context_tokens > 0);
    CHECK(proposed.context_tokens < 4096);
    CHECK(plan_of(model, proposed, box.facts)->fits);
    // Not even the least plan fits one MiB.
    Config tiny = less_device;
    tiny.device_budget_bytes = kMiB;
    const Plan hopeless = plan_of(model, tiny, box.facts).value();
    device_inputs.config = &tiny;
    CHECK(figure(over_budget_error(hopeless, device_inputs), "least_bytes") > kMiB);
  }
}

TEST_CASE("a discrete GPU's own memory is the ceiling where none is given") {
  const ShapedModel model({.n_layers = 4, .type = kernels::TensorType::q8_0});
  Config config;
  config.context_tokens = 4096;
  DeviceFacts facts = test::kDiscreteFacts;
  const u64 needed = plan_of(model, config, facts)->device_bytes;
  for (const bool is_open : {false, true}) {  // its free memory is known
    for (const u64 bytes : {needed, needed - 1}) {
      CAPTURE(is_open);
      facts.memory_bytes = is_open ? 2 * needed : bytes;
      facts.memory_free_bytes = is_open ? bytes : 0;
      const Plan plan = plan_of(model, config, facts).value();
      CHECK(plan.fits == (bytes == needed));
      CHECK(plan.device_budget_bytes == bytes);
      Config given = config;
      given.device_budget_bytes = needed;
      CHECK(plan_of(model, given, facts)->fits);
    }
  }
}

Config over_disk(u64 kv_memory_bytes) {
  Config config;
  config.context_tokens = 32768;
  config.sessions_max = 1;
  config.kv_memory_bytes = kv_memory_bytes;
  config.store.path[0] = '.';
  config.store.quota_bytes = 64 * kGiB;
  return config;
}

TEST_CASE(
    "over a disk frames are the host's, and a discrete GPU keeps what stripes it has room for") {
  const ShapedModel model(test::kLlama31Of8B);
  constexpr u64 kChunkBytes = 16 * kMiB;  // 64 groups of a layer
  DeviceFacts orin = test::kOrinFacts, rtx = test::kDiscreteFacts;
  orin.memory_bytes = orin.memory_free_bytes = 8 * kGiB;
  rtx.memory_bytes = rtx.memory_free_bytes = 8 * kGiB;
  for (DeviceFacts* facts : {&orin, &rtx}) facts->slab_bytes_max = 256 * kMiB;
  Config config = over_disk(512 * kMiB);
  const Plan integrated = plan_of(model, config, orin).value();
  REQUIRE(integrated.gpu.n_staged == 1);
  CHECK(integrated.gpu.n_stripes == 0);  // it is one memory
  CHECK(integrated.of(RegionId::kv_groups).space == RegionSpace::host);
  CHECK(integrated.of(RegionId::kv_groups).bytes == 512 * kMiB);
  CHECK(integrated.of(RegionId::kv_device).bytes == 0);

  const Plan discrete = plan_of(model, config, rtx).value();
  const u64 unit_bytes = 32 * kChunkBytes;
  const u32 n_kept = discrete.gpu.n_stripes;
  CHECK(n_kept > 0);
  CHECK(discrete.of(RegionId::kv_device).bytes == n_kept * unit_bytes);
  CHECK(discrete.of(RegionId::kv_device).space == RegionSpace::device);
  CHECK(discrete.device_bytes <= rtx.memory_bytes / 10 * 9);
  CHECK(discrete.device_bytes + unit_bytes + kChunkBytes > rtx.memory_bytes / 10 * 9);
  config.device_budget_bytes = 7 * kGiB;
  const Plan bounded = plan_of(model, config, rtx).value();
  CHECK(bounded.fits);
  CHECK(bounded.device_bytes <= 7 * kGiB);
  CHECK(bounded.device_bytes + unit_bytes + kChunkBytes > 7 * kGiB);
  config.device_budget_bytes = 64 * kGiB;  // no more than the context has
  CHECK(plan_of(model, config, rtx).value().gpu.n_stripes == 32768 / kernels::kGpuMergeSlots);

  // Under a budget of the host's memory the device's part is the same, and frames take the rest.
  config = over_disk(0);
  rtx.memory_bytes = rtx.memory_free_bytes = 6 * kGiB;  // 32K tokens are 4 GiB of KV
  config.budget_bytes = 2 * kGiB;
  const Plan under = plan_of(model, config, rtx).value();
  CHECK(under.fits);
  CHECK(under.tiers.is_on());
  CHECK(under.device_bytes + unit_bytes + kChunkBytes > rtx.memory_bytes / 10 * 9);
  CHECK(under.host_bytes <= 2 * kGiB);
  CHECK(under.host_bytes > 2 * kGiB - 4 * kMiB);
  // More of the host's memory than all KV is no reason to refuse it.
  config = over_disk(64 * kGiB);
  CHECK(plan_of(model, config, rtx).value().tiers.is_on());

  // Without a bound nobody says how much of it KV may take.
  config = over_disk(0);
  const Result<Plan> unbounded = plan_of(model, config, rtx);
  REQUIRE_FALSE(unbounded.has_value());
  CHECK(unbounded.error().status == Status::invalid_config);
  CHECK(std::string(unbounded.error().detail.c_str()) == "kv.memory_bytes");
  config.store.sessions = true;
  CHECK(plan_of(model, config, rtx).has_value());  // as much as the context needs
  config = over_disk(512 * kMiB);
  rtx.host_register = false;  // pinned memory serves
  const Result<Plan> pinned = plan_of(model, config, rtx);
  REQUIRE(pinned.has_value());
  rtx.host_register = true;
  CHECK(pinned->host_bytes == plan_of(model, config, rtx)->host_bytes);
}

}  // namespace
}  // namespace tarn::plan::device_plan_test
