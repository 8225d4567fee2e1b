// Goal    sizes that come from outside never wrap silently; an error line says everything it knows.
// Method  tables around the borders of u64; format_error into buffers of every small size.
#include <doctest/doctest.h>

#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/checked.h"
#include "platform/base/result.h"

namespace tarn::base_test {
namespace {

constexpr u64 kMax = ~u64{0};

std::string repeated(std::string_view what, u32 n) {
  std::string text;
  for (u32 i = 0; i < n; ++i) text += what;
  return text;
}

TEST_CASE("Checked marks every wrap and stays invalid") {
  CHECK((Checked(2) * Checked(3) + Checked(4)).get() == 10);
  CHECK_FALSE((Checked(kMax) + Checked(1)).valid());
  CHECK_FALSE((Checked(kMax) * Checked(2)).valid());
  CHECK_FALSE((Checked(3) - Checked(4)).valid());
  CHECK_FALSE(((Checked(kMax) + Checked(1)) * Checked(0)).valid());
  CHECK(Checked(31).aligned_up(32).get() == 32);
  CHECK_FALSE(Checked(kMax - 5).aligned_up(32).valid());
  CHECK_FALSE(Checked(8).aligned_up(0).valid());
  CHECK_FALSE(Checked(8).aligned_up(12).valid());
  CHECK(Checked(64).divided_exactly(32).get() == 2);
  CHECK_FALSE(Checked(65).divided_exactly(32).valid());
  CHECK_FALSE(Checked(65).divided_exactly(0).valid());
  CHECK_FALSE(Checked(65).at_most(64).has_value());
}

TEST_CASE("Bump hands out aligned pieces and refuses what does not fit") {
  alignas(64) std::byte memory[256];
  Bump bump{std::span<std::byte>(memory)};
  CHECK(bump.alloc<u8>(3).has_value());
  const auto aligned = bump.alloc_bytes(64, 64);
  REQUIRE(aligned.has_value());
  CHECK(reinterpret_cast<std::uintptr_t>(aligned->data()) % 64 == 0);
  CHECK(bump.used_bytes() == 128);
  CHECK_FALSE(bump.alloc<u64>(17).has_value());
  CHECK_FALSE(bump.alloc<u64>(kMax / 4).has_value());
  bump.rewind(0);
  CHECK(bump.alloc<u8>(256).has_value());
  CHECK_FALSE(bump.alloc<u8>(1).has_value());
}

TEST_CASE("an error becomes one printable line of any length") {
  const Error error{.status = Status::io_failed,
                    .hint = "the read failed",
                    .detail = Detail(std::string("a\x1b[2Jb") + std::string(200, 'x')),
                    .figures = {{{"errno", 5}, {"offset", 18446744073709551615ull}}}};
  char line[256];
  const u64 n = format_error(error, line, sizeof line);
  const std::string want =
      "the read failed: a?[2Jb" + std::string(121, 'x') + " (errno 5, offset 18446744073709551615)";
  CHECK(std::string(line) == want);
  CHECK(n == want.size());
  for (u64 size = 1; size <= want.size(); ++size) {
    char cut[256];
    std::memset(cut, '#', sizeof cut);
    CHECK(format_error(error, cut, size) == size - 1);
    CHECK(std::string(cut) == want.substr(0, size - 1));
    CHECK(cut[size] == '#');
  }
}

TEST_CASE("sizes are said as a configuration gives them") {
  const Error error{.hint = "too small",
                    .detail = Detail("store.quota_bytes"),
                    .figures = {{{"quota_bytes", 256 * kMiB},
                                 {"file_bytes", 3 * kGiB / 2 + 1},
                                 {"least_bytes", 0},
                                 {"bytes", kMiB}}}};
  char line[256];
  format_error(error, line, sizeof line);
  CHECK(std::string(line) ==
        "too small: store.quota_bytes (quota_bytes 256MiB, file_bytes 1610612737, least_bytes 0, "
        "bytes 1048576)");
}

TEST_CASE("a detail keeps the letters of every script, and nothing that controls a terminal") {
  struct Row {
    std::string_view text, shown;
  };
  const Row rows[] = {
      {"général.nom", "général.nom"},
      {"日本語 \U0001F332", "日本語 \U0001F332"},
      {"a\x1b[2Jb\r\n\tc\x7f", "a?[2Jb???c?"},
      {"\u009b2J", "?2J"},
      {"a\u202Eb\u2066c\u2028d", "a?b?c?d"},
      {"\xff\xc0\x80\xed\xa0\x80 \xe2\x82", "?????? ??"},
      {"\xf4\x90\x80\x80", "????"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    CHECK(std::string(Detail(row.text).c_str()) == row.shown);
    CHECK(std::string(Detail({"<", row.text, ">"}).c_str()) == "<" + std::string(row.shown) + ">");
  }
  // Whole characters alone, in the detail and in the line.
  const std::string many = "a" + repeated("é", 100);
  CHECK(std::string(Detail(many).c_str()) == "a" + repeated("é", 63));
  const Error error{.hint = "why", .detail = Detail("éé")};
  const std::string want[] = {"", "w", "wh", "why", "why:", "why: ", "why: ", "why: é", "why: é"};
  for (u64 size = 1; size <= std::size(want); ++size) {
    char cut[256];
    CHECK(format_error(error, cut, size) == want[size - 1].size());
    CHECK(std::string(cut) == want[size - 1]);
  }
}

TEST_CASE("a hint names figures by their places") {
  const Error error{.hint = "{1} of {0}, {4} and {x} and { stay, {3}",
                    .figures = {{{"wanted", 70}, {"had", 18446744073709551615ull}, {}, {"z", 0}}}};
  const std::string want =
      "18446744073709551615 of 70, {4} and {x} and { stay, 0 "
      "(wanted 70, had 18446744073709551615, z 0)";
  char line[256];
  CHECK(format_error(error, line, sizeof line) == want.size());
  CHECK(std::string(line) == want);
  for (u64 size = 1; size <= want.size(); ++size) {
    char cut[256];
    CHECK(format_error(error, cut, size) == size - 1);
    CHECK(std::string(cut) == want.substr(0, size - 1));
  }
  const Error ends{.hint = "an open {0"};
  format_error(ends, line, sizeof line);
  CHECK(std::string(line) == "an open {0");
}

}  // namespace
}  // namespace tarn::base_test
