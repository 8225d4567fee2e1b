// Goal    a model on a GPU predicts what it predicts on the CPU.
// Method  the fake device and the emulated kernels, every architecture, tensor type and KV type
//         that they compute. Both engines are measured against the f64 reference on the same
//         prompt. They round in different places, so the GPU may be as far away as the CPU is, with
//         a quarter more for the luck of few positions, and apart from it by the sum of both; where
//         the reference's first token leads by four times the CPU's error, the GPU has the same.
#include <cmath>

#include "tests/runtime/engine_gpu/gpu_engine.h"
#include "tests/support/logits.h"
#include "tests/support/reference_model.h"

namespace tarn::test::logits_test {
namespace {

void compare(const std::string& arch, const std::string& type, KvTypeChoice kv_type,
             u32 n_positions = 6) {
  CAPTURE(arch);
  CAPTURE(type);
  const GpuModel model(arch, type);
  Config config = small_config();
  config.context_tokens = 64;
  config.page_tokens = 32;
  config.sessions_max = 1;
  config.kv_type = kv_type;
  const std::vector<u32> ids = random_ids(seed_from_environment(), n_positions, GpuModel::kVocab);
  const ReferenceModel reference_model(model.path());
  const std::vector<f64> reference = reference_model.logits(ids);

  OpenEngine on_cpu(model.path(), config);
  const std::vector<f32> cpu = flat(logits_of(on_cpu.engine, ids));
  GpuEngine on_gpu;
  const Result<void> opened = on_gpu.open(model.path(), config);
  if (!opened) FAIL(std::string(opened.error().hint));
  CHECK(std::string(on_gpu.engine.status().isa) == "emulated");
  const std::vector<f32> gpu = flat(logits_of(on_gpu.engine, ids));

  REQUIRE(cpu.size() == n_positions * u64{GpuModel::kVocab});
  REQUIRE(gpu.size() == cpu.size());
  const auto cpu_far = logits_distance(reference, cpu, GpuModel::kVocab, 0);
  const auto gpu_far = logits_distance(reference, gpu, GpuModel::kVocab, 4 * cpu_far.rms_error);
  const auto apart =
      logits_distance(std::vector<f64>(cpu.begin(), cpu.end()), gpu, GpuModel::kVocab, 0);
  MESSAGE(arch << " " << type << ": rms error on the CPU " << cpu_far.rms_error << ", on the GPU "
               << gpu_far.rms_error << ", apart " << apart.rms_error << ", first token "
               << gpu_far.n_agreed << " of " << gpu_far.n_decided);
  CHECK(gpu_far.rms_error <= 1.25 * cpu_far.rms_error + 1e-5);
  CHECK(apart.rms_error <= cpu_far.rms_error + gpu_far.rms_error);
  // Of KV in q4_0 no margin of this model's is wide enough.
  if (kv_type != KvTypeChoice::q4_0) CHECK(gpu_far.n_decided > 0);
  CHECK(gpu_far.n_agreed == gpu_far.n_decided);
}

TEST_CASE("logits of the GPU are as near the reference as the CPU's") {
  for (const char* type : {"f16", "q8_0", "q4_k", "q6_k"}) {
    compare("llama", type, KvTypeChoice::f16);
  }
  compare("qwen2", "f16", KvTypeChoice::f16);
  compare("qwen2", "q4_k", KvTypeChoice::f16);
  compare("qwen3", "q8_0", KvTypeChoice::f16);
  compare("qwen3", "q6_k", KvTypeChoice::f16);
  compare("llama", "q8_0", KvTypeChoice::q8_0);
  compare("llama", "q8_0", KvTypeChoice::q4_0);
  compare("qwen3", "f16", KvTypeChoice::q8_0, 37);  // a page of 32 and a part
}

}  // namespace
}  // namespace tarn::test::logits_test
