// Goal    a command on a GPU that is lost ends with 75 and says what happened, wherever it is:
//         while the model loads, in the prompt, between two tokens. With a GPU that works, 0.
// Method  the whole program, with the fake device for this machine's GPU (fake_gpu/system_gpu.cpp).
//         A run without a fault counts the calls to the GPU; then one of them fails: the first,
//         one of the load, of the prompt, of the last tokens (the very last are close()'s). What
//         does not end is ended after a minute, with 124.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/support/folders.h"
#include "tests/support/skip.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"
#include "tools/synth/synth.h"

namespace tarn::gpu_lost_native_test {
namespace {

#ifndef TARN_FAKE_GPU_PROGRAM
#define TARN_FAKE_GPU_PROGRAM ""
#endif
const bool kHasFakeGpu = std::strlen(TARN_FAKE_GPU_PROGRAM) > 0;

class FakeGpu {
 public:
  FakeGpu() { setenv("TARN_TEST_GPU_CALLS", calls_.path().c_str(), 1); }
  ~FakeGpu() {
    unsetenv("TARN_TEST_GPU_CALLS");
    unsetenv("TARN_TEST_GPU_FAILS");
  }
  test::Ended run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"60", TARN_FAKE_GPU_PROGRAM});
    words.insert(words.end(), {"--device", "cuda"});
    return test::run_program("timeout", words);
  }
  u64 n_calls() const { return std::stoull(tools::read_file(calls_.path())); }
  void fail_at(u64 call) { setenv("TARN_TEST_GPU_FAILS", std::to_string(call).c_str(), 1); }

 private:
  test::TempFile calls_{"gpu_lost.calls"};
};

// The model, a prompt.
struct Files {
  test::TempFile model{"gpu_lost.gguf"}, ids{"gpu_lost.ids"};
  Files() {
    const synth::SynthShape shape{
        .name = "gpu", .n_layers = 1, .d_model = 64, .d_ff = 64, .head_dim = 32, .n_vocab = 1024};
    synth::synth_write(shape, *synth::parse_quant("q8_0"), 1, model.path(), 1);
    std::ofstream(ids.path()) << "1 2 3 4 5 6 7 8 9 10 11 12";
  }
};

// `from_end`: calls in front of the last one, of steps that the command makes.
void check_lost(const std::vector<std::string>& words, const std::vector<u64>& from_end) {
  FakeGpu gpu;
  const test::Ended works = gpu.run(words);
  CAPTURE(works.err);
  REQUIRE(works.exit_code == 0);
  const u64 n_calls = gpu.n_calls();
  REQUIRE(n_calls > from_end.front());
  for (const u64 n : from_end) {
    CAPTURE(n);
    gpu.fail_at(n_calls - n);
    const test::Ended lost = gpu.run(words);
    CAPTURE(lost.err);
    CHECK(lost.exit_code == 75);
    CHECK(lost.err.find("GPU") != std::string::npos);
    CHECK(lost.out.empty());
  }
}

TEST_CASE("a GPU that is lost ends tarn with 75") {
  if (!kHasFakeGpu) TARN_SKIP("a build with CUDA has no program with a fake GPU");
  const Files files;
  const std::vector<std::string> words = {
      "run", "-m", files.model.path(), "--prompt-ids", files.ids.path(), "-n", "3", "--json"};
  const FakeGpu gpu;
  const test::Ended works = gpu.run(words);
  CHECK(works.out.find("\"cuda\"") != std::string::npos);
  CHECK(works.out.find("\"promotes_without_copy\"") != std::string::npos);
  const u64 n_calls = gpu.n_calls();
  check_lost(words, {n_calls - 1, n_calls - n_calls / 2, 30, 10});
}

TEST_CASE("a GPU that is lost leaves no figure of a part of the text") {
  if (!kHasFakeGpu) TARN_SKIP("a build with CUDA has no program with a fake GPU");
  const Files files;
  check_lost({"eval", "-m", files.model.path(), "--ids", files.ids.path(), "--json"}, {12});
}

TEST_CASE("a GPU that is lost in an answer ends who waits for the answer's end") {
  if (!kHasFakeGpu) TARN_SKIP("a build with CUDA has no program with a fake GPU");
  const Files files;
  const test::TempFile toml("gpu_lost.toml"), book("gpu_lost.jsonl");
  std::ofstream(toml.path()) << "[select]\nsink_tokens = 4\nlocal_tokens = 16\n";
  std::ofstream(book.path()) << R"({"seed":1,"kind":"hop0","tokens":3,"prompt":"Log.\nA:",)"
                             << R"("answer":" x"})";
  check_lost({"eval", "-m", files.model.path(), "logbook", book.path()}, {12});
  const std::string text = test::source_folder() + "/runtime/ARCHITECTURE.md";
  check_lost({"verify",     "-m",        files.model.path(),
              "--text",     text,        "--config",
              toml.path(),  "-c",        "120",
              "--steps",    "4",         "--needles",
              "0",          "--kl-max",  "100",
              "--top1-min", "0",         "--presets",
              "window",     "--budgets", "16"},
             {20});
}

}  // namespace
}  // namespace tarn::gpu_lost_native_test
