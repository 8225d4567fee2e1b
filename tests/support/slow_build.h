// Whether this build runs many times slower than normal: under a sanitizer, or under an emulator of
// another processor. Times have no meaning there, and a table of cases may be cut to those that
// cover all code.
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
