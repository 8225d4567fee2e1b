// Goal    a text with marks of chunks is cut at the marks, which go; whatever their order, each
//         other byte stays, and only what stands between a begin and an end is a chunk.
// Method  a table, with '<' and '>' for the marks; random texts of marks, halves of marks and other
//         characters, against a count by hand.
#include <doctest/doctest.h>

#include <string>

#include "runtime/chat/conversation.h"
#include "tests/support/seed.h"

namespace tarn::chat::test::chunk_pieces_test {
namespace {

std::string marked(std::string_view text) {
  std::string all;
  for (const char c : text) {
    if (c == '<') {
      all += kChunkBegin;
    } else if (c == '>') {
      all += kChunkEnd;
    } else {
      all += c;
    }
  }
  return all;
}

// "(a)b" for a chunk a and a piece b.
std::string shown(std::string_view text) {
  std::string all;
  for_pieces(text, [&](u64 begin, u64 end, bool is_chunk) {
    REQUIRE(begin < end);
    const std::string piece(text.substr(begin, end - begin));
    all += is_chunk ? "(" + piece + ")" : "[" + piece + "]";
  });
  return all;
}

}  // namespace

TEST_CASE("pieces") {
  struct Case {
    const char* text;
    const char* pieces;
  };
  constexpr Case kCases[] = {{"", ""},
                             {"a", "[a]"},
                             {"<a>", "(a)"},
                             {"<>", ""},
                             {"b<a>c", "[b](a)[c]"},
                             {"<a><b>", "(a)(b)"},
                             {"<a", "[a]"},
                             {"a>", "[a]"},
                             {">a<", "[a]"},
                             {"<a<b>c", "[a](b)[c]"},
                             {"<a>b>c", "(a)[b][c]"},
                             {"a>b<c>d", "[a][b](c)[d]"}};
  for (const Case& each : kCases) {
    CAPTURE(each.text);
    CHECK(shown(marked(each.text)) == each.pieces);
  }
  CHECK(shown("a\xEF\xB7\x92z\xEF\xB7") == "[a\xEF\xB7\x92z\xEF\xB7]");  // no marks
}

TEST_CASE("every byte that is no mark stays, in order") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr std::string_view kParts[] = {"<", ">", "a", "\xEF", "\xB7", "bc", "\xEF\xB7"};
  for (u32 round = 0; round < 2000; ++round) {
    std::string text, kept;
    for (u64 n = random.below(12); n > 0; --n) {
      const std::string_view part = kParts[random.below(std::size(kParts))];
      text += marked(part);
    }
    for (u64 at = 0; at < text.size();) {
      const std::string_view rest = std::string_view(text).substr(at);
      const bool is_mark = rest.starts_with(kChunkBegin) || rest.starts_with(kChunkEnd);
      if (!is_mark) kept += text[at];
      at += is_mark ? kChunkBegin.size() : 1;
    }
    std::string all;
    for_pieces(text, [&](u64 begin, u64 end, bool) { all += text.substr(begin, end - begin); });
    CHECK(all == kept);
  }
}

}  // namespace tarn::chat::test::chunk_pieces_test
