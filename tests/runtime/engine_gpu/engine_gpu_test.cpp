// Goal    on a GPU the same tokens give the same logits, bit for bit, whatever rides in the step or
//         rode in one before, how the prompt is cut, and where weights and KV lie, in a graph or
//         not, also with the embedding table on disk; memory is the plan's and is given back, what
//         the driver takes is measured when everything is loaded, and nothing is loaded later; what
//         the kernels do not compute is refused, or left to the CPU where the user left the choice;
//         a GPU that fails while a model loads leaves nothing behind.
// Method  the fake device and the emulated kernels. The reference is one row at a time. Slabs are
//         small, so that weights and groups lie in many. Faults: calls of an opening fail, one at
//         a time, the first 16 all of them.
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>

#include "kernels/quant/gpu_tile.h"
#include "platform/gpu/gpu_errors.h"
#include "runtime/api/instance.h"
#include "runtime/exec/gpu/support.h"
#include "runtime/lab/methods.h"
#include "runtime/lab/probe.h"
#include "tests/runtime/engine_gpu/gpu_engine.h"
#include "tests/runtime/plan/model_shapes.h"
#include "tests/support/slow_build.h"

namespace tarn::test::engine_gpu_test {
namespace {

using engine::SessionIdx;

Config config_of(u32 rows_max, u32 sessions_max = 1) {
  Config config = small_config();
  config.context_tokens = 64 * sessions_max;
  config.page_tokens = 32;
  config.batch_rows_max = rows_max;
  config.sessions_max = sessions_max;
  return config;
}

TEST_CASE("how a prompt is cut and where things lie changes no bit") {
  const GpuModel model("llama", "q8_0");
  const std::vector<u32> ids = random_ids(seed_from_environment(), 34, GpuModel::kVocab);
  constexpr u32 kBefore = 30;  // the last positions are on both sides of a page's end
  GpuEngine one;
  require_open(one, model.path(), config_of(1));
  const LogitsRecord expected = logits_of(one.engine, ids, kBefore);
  for (const u32 rows_max : {7u, 64u}) {
    CAPTURE(rows_max);
    DeviceFacts facts = rows_max == 64 ? kDiscreteFacts : kOrinFacts;
    facts.slab_bytes_max = 64 * kKiB;
    facts.host_register = rows_max != 7;
    GpuEngine other(facts);
    require_open(other, model.path(), config_of(rows_max));
    require_same_bits(expected, logits_of(other.engine, ids, kBefore));
  }
}

TEST_CASE("a sequence decodes the same bits alone and beside seven others") {
  const GpuModel model("qwen3", "q8_0");
  constexpr u32 kSessions = 8, kTokens = 2;
  std::vector<std::vector<u32>> prompts;
  for (u32 i = 0; i < kSessions; ++i) {
    prompts.push_back(random_ids(seed_from_environment() + i, 1 + i % 3, GpuModel::kVocab));
  }
  const engine::GenerateParams greedy{.max_tokens = kTokens, .ignore_end = true};
  std::vector<LogitsRecord> alone(kSessions);
  GpuEngine one;
  require_open(one, model.path(), config_of(1));
  for (u32 i = 0; i < kSessions; ++i) {
    const SessionIdx session = *one.engine.sessions().create();
    lab::Probe(one.engine).watch_logits(session, &LogitsRecord::on_logits, &alone[i]);
    REQUIRE(one.engine.sessions().feed(session, prompts[i]).has_value());
    REQUIRE(one.engine.sessions().generate(session, greedy).has_value());
    CHECK(read_all(one.engine, session).tokens.size() == kTokens);
    one.engine.sessions().destroy(session);
  }
  for (const u32 n : {3u, 8u}) {
    CAPTURE(n);
    GpuEngine gpu;
    require_open(gpu, model.path(), config_of(64, kSessions));
    std::vector<LogitsRecord> together(n);
    std::vector<SessionIdx> sessions;
    for (u32 i = 0; i < n; ++i) {
      sessions.push_back(*gpu.engine.sessions().create());
      lab::Probe(gpu.engine).watch_logits(sessions[i], &LogitsRecord::on_logits, &together[i]);
      REQUIRE(gpu.engine.sessions().feed(sessions[i], prompts[i]).has_value());
      REQUIRE(gpu.engine.sessions().generate(sessions[i], greedy).has_value());
    }
    gpu.run();
    for (u32 i = 0; i < n; ++i) require_same_bits(alone[i], together[i]);
  }
}

TEST_CASE(
    "who wants no logprobs gets the same greedy tokens, and their logits stay on the device") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  constexpr u32 kTokens = 4;
  GpuEngine gpu;
  require_open(gpu, model.path(), config_of(64, 8));
  const auto say = [&](u32 n, u32 n_with_logprobs, f32 temperature, u64* bytes_out) {
    std::vector<SessionIdx> sessions;
    for (u32 i = 0; i < n; ++i) {
      sessions.push_back(*gpu.engine.sessions().create());
      const std::vector<u32> ids = random_ids(seed_from_environment() + i, 2, GpuModel::kVocab);
      REQUIRE(gpu.engine.sessions().feed(sessions[i], ids).has_value());
    }
    gpu.run();
    for (u32 i = 0; i < n; ++i) {
      engine::GenerateParams params{.max_tokens = kTokens, .ignore_end = true};
      params.sampler.wants_logprob = i < n_with_logprobs;
      params.sampler.temperature = temperature;
      REQUIRE(gpu.engine.sessions().generate(sessions[i], params).has_value());
    }
    const u64 before = gpu.device.copied().bytes_out;
    gpu.run();
    *bytes_out = gpu.device.copied().bytes_out - before;
    std::vector<std::vector<u32>> said;
    for (const SessionIdx session : sessions) {
      said.push_back(read_all(gpu.engine, session).tokens);
      CHECK(said.back().size() == kTokens);
      gpu.engine.sessions().destroy(session);
    }
    return said;
  };
  constexpr u64 kRowBytes = GpuModel::kVocab * sizeof(f32);
  static_assert(GpuModel::kVocab <= kernels::kGpuSampleChunk);  // one summary a row
  u64 bytes = 0;
  for (const u32 n : {1u, 3u, 8u}) {
    if (kSlowBuild && n == 8) continue;
    CAPTURE(n);
    const auto expected = say(n, n, 0.0f, &bytes);
    CHECK(bytes == kTokens * n * kRowBytes);
    CHECK(say(n, 0, 0.0f, &bytes) == expected);
    CHECK(bytes == kTokens * n * sizeof(kernels::GpuLogitsSummary));
    if (n > 1) CHECK(say(n, 1, 0.0f, &bytes) == expected);
    if (n > 1) CHECK(bytes == kTokens * n * kRowBytes);  // one that wants them brings all
  }
  say(2, 0, 1.0f, &bytes);
  CHECK(bytes == kTokens * 2 * kRowBytes);  // a draw wants them too
}

TEST_CASE("a decode step sends its state in one copy, and a new group of all layers in another") {
  const GpuModel model("llama", "q8_0");
  GpuEngine gpu;
  require_open(gpu, model.path(), config_of(64, 2));
  const SessionIdx session = *gpu.engine.sessions().create();
  constexpr u32 kPrompt = 28, kTokens = 8;
  REQUIRE(
      gpu.engine.sessions().feed(session, random_ids(1, kPrompt, GpuModel::kVocab)).has_value());
  gpu.run();
  REQUIRE(gpu.engine.sessions()
              .generate(session, {.max_tokens = kTokens, .ignore_end = true})
              .has_value());
  const model::ModelSpec& spec = gpu.engine.spec();
  const u64 state_bytes = 4 * sizeof(u32) + 5 * sizeof(u32) + spec.n_rot * sizeof(f32);
  for (u32 i = 0; i < kTokens; ++i) {
    CAPTURE(i);
    const FakeDevice::Copied before = gpu.device.copied();
    gpu.engine.step();
    const bool is_new_group = kPrompt - 1 + i == 32;  // the row's slot is the first of a page
    const u64 groups_bytes = is_new_group ? spec.n_cache_layers * sizeof(u64) : 0;
    CHECK(gpu.device.copied().n_in - before.n_in == (is_new_group ? 2 : 1));
    CHECK(gpu.device.copied().bytes_in - before.bytes_in == state_bytes + groups_bytes);
  }
}

TEST_CASE("a row that a graph has room for and the step has not writes nothing") {
  const GpuModel model("llama", "q8_0");
  constexpr u32 kLong = 28, kTokens = 10, kFew = 3;
  const std::vector<u32> ids = random_ids(seed_from_environment(), kLong, GpuModel::kVocab);
  // Sessions on prompts of these lengths, computed; then the first is watched and all generate.
  const auto begin = [&](engine::Engine& engine, std::vector<u32> prompts, LogitsRecord* record) {
    std::vector<SessionIdx> sessions;
    for (const u32 n_ids : prompts) {
      sessions.push_back(*engine.sessions().create());
      REQUIRE(engine.sessions().feed(sessions.back(), std::span(ids).first(n_ids)).has_value());
    }
    while (engine.has_work()) engine.step();
    lab::Probe(engine).watch_logits(sessions[0], &LogitsRecord::on_logits, record);
    for (u32 i = 0; i < sessions.size(); ++i) {
      const u32 n_tokens = i == 3 ? kFew : kTokens;
      REQUIRE(
          engine.sessions().generate(sessions[i], {.max_tokens = n_tokens, .ignore_end = true}));
    }
    return sessions;
  };
  GpuEngine alone, gpu;
  LogitsRecord expected, record;
  require_open(alone, model.path(), config_of(32));
  begin(alone.engine, {kLong}, &expected);
  alone.run();

  // The fourth ends, and the first takes its groups as its own grows past a page: the place that
  // the fourth wrote last is seen by the first from then on.
  require_open(gpu, model.path(), config_of(64, 4));
  const std::vector<SessionIdx> sessions = begin(gpu.engine, {kLong, 2, 2, 2}, &record);
  CHECK(read_all(gpu.engine, sessions[3]).tokens.size() == kFew);
  gpu.engine.sessions().destroy(sessions[3]);
  gpu.run();
  require_same_bits(expected, record);
}

TEST_CASE("an embedding table on disk gives the same bits, in its bytes less of device memory") {
  for (const char* type : {"q8_0", "f16"}) {
    CAPTURE(type);
    const GpuModel model("llama", type);
    const std::vector<u32> ids = random_ids(seed_from_environment(), 10, GpuModel::kVocab);
    LogitsRecord records[2];
    std::vector<u32> said[2];
    u64 weights_bytes[2] = {}, launches[2] = {};
    for (const u32 i : {0u, 1u}) {
      GpuEngine gpu(i == 0 ? kDiscreteFacts : kOrinFacts);
      Config config = config_of(16);
      config.embedding = i == 0 ? EmbeddingChoice::memory : EmbeddingChoice::disk;
      require_open(gpu, model.path(), config);
      CHECK(std::string(gpu.engine.status().device) == "cuda");
      weights_bytes[i] = gpu.engine.plan().of(plan::RegionId::weights).bytes;
      launches[i] = gpu.device.graph_work_max();
      records[i] = logits_of(gpu.engine, ids, 6);
      const SessionIdx session = *gpu.engine.sessions().create();
      REQUIRE(gpu.engine.sessions().feed(session, std::span(ids).first(3)).has_value());
      REQUIRE(gpu.engine.sessions()
                  .generate(session, {.max_tokens = 4, .ignore_end = true})
                  .has_value());
      said[i] = read_all(gpu.engine, session).tokens;
      REQUIRE(said[i].size() == 4);
    }
    require_same_bits(records[0], records[1]);
    CHECK(said[0] == said[1]);
    CHECK(launches[0] - launches[1] == 1);  // embed
    const u64 row_bytes = std::string(type) == "f16" ? 2 * 64 : 2 * 34;
    CHECK(weights_bytes[0] - weights_bytes[1] == GpuModel::kVocab * row_bytes);
  }
}

TEST_CASE("an embedding table on disk may be of a type that the GPU does not compute") {
  ShapedModel model({.type = kernels::TensorType::q8_0});
  model.description.tensors.model[0].type = kernels::TensorType::q5_k;
  REQUIRE(&model.description.tensors.of(model::ModelTensor::token_embd) ==
          model.description.tensors.model.data());
  CHECK(!exec::gpu_can_run(model.description, config_of(16)).has_value());
  model.description.spec.embedding_on_disk = true;
  CHECK(exec::gpu_can_run(model.description, config_of(16)).has_value());
}

TEST_CASE("a GPU refuses each type that it does not compute by its name, and says what to do") {
  u32 n_refused = 0;
  for (const auto& traits : kernels::kTypeTraits) {
    ShapedModel model({.type = kernels::TensorType::q8_0});
    model.description.tensors.model[0].type = traits.type;
    const auto answer = exec::gpu_can_run(model.description, config_of(16));
    CAPTURE(traits.name);
    CHECK(answer.has_value() == kernels::has_gpu_layout(traits.type));
    if (answer.has_value()) continue;
    ++n_refused;
    CHECK(
        std::string(answer.error().detail.c_str()).starts_with(std::string(traits.name) + " of "));
    CHECK(std::string(answer.error().hint).find("--device cpu") != std::string::npos);
  }
  CHECK(n_refused == std::size(kernels::kTypeTraits) - 4);
}

TEST_CASE("a file cut short under a GPU's engine ends a generation, and nothing wrong is said") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  Config config = config_of(16);
  config.embedding = EmbeddingChoice::disk;
  GpuEngine gpu;
  require_open(gpu, model.path(), config);
  const SessionIdx session = *gpu.engine.sessions().create();
  REQUIRE(gpu.engine.sessions().feed(session, random_ids(2, 3, GpuModel::kVocab)).has_value());
  std::filesystem::resize_file(model.path(), 8192);
  REQUIRE(
      gpu.engine.sessions().generate(session, {.max_tokens = 4, .ignore_end = true}).has_value());
  const Said said = read_all(gpu.engine, session);
  CHECK(said.tokens.empty());
  CHECK(said.done.status == Status::io_failed);
  CHECK(!gpu.engine.device_lost());
}

