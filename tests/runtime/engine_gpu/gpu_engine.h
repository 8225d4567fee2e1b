// An engine on a GPU without a GPU: the fake device, the emulated kernels, small models of types
// that the kernels compute.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/lab/probe.h"
#include "tests/support/emulator/emulator.h"
#include "tests/support/fake_device.h"
#include "tests/support/open_engine.h"

namespace tarn::test {

enum class GpuModelSize : u8 { usual, one_layer };

// As small as the type allows: the emulator runs every thread of a kernel.
class GpuModel {
 public:
  GpuModel(const std::string& arch, const std::string& type,
           GpuModelSize size = GpuModelSize::usual, u64 seed = 1)
      : file_("gpu_" + arch + "_" + type + ".gguf") {
    const bool has_one_layer = size == GpuModelSize::one_layer;
    const bool has_long_blocks = type.ends_with("_k");
    synth::SynthShape shape{.name = "gpu",
                            .n_layers = has_long_blocks || has_one_layer ? 1u : 2u,
                            .d_model = has_long_blocks ? 256u : 64u,
                            .d_ff = has_long_blocks ? 256u : 64u,
                            .head_dim = has_long_blocks ? 64u : 32u,
                            .n_vocab = kVocab};
    shape.rope_factors = synth::RopeFactors::llama3;
    if (arch == "qwen2") {
      shape.arch = synth::Arch::qwen2;
      shape.n_kv_heads = 1;
      shape.vocab = synth::VocabFamily::qwen2;
      shape.output = synth::Output::tied;
      shape.rope_factors = synth::RopeFactors::none;
    }
    if (arch == "qwen3") {
      shape.arch = synth::Arch::qwen3;
      shape.n_kv_heads = 4;
      shape.vocab = synth::VocabFamily::qwen3;
      shape.rope_factors = synth::RopeFactors::none;
    }
    synth::synth_write(shape, *synth::parse_quant(type), seed, file_.path(), 1);
  }
  const std::string& path() const { return file_.path(); }

  static constexpr u32 kVocab = 1024;

 private:
  TempFile file_;
};

struct GpuEngine {
  explicit GpuEngine(const DeviceFacts& facts = kOrinFacts)
      : device(facts, seed_from_environment()) {}
  ~GpuEngine() { engine.close(); }

  Result<void> open(const std::string& path, Config config) {
    if (!may_fall_back && std::string_view(config.device.data()) == "auto")
      set_text(config.device, "cuda");
    return engine.open({.model_path = path.c_str(),
                        .config = config,
                        .reserve = &reserve,
                        .clock = lent_clock != nullptr ? lent_clock : &clock,
                        .device = &device,
                        .gpu_kernels = kernels,
                        .store_io = store_io,
                        .log = Log(&keep_log, this, LogLevel::info)});
  }
  void run() {
    while (engine.has_work()) engine.step();
  }

  static void keep_log(void* context, LogLevel, const char* text) {
    static_cast<GpuEngine*>(context)->log += std::string(text) + "\n";
  }

  bool may_fall_back = false;  // to the CPU, where the GPU does not compute this
  FakeDevice device;
  const kernels::GpuTable* kernels = &kernels::gpu_table_emulated();
  std::string log;
  SystemReserve reserve;
  SystemClock clock;
  Clock* lent_clock = nullptr;
  IoBackend* store_io = nullptr;
  engine::Engine engine;
};

inline void require_open(GpuEngine& gpu, const std::string& path, const Config& config) {
  const Result<void> opened = gpu.open(path, config);
  if (!opened) FAIL(std::string(opened.error().hint));
  REQUIRE((gpu.engine.status().on_gpu || gpu.may_fall_back));
}

// Logits of a prompt's positions from `n_before` on, on whichever engine; those before are computed
// without: the emulator needs longer for a row's logits than for all else of it.
inline LogitsRecord logits_of(engine::Engine& engine, std::span<const u32> ids, u32 n_before = 0) {
  LogitsRecord record;
  const Result<engine::SessionIdx> session = engine.sessions().create();
  REQUIRE(session.has_value());
  REQUIRE(engine.sessions().feed(*session, ids.first(n_before)).has_value());
  while (engine.has_work()) engine.step();
  lab::Probe(engine).watch_logits(*session, &LogitsRecord::on_logits, &record);
  REQUIRE(engine.sessions().feed(*session, ids.subspan(n_before)).has_value());
  while (engine.has_work()) engine.step();
  REQUIRE(!engine.device_lost());
  REQUIRE(record.rows.size() == ids.size());
  engine.sessions().destroy(*session);
  return record;
}

inline std::vector<f32> flat(const LogitsRecord& record) {
  std::vector<f32> all;
  for (const std::vector<f32>& row : record.rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

}  // namespace tarn::test
