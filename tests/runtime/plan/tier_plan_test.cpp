// Goal    with a store a context larger than the memory for its KV has a plan: as many frames as
//         the budget leaves, never more; without one, or where a step could not run, the error says
//         what to set.
// Method  the 8B shape at full context under budgets from small to ample, each plan's figures
//         against first principles; each refusal's key and figures.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "runtime/lab/methods.h"
#include "runtime/plan/plan.h"
#include "tests/runtime/plan/engine_part.h"
#include "tests/runtime/plan/model_shapes.h"
#include "tests/support/fake_device.h"
#include "tests/support/folders.h"

namespace tarn::plan::tier_plan_test {
namespace {

using test::ShapedModel;

constexpr u64 kGroupBytes = 256 * kKiB;  // of the 8B shape: 8 heads of 128, 64 slots, f16

Config with_store() {
  Config config;
  config.sessions_max = 1;
  config.store.path[0] = '.';
  config.store.quota_bytes = 64 * kGiB;
  return config;
}

Result<Plan> planned(const ShapedModel& model, const Config& config) {
  return plan_memory({.model = &model.description,
                      .config = &config,
                      .n_workers = 2,
                      .carve = &test::carve_engine_part});
}

TEST_CASE("the budget decides how much of the context's KV is in memory") {
  const ShapedModel model(test::kLlama31Of8B);
  Config config = with_store();
  config.context_tokens = 131072;
  u32 n_frames_before = 0;
  for (const u64 budget_gib : {u64{6}, u64{8}, u64{16}}) {
    CAPTURE(budget_gib);
    config.budget_bytes = budget_gib * kGiB;
    const Result<Plan> plan = planned(model, config);
    REQUIRE(plan.has_value());
    CHECK(plan->fits);
    REQUIRE(plan->tiers.is_on());
    CHECK(plan->total_bytes <= config.budget_bytes);
    CHECK(plan->total_bytes > config.budget_bytes - 4 * kMiB);  // nothing is left unused
    CHECK(plan->of(RegionId::kv_groups).bytes == plan->tiers.n_frames * kGroupBytes);
    CHECK(plan->tiers.n_frames > n_frames_before);
    n_frames_before = plan->tiers.n_frames;
    // Every group has a place on disk, head included; it counts against no budget of memory.
    const u64 n_groups = 32 * (131072 / 64 + 1);
    CHECK(plan->groups_max == n_groups);
    CHECK(plan->disk_bytes >= n_groups * (kGroupBytes + 4096));
    CHECK(plan->disk_bytes < n_groups * (kGroupBytes + 4096) + 64 * kMiB);
    CHECK(plan->of(RegionId::kv_disk).space == RegionSpace::disk);
  }
}

TEST_CASE("the profiles for 128K tokens have room for them, and for what selection reads") {
  ShapedModel model(test::kLlama31Of8B);
  model.description.spec.embedding_on_disk = true;
  DeviceFacts orin = test::kOrinFacts;
  orin.memory_bytes = 7600 * kMiB;
  orin.slab_bytes_max = 256 * kMiB;
  struct Profile {
    const char* name;
    DeviceFacts device;
  };
  for (const Profile& profile :
       {Profile{"cpu-8gb-128k", {}}, Profile{"orin-nano-8gb-128k", orin}}) {
    CAPTURE(std::string(profile.name));
    const std::string path = test::source_folder() + "/configs/" + profile.name + ".toml";
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    const Result<Config> config = config_from_toml(text.str(), Config{});
    REQUIRE(config.has_value());
    CHECK(config->select.index_delay_tokens ==
          1);  // no token but the first reads all KV from the disk
    const auto plan_of = [&](const Config& of) {
      return plan_memory({.model = &model.description,
                          .config = &of,
                          .device = profile.device,
                          .tokenizer_bytes = 20 * kMiB,
                          .n_workers = 6,
                          .carve = &test::carve_engine_part});
    };
    const Result<Plan> plan = plan_of(*config);
    if (!plan) FAIL(std::string(plan.error().hint));
    MESSAGE(std::string(profile.name)
            << ": " << plan->tiers.n_frames << " frames, " << plan->tiers.cache_slots
            << " slots cached, plan " << plan->total_bytes << " of " << config->budget_bytes);
    CHECK(plan->fits);
    CHECK(plan->context_tokens == 131072);
    REQUIRE(plan->tiers.is_on());
    CHECK(plan->tiers.extents.n_orders == 2);
    CHECK((plan->gpu.n_staged > 0) == (profile.device.kind == DeviceKind::cuda));
    CHECK(plan->tiers.cache_slots >= 2048);
    // The figures beside the profile's quota; kept sessions take twice the room for KV.
    struct Orders {
      bool keeps;
      u64 quota_tenths;  // of a GiB
      u32 n_orders;
    };
    for (const Orders& want : {Orders{false, 279, 1}, Orders{false, 280, 2}, Orders{false, 183, 0},
                               Orders{false, 184, 1}, Orders{true, 280, 1}, Orders{true, 368, 1},
                               Orders{true, 369, 2}, Orders{true, 272, 0}, Orders{true, 273, 1}}) {
      CAPTURE(want.keeps);
      CAPTURE(want.quota_tenths);
      Config other = *config;
      other.store.sessions = want.keeps;
      other.store.quota_bytes = want.quota_tenths * kGiB / 10;
      const Result<Plan> of = plan_of(other);
      REQUIRE(of.has_value());
      CHECK(of->fits);
      CHECK((of->tiers.extents.is_on() ? of->tiers.extents.n_orders : 0u) == want.n_orders);
    }
  }
}

TEST_CASE("with selection, too, the plan takes what the budget leaves, and fits") {
  // Extents take frames of the cache and need entries in the store's index, from some size on.
  const ShapedModel model(test::kLlama31Of8B);
  Config config = with_store();
  config.context_tokens = 131072;
  config.kv_type = KvTypeChoice::q8_0;
  config.select.method = SelectMethod::pq;
  config.embedding = EmbeddingChoice::disk;
  config.batch_rows_max = 64;
  u32 n_with_extents = 0;
  for (u64 budget_mib = 4955; budget_mib <= 5755; budget_mib += 50) {
    CAPTURE(budget_mib);
    config.budget_bytes = budget_mib * kMiB;
    const Result<Plan> plan = planned(model, config);
    REQUIRE(plan.has_value());
    CHECK(plan->fits);
    CHECK(plan->total_bytes <= config.budget_bytes);
    CHECK(plan->total_bytes > config.budget_bytes - 8 * kMiB);
    for (const Region& region : plan->regions) {
      const std::string_view formula = region.formula.data();
      CHECK(formula.size() < region.formula.size() - 1);  // not cut
    }
    n_with_extents += plan->tiers.extents.is_on() ? 1u : 0u;
  }
  CHECK(n_with_extents > 0);
  CHECK(n_with_extents < 17);
}

TEST_CASE("a cache of fewer slots leaves its memory to groups") {
  const ShapedModel model(test::kLlama31Of8B);
  Config config = with_store();
  config.context_tokens = 131072;
  config.select.method = SelectMethod::pq;
  config.select.disk_reorder = false;
  config.kv_memory_bytes = 2 * kGiB;
  const Result<Plan> whole = planned(model, config);
  REQUIRE(whole.has_value());
  REQUIRE(whole->tiers.cache_slots > 1000);
  config.select.cache_tokens = 1000;
  const Result<Plan> less = planned(model, config);
  REQUIRE(less.has_value());
  CHECK(less->tiers.cache_slots == 1000);
  CHECK(less->tiers.n_frames > whole->tiers.n_frames);
  const u64 frames_bytes = (less->tiers.n_frames - whole->tiers.n_frames) * kGroupBytes;
  const u64 cache_bytes = whole->tiers.cache_bytes - less->tiers.cache_bytes;
  CHECK(frames_bytes <= cache_bytes + kGroupBytes);
  CHECK(frames_bytes + kGroupBytes >= cache_bytes);
}

TEST_CASE("a cache of fewer slots leaves extents as they are, which are built in its memory") {
  const ShapedModel model(test::kLlama31Of8B);
  Config config = with_store();
  config.context_tokens = 131072;
  config.select.method = SelectMethod::pq;
  config.kv_memory_bytes = 2 * kGiB;
  const Result<Plan> whole = planned(model, config);
  REQUIRE(whole.has_value());
  REQUIRE(whole->tiers.extents.is_on());
  for (const u32 cache_tokens : {2000u, 200u, 1u}) {
    CAPTURE(cache_tokens);
    config.select.cache_tokens = cache_tokens;
    const Result<Plan> less = planned(model, config);
    REQUIRE(less.has_value());
    CHECK(less->tiers.cache_slots == cache_tokens);
    CHECK(less->tiers.extents.record_tokens == whole->tiers.extents.record_tokens);
    CHECK(less->tiers.extents.n_orders == whole->tiers.extents.n_orders);
    CHECK(less->tiers.extents_bytes == whole->tiers.extents_bytes);
    CHECK(less->tiers.cache_bytes == whole->tiers.cache_bytes);
    CHECK(less->disk_bytes == whole->disk_bytes);
  }
}

TEST_CASE("what fits stays in memory, and the quota bounds the file") {
  const ShapedModel model(test::kLlama31Of8B);
  Config config = with_store();
  config.context_tokens = 8192;
  config.budget_bytes = 16 * kGiB;
  Result<Plan> plan = planned(model, config);
  REQUIRE(plan.has_value());
  CHECK_FALSE(plan->tiers.is_on());
  CHECK(plan->disk_bytes == 0);
  config.kv_memory_bytes = 512 * kMiB;
  config.store.quota_bytes = 600 * kMiB;
  plan = planned(model, config);
  REQUIRE(plan.has_value());
  CHECK(plan->tiers.n_frames == 512 * kMiB / kGroupBytes);
  CHECK(plan->disk_bytes == 600 * kMiB);
  // A context that would find no room is not begun; what the error asks for is enough, to the byte.
  config.store.quota_bytes = 100 * kMiB;
  plan = planned(model, config);
  REQUIRE_FALSE(plan.has_value());
  CHECK(std::string(plan.error().detail.c_str()) == "store.quota_bytes");
  const u64 least_bytes = plan.error().figures[1].value;
  config.store.quota_bytes = least_bytes;
  CHECK(planned(model, config).has_value());
  config.store.quota_bytes = least_bytes - 1;
  CHECK_FALSE(planned(model, config).has_value());
}

TEST_CASE("the file has room for the kept tokens that it was asked for, or the plan is refused") {
  const ShapedModel model(test::kLlama31Of8B);
  Config config = with_store();
  config.context_tokens = 8192;
  config.store.sessions = true;
  const auto disk_bytes = [&](u64 kept_tokens) {
    config.store.kept_tokens = kept_tokens;
    const Result<Plan> plan = planned(model, config);
    REQUIRE(plan.has_value());
    return plan->disk_bytes;
  };
  const u64 kv_bytes = kGroupBytes * 32 / config.page_tokens;  // of a token
  const u64 by_default = disk_bytes(0), as_much = disk_bytes(8192), eight = disk_bytes(8 * 8192);
  CHECK(as_much >= 2 * 8192 * kv_bytes);
  CHECK(as_much <= by_default + by_default / 50);  // the sessions' pages that are not full
  CHECK(eight >= as_much + 7 * 8192 * kv_bytes);
  CHECK(eight <= as_much + 7 * 8192 * kv_bytes * 11 / 10);
  // Promised is promised: what the error asks for is enough, to the byte.
  config.store.quota_bytes = eight / 2;
  const Result<Plan> refused = planned(model, config);
  REQUIRE_FALSE(refused.has_value());
  CHECK(std::string(refused.error().detail.c_str()) == "store.quota_bytes");
  CHECK(std::string(refused.error().hint).find("store.kept_tokens") != std::string::npos);
  config.store.quota_bytes = refused.error().figures[1].value;
  CHECK(planned(model, config).has_value());
  --config.store.quota_bytes;
  CHECK_FALSE(planned(model, config).has_value());
  // Without kept sessions nobody asks.
  config.store.sessions = false;
  config.store.quota_bytes = 64 * kGiB;
  CHECK(disk_bytes(u64{1} << 30) == disk_bytes(0));
}

TEST_CASE("a file with kept sessions is never made shorter, nor cut anew") {
  const ShapedModel model(test::kLlama31Of8B);
  Config config = with_store();
  config.context_tokens = 8192;
  config.store.sessions = true;
  const u64 frame_bytes = kGroupBytes + 4096;
  const store::Cut cut{.frame_bytes = frame_bytes, .n_frames = 30'000};
  const u64 file_bytes = store::kFramesBegin + cut.n_frames * frame_bytes;
  const auto with_file = [&]() {
    return plan_memory(
        {.model = &model.description, .config = &config, .n_workers = 2, .store_cut = cut});
  };
  config.store.quota_bytes = file_bytes;
  const Result<Plan> kept = with_file();
  REQUIRE(kept.has_value());
  CHECK(kept->disk_bytes == file_bytes);
  config.store.quota_bytes = file_bytes - 1;
  const Result<Plan> shorter = with_file();
  REQUIRE_FALSE(shorter.has_value());
  CHECK(std::string(shorter.error().detail.c_str()) == "store.quota_bytes");
  CHECK(shorter.error().figures[1].value == file_bytes);
  CHECK(std::string(shorter.error().hint).find("pack the sessions") != std::string::npos);
  CHECK(planned(model, config).has_value());  // no file yet
  config.store.sessions = false;              // another file, that only spills
  CHECK(with_file().has_value());

  config.store.sessions = true;
  config.store.quota_bytes = 64 * kGiB;
  config.store.frame_bytes = frame_bytes + 4096;
  const Result<Plan> anew = with_file();
  REQUIRE_FALSE(anew.has_value());
  CHECK(std::string(anew.error().detail.c_str()) == "store.frame_bytes");
  CHECK(anew.error().figures[1].value == frame_bytes);
  CHECK(planned(model, config).has_value());
  config.store.frame_bytes = frame_bytes;
  CHECK(with_file().has_value());
  config.store.frame_bytes = frame_bytes - 4096;  // holds no group, with or without a file
  for (const auto& plan : {with_file(), planned(model, config)}) {
    REQUIRE_FALSE(plan.has_value());
    CHECK(std::string(plan.error().detail.c_str()) == "store.frame_bytes");
    CHECK(plan.error().figures[1].value == frame_bytes);
  }
}

TEST_CASE("a step that could not run is refused with what it needs") {
  const ShapedModel model(test::kLlama31Of8B);
  Config config = with_store();
  config.context_tokens = 32768;
  config.kv_memory_bytes = kMiB;
  const Result<Plan> too_small = planned(model, config);
  REQUIRE_FALSE(too_small.has_value());
  CHECK(std::string(too_small.error().detail.c_str()) == "kv.memory_bytes");
  const u64 least_bytes = too_small.error().figures[1].value;
  config.kv_memory_bytes = least_bytes;
  const Result<Plan> least = planned(model, config);
  REQUIRE(least.has_value());
  CHECK(least->tiers.pin_set_groups == 1);
  config.kv_memory_bytes = least_bytes - 1;
  CHECK_FALSE(planned(model, config).has_value());

  config.kv_memory_bytes = kGiB;
  config.select.lab_method = lab::method_named("oracle");
  CHECK(std::string(planned(model, config).error().detail.c_str()) == "select.method");
  config.select.lab_method = nullptr;
  config.select.method = SelectMethod::pq;
  CHECK(planned(model, config).has_value());
  config.select.method = SelectMethod::full;
  config.store = {};
  const Result<Plan> no_store = planned(model, config);
  REQUIRE_FALSE(no_store.has_value());
  CHECK(std::string(no_store.error().hint).find("--store DIR") != std::string::npos);
}

}  // namespace
}  // namespace tarn::plan::tier_plan_test
