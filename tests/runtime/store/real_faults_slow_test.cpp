// Goal    as real_faults_native_test.cpp.
// Method  all of them.
#include "tests/runtime/store/real_faults.h"

namespace tarn::store::real_faults_slow_test {
namespace {

TEST_CASE("every call to a real file failed in turn") {
  CHECK(test_faults::try_failing_calls_for_real(1) > 1000);
}

}  // namespace
}  // namespace tarn::store::real_faults_slow_test
