// Goal    `tarn run` on a GPU that is lost ends with 75 and says what happened, wherever it is:
//         while the model loads, in the prompt, between two tokens. With a GPU that works, 0.
// Method  the whole program, with the fake device for this machine's GPU (fake_gpu/system_gpu.cpp).
//         A run without a fault counts the calls to the GPU; then one of them fails: the first,
//         one of the load, of the prompt, of the last tokens (the very last are close()'s).
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/skip.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"
#include "tools/synth/synth.h"

namespace tarn {
namespace {

#ifndef TARN_FAKE_GPU_PROGRAM
#define TARN_FAKE_GPU_PROGRAM nullptr
#endif

TEST_CASE("a GPU that is lost ends tarn with 75") {
  const char* program = TARN_FAKE_GPU_PROGRAM;
  if (program == nullptr) TARN_SKIP("a build with CUDA has no program with a fake GPU");
  const synth::SynthShape shape{
      .name = "gpu", .n_layers = 1, .d_model = 64, .d_ff = 64, .head_dim = 32, .n_vocab = 1024};
  const test::TempFile model("gpu_lost.gguf"), ids("gpu_lost.ids"), calls("gpu_lost.calls");
  synth::synth_write(shape, *synth::parse_quant("q8_0"), 1, model.path(), 1);
  std::ofstream(ids.path()) << "1 2 3 4 5 6 7 8 9 10 11 12";
  const std::vector<std::string> words = {"run", "-m", model.path(), "--prompt-ids", ids.path(),
                                          "-n",  "3",  "--device",   "cuda",         "--json"};

  setenv("TARN_TEST_GPU_CALLS", calls.path().c_str(), 1);
  const test::Ended works = test::run_program(program, words);
  INFO(works.err);
  REQUIRE(works.exit_code == 0);
  CHECK(works.out.find("\"cuda\"") != std::string::npos);
  const u64 n_calls = std::stoull(tools::read_file(calls.path()));
  REQUIRE(n_calls > 40);
  for (const u64 call : {u64{1}, n_calls / 2, n_calls - 30, n_calls - 10}) {
    CAPTURE(call);
    setenv("TARN_TEST_GPU_FAILS", std::to_string(call).c_str(), 1);
    const test::Ended lost = test::run_program(program, words);
    INFO(lost.err);
    CHECK(lost.exit_code == 75);
    CHECK(lost.err.find("GPU") != std::string::npos);
    CHECK(lost.out.empty());
  }
  unsetenv("TARN_TEST_GPU_FAILS");
  unsetenv("TARN_TEST_GPU_CALLS");
}

}  // namespace
}  // namespace tarn
