// Cases for exit_codes.sh, behind the main of every test program.
#include <doctest/doctest.h>

#include "tests/support/skip.h"

namespace tarn {
namespace {

TEST_CASE("one that runs") { CHECK(1 + 1 == 2); }

TEST_CASE("one that cannot") { TARN_SKIP("nothing of what it needs is here"); }

TEST_CASE("one that fails") { CHECK(1 + 1 == 3); }

}  // namespace
}  // namespace tarn
