// Goal    a vendor's library that is absent, or that does not start here, is a normal answer which
//         leaves nothing open, and can be asked for again.
// Method  the real opening of this build, by the loader's name and by wrong paths. Its products are
//         compared in tests/kernels/gpu/matmul_test.cpp, where it opens.
#include "platform/gpu/gpu_blas.h"

#include <doctest/doctest.h>

#include <string>

#include "platform/gpu/discovery.h"
#include "tests/support/folders.h"
#include "tests/support/skip.h"

namespace tarn::gpu_blas_test {
namespace {

TEST_CASE("what is no library is absent, by any name") {
  GpuBlas blas;
  const std::string no_library = test::source_folder() + "/README.md";
  for (const char* path : {"/nowhere/libcublas.so", no_library.c_str(), "libc.so.6"}) {
    CAPTURE(path);
    const auto opened = blas.open({.library_path = path});
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().status == Status::unsupported);
    CHECK(std::string(opened.error().hint).find("cuBLAS") != std::string::npos);
    CHECK_FALSE(blas.is_open());
    CHECK(blas.check().has_value());
  }
}

TEST_CASE("without a GPU the library, if it is there, does not start, and says so") {
  if (gpu_discover(0).has_value()) TARN_SKIP("there is a GPU, so it would start");
  GpuBlas blas;
  for (u32 i = 0; i < 2; ++i) {
    const auto opened = blas.open({});
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().status == Status::unsupported);
    CHECK_FALSE(blas.is_open());
  }
}

}  // namespace
}  // namespace tarn::gpu_blas_test
