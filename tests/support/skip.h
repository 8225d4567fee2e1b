// tests/support/skip.h
//
// A test case that cannot run here says so and returns: TARN_SKIP("no io_uring"). A program of
// which a case was skipped, and none failed, ends with 77: ctest reports that file as skipped. So a
// file that ctest reports as passed has run whole.
#pragma once

namespace tarn::test {

void note_skipped(const char* why);

}  // namespace tarn::test

#define TARN_SKIP(why)               \
  do {                               \
    ::tarn::test::note_skipped(why); \
    return;                          \
  } while (false)
