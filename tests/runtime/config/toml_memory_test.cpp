// Goal    memory that runs out while a configuration is read is an error, not the end of the
//         process, and nothing leaks (the sanitizer build looks).
// Method  operator new of this program fails its n-th call, for every n, once and from then on.
#include <doctest/doctest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "runtime/config/config.h"
#include "tests/support/skip.h"

namespace {

constexpr tarn::i64 kNever = -1;
tarn::i64 g_calls_until_failure = kNever;
bool g_fails_for_ever = false;
tarn::u64 g_failures = 0;

bool fails_now() {
  if (g_calls_until_failure == kNever) return false;
  if (g_calls_until_failure > 0) {
    --g_calls_until_failure;
    return false;
  }
  if (!g_fails_for_ever) g_calls_until_failure = kNever;
  ++g_failures;
  return true;
}

void* allocate(std::size_t n_bytes, std::size_t alignment) {
  if (fails_now()) throw std::bad_alloc();
  void* memory = std::aligned_alloc(alignment, (n_bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// TSan's runtime defines these operators as strongly as a program does; then they are its own.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TARN_OPERATOR __attribute__((weak))
#endif
#endif
#ifndef TARN_OPERATOR  // GCC, where it inlines one of a pair alone, warns that they do not match
#define TARN_OPERATOR __attribute__((noinline))
#endif

TARN_OPERATOR void* operator new(std::size_t n_bytes) { return allocate(n_bytes, 16); }
TARN_OPERATOR void* operator new(std::size_t n_bytes, std::align_val_t alignment) {
  return allocate(n_bytes, static_cast<std::size_t>(alignment));
}
TARN_OPERATOR void operator delete(void* memory) noexcept { std::free(memory); }
TARN_OPERATOR void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
TARN_OPERATOR void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
TARN_OPERATOR void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace tarn::toml_memory_test {
namespace {

constexpr const char* kTexts[] = {
    "[memory]\nbudget_bytes = '4.5GiB'\nlock = 'try'\n[kv]\ncontext_tokens = 1_000\ntype = "
    "'q8_0'\n",
    "kv.type = \"\"\"f16\"\"\"\nmemory = { budget_bytes = 123, huge_pages = true }\n",
    "[[kv]]\nwords = ['one', \"a longer one that no small string holds\", 2.5e3, "
    "1979-05-27T07:32:00Z]\n",
    "[kv]\ncontext_tokens = 0x10\ncontext_tokens = 1\n",
    "[kv]\nsomething_that_does_not_exist_and_is_long = inf\n",
};

// Whether operator new is the one above.
bool can_fail() {
  g_failures = 0;
  g_fails_for_ever = false;
  g_calls_until_failure = 0;
  bool failed = false;
  try {
    ::operator delete(::operator new(1));
  } catch (const std::bad_alloc&) {
    failed = true;
  }
  g_calls_until_failure = kNever;
  return failed;
}

TEST_CASE("every allocation fails in turn") {
  if (!can_fail()) TARN_SKIP("a sanitizer has operator new");
  for (const char* text : kTexts) {
    CAPTURE(text);
    const Result<Config> want = config_from_toml(text, Config{});
    for (const bool for_ever : {false, true}) {
      u64 n_failed = 0;
      for (i64 n = 0;; ++n) {
        g_failures = 0;
        g_fails_for_ever = for_ever;
        g_calls_until_failure = n;
        const Result<Config> config = config_from_toml(text, Config{});
        g_calls_until_failure = kNever;
        if (g_failures == 0) {
          REQUIRE(config.has_value() == want.has_value());
          break;
        }
        ++n_failed;
        REQUIRE_FALSE(config.has_value());
        REQUIRE(std::string(config.error().hint).find("memory ran out") == 0);
      }
      CHECK(n_failed >= 3);
    }
  }
}

}  // namespace
}  // namespace tarn::toml_memory_test
