// Goal    on this machine's own GPU: a sequence has the same bits alone and beside up to seven
//         others, in graphs, over pages and spans; a prompt has them however it is cut, and
//         wherever its KV lies, over a disk too; logits are as near the reference as the CPU's.
// Method  the same cases on the fake device with the emulated kernels, in small, and on the real
//         GPU at lengths that the emulator has no time for.
#include <cstring>

#include "platform/gpu/device.h"
#include "runtime/lab/probe.h"
#include "tests/runtime/engine_gpu/gpu_engine.h"
#include "tests/support/logits.h"
#include "tests/support/reference_model.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace tarn::test::real_engine_gpu_test {
namespace {

using engine::SessionIdx;

struct RealGpuEngine {
  ~RealGpuEngine() { engine.close(); }
  Result<void> open(const std::string& path, const Config& config) {
    engine::OpenArgs args{
        .model_path = path.c_str(), .config = config, .reserve = &reserve, .clock = &clock};
    args.config.device = {"cuda"};
    TARN_CHECK(gpu.open(&args));
    return engine.open(args);
  }
  engine::SystemGpu gpu;  // outlives the engine
  SystemReserve reserve;
  SystemClock clock;
  engine::Engine engine;
};

struct Scale {
  u32 n_prompt, n_tokens, context_tokens;
  std::vector<u32> batches;
};
// Prompts on both sides of a span of 256 slots, and generations that go over it.
const Scale kReal = {
    .n_prompt = 245, .n_tokens = 40, .context_tokens = 320, .batches = {2, 3, 4, 5, 8}};
const Scale kEmulated = {.n_prompt = 3, .n_tokens = 2, .context_tokens = 64, .batches = {2}};

Config config_of(const Scale& scale, u32 rows_max, u32 sessions_max) {
  Config config = small_config();
  config.context_tokens = u64{scale.context_tokens} * sessions_max;
  config.page_tokens = 32;
  config.batch_rows_max = rows_max;
  config.sessions_max = sessions_max;
  return config;
}

template <class AnyGpu>
void require_open(AnyGpu& gpu, const std::string& path, const Config& config) {
  const Result<void> opened = gpu.open(path, config);
  if (!opened) FAIL(std::string(opened.error().hint));
  REQUIRE(gpu.engine.status().on_gpu);
}

// Each prompt in a session of its own, side by side; the logits of what was generated.
std::vector<LogitsRecord> decode(engine::Engine& engine, std::span<const std::vector<u32>> prompts,
                                 u32 n_tokens) {
  std::vector<LogitsRecord> records(prompts.size());
  std::vector<SessionIdx> sessions;
  for (u64 i = 0; i < prompts.size(); ++i) {
    sessions.push_back(*engine.sessions().create());
    lab::Probe(engine).watch_logits(sessions[i], &LogitsRecord::on_logits, &records[i]);
    REQUIRE(engine.sessions().feed(sessions[i], prompts[i]).has_value());
    REQUIRE(engine.sessions()
                .generate(sessions[i], {.max_tokens = n_tokens, .ignore_end = true})
                .has_value());
  }
  while (engine.has_work()) engine.step();
  REQUIRE(!engine.device_lost());
  for (const SessionIdx session : sessions) engine.sessions().destroy(session);
  return records;
}

template <class AnyGpu>
void check_batches(const char* arch, const char* type, const Scale& scale) {
  CAPTURE(std::string(arch));
  CAPTURE(std::string(type));
  const GpuModel model(arch, type);
  std::vector<std::vector<u32>> prompts;
  for (u32 i = 0; i < scale.batches.back(); ++i) {
    const u32 n = scale.n_prompt > i ? scale.n_prompt - i : 1;
    prompts.push_back(random_ids(seed_from_environment() + i, n, GpuModel::kVocab));
  }
  std::vector<LogitsRecord> alone;
  {
    AnyGpu gpu;
    require_open(gpu, model.path(), config_of(scale, 64, 1));
    for (const std::vector<u32>& prompt : prompts) {
      alone.push_back(std::move(decode(gpu.engine, std::span(&prompt, 1), scale.n_tokens)[0]));
    }
  }
  AnyGpu gpu;
  require_open(gpu, model.path(), config_of(scale, 64, scale.batches.back()));
  for (const u32 n : scale.batches) {
    CAPTURE(n);
    const std::vector<LogitsRecord> together =
        decode(gpu.engine, std::span(prompts).first(n), scale.n_tokens);
    for (u32 i = 0; i < n; ++i) require_same_bits(alone[i], together[i]);
  }
}

template <class AnyGpu>
void check_slices(const char* type, const Scale& scale) {
  const GpuModel model("llama", type);
  const std::vector<u32> ids =
      random_ids(seed_from_environment(), scale.n_prompt, GpuModel::kVocab);
  AnyGpu one;
  require_open(one, model.path(), config_of(scale, 1, 1));
  const LogitsRecord expected = logits_of(one.engine, ids);
  AnyGpu other;
  require_open(other, model.path(), config_of(scale, 64, 1));
  require_same_bits(expected, logits_of(other.engine, ids));
}

template <class AnyGpu>
void check_logits(const char* type, const Scale& scale) {
  CAPTURE(std::string(type));
  const GpuModel model("llama", type);
  const std::vector<u32> ids =
      random_ids(seed_from_environment(), std::min(scale.n_prompt, 40u), GpuModel::kVocab);
  const Config config = config_of(scale, 64, 1);
  OpenEngine on_cpu(model.path(), config);
  AnyGpu on_gpu;
  require_open(on_gpu, model.path(), config);
  const std::vector<f64> reference = ReferenceModel(model.path()).logits(ids);
  const auto cpu =
      logits_distance(reference, flat(logits_of(on_cpu.engine, ids)), GpuModel::kVocab, 0);
  const auto gpu = logits_distance(reference, flat(logits_of(on_gpu.engine, ids)), GpuModel::kVocab,
                                   4 * cpu.rms_error);
  // As in logits_test.cpp: a quarter more, for the luck of few positions.
  CHECK(gpu.rms_error <= 1.25 * cpu.rms_error + 1e-5);
  CHECK(gpu.n_agreed == gpu.n_decided);
}

// Depths on both sides of a stripe that comes from the host's memory, of which little has room.
struct Depth {
  u32 context_tokens, n_prompt, n_tokens, k, n_frames;
};
constexpr Depth kRealDepth = {
    .context_tokens = 4608, .n_prompt = 4300, .n_tokens = 30, .k = 300, .n_frames = 30};
constexpr Depth kEmulatedDepth = {
    .context_tokens = 320, .n_prompt = 40, .n_tokens = 7, .k = 5, .n_frames = 12};

template <class AnyGpu>
void check_disk(SelectMethod method, const Depth& depth) {
  CAPTURE(static_cast<u32>(method));
  const GpuModel model("llama", "q8_0");
  Config config = small_config();
  config.context_tokens = depth.context_tokens;
  config.page_tokens = 32;
  config.batch_rows_max = 64;
  config.sessions_max = 1;
  config.select.method = method;
  config.select.n_sinks = 3;
  config.select.n_local = 6;
  config.select.k = depth.k;
  config.select.code_bits = 1;
  config.select.index_delay_tokens = 3;
  config.select.context_min = 1;
  const std::vector<u32> ids =
      random_ids(seed_from_environment(), depth.n_prompt, GpuModel::kVocab);
  LogitsRecord expected;
  {
    AnyGpu resident;
    require_open(resident, model.path(), config);
    expected = std::move(decode(resident.engine, std::span(&ids, 1), depth.n_tokens)[0]);
  }
  const TempDir dir("gpu_disk_test");
  config.kv_memory_bytes = depth.n_frames * u64{8192};
  config.store.quota_bytes = kGiB;
  set_text(config.store.path, dir.path());
  AnyGpu streamed;
  require_open(streamed, model.path(), config);
  REQUIRE(lab::Probe::kv(streamed.engine).has_tiers());
  require_same_bits(expected, decode(streamed.engine, std::span(&ids, 1), depth.n_tokens)[0]);
  if (depth.n_prompt > 4096) CHECK(lab::Probe::tiers(streamed.engine).mover.stats().n_loads > 100);
}

bool has_gpu() { return device_choose("cuda").has_value(); }

TEST_CASE("the cases of this file hold on the emulator") {
  check_batches<GpuEngine>("llama", "q8_0", kEmulated);
  check_slices<GpuEngine>("q8_0", kEmulated);
  check_logits<GpuEngine>("q8_0", kEmulated);
  check_disk<GpuEngine>(SelectMethod::pq, kEmulatedDepth);
}

TEST_CASE("on a real GPU KV over a disk gives the bits of KV on the device") {
  if (!has_gpu()) TARN_SKIP("no GPU that this build can use");
  for (const SelectMethod method : {SelectMethod::full, SelectMethod::pq}) {
    check_disk<RealGpuEngine>(method, kRealDepth);
  }
}

TEST_CASE("on a real GPU a sequence has the same bits in every batch") {
  if (!has_gpu()) TARN_SKIP("no GPU that this build can use");
  for (const char* type : {"f16", "q8_0", "q4_k", "q6_k"}) {
    check_batches<RealGpuEngine>("llama", type, kReal);
  }
  check_batches<RealGpuEngine>("qwen2", "q4_k", kReal);
  check_batches<RealGpuEngine>("qwen3", "q8_0", kReal);
}

TEST_CASE("on a real GPU a prompt has the same bits however it is cut") {
  if (!has_gpu()) TARN_SKIP("no GPU that this build can use");
  for (const char* type : {"f16", "q8_0", "q4_k", "q6_k"}) check_slices<RealGpuEngine>(type, kReal);
}

TEST_CASE("on a real GPU logits are as near the reference as the CPU's") {
  if (!has_gpu()) TARN_SKIP("no GPU that this build can use");
  for (const char* type : {"f16", "q8_0", "q4_k", "q6_k"}) check_logits<RealGpuEngine>(type, kReal);
}

}  // namespace
}  // namespace tarn::test::real_engine_gpu_test
