// Goal    repr, strip, upper and lower see characters as Python does.
// Method  all code points, written as tools/unicode/make_python_chars.py --hash writes them from
//         Python itself; a table of those that stand out.
#include "runtime/text/python_chars.h"

#include <doctest/doctest.h>

#include <string>

#include "platform/cpu/sha256.h"
#include "runtime/text/unicode.h"

namespace tarn::text::python_chars_test {
namespace {

std::string spelled(const Cased& cased) {
  std::string text;
  for (u32 i = 0; i < cased.n; ++i) {
    text += (i == 0 ? "" : " ") + std::to_string(cased.code_points[i]);
  }
  return text;
}

TEST_CASE("all code points are as in Python 3.11") {
  Sha256 hash;
  for (u32 point = 0; point < 0x110000; ++point) {
    char bytes[4];
    const std::string self(bytes, encode_utf8(point, bytes));
    const std::string sigma = "\u03a3";
    std::string line = std::to_string(point) + ' ';
    line += is_python_printable(point) ? '1' : '0';
    line += is_python_space(point) ? '1' : '0';
    line += is_final_sigma(self + sigma, self.size()) ? '1' : '0';
    line += is_final_sigma("A" + self + sigma, 1 + self.size()) ? '1' : '0';
    line += is_final_sigma("A" + sigma + self, 1) ? '1' : '0';
    line += is_final_sigma("A" + sigma + self + "a", 1) ? '1' : '0';
    line += ' ' + spelled(python_upper(point)) + ", " + spelled(python_lower(point)) + '\n';
    hash.add(std::as_bytes(std::span(line)));
  }
  CHECK(std::string(hash.finish().data()) ==
        "6e24f1c35ea16ba7478aeab46c845f4c5eccae14a23c1401345bccd5e5f66f2a");
}

struct Case {
  const char* name;
  u32 point;
  const char *upper, *lower, *title;  // as code points; "" is not known
};

constexpr Case kCases[] = {
    {"a letter", 'a', "65", "97", "65"},
    {"no letter", '1', "49", "49", "49"},
    {"sharp s", 0xDF, "83 83", "223", ""},
    {"a ligature of three", 0xFB03, "70 70 73", "64259", ""},
    {"a capital sigma", 0x3A3, "931", "", "931"},
    {"a dotted capital i", 0x130, "304", "105 775", "304"},
    {"a digraph", 0x1C6, "452", "454", ""},
    {"a Georgian letter", 0x10D0, "7312", "4304", ""},
    {"beyond the first plane", 0x10428, "66560", "66600", "66560"},
};

TEST_CASE("cases that stand out") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    CHECK(spelled(python_upper(c.point)) == c.upper);
    CHECK(spelled(python_lower(c.point)) == c.lower);
    CHECK(spelled(python_title(c.point)) == c.title);
  }
}

}  // namespace
}  // namespace tarn::text::python_chars_test
