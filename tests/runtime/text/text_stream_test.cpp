// Goal    a stop string ends the text wherever token borders fall, and nothing is lost or shown
//         early.
// Method  every way to cut short texts into pieces, against what a search in the whole text gives.
#include "runtime/text/text_stream.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace tarn::text::text_stream_test {
namespace {

struct Case {
  const char* name;
  std::vector<std::string_view> stops;
  std::string text;
  std::string shown;
  bool stopped;
};

std::string run(const Case& c, u32 cuts) {
  TextStream stream;
  REQUIRE(stream.reset(c.stops).has_value());
  std::string shown;
  char out[512];
  for (size_t begin = 0; begin < c.text.size();) {
    size_t end = begin + 1;
    while (end < c.text.size() && ((cuts >> (end - 1)) & 1) == 0) ++end;
    const std::string_view piece = std::string_view(c.text).substr(begin, end - begin);
    shown.append(out, stream.push(piece, out));
    begin = end;
  }
  shown.append(out, stream.finish(out));
  CHECK(stream.stopped() == c.stopped);
  return shown;
}

TEST_CASE("stop strings are found across every cut of the text") {
  const Case cases[] = {
      {"no stops", {}, "hello", "hello", false},
      {"absent", {"xyz"}, "hello", "hello", false},
      {"at the end", {"lo"}, "hello", "hel", true},
      {"at the start", {"he"}, "hello", "", true},
      {"a beginning at the end is shown", {"lox"}, "hello", "hello", false},
      {"overlapping itself", {"aab"}, "aaaab!", "aa", true},
      {"the first that completes wins", {"bcd", "b"}, "abcd", "a", true},
      {"both complete at once: the longer", {"cd", "bcd"}, "abcde", "a", true},
      {"one inside the other", {"xbcdy", "cd"}, "xbcdz", "xb", true},
      {"whole text", {"abc"}, "abc", "", true},
  };
  for (const Case& c : cases) {
    for (u32 cuts = 0; cuts < (1u << (c.text.size() - 1)); ++cuts) {
      CAPTURE(c.name);
      CAPTURE(cuts);
      REQUIRE(run(c, cuts) == c.shown);
    }
  }
}

TEST_CASE("stops outside the limits are refused") {
  TextStream stream;
  CHECK_FALSE(stream.reset(std::vector<std::string_view>{""}).has_value());
  const std::string longest(kStopBytesMax, 'x');
  const std::string too_long(kStopBytesMax + 1, 'x');
  CHECK(stream.reset(std::vector<std::string_view>{longest}).has_value());
  CHECK_FALSE(stream.reset(std::vector<std::string_view>{too_long}).has_value());
  CHECK_FALSE(stream.reset(std::vector<std::string_view>(kStopsMax + 1, "x")).has_value());
}

TEST_CASE("a stop of the greatest length fits what is held back") {
  const std::string longest(kStopBytesMax, 'x');
  TextStream stream;
  REQUIRE(stream.reset(std::vector<std::string_view>{longest}).has_value());
  char out[512];
  std::string shown;
  const std::string text = std::string(kStopBytesMax - 1, 'x') + "y" + longest + "z";
  for (const char c : text) shown.append(out, stream.push({&c, 1}, out));
  CHECK(shown == std::string(kStopBytesMax - 1, 'x') + "y");
  CHECK(stream.stopped());
}

}  // namespace
}  // namespace tarn::text::text_stream_test