TEST_CASE("a fork and a cut go on as if nothing had been there") {
  const GpuModel model("qwen2", "q8_0");
  GpuEngine gpu;
  require_open(gpu, model.path(), config_of(16, 4));
  const std::vector<u32> ids = random_ids(seed_from_environment(), 37, GpuModel::kVocab);
  constexpr u32 kBefore = 31;
  const LogitsRecord expected = logits_of(gpu.engine, ids, kBefore);

  const std::span<const u32> all(ids);
  const SessionIdx first = *gpu.engine.sessions().create();
  REQUIRE(gpu.engine.sessions().feed(first, all.first(34)).has_value());
  gpu.run();
  const SessionIdx fork = *gpu.engine.sessions().fork(first);
  REQUIRE(
      gpu.engine.sessions().truncate(first, 20).has_value());  // into a group that the fork shares
  REQUIRE(gpu.engine.sessions().feed(first, all.subspan(20, kBefore - 20)).has_value());
  gpu.run();
  for (const SessionIdx session : {fork, first}) {
    LogitsRecord record;
    lab::Probe(gpu.engine).watch_logits(session, &LogitsRecord::on_logits, &record);
    const u32 n_kept = gpu.engine.sessions().state(session).tokens.n_ids;
    REQUIRE(gpu.engine.sessions().feed(session, all.subspan(n_kept)).has_value());
    gpu.run();
    REQUIRE(record.rows.size() == ids.size());
    for (u64 i = n_kept; i < ids.size(); ++i) {
      CAPTURE(i);
      REQUIRE(record.rows[i] == expected.rows[i]);
    }
    lab::Probe(gpu.engine).watch_logits(session, nullptr, nullptr);
  }
}

