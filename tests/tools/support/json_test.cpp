// Goal    a number in our programs' JSON is the shortest text that reads back as that number: as
//         f64, or as f32 where it is one. Nanoseconds told as seconds have nine decimals at most.
// Method  numbers of random bits, and the definition: no text of fewer digits reads back. The same
//         through every kind of writer.
#include "tools/support/json.h"

#include <doctest/doctest.h>
#include <rapidjson/document.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include "tests/support/seed.h"

namespace tarn::tools::json_test {
namespace {

template <class Real>
std::string written(Real value) {
  Json json;
  json.real(value);
  return std::string(json.str());
}

// Digits of a text's mantissa, without zeros in front and behind.
size_t n_digits(const std::string& text) {
  std::string digits;
  for (const char c : text.substr(0, text.find('e'))) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const size_t begin = digits.find_first_not_of('0');
  if (begin == std::string::npos) return 1;
  return digits.find_last_not_of('0') - begin + 1;
}

f64 read(const char* text, f64) { return std::strtod(text, nullptr); }
f32 read(const char* text, f32) { return std::strtof(text, nullptr); }

// The fewest digits that read back.
template <class Real>
size_t least_digits(Real value) {
  char text[40];
  for (int n = 1;; ++n) {
    std::snprintf(text, sizeof text, "%.*e", n - 1, static_cast<f64>(value));
    if (read(text, value) == value) return static_cast<size_t>(n);
  }
}

template <class Real>
void check_shortest(Real value) {
  const std::string text = written(value);
  CAPTURE(text);
  CHECK(read(text.c_str(), value) == value);
  CHECK(n_digits(text) <= least_digits(value));
}

TEST_CASE("a number is the shortest text that reads back") {
  CHECK(written(0.1) == "0.1");
  CHECK(written(0.1F) == "0.1");
  CHECK(written(1e-5F) == "1e-05");
  CHECK(written(3.0) == "3.0");
  CHECK(written(-0.000125) == "-0.000125");
  CHECK(written(500'000.0) == "500000.0");
  CHECK(written(6.5e300) == "6.5e+300");
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 i = 0; i < 20'000; ++i) {
    const f64 wide = std::bit_cast<f64>(random.next());
    const f32 narrow = std::bit_cast<f32>(static_cast<u32>(random.next()));
    if (std::isfinite(wide)) check_shortest(wide);
    if (std::isfinite(narrow)) check_shortest(narrow);
  }
}

TEST_CASE("what is not a number is null") {
  CHECK(written(std::numeric_limits<f64>::quiet_NaN()) == "null");
  CHECK(written(-std::numeric_limits<f64>::infinity()) == "null");
  CHECK(written(std::numeric_limits<f32>::infinity()) == "null");
}

TEST_CASE("seconds have the decimals that nanoseconds have") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 i = 0; i < 20'000; ++i) {
    const u64 ns = i == 0 ? 2'536'859 : random.below(u64{1} << (10 + i % 40));
    char exact[40];
    std::snprintf(exact, sizeof exact, "%llu.%09llu",
                  static_cast<unsigned long long>(ns / 1'000'000'000),
                  static_cast<unsigned long long>(ns % 1'000'000'000));
    const std::string text = written(seconds_of(ns));
    CAPTURE(text);
    CHECK(n_digits(text) == n_digits(exact));
    CHECK(std::strtod(text.c_str(), nullptr) == std::strtod(exact, nullptr));
  }
}

TEST_CASE("a document's numbers are written so, too") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 i = 0; i < 20'000; ++i) {
    const f64 value = std::bit_cast<f64>(random.next());
    rapidjson::StringBuffer buffer;
    JsonWriter<rapidjson::Writer<rapidjson::StringBuffer>> writer(buffer);
    rapidjson::Document(rapidjson::Type::kNumberType).SetDouble(value).Accept(writer);
    CHECK(std::string(buffer.GetString()) == written(value));
  }
}

}  // namespace
}  // namespace tarn::tools::json_test
