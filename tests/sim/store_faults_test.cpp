// Goal    the store survives power loss at any moment, any failing call, any flipped bit and any
//         damaged sector, and serves right bytes or none.
// Method  one scenario, its faults in turn (store_faults.h); a slice of what the slow test runs.
#include <doctest/doctest.h>

#include "tests/sim/store_faults.h"

namespace tarn::test {
namespace {

TEST_CASE("power lost at every moment: a slice") { CHECK(try_power_losses(37) > 100); }
TEST_CASE("no head before its payload: a slice") { CHECK(try_publication_order(37) > 200); }
TEST_CASE("power lost in a replacement, then deleted") { CHECK(try_replacements() > 100); }
TEST_CASE("every call failed in turn: a slice") { CHECK(try_failing_calls(23, 1) > 50); }
TEST_CASE("every bit flipped: a slice") { CHECK(try_flipped_bits(1009) > 500); }
TEST_CASE("every sector zeroed, stale, another one, or gone") { CHECK(try_damaged_blocks() > 500); }

}  // namespace
}  // namespace tarn::test
