// Goal    a log book is read as it was written, what is none is refused by line, and a rate's
//         interval is the one that statistics books print.
// Method  tables of lines; Wilson's interval against values of its closed form computed apart.
#include "tools/support/logbook.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "tools/support/exit_code.h"

namespace tarn::tools::logbook_test {
namespace {

TEST_CASE("lines, empty ones between them, and no line break at the end") {
  const auto lines = parse_logbook(
      "{\"seed\": 1000001, \"kind\": \"hop0\", \"tokens\": 12, \"prompt\": \"Log.\\nQ:\", "
      "\"answer\": \" 482\"}\n\n"
      "{\"answer\": \" alpha\", \"prompt\": \"Log.\", \"tokens\": 3, \"kind\": \"bay\", \"seed\": "
      "2, "
      "\"more\": []}",
      "book");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].seed == 1000001);
  CHECK(lines[0].kind == "hop0");
  CHECK(lines[0].n_tokens == 12);
  CHECK(lines[0].prompt == "Log.\nQ:");
  CHECK(lines[0].answer == " 482");
  CHECK(lines[1].kind == "bay");
}

struct Refused {
  const char* name;
  std::string text;
  const char* says;
};

const std::string kGood =
    "{\"seed\":1,\"kind\":\"a\",\"tokens\":1,\"prompt\":\"p\",\"answer\":\"a\"}\n";

const Refused kRefused[] = {
    {"nothing", "", "book:1: it has no question"},
    {"no JSON", kGood + "seed: 1\n", "book:2: no JSON"},
    {"a cut line", kGood + "\n{\"seed\":1,", "book:3: no JSON"},
    {"no object", "[1]\n", "book:1: no JSON object"},
    {"a seed of the wrong type", "{\"seed\":\"1\"}", "'seed' is not a whole number"},
    {"a negative seed", "{\"seed\":-1}", "'seed' is not a whole number"},
    {"no kind", "{\"seed\":1,\"tokens\":1}", "'kind' is not a text"},
    {"no answer", "{\"seed\":1,\"kind\":\"a\",\"tokens\":1,\"prompt\":\"p\",\"answer\":\"\"}",
     "'answer' is not a text"},
    {"a million brackets", std::string(1'000'000, '['), "book:1: no JSON"},
};

TEST_CASE("what is no log book is refused by its line") {
  for (const Refused& c : kRefused) {
    CAPTURE(c.name);
    try {
      parse_logbook(c.text, "book");
      FAIL_CHECK("accepted");
    } catch (const Failure& failure) {
      CAPTURE(failure.text);
      CHECK(failure.code == kExitRefused);
      CHECK(failure.text.find(c.says) != std::string::npos);
    }
  }
}

struct Interval {
  u64 n_true, n;
  f64 low, high;
};

// (p + z2/2n -+ z sqrt(p (1 - p) / n + z2 / 4n2)) / (1 + z2/n) with z = 1.959964, by hand.
const Interval kIntervals[] = {
    {0, 10, 0.0, 0.277533},
    {10, 10, 0.722467, 1.0},
    {5, 10, 0.236593, 0.763407},
    {97, 100, 0.915481, 0.989745},
};

TEST_CASE("Wilson's interval") {
  for (const Interval& c : kIntervals) {
    CAPTURE(c.n_true);
    const Rate rate{.n = c.n, .n_true = c.n_true};
    CHECK(rate.low() == doctest::Approx(c.low).epsilon(1e-5));
    CHECK(rate.high() == doctest::Approx(c.high).epsilon(1e-5));
  }
  CHECK(std::isnan(Rate{}.low()));
}

TEST_CASE("length classes are powers of two") {
  CHECK(logbook_length(0) == 128);
  CHECK(logbook_length(128) == 128);
  CHECK(logbook_length(129) == 256);
  CHECK(logbook_length(1024) == 1024);
  CHECK(logbook_length(~u64{0}) == u64{1} << 32);
}

}  // namespace
}  // namespace tarn::tools::logbook_test
