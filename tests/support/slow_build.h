// tests/support/slow_build.h
//
// Whether this build runs a test many times slower than it would on a box: under a sanitizer, or
// for another processor under an emulator. Times mean nothing there, and a table of cases that
// repeat the same code may be cut to those that reach all of it.
#pragma once

namespace tarn::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(TARN_EMULATED)
inline constexpr bool kSlowBuild = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif
#else
inline constexpr bool kSlowBuild = false;
#endif

}  // namespace tarn::test
