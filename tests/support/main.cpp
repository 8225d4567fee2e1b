// The test programs' main: doctest's, and 77 where a case could not run. It prints the CPU time,
// which other work on the machine changes little; tests/ci/slowest.py reads it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstdio>

#include "tests/support/skip.h"

namespace tarn::test {
namespace {
unsigned n_skipped = 0;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// Returns the CPU seconds of this process and the children that it waited for.
double cpu_s() {
  double sum_s = 0;
  for (const auto whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(whose, &usage);
    sum_s += seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  return sum_s;
}
}  // namespace

void note_skipped(const char* why) {
  ++n_skipped;
  std::printf("skipped: %s\n", why);
}

}  // namespace tarn::test

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int exit_code = context.run();
  std::printf("%.1f s of CPU time\n", tarn::test::cpu_s());
  return exit_code == 0 && tarn::test::n_skipped > 0 ? 77 : exit_code;
}
