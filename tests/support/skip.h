// A test case that cannot run here returns with TARN_SKIP("no io_uring"). A program with a skipped
// case, and no failed one, exits with 77, and ctest reports that file as skipped. So a file that
// ctest reports as passed has run completely.
#pragma once

namespace tarn::test {

void note_skipped(const char* why);

}  // namespace tarn::test

#define TARN_SKIP(why)               \
  do {                               \
    ::tarn::test::note_skipped(why); \
    return;                          \
  } while (false)
