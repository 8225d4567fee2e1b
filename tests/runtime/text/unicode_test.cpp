// Goal    is_utf8 draws the line of RFC 3629.
// Method  a table of edges, and every code point spelled out and spelled one byte too long.
#include "runtime/text/unicode.h"

#include <doctest/doctest.h>

#include <string>

namespace tarn::text::unicode_test {
namespace {

struct Case {
  const char* name;
  std::string_view bytes;
  bool valid;
};

constexpr Case kCases[] = {
    {"nothing", "", true},
    {"ASCII", "abc", true},
    {"two bytes, least", "\xC2\x80", true},
    {"two bytes, overlong", "\xC1\xBF", false},
    {"three bytes, least", "\xE0\xA0\x80", true},
    {"three bytes, overlong", "\xE0\x9F\xBF", false},
    {"the last before the surrogates", "\xED\x9F\xBF", true},
    {"the first surrogate", "\xED\xA0\x80", false},
    {"the last surrogate", "\xED\xBF\xBF", false},
    {"the first after the surrogates", "\xEE\x80\x80", true},
    {"U+FFFD itself", "\xEF\xBF\xBD", true},
    {"four bytes, least", "\xF0\x90\x80\x80", true},
    {"four bytes, overlong", "\xF0\x8F\xBF\xBF", false},
    {"U+10FFFF", "\xF4\x8F\xBF\xBF", true},
    {"U+110000", "\xF4\x90\x80\x80", false},
    {"five bytes", "\xF8\x88\x80\x80\x80", false},
    {"a stray continuation", "a\x80", false},
    {"0xFF", "\xFF", false},
    {"cut after one of two", "\xC3", false},
    {"cut after two of three", "\xE2\x82", false},
    {"cut after three of four", "a\xF0\x9F\x98", false},
    {"a letter inside of a character", "\xE2\x82z", false},
};

TEST_CASE("is_utf8 at the edges") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    CHECK(is_utf8(c.bytes) == c.valid);
  }
}

TEST_CASE("every code point but the surrogates, in its shortest spelling alone") {
  u32 n_wrong = 0;
  for (u32 point = 0; point < 0x110000; ++point) {
    char bytes[4];
    const u32 n_bytes = encode_utf8(point, bytes);
    const bool surrogate = point >= 0xD800 && point < 0xE000;
    n_wrong += is_utf8({bytes, n_bytes}) == surrogate;
    if (point < 0x40) {
      const char two[] = {'\xC0', static_cast<char>(0x80 | point)};
      n_wrong += is_utf8({two, 2});
    }
  }
  CHECK(n_wrong == 0);
}

}  // namespace
}  // namespace tarn::text::unicode_test
