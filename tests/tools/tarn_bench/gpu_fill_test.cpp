// Goal    a depth is filled and measured on a GPU as on a CPU: rows recorded from its own prefill,
//         mixed, in the KV of every sequence; decode steps behind it are graphs.
// Method  the parts of tarn-bench that record, fill and run, over the fake device and the emulated
//         kernels.
#include "tests/runtime/engine_gpu/gpu_engine.h"
#include "tools/tarn-bench/case.h"

namespace tarn::bench::gpu_fill_test {
namespace {

TEST_CASE("a depth on a GPU is filled in and measured") {
  const test::GpuModel model("llama", "q8_0", test::GpuModelSize::one_layer);
  Config config = test::small_config();
  config.context_tokens = 2 * 160;
  config.page_tokens = 32;
  config.batch_rows_max = 48;
  config.sessions_max = 2;
  test::GpuEngine gpu(test::kDiscreteFacts);
  REQUIRE(gpu.open(model.path(), config).has_value());
  CHECK(gpu.engine.status().driver_bytes >= gpu.device.driver_takes_bytes);
  CHECK(gpu.engine.status().driver_bytes <= gpu.engine.plan().of(plan::RegionId::driver).bytes);
  for (const KvModelKind kind : {KvModelKind::recorded, KvModelKind::synthetic}) {
    KvModel kv_model(kind, 77);
    kv_model.record(gpu.engine, 68);
    const Case c{.n_prompt = 0, .n_gen = 2, .n_depth = 150, .n_parallel = 2, .is_filled = true};
    CaseRun run(gpu.engine, c, 1000, &kv_model);
    const u64 n_rows = gpu.engine.status().counters.n_prefill_rows;
    const Sample sample = run.run(1);
    CHECK(gpu.engine.status().counters.n_prefill_rows == n_rows + 2);  // what waited
    CHECK(sample.kv_bytes > 0);
    CHECK(!gpu.engine.device_lost());
  }
}

}  // namespace
}  // namespace tarn::bench::gpu_fill_test
