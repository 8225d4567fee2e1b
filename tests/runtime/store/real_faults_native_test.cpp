// Goal    over the kernel's ring and over threads, a call that fails in whatever way costs what it
//         was for: no wrong record, no hang, nothing that was flushed, and the store is well again
//         when the disk is.
// Method  real_faults.h; a slice of what the slow test runs.
#include "tests/runtime/store/real_faults.h"

#include "tests/support/slow_build.h"

namespace tarn::store::real_faults_native_test {
namespace {

TEST_CASE("every call to a real file failed in turn: a slice") {
  CHECK(test_faults::try_failing_calls_for_real(test::kSlowBuild ? 37 : 17) > 30);
}

}  // namespace
}  // namespace tarn::store::real_faults_native_test