TEST_CASE("a decode step is one graph of 11 launches a layer and 4 more") {
  constexpr u64 kLayers = 2;
  struct Case {
    const char* arch;
    const char* type;
    u64 launches_a_layer;
  };
  for (const Case& c : {Case{"llama", "q8_0", 11}, Case{"llama", "f16", 11},
                        Case{"qwen2", "q8_0", 11}, Case{"qwen3", "q8_0", 13}}) {
    CAPTURE(c.arch);
    CAPTURE(c.type);
    const GpuModel model(c.arch, c.type);
    GpuEngine gpu;
    require_open(gpu, model.path(), config_of(16));
    CHECK(gpu.engine.spec().n_layers == kLayers);
    CHECK(gpu.device.graph_work_max() == kLayers * c.launches_a_layer + 4);
  }
}

TEST_CASE("device memory is the plan's, and all of it is given back") {
  const GpuModel model("llama", "f16");
  GpuEngine gpu;
  REQUIRE(gpu.device.leaks().empty());
  const Result<u64> before = gpu.device.memory_free_bytes();
  require_open(gpu, model.path(), config_of(16));
  const Result<u64> after = gpu.device.memory_free_bytes();
  const plan::Plan& plan = gpu.engine.plan();
  const u64 ours = plan.device_bytes - plan.of(plan::RegionId::driver).bytes;
  CHECK(*before - *after == ours + gpu.device.graph_use().bytes);
  gpu.engine.close();
  CHECK(gpu.device.leaks() == "");
}

