// Goal    tarn-bench measures nothing behind a depth that was not read to its end, and waits for no
//         answer that will not end: what failed, and a GPU that is lost, end it with their codes.
// Method  the parts of tarn-bench that fill a depth; the model's file, which holds the embedding,
//         is cut once the engine is open; the fake device, whose next call fails.
#include <filesystem>

#include "tests/runtime/engine_gpu/gpu_engine.h"
#include "tools/support/exit_code.h"
#include "tools/tarn-bench/case.h"

namespace tarn::bench::failing_native_test {
namespace {

// The exit code that `work` fails with.
template <class Work>
int code_of(Work&& work) {
  try {
    work();
  } catch (const tools::Failure& failure) {
    return failure.code;
  }
  return tools::kExitOk;
}

TEST_CASE("a depth that could not be read ends tarn-bench with 74") {
  const test::SmallModel model("llama", "q8_0");
  Config config = test::small_config();
  config.embedding = EmbeddingChoice::disk;
  config.sessions_max = 2;  // one stays behind
  config.reuse.prefix = false;
  test::OpenEngine opened(model.path(), config);
  const auto fill = [&] { CaseRun(opened.engine, {.n_gen = 2, .n_depth = 64}, 1, nullptr); };
  const auto record = [&] { KvModel(KvModelKind::recorded, 77).record(opened.engine, 68); };
  CHECK(code_of(fill) == tools::kExitOk);
  CHECK(code_of(record) == tools::kExitOk);
  std::filesystem::resize_file(model.path(), 1);
  CHECK(code_of(fill) == tools::kExitIo);
  CHECK(code_of(record) == tools::kExitIo);
}

TEST_CASE("an answer that ended early ends tarn-bench with its code") {
  const test::SmallModel model("llama", "q8_0");
  Config config = test::small_config();
  config.embedding = EmbeddingChoice::disk;
  test::OpenEngine opened(model.path(), config);
  CaseRun run(opened.engine, {.n_gen = 2, .n_depth = 64}, 1, nullptr);
  std::filesystem::resize_file(model.path(), 1);
  CHECK(code_of([&] { run.recall(); }) == tools::kExitIo);
  CHECK(code_of([&] { run.run(1); }) == tools::kExitIo);
}

TEST_CASE("a GPU that is lost in an answer ends tarn-bench with 75") {
  const test::GpuModel model("llama", "q8_0", test::GpuModelSize::one_layer);
  test::GpuEngine gpu;
  REQUIRE(gpu.open(model.path(), test::small_config()).has_value());
  CaseRun run(gpu.engine, {.n_gen = 2, .n_depth = 8}, 1, nullptr);
  CHECK(code_of([&] { run.run(1); }) == tools::kExitOk);
  gpu.device.fail_at(
      {.call = gpu.device.n_calls() + 1, .code = kGpuIllegalAddress, .for_ever = true});
  CHECK(code_of([&] { run.run(2); }) == tools::kExitGpuLost);
}

TEST_CASE("a GPU that is lost in the depth ends tarn-bench with 75") {
  const test::GpuModel model("llama", "q8_0", test::GpuModelSize::one_layer);
  test::GpuEngine gpu;
  REQUIRE(gpu.open(model.path(), test::small_config()).has_value());
  gpu.device.fail_at(
      {.call = gpu.device.n_calls() + 1, .code = kGpuIllegalAddress, .for_ever = true});
  const auto fill = [&] { CaseRun(gpu.engine, {.n_gen = 2, .n_depth = 8}, 1, nullptr); };
  CHECK(code_of(fill) == tools::kExitGpuLost);
}

}  // namespace
}  // namespace tarn::bench::failing_native_test
