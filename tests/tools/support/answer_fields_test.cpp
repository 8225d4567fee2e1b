// Goal    A number of a field means the same wherever it is given: 0 and -1 arrive in C as what the
//         table says, none becomes C's "off" by rounding, and the command line refuses what is no
//         number in the range.
// Method  tables of values against tarn_generate_options, and of options against a parser.
#include "tools/support/answer_fields.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

namespace tarn::tools::answer_fields_test {
namespace {

constexpr f32 kTiny = std::numeric_limits<f32>::min();

TEST_CASE("0, -1 and values below f32's least keep their meaning in C") {
  AnswerFields fields;
  fields.top_p = 0;
  CHECK(options_of(fields).top_p == kTiny);
  for (const f64 tiny : {1e-46, 1e-320, std::numeric_limits<f64>::denorm_min()}) {
    fields.top_p = fields.min_p = fields.temperature = tiny;
    fields.presence_penalty = fields.frequency_penalty = tiny;
    const tarn_generate_options options = options_of(fields);
    for (const f32 value : {options.top_p, options.min_p, options.temperature,
                            options.presence_penalty, options.frequency_penalty}) {
      CHECK(value > 0);
    }
  }
  fields = {};
  fields.temperature = fields.min_p = 0;
  fields.top_p = 1;
  CHECK(options_of(fields).temperature == 0);
  CHECK(options_of(fields).min_p == 0);
  CHECK(options_of(fields).top_p == 1);
  for (const i64 k : {-1, 0}) {
    fields.top_k = k;
    CHECK(options_of(fields).top_k == 0);
  }
  for (const i64 n : {-1, 0}) {
    fields.max_tokens = n;
    CHECK(options_of(fields).max_tokens == 0);
  }
  fields.repeat_penalty = 1.5;
  fields.presence_penalty = 1;
  fields.repeat_last_n = -1;
  CHECK(options_of(fields).penalty_last_tokens == 4096);
  CHECK(options_of(fields).repetition_penalty == 1.5f);
  fields.repeat_last_n = 0;  // of the repeat penalty alone
  CHECK(options_of(fields).repetition_penalty == 0);
  CHECK(options_of(fields).presence_penalty == 1);
}

TEST_CASE("every seed but -1 is itself") {
  AnswerFields fields;
  for (const i64 seed : {i64{0}, i64{-2}, (i64{1} << 53) + 1, INT64_MAX, INT64_MIN}) {
    fields.seed = seed;
    CHECK(options_of(fields).seed == static_cast<u64>(seed));
  }
  fields.seed = -1;
  CHECK(options_of(fields).seed != options_of(fields).seed);
}

TEST_CASE("defaults are within their ranges, and each row has one value") {
  for (const AnswerField& field : kAnswerFields) {
    CAPTURE(field.name);
    CHECK((field.integer != nullptr) != (field.number != nullptr));
    for (const AnswerFields& fields : {AnswerFields{}, kCommandLineFields}) {
      if (field.integer != nullptr) {
        CHECK(fields.*field.integer >= field.integer_least);
        CHECK(fields.*field.integer <= field.integer_most);
      } else {
        CHECK(fields.*field.number >= field.number_least);
        CHECK(fields.*field.number <= field.number_most);
      }
    }
    CHECK(&answer_field(field.name) == &field);
  }
}

// Whether the option of this field takes the text; the value.
bool takes(const AnswerField& field, const std::string& text, AnswerFields& fields) {
  CommandLine line("", "test");
  add_option(line, field, fields);
  const std::string names = field.option;
  const std::string name = names.substr(names.find("--"));
  const char* const argv[] = {"test", name.c_str(), text.c_str()};
  return !line.parse(3, argv).has_value();
}

TEST_CASE("the command line takes what the row says, and no more") {
  for (const AnswerField& field : kAnswerFields) {
    CAPTURE(field.name);
    AnswerFields fields;
    for (const char* wrong : {"", "x", "nan", "-nan", "inf", "-inf", "infinity", "1e999", "-1e999",
                              "1x", "18446744073709551616", "-9223372036854775809"}) {
      CAPTURE(wrong);
      CHECK_FALSE(takes(field, wrong, fields));
    }
    if (field.integer != nullptr) {
      const i64 least = field.integer_least, most = field.integer_most;
      CHECK(takes(field, std::to_string(least), fields));
      CHECK(fields.*field.integer == least);
      CHECK(takes(field, std::to_string(most), fields));
      CHECK(fields.*field.integer == most);
      if (least > INT64_MIN) CHECK_FALSE(takes(field, std::to_string(least - 1), fields));
      if (most < INT64_MAX) CHECK_FALSE(takes(field, std::to_string(most + 1), fields));
      CHECK_FALSE(takes(field, "0.5", fields));
    } else {
      CHECK(takes(field, std::to_string(field.number_least), fields));
      CHECK(fields.*field.number == field.number_least);
      CHECK(takes(field, std::to_string(field.number_most), fields));
      CHECK_FALSE(takes(field, std::to_string(field.number_most + 1), fields));
      CHECK_FALSE(takes(field, std::to_string(field.number_least - 0.001), fields));
    }
  }
}

TEST_CASE("no option of any type takes a number that it cannot hold") {
  CommandLine line("", "test");
  u32 small = 0;
  u64 large = 0;
  i64 whole = 0;
  f32 real = 0;
  std::optional<u64> maybe;
  line.add_option("--small", small, "");
  line.add_option("--large", large, "");
  line.add_option("--whole", whole, "");
  line.add_option("--real", real, "");
  line.add_option("--maybe", maybe, "");
  struct Case {
    const char *option, *value;
    bool is_right;
  };
  constexpr Case kCases[] = {{"--small", "4294967295", true},
                             {"--small", "4294967296", false},
                             {"--small", "-1", false},
                             {"--large", "18446744073709551615", true},
                             {"--large", "18446744073709551616", false},
                             {"--maybe", "18446744073709551616", false},
                             {"--whole", "9223372036854775808", false},
                             {"--real", "3e38", true},
                             {"--real", "4e38", false},
                             {"--real", "nan", false}};
  for (const Case& each : kCases) {
    CAPTURE(each.option);
    CAPTURE(each.value);
    const char* const argv[] = {"test", each.option, each.value};
    CHECK(line.parse(3, argv).has_value() != each.is_right);
  }
}

}  // namespace
}  // namespace tarn::tools::answer_fields_test