TEST_CASE("a GPU that shares the system's memory leaves the system its headroom") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  for (const bool fits : {true, false}) {
    CAPTURE(fits);
    DeviceFacts facts = kOrinFacts;
    facts.headroom_bytes = (fits ? 128 : 250) * kMiB;  // of 256, less what the driver took
    GpuEngine gpu(facts);
    const Result<void> opened = gpu.open(model.path(), config_of(16));
    REQUIRE(opened.has_value() == fits);
    if (!fits) CHECK(opened.error().status == Status::over_budget);
    gpu.engine.close();
    CHECK(gpu.device.leaks() == "");
  }
}

TEST_CASE("a configuration says which GPU, and how far its work goes first") {
  const auto args_of = [](const char* toml) {
    return engine::device_open_args(config_from_toml(toml, Config{}).value());
  };
  CHECK(args_of("").gpu_idx == 0);
  CHECK(args_of("").compute_priority == 0);
  const DeviceOpenArgs args = args_of("device.index = 2\ndevice.priority = 3\n");
  CHECK(args.gpu_idx == 2);
  CHECK(args.compute_priority == -3);
}

TEST_CASE("what a driver takes late, when a graph first runs, counts too") {
  const GpuModel model("llama", "q8_0");
  Config config = config_of(16);
  for (const bool fits : {true, false}) {
    CAPTURE(fits);
    GpuEngine gpu(kDiscreteFacts);
    gpu.device.launch_takes_bytes = 100 * kMiB;
    config.driver_limit_bytes = (fits ? 200 : 100) * kMiB;
    const Result<void> opened = gpu.open(model.path(), config);
    REQUIRE(opened.has_value() == fits);
    if (!fits) CHECK(opened.error().status == Status::over_budget);
    if (fits)
      CHECK(gpu.engine.status().counters.n_steps == 0);  // what warmed it up is no step of ours
    if (fits) CHECK(lab::Probe::pool(gpu.engine).groups_free() == gpu.engine.plan().groups_max);
  }
}

