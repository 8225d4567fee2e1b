// The implementation of kernels/common/cta_host.h. It runs a launch CTA by CTA, and the threads of
// a CTA as fibers, both in a seeded order, and checks the rules that cta.h lists. The seed is
// TARN_TEST_SEED's (tests/support/seed.h); each launch draws from it.
//
// A broken rule ends the process with the kernel's file and line on standard error, so that no test
// can miss it. A test that expects one holds a RuleTrap.
//
//   thread   each host thread has an emulator of its own
#pragma once

#include <functional>
#include <string>

#include "kernels/gpu_table.h"
#include "platform/base/gpu_stream.h"

namespace tarn {

// The emulator's stream. Work is done when its launch returns; or `take`, if set, gets it to run it
// later, perhaps repeatedly (a queue of tests/support/fake_device, a graph). `kernel` is the
// launched kernel's pointer in GpuTable::each_kernel.
struct GpuStream {
  u64 n_launches = 0;
  std::function<void(const void* kernel, std::function<void()> work)> take;
};

namespace test {

// While it exists, the first broken rule of a launch ends that launch, and its text is kept:
// "norm_cuda.cu:17: what is wrong".
class RuleTrap {
 public:
  RuleTrap();
  ~RuleTrap();
  RuleTrap(const RuleTrap&) = delete;
  RuleTrap& operator=(const RuleTrap&) = delete;
  const std::string& text() const { return text_; }

 private:
  friend class Emulator;
  std::string text_;
  RuleTrap* outer_;
};

// Sets the seed of the orders of later launches.
void set_emulator_seed(u64 seed);

// While memory is watched, a launch of this host thread that changes a byte without store() breaks
// a rule, because the shadow of global memory only sees store(). The memory is compared after each
// launch, which is too slow for an engine's memory.
void watch_global(const void* begin, u64 n_bytes);
void unwatch_global(const void* begin);

}  // namespace test
}  // namespace tarn

namespace tarn::kernels {

const GpuTable& gpu_table_emulated();

}  // namespace tarn::kernels
