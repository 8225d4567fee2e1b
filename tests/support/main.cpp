// The test programs' main: doctest's, and 77 where a case could not run.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "tests/support/skip.h"

namespace tarn::test {
namespace {
unsigned n_skipped = 0;
}  // namespace

void note_skipped(const char* why) {
  ++n_skipped;
  std::printf("skipped: %s\n", why);
}

}  // namespace tarn::test

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int exit_code = context.run();
  return exit_code == 0 && tarn::test::n_skipped > 0 ? 77 : exit_code;
}