TEST_CASE(
    "another process that takes memory meanwhile fails no opening, until the headroom is gone") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  DeviceFacts facts = kOrinFacts;
  facts.headroom_bytes = 40 * kMiB;
  Config config = config_of(16);
  config.driver_limit_bytes = 30 * kMiB;
  u64 left_bytes = 0;  // beside the headroom, where nobody else takes any
  {
    GpuEngine gpu(facts);
    require_open(gpu, model.path(), config);
    left_bytes = *gpu.device.memory_free_bytes() - facts.headroom_bytes;
  }
  REQUIRE(left_bytes > config.driver_limit_bytes);
  for (const u64 neighbour_bytes : {left_bytes, left_bytes + 1}) {
    CAPTURE(neighbour_bytes);
    GpuEngine gpu(facts);
    gpu.device.neighbour_takes_bytes = neighbour_bytes;
    const Result<void> opened = gpu.open(model.path(), config);
    CHECK(opened.has_value() == (neighbour_bytes == left_bytes));
    CHECK(gpu.log.find("its driver and other processes took") != std::string::npos);
    if (opened) continue;
    CHECK(opened.error().status == Status::over_budget);
    CHECK(opened.error().figures[0].value == facts.headroom_bytes - 1);
    CHECK(opened.error().figures[1].value == facts.headroom_bytes);
    CHECK(gpu.device.leaks() == "");
  }
}

