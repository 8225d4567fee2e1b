#include "tools/support/answer_fields.h"

#include <sys/random.h>

#include <algorithm>
#include <limits>

namespace tarn::tools {
namespace {

u64 random_seed() {
  u64 seed = 0;
  static_cast<void>(getrandom(&seed, sizeof seed, GRND_NONBLOCK));
  return seed;
}

// A value that f32 cannot tell from 0 stays above it: 0 has a meaning of its own.
f32 nearest(f64 value) {
  const auto near = static_cast<f32>(value);
  return near == 0 && value > 0 ? std::numeric_limits<f32>::min() : near;
}

}  // namespace

Option add_option(const Command& command, const AnswerField& field, AnswerFields& fields) {
  if (field.integer != nullptr) {
    return command.add_option(field.option, fields.*field.integer, field.about)
        .between(field.integer_least, field.integer_most);
  }
  return command.add_option(field.option, fields.*field.number, field.about)
      .between(field.number_least, field.number_most);
}

tarn_generate_options options_of(const AnswerFields& fields) {
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = static_cast<u32>(std::max<i64>(fields.max_tokens, 0));
  options.temperature = nearest(fields.temperature);
  options.top_k = static_cast<u32>(std::max<i64>(fields.top_k, 0));
  options.top_p = std::max(nearest(fields.top_p), std::numeric_limits<f32>::min());
  options.min_p = nearest(fields.min_p);
  options.repetition_penalty = fields.repeat_last_n == 0 ? 0 : nearest(fields.repeat_penalty);
  options.penalty_last_tokens =
      static_cast<u32>(fields.repeat_last_n < 0 ? kPenaltyTokensMax : fields.repeat_last_n);
  options.frequency_penalty = nearest(fields.frequency_penalty);
  options.presence_penalty = nearest(fields.presence_penalty);
  options.seed = fields.seed == -1 ? random_seed() : static_cast<u64>(fields.seed);
  return options;
}

}  // namespace tarn::tools
