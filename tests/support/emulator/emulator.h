// tests/support/emulator/emulator.h
//
// The host's side of kernels/common/cta_host.h: it runs a launch CTA by CTA, in a seeded order, and
// the threads of a CTA as fibers, also in a seeded order, and holds them to the rules that cta.h
// lists. The seed is TARN_TEST_SEED's (tests/support/seed.h); each launch draws from it.
//
// A broken rule ends the process with the kernel's file and line on standard error, so that no test
// can overlook it. A test that wants to see one holds a RuleTrap.
//
//   thread   each host thread has an emulator of its own
#pragma once

#include <functional>
#include <string>

#include "kernels/gpu_table.h"
#include "platform/base/gpu_stream.h"

namespace tarn {

// The emulator's stream: work is done when its launch returns, or is handed to `take`, if there is
// one, to be run later and perhaps again: a queue of tests/support/fake_device, a graph. `kernel`
// is what GpuTable::each_kernel tells of the one that is launched.
struct GpuStream {
  u64 n_launches = 0;
  std::function<void(const void* kernel, std::function<void()> work)> take;
};

namespace test {

// While it lives, the first broken rule of a launch ends that launch and is kept as text,
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

// Draws the orders of the following launches from this seed.
void set_emulator_seed(u64 seed);

// While memory is watched, a launch of this host thread that changes a byte of it by other means
// than store() has broken a rule: the shadow of global memory knows of store() alone. The memory is
// compared behind each launch, which costs too much for an engine's.
void watch_global(const void* begin, u64 n_bytes);
void unwatch_global(const void* begin);

}  // namespace test
}  // namespace tarn

namespace tarn::kernels {

const GpuTable& gpu_table_emulated();

}  // namespace tarn::kernels