TEST_CASE("no graph runs for the first time after READY, of any number of rows and spans") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  Config config = config_of(16, 3);
  config.context_tokens = 300;  // 2 spans
  GpuEngine gpu(kDiscreteFacts);
  gpu.device.launch_takes_bytes = kMiB;
  require_open(gpu, model.path(), config);
  engine::Engine& engine = gpu.engine;
  const u64 free_bytes = *gpu.device.memory_free_bytes();
  std::vector<SessionIdx> sessions;
  for (u64 n_sessions = 1; n_sessions <= 3; ++n_sessions) {
    CAPTURE(n_sessions);
    const u32 n_prompt = n_sessions == 1 ? 255 : 2;  // its second token is in the second span
    sessions.push_back(*engine.sessions().create());
    REQUIRE(engine.sessions()
                .feed(sessions.back(), random_ids(1, n_prompt, GpuModel::kVocab))
                .has_value());
    for (const SessionIdx session : sessions) {
      REQUIRE(
          engine.sessions().generate(session, {.max_tokens = 3, .ignore_end = true}).has_value());
    }
    while (engine.has_work()) engine.step();
    REQUIRE(engine.status().counters.n_decode_rows > 0);
    CHECK(*gpu.device.memory_free_bytes() == free_bytes);
  }
}

TEST_CASE("an opening measures how fast the GPU reads, and says whether promoting copies") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  struct Box {
    u64 device_bytes_per_s, shared_bytes_per_s;
    bool host_register;
    const char* says;
  };
  for (const Box& box : {Box{200'000'000'000, 90'000'000'000, true, "promoting a page copies it"},
                         Box{270'000'000'000, 270'000'000'000, true, "promoting a page copies no"},
                         Box{200'000'000'000, 90'000'000'000, false, "it registers none"}}) {
    CAPTURE(box.says);
    DeviceFacts facts = kOrinFacts;
    facts.host_register = box.host_register;
    GpuEngine gpu(facts);
    gpu.device.device_bytes_per_s = box.device_bytes_per_s;
    gpu.device.shared_bytes_per_s = box.shared_bytes_per_s;
    require_open(gpu, model.path(), config_of(16));
    CHECK(gpu.log.find(box.says) != std::string::npos);
    CHECK(gpu.log.find("too few to be exact") != std::string::npos);  // it is a small one
    const MemoryProbe& probe = gpu.engine.status().memory_probe;
    const auto is_near = [](u64 measured, u64 rate) {
      return measured > rate / 100 * 99 && measured < rate / 100 * 101;
    };
    CHECK(is_near(probe.device_bytes_per_s, box.device_bytes_per_s));
    CHECK(is_near(probe.shared_bytes_per_s, box.host_register ? box.shared_bytes_per_s : 0) ==
          box.host_register);
    gpu.engine.close();
    CHECK(gpu.engine.status().memory_probe.device_bytes_per_s == 0);
    CHECK(gpu.device.leaks() == "");
  }
}

// Notes what is reserved for a GPU.
class NotingReserve final : public Reserve {
 public:
  Result<ReserveOutcome> reserve(const ReserveArgs& args) override {
    if (args.for_device) for_device += std::string(args.name) + " ";
    return system_.reserve(args);
  }
  void release(std::span<std::byte> bytes) override { system_.release(bytes); }
  std::string for_device;

 private:
  SystemReserve system_;
};

TEST_CASE("memory that a GPU's driver registers is reserved as such") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  for (const char* device : {"cuda", "cpu"}) {
    CAPTURE(device);
    NotingReserve reserve;
    GpuEngine gpu;
    Config config = config_of(16);
    config.device = {};
    std::strncpy(config.device.data(), device, config.device.size() - 1);
    config.huge_pages = true;
    REQUIRE(gpu.engine
                .open({.model_path = model.path().c_str(),
                       .config = config,
                       .reserve = &reserve,
                       .clock = &gpu.clock,
                       .device = &gpu.device,
                       .gpu_kernels = gpu.kernels})
                .has_value());
    CHECK(reserve.for_device == (gpu.engine.status().on_gpu ? "arena " : ""));
    gpu.engine.close();
  }
}

TEST_CASE("no kernel comes into the GPU's memory after READY") {
  for (const char* type : {"q8_0", "f16"}) {
    CAPTURE(type);
    const GpuModel model("llama", type, GpuModelSize::one_layer);
    GpuEngine gpu;
    require_open(gpu, model.path(), config_of(64, 2));
    const u64 n_kernels = gpu.device.n_kernels();
    std::vector<SessionIdx> sessions;
    for (u32 i = 0; i < 2; ++i) {
      sessions.push_back(*gpu.engine.sessions().create());
      const std::vector<u32> ids = random_ids(seed_from_environment(), 9 + i, GpuModel::kVocab);
      REQUIRE(gpu.engine.sessions().feed(sessions[i], ids).has_value());
      gpu.run();
    }
    for (const SessionIdx session : sessions) {
      REQUIRE(gpu.engine.sessions()
                  .generate(session, {.max_tokens = 1, .ignore_end = true})
                  .has_value());
    }
    gpu.run();
    CHECK(!gpu.engine.device_lost());
    CHECK(gpu.device.n_kernels() == n_kernels);
  }
}

