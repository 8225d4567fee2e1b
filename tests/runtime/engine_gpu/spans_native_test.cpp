// Goal    a prompt that attends to several of attention's spans has the same bits by 8 rows a step
//         and all at once.
// Method  the fake device and the emulated kernels, as in engine_gpu_test.cpp, and 270 positions: a
//         span is 256. One layer, as the emulator needs its time.
#include "tests/runtime/engine_gpu/gpu_engine.h"

namespace tarn::test::spans_native_test {
namespace {

TEST_CASE("a prompt over several spans has the same bits by 8 rows and all at once") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  const std::vector<u32> ids = random_ids(seed_from_environment(), 270, GpuModel::kVocab);
  constexpr u32 kBefore = 268;  // the last ones end in the second span
  std::vector<LogitsRecord> records;
  for (const u32 rows_max : {8u, 300u}) {
    GpuEngine gpu;
    Config config = small_config();
    config.context_tokens = 320;
    config.page_tokens = 32;
    config.batch_rows_max = rows_max;
    config.sessions_max = 1;
    const Result<void> opened = gpu.open(model.path(), config);
    if (!opened) FAIL(std::string(opened.error().hint));
    records.push_back(logits_of(gpu.engine, ids, kBefore));
  }
  require_same_bits(records[0], records[1]);
}

}  // namespace
}  // namespace tarn::test::spans_native_test
