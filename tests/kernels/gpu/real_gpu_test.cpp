// Goal    where this build has CUDA and the machine a GPU, the tests of this folder ran on it, and
//         it computes the emulator's bits.
// Method  norm, quantisation and both products of one row on each of gpus(), compared. Skipped (77)
//         where the emulator is alone.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/kernels/gpu/gpus.h"
#include "tests/kernels/quant/random_rows.h"
#include "tests/support/skip.h"

namespace tarn::kernels::real_gpu_test {
namespace {

using test::DeviceArray;

constexpr u32 kK = 1280, kOut = 40;

std::vector<f32> run(const test::Gpu& gpu, TensorType type) {
  tarn::test::Random random(tarn::test::seed_from_environment());
  std::vector<f32> row(kK);
  for (f32& value : row) value = random.normal();
  const std::vector<u8> file = test::random_rows(random, type, kOut, kK);
  const u64 bytes = row_bytes(type, kK);
  std::vector<u8> tiles(tiled_bytes(type, kOut, kK));
  for (u32 r = 0; r < kOut; r += kTileRows) {
    const u32 n = kOut - r < kTileRows ? kOut - r : kTileRows;
    gpu_repack_rows({type, &file[r * bytes], n, kK, &tiles[r * bytes]});
  }
  const DeviceArray<f32> x(gpu, row), weight(gpu, kK, 1.0f), out(gpu, kOut, 0.0f);
  const DeviceArray<u8> weights(gpu, tiles);
  const DeviceArray<i8> q(gpu, kK, i8{0});
  const DeviceArray<U32x2> side(gpu, kK / 32, {{0, 0}});
  const DeviceArray<u32> n_rows(gpu, {1});
  gpu.table->rms_norm({.x = x.data(),
                       .x_stride = kK,
                       .weight = weight.data(),
                       .out = nullptr,
                       .out_stride = 0,
                       .quantized = {q.data(), side.data()},
                       .n_rows = n_rows.data(),
                       .rows_max = 1,
                       .n_heads = 1,
                       .d = kK,
                       .eps = 1e-5f},
                      gpu.stream);
  const GpuMatvecArgs product{.matrices = {{.type = type,
                                            .store = Store::set,
                                            .n_out = kOut,
                                            .weights = weights.data(),
                                            .bias = nullptr,
                                            .out = out.data(),
                                            .out_stride = kOut}},
                              .n_matrices = 1,
                              .k = kK,
                              .x = nullptr,
                              .x_stride = 0,
                              .acts = {q.data(), side.data()},
                              .n_rows = n_rows.data(),
                              .rows_max = 1};
  std::vector<f32> results;
  for (GpuLauncher<GpuMatvecArgs>* launcher : {gpu.table->matvec, gpu.table->matmat}) {
    launcher(product, gpu.stream);
    const std::vector<f32> result = out.host();
    results.insert(results.end(), result.begin(), result.end());
  }
  return results;
}

TEST_CASE("this machine's GPU computes the emulator's bits") {
  const std::span<const test::Gpu> gpus = test::gpus();
  REQUIRE(std::strcmp(gpus.front().table->name, "emulated") == 0);
  if (gpus.size() == 1) TARN_SKIP("no GPU that this build can use");
  CHECK(std::strcmp(gpus.back().table->name, "cuda") == 0);
  for (const TensorType type : {TensorType::q8_0, TensorType::q4_k, TensorType::q6_k}) {
    const std::vector<f32> emulated = run(gpus.front(), type), real = run(gpus.back(), type);
    REQUIRE(real.size() == emulated.size());
    CHECK(std::memcmp(emulated.data(), real.data(), real.size() * sizeof(f32)) == 0);
  }
}

}  // namespace
}  // namespace tarn::kernels::real_gpu_test
