#include "tests/kernels/gpu/gpus.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>

#ifdef TARN_HAVE_CUDA
#include <map>

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"
#include "platform/gpu/device_wait.h"
#endif

namespace tarn::kernels::test {
namespace {

constexpr std::align_val_t kAlignment{256};

void* allocate(u64 n_bytes) {
  void* bytes = ::operator new(n_bytes, kAlignment);
  tarn::test::watch_global(bytes, n_bytes);
  return bytes;
}
void release(void* bytes) {
  tarn::test::unwatch_global(bytes);
  ::operator delete(bytes, kAlignment);
}
void copy(void* target, const void* source, u64 n_bytes) { std::memcpy(target, source, n_bytes); }

#ifdef TARN_HAVE_CUDA

// This machine's GPU, behind the functions of Gpu. Its failures end the program: a test that went
// on would only say so later and less clearly.
class RealGpu {
 public:
  // nullptr where there is none.
  static RealGpu* instance() {
    static RealGpu gpu;
    return gpu.device_ != nullptr ? &gpu : nullptr;
  }
  Device* device() const { return device_; }
  GpuStream* stream() { return device_->stream(StreamId::compute); }

  static void* allocate(u64 n_bytes) {
    if (n_bytes == 0) return nullptr;
    const DeviceSlab slab = instance()->must(instance()->device_->reserve("test", n_bytes));
    instance()->slabs_[slab.begin.raw()] = slab;
    return slab.begin.raw();
  }
  static void release(void* bytes) {
    if (bytes == nullptr) return;
    const auto found = instance()->slabs_.find(bytes);
    instance()->device_->release(found->second);
    instance()->slabs_.erase(found);
  }
  static void upload(void* device, const void* host, u64 n_bytes) {
    const auto* bytes = static_cast<const std::byte*>(host);
    instance()->device_->copy_in(DeviceBytes(static_cast<std::byte*>(device)), {bytes, n_bytes},
                                 instance()->stream());
    instance()->finish();
  }
  static void download(void* host, const void* device, u64 n_bytes) {
    // The seam has no address of constant device memory.
    auto* from = static_cast<std::byte*>(const_cast<void*>(device));
    instance()->device_->copy_out({static_cast<std::byte*>(host), n_bytes}, DeviceBytes(from),
                                  instance()->stream());
    instance()->finish();
  }

 private:
  static constexpr u64 kWaitNsMax = 60'000'000'000;

  RealGpu() {
    const Result<Device*> opened = system_device_open(memory_, {});
    if (!opened) return;
    device_ = *opened;
    event_ = must(device_->create_event());
  }
  void finish() {
    device_->record(event_, stream());
    must(wait_done(*device_, event_, clock_, kWaitNsMax));
    must(device_->check());
  }
  template <class T>
  T must(const Result<T>& result) {
    if (!result) {
      std::fprintf(stderr, "the GPU failed: %s\n", result.error().hint);
      std::abort();
    }
    if constexpr (!std::is_void_v<T>) return *result;
  }

  SystemDeviceMemory memory_{};
  SystemClock clock_;
  Device* device_ = nullptr;
  GpuEvent* event_ = nullptr;
  std::map<void*, DeviceSlab> slabs_;
};

#endif

// Runs at once. A kernel that its table does not tell would be loaded after READY.
void run_told(const void* kernel, const std::function<void()>& work) {
  static const std::set<const void*> kTold = [] {
    std::set<const void*> told;
    gpu_table_emulated().each_kernel({&told, [](void* context, const void* one) {
                                        static_cast<std::set<const void*>*>(context)->insert(one);
                                      }});
    return told;
  }();
  if (!kTold.contains(kernel)) {
    std::fprintf(stderr, "a kernel was launched that GpuTable::each_kernel does not tell\n");
    std::abort();
  }
  work();
}

std::vector<Gpu> find_gpus() {
  static GpuStream stream;
  stream.take = run_told;
  std::vector<Gpu> found = {
      {&gpu_table_emulated(), &stream, allocate, release, copy, copy, nullptr}};
#ifdef TARN_HAVE_CUDA
  if (RealGpu* real = RealGpu::instance()) {
    found.push_back({&gpu_table_cuda(), real->stream(), RealGpu::allocate, RealGpu::release,
                     RealGpu::upload, RealGpu::download, real->device()});
  }
#endif
  return found;
}

}  // namespace

std::span<const Gpu> gpus() {
  static const std::vector<Gpu> kGpus = find_gpus();
  return kGpus;
}

}  // namespace tarn::kernels::test
