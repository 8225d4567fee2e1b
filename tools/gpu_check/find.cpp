#include <dlfcn.h>
#include <unistd.h>

#include <sstream>

#include "tools/gpu_check/machine.h"
#include "tools/gpu_check/process.h"
#include "tools/gpu_check/steps.h"

namespace tarn::gpu_check {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCublas[] = {"libcublas.so.13", "libcublas.so.12"};

// Where NVIDIA's wheels put it: nvidia/cublas/lib, nvidia/cu13/lib.
constexpr const char* kAskPython =
    "import glob, nvidia\n"
    "for path in nvidia.__path__:\n"
    "  for name in sorted(glob.glob(path + '/*/lib/libcublas.so.1[23]')): print(name)\n";

}  // namespace

fs::path find_sanitizer() {
  fs::path found = find_program("compute-sanitizer");
  fs::path usual = "/usr/local/cuda/bin/compute-sanitizer";
  if (found.empty() && access(usual.c_str(), X_OK) == 0) return usual;
  return found;
}

void find_cublas(Setup& setup) {
  for (const char* name : kCublas) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) continue;
    dlclose(library);
    setup.cublas = name;
    return;
  }
  const fs::path python = find_program("python3");
  if (python.empty()) return;
  const Outcome outcome = run_command(
      {.arguments = {python.string(), "-c", kAskPython}, .library_dir = {}, .limit_s = 10});
  std::istringstream lines(outcome.out);
  std::string line;
  if (outcome.ending != Ending::exited || outcome.code != 0 || !std::getline(lines, line)) return;
  setup.cublas = line;
  setup.cublas_dir = fs::path(line).parent_path().string();
}

}  // namespace tarn::gpu_check
