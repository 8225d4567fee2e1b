#include "platform/gpu/gpu_errors.h"

namespace tarn {

GpuErrorClass gpu_error_class(i32 code) {
  switch (code) {
    case kGpuSuccess:
      return GpuErrorClass::none;
    case kGpuNotReady:
      return GpuErrorClass::not_ready;
    case kGpuOutOfMemory:
    case 701:  // launch out of resources
      return GpuErrorClass::memory;
    case kGpuInvalidValue:
    case 8:   // invalid PTX or device function
    case 9:   // invalid configuration of a launch
    case 17:  // invalid device pointer
    case 21:  // invalid direction of a copy
    case 34:  // the driver's library is the toolkit's stub
    case 35:  // the driver is older than the runtime, or missing
    case 36:  // call of a newer driver
    case 46:  // the device is busy in exclusive mode, or not available
    case 98:  // invalid device function
    case kGpuNoDevice:
    case 101:  // invalid device
    case 200:  // invalid kernel image
    case 201:  // this thread has no context
    case kGpuNoKernelImage:
    case 400:  // invalid handle
    case 500:  // a symbol is not found
    case 712:  // host memory is registered already
    case 713:  // host memory is not registered
    case 720:  // a cooperative launch that does not fit
    case 800:  // not permitted
    case kGpuNotSupported:
    case 802:  // the system is not ready yet
    case 803:  // the driver and its libraries do not match
    case 804:  // forward compatibility was tried on a device that has none
      return GpuErrorClass::refused;
    default:
      // 900 to 910 are wrong uses of stream capture and of graphs.
      return code >= 900 && code <= 910 ? GpuErrorClass::refused : GpuErrorClass::lost;
  }
}

Error gpu_error(i32 code, const char* what) {
  const std::array<Figure, 4> figures{{{"cuda_error", static_cast<u64>(code)}}};
  if (code == kGpuNoKernelImage) {
    return {.status = Status::unsupported,
            .hint =
                "this build has no kernels for this GPU: build with TARN_CUDA_ARCHS set to its "
                "compute capability, or choose the device \"cpu\"",
            .detail = Detail(what),
            .figures = figures};
  }
  switch (gpu_error_class(code)) {
    case GpuErrorClass::memory:
      return {.status = Status::over_budget,
              .hint =
                  "the GPU's memory is short although the plan fits: another process took it, or "
                  "it is fragmented (after many restarts of a Jetson: reboot); lower the budget or "
                  "-c",
              .detail = Detail(what),
              .figures = figures};
    case GpuErrorClass::lost:
      return {.status = Status::device_lost,
              .hint =
                  "the GPU reported an error, and this process can no longer use it: restart the "
                  "process",
              .detail = Detail(what),
              .figures = figures};
    default:
      return {.status = Status::unsupported,
              .hint = "the GPU's driver refused a call: is it as new as this build's CUDA?",
              .detail = Detail(what),
              .figures = figures};
  }
}

void GpuErrorLatch::note(i32 code, const char* what) {
  const GpuErrorClass kind = gpu_error_class(code);
  if (kind == GpuErrorClass::none || kind == GpuErrorClass::not_ready || is_lost()) return;
  if (code_ != kGpuSuccess && kind != GpuErrorClass::lost) return;
  code_ = code;
  what_ = what;
}

Result<void> GpuErrorLatch::take() {
  if (code_ == kGpuSuccess) return {};
  const Error error = gpu_error(code_, what_);
  if (!is_lost()) code_ = kGpuSuccess;
  return fail(error);
}

}  // namespace tarn
