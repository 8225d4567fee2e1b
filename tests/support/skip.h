// tests/support/skip.h
//
// A test case that cannot run here says so and returns: TARN_SKIP("no io_uring"). A program in
// which every case that ran was skipped ends with 77, which ctest reports as skipped and not as
// passed.
#pragma once

namespace tarn::test {

void note_skipped(const char* why);  // once a test case

}  // namespace tarn::test

#define TARN_SKIP(why)               \
  do {                               \
    ::tarn::test::note_skipped(why); \
    return;                          \
  } while (false)
