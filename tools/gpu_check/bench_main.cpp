// tools/gpu_check/bench_main.cpp: gpu-bench, the figures of kernel_bench.h as JSON on standard
// output. Exit code 77 if there is no GPU that this build can use.
//
//   gpu-bench [--facts]      --facts: what GPU this is, and nothing measured
#include <cstdio>
#include <cstring>

#include "runtime/engine/engine.h"
#include "tools/gpu_check/kernel_bench.h"
#include "tools/support/exit_code.h"
#include "tools/support/standard_descriptors.h"

namespace {

constexpr int kExitAbsent = 77;

void print_figures() {
  tarn::engine::OpenArgs args;
  args.config.device = {"cuda"};
  tarn::SystemClock clock;
  tarn::engine::SystemGpu gpu;
  tarn::tools::value_of(gpu.open(&args));
  constexpr tarn::u64 kWorkspaceBytes = 32 * tarn::kMiB;
  const tarn::DeviceSlab workspace =
      tarn::tools::value_of(args.device->reserve("cuBLAS", kWorkspaceBytes));
  tarn::GpuBlas blas;
  const tarn::Result<void> opened = blas.open(
      {.device = args.device, .workspace = workspace.begin, .workspace_bytes = workspace.bytes});
  const std::vector<tarn::gpu_check::Figure> figures =
      tarn::gpu_check::bench_kernels({.device = args.device,
                                      .table = args.gpu_kernels,
                                      .clock = &clock,
                                      .blas = opened ? &blas : nullptr,
                                      .shape = {}});
  blas.close();
  args.device->release(workspace);
  std::puts(to_json(figures).c_str());
}

int code_of(int argc, char** argv) {
  const bool facts_alone = argc == 2 && std::strcmp(argv[1], "--facts") == 0;
  if (argc > 1 && !facts_alone) {
    std::fputs("usage: gpu-bench [--facts]\n", stderr);
    return tarn::tools::kExitUsage;
  }
  const tarn::Result<tarn::DeviceChoice> choice = tarn::device_choose("cuda");
  if (!choice) {
    std::fprintf(stderr, "gpu-bench: %s\n", choice.error().hint);
    return kExitAbsent;
  }
  if (facts_alone) {
    std::puts(tarn::gpu_check::to_json(choice->facts).c_str());
  } else {
    print_figures();
  }
  return tarn::tools::kExitOk;
}

}  // namespace

int main(int argc, char** argv) {
  tarn::tools::fill_standard_descriptors();
  tarn::set_thread_fatal_sink(&tarn::tools::fatal_sink());
  int code = tarn::tools::kExitRefused;
  try {
    code = code_of(argc, argv);
  } catch (const tarn::tools::Failure& failure) {
    tarn::tools::print_failure("gpu-bench", failure.text);
    code = failure.code;
  }
  return tarn::tools::code_after_output("gpu-bench", code);
}