TEST_CASE("what the kernels do not compute is refused, and names what does") {
  const auto refusal = [](const char* type, Config config) {
    config.device = {"cuda"};
    const GpuModel model("llama", type);
    GpuEngine gpu(kDiscreteFacts);
    const Result<void> opened = gpu.open(model.path(), config);
    REQUIRE(!opened.has_value());
    CHECK(gpu.device.leaks() == "");
    return opened.error();
  };
  for (const char* type : {"f32", "bf16", "q5_k"}) {
    CAPTURE(std::string(type));
    const Error error = refusal(type, config_of(16));
    CHECK(error.status == Status::unsupported);
    CHECK(std::string(error.hint).find("--device cpu") != std::string::npos);
  }
  Config small_pages = config_of(16);
  small_pages.page_tokens = 16;
  CHECK(refusal("q8_0", small_pages).status == Status::invalid_config);
  for (const char* method : {"quest", "oracle", "random", "shuffled-codes"}) {
    Config selects = config_of(16);
    lab::set_method(selects.select, method);
    const Error error = refusal("q8_0", selects);
    CHECK(error.status == Status::unsupported);
    CHECK(std::string(error.hint).find("--device cpu") != std::string::npos);
  }
  Config small_driver = config_of(16);
  small_driver.driver_limit_bytes = 1;
  CHECK(refusal("q8_0", small_driver).status == Status::over_budget);
}

TEST_CASE("where the choice is left to it, the engine runs on the CPU what the GPU cannot") {
  for (const char* type : {"bf16", "q5_k", "q8_0"}) {
    CAPTURE(std::string(type));
    const GpuModel model("llama", type);
    const bool is_known = std::string(type) == "q8_0";
    GpuEngine gpu(kDiscreteFacts);
    gpu.may_fall_back = true;
    require_open(gpu, model.path(), config_of(16));
    CHECK(std::string(gpu.engine.status().device) == (is_known ? "cuda" : "cpu"));
    const bool says_so =
        gpu.log.find("runs on the CPU: the GPU computes with") != std::string::npos;
    CHECK(says_so == !is_known);
    const u64 n_calls = gpu.device.n_calls();
    const std::vector<u32> ids = random_ids(seed_from_environment(), 3, GpuModel::kVocab);
    logits_of(gpu.engine, ids);
    CHECK((gpu.device.n_calls() > n_calls) == is_known);
  }
}

TEST_CASE("whoever closes an engine keeps the GPU that was its own") {
  const GpuModel model("llama", "q8_0");
  FakeDevice device;
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = model.path().c_str();
  options.config_toml = "kv.context_tokens = 64\ncpu.threads = 1\n";
  options.budget_bytes = kGiB;
  const Result<api::Instance*> opened = api::Instance::open(
      options, {.device = &device, .gpu_kernels = &kernels::gpu_table_emulated()});
  if (!opened) FAIL(std::string(opened.error().hint));
  CHECK((*opened)->engine.status().on_gpu);
  api::Instance::close(*opened);
  CHECK(device.n_unbound_calls() == 0);
  CHECK(!device.was_bound_by(std::this_thread::get_id()));
  CHECK(device.leaks() == "");
}

TEST_CASE("a GPU that fails at any call of an opening leaves nothing behind") {
  const GpuModel model("llama", "q8_0");
  u64 n_calls = 0;
  {
    GpuEngine gpu;
    require_open(gpu, model.path(), config_of(16));
    n_calls = gpu.device.n_calls();
  }
  REQUIRE(n_calls > 10);
  for (u64 call = 1; call <= n_calls; call += 1 + call / 16) {
    CAPTURE(call);
    GpuEngine gpu;
    gpu.device.fail_at({.call = call, .code = kGpuIllegalAddress});
    const Result<void> opened = gpu.open(model.path(), config_of(16));
    CHECK(!opened.has_value());
    if (!opened) CHECK(opened.error().status == Status::device_lost);
    CHECK(gpu.device.leaks() == "");
  }
}

}  // namespace
}  // namespace tarn::test::engine_gpu_test
