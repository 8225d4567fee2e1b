// Goal    an error of the driver becomes the right status: lost is for ever and outranks the
//         others, a shortage and a refusal are told once.
// Method  a table over codes; a latch fed in both orders.
#include "platform/gpu/gpu_errors.h"

#include <doctest/doctest.h>

#include <string>

namespace tarn::gpu_errors_test {
namespace {

TEST_CASE("codes and what they mean") {
  struct Case {
    i32 code;
    GpuErrorClass kind;
    Status status;
  };
  constexpr Case kCases[] = {
      {kGpuOutOfMemory, GpuErrorClass::memory, Status::over_budget},
      {kGpuInvalidValue, GpuErrorClass::refused, Status::unsupported},
      {kGpuNotSupported, GpuErrorClass::refused, Status::unsupported},
      {kGpuNoKernelImage, GpuErrorClass::refused, Status::unsupported},
      {17, GpuErrorClass::refused, Status::unsupported},   // an address that is none
      {34, GpuErrorClass::refused, Status::unsupported},   // the toolkit's stub of the driver
      {800, GpuErrorClass::refused, Status::unsupported},  // not permitted
      {901, GpuErrorClass::refused, Status::unsupported},  // capture was invalidated
      {kGpuIllegalAddress, GpuErrorClass::lost, Status::device_lost},
      {kGpuLaunchTimeout, GpuErrorClass::lost, Status::device_lost},
      {kGpuMisalignedAddress, GpuErrorClass::lost, Status::device_lost},
      {kGpuLaunchFailure, GpuErrorClass::lost, Status::device_lost},
      {kGpuEccUncorrectable, GpuErrorClass::lost, Status::device_lost},
      {kGpuUnknown, GpuErrorClass::lost, Status::device_lost},
      {123456, GpuErrorClass::lost, Status::device_lost}};  // of a driver to come
  for (const Case& c : kCases) {
    CAPTURE(c.code);
    CHECK(gpu_error_class(c.code) == c.kind);
    const Error error = gpu_error(c.code, "a copy");
    CHECK(error.status == c.status);
    CHECK(std::string(error.detail.c_str()) == "a copy");
    CHECK(error.figures[0].value == static_cast<u64>(c.code));
  }
  CHECK(std::string(gpu_error(kGpuNoKernelImage, "").hint).find("TARN_CUDA_ARCHS") !=
        std::string::npos);
  CHECK(gpu_error_class(kGpuSuccess) == GpuErrorClass::none);
  CHECK(gpu_error_class(kGpuNotReady) == GpuErrorClass::not_ready);
}

TEST_CASE("the latch keeps the first error, and a loss for ever") {
  GpuErrorLatch latch;
  CHECK(latch.take().has_value());
  latch.note(kGpuSuccess, "nothing");
  latch.note(kGpuNotReady, "nothing");
  CHECK(latch.take().has_value());

  latch.note(kGpuInvalidValue, "first");
  latch.note(kGpuOutOfMemory, "second");
  const auto told = latch.take();
  REQUIRE_FALSE(told.has_value());
  CHECK(std::string(told.error().detail.c_str()) == "first");
  CHECK(latch.take().has_value());

  latch.note(kGpuInvalidValue, "before");
  latch.note(kGpuIllegalAddress, "loss");
  latch.note(kGpuLaunchFailure, "after");
  for (u32 i = 0; i < 3; ++i) {
    CHECK(latch.is_lost());
    const auto lost = latch.take();
    REQUIRE_FALSE(lost.has_value());
    CHECK(lost.error().status == Status::device_lost);
    CHECK(std::string(lost.error().detail.c_str()) == "loss");
    latch.note(kGpuSuccess, "nothing");
  }
}

}  // namespace
}  // namespace tarn::gpu_errors_test
