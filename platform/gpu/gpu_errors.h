// The meaning of the CUDA runtime's error codes, and the latch that keeps a device's first error.
// Codes are plain numbers, part of CUDA's ABI, so that the fake device can use the driver's codes.
#pragma once

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

enum class GpuErrorClass : u8 {
  none,
  not_ready,  // an event or a stream still runs: no error
  memory,     // not enough of it; the context lives
  refused,    // a call that was wrong or that this driver cannot do; the context lives
  lost,       // the context is dead; only a new process can use the GPU again
};

inline constexpr i32 kGpuSuccess = 0;
inline constexpr i32 kGpuInvalidValue = 1;
inline constexpr i32 kGpuOutOfMemory = 2;
inline constexpr i32 kGpuNoDevice = 100;
inline constexpr i32 kGpuNoKernelImage = 209;
inline constexpr i32 kGpuEccUncorrectable = 214;
inline constexpr i32 kGpuNotReady = 600;
inline constexpr i32 kGpuIllegalAddress = 700;
inline constexpr i32 kGpuLaunchTimeout = 702;
inline constexpr i32 kGpuMisalignedAddress = 716;
inline constexpr i32 kGpuLaunchFailure = 719;
inline constexpr i32 kGpuNotSupported = 801;
inline constexpr i32 kGpuUnknown = 999;

// An unknown code is `lost`: after an error that is not understood, results cannot be trusted.
GpuErrorClass gpu_error_class(i32 code);

// The Error of a call that failed; `what` is static and names the call or the region.
Error gpu_error(i32 code, const char* what);

// Keeps the first error; a loss outranks and outlives every other.
class GpuErrorLatch {
 public:
  void note(i32 code, const char* what);
  bool is_lost() const { return gpu_error_class(code_) == GpuErrorClass::lost; }
  // Answers the error, and clears it unless it is a loss.
  Result<void> take();

 private:
  i32 code_ = kGpuSuccess;
  const char* what_ = "";
};

}  // namespace tarn
