// The table of the fields that say how an answer is drawn and how long it may be: one row for each,
// with its range and the meaning of 0 and -1. tarnd reads JSON by it, `tarn run`, `chat` and `ask`
// their options; --help, openapi.yaml and the tests are compared with it.
//
// In C a zeroed struct means "off" (tarn.h). options_of() alone translates, so that a number means
// the same over HTTP and on the command line.
#pragma once

#include <span>
#include <string>

#include "platform/base/types.h"
#include "runtime/api/tarn.h"
#include "tools/support/command_line.h"

namespace tarn::tools {

// With tarnd's defaults.
struct AnswerFields {
  i64 max_tokens = -1;
  f64 temperature = 0.8, top_p = 0.95, min_p = 0.05;
  i64 top_k = 40;
  f64 repeat_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  i64 repeat_last_n = 64, seed = -1;
};
// The command line is greedy, so that a run can be repeated.
inline constexpr AnswerFields kCommandLineFields{
    .temperature = 0, .top_p = 1, .min_p = 0, .top_k = 0, .seed = 0};

// An integer or a number: one of the two members is set, and its bounds.
struct AnswerField {
  const char* name;    // in JSON
  const char* option;  // on the command line
  const char* about;
  i64 AnswerFields::*integer = nullptr;
  i64 integer_least = 0, integer_most = 0;
  f64 AnswerFields::*number = nullptr;
  f64 number_least = 0, number_most = 0;
};

inline constexpr i64 kCountMax = 4294967295, kPenaltyTokensMax = 4096;

constexpr AnswerField integer_field(const char* name, const char* option,
                                    i64 AnswerFields::*integer, i64 least, i64 most,
                                    const char* about) {
  AnswerField field{name, option, about};
  field.integer = integer;
  field.integer_least = least;
  field.integer_most = most;
  return field;
}
constexpr AnswerField number_field(const char* name, const char* option, f64 AnswerFields::*number,
                                   f64 least, f64 most, const char* about) {
  AnswerField field{name, option, about};
  field.number = number;
  field.number_least = least;
  field.number_most = most;
  return field;
}

inline constexpr AnswerField kAnswerFields[] = {
    integer_field("max_tokens", "-n,--n-predict", &AnswerFields::max_tokens, -1, kCountMax,
                  "most tokens of the answer; 0: only read the prompt; -1: until the model ends or "
                  "the context is full"),
    number_field("temperature", "--temp", &AnswerFields::temperature, 0, 100,
                 "temperature; 0: always the best token"),
    integer_field("top_k", "--top-k", &AnswerFields::top_k, -1, kCountMax,
                  "sample from the k best tokens; 0 or -1: from all"),
    number_field("top_p", "--top-p", &AnswerFields::top_p, 0, 1,
                 "sample from the best tokens with this total probability; 0: the best token "
                 "alone; 1: all"),
    number_field("min_p", "--min-p", &AnswerFields::min_p, 0, 1,
                 "drop tokens below this share of the best one's probability; 0: none"),
    number_field("repeat_penalty", "--repeat-penalty", &AnswerFields::repeat_penalty, 0.01, 100,
                 "divides the logits of the last tokens, those of the prompt included, 1.1 for "
                 "example; 1: off"),
    integer_field("repeat_last_n", "--repeat-last-n", &AnswerFields::repeat_last_n, -1,
                  kPenaltyTokensMax,
                  "how many last tokens the repeat penalty counts; 0: none; -1: the most, 4096"),
    number_field("frequency_penalty", "--frequency-penalty", &AnswerFields::frequency_penalty, -2,
                 2, "subtracted from a token's logit for each time it was generated; 0: off"),
    number_field("presence_penalty", "--presence-penalty", &AnswerFields::presence_penalty, -2, 2,
                 "subtracted once from the logit of each token that was generated; 0: off"),
    integer_field("seed", "-s,--seed", &AnswerFields::seed, INT64_MIN, INT64_MAX,
                  "seed of the sampler: the same seed gives the same tokens; -1: a random one"),
};

// The row of this name; there must be one.
constexpr const AnswerField& answer_field(std::string_view name) {
  const AnswerField* field = kAnswerFields;
  while (field->name != name) ++field;
  return *field;
}

// Adds the field's option, which takes what the row says. `fields` outlives the parsing; its value
// now is the default.
Option add_option(const Command& command, const AnswerField& field, AnswerFields& fields);

// For the engine. Draws the seed if it is -1. A max_tokens of 0 or -1 is the caller's: both become
// 0, which has no limit.
tarn_generate_options options_of(const AnswerFields& fields);

}  // namespace tarn::tools
