// Goal    --budget auto leaves the system what it needs: a tenth, 256 MiB, and what a GPU that
//         shares the memory must leave.
// Method  cases around each border.
#include <doctest/doctest.h>

#include "tools/support/engine_options.h"

namespace tarn::tools::budget_test {
namespace {

TEST_CASE("an automatic budget keeps the largest of its headrooms") {
  const DeviceFacts none{};
  DeviceFacts shares{.kind = DeviceKind::cuda, .integrated = true};
  shares.headroom_bytes = kGiB;
  CHECK(automatic_budget_bytes(100 * kGiB, none) == 90 * kGiB);
  CHECK(automatic_budget_bytes(2 * kGiB, none) == 2 * kGiB - 256 * kMiB);
  CHECK(automatic_budget_bytes(512 * kMiB, none) == 384 * kMiB);
  CHECK(automatic_budget_bytes(100 * kGiB, shares) == 90 * kGiB);
  CHECK(automatic_budget_bytes(7 * kGiB, shares) == 6 * kGiB);
  CHECK(automatic_budget_bytes(kGiB, shares) == 0);
}

}  // namespace
}  // namespace tarn::tools::budget_test
