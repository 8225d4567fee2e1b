#include "tests/kernels/gpu/gpus.h"

#include <cstring>

namespace tarn::kernels::test {
namespace {

constexpr std::align_val_t kAlignment{256};

void* allocate(u64 n_bytes) { return ::operator new(n_bytes, kAlignment); }
void release(void* bytes) { ::operator delete(bytes, kAlignment); }
void copy(void* target, const void* source, u64 n_bytes) { std::memcpy(target, source, n_bytes); }

}  // namespace

std::span<const Gpu> gpus() {
  static GpuStream stream;
  static const Gpu kGpus[] = {
      {&gpu_table_emulated(), &stream, allocate, release, copy, copy},
  };
  return kGpus;
}

}  // namespace tarn::kernels::test
