#include "tools/tarn/answer_options.h"

namespace tarn::tools {

void AnswerOptions::add_to(const Command& command) {
  tarn_generate_options& o = options_;
  command.add_option("--temp", o.temperature, "temperature; 0: greedy").capture_default_str();
  command.add_option("--top-k", o.top_k, "sample from the k best tokens; 0: off")
      .capture_default_str();
  command.add_option("--top-p", o.top_p,
                     "sample from the best tokens with this total probability; 0: "
                     "off");
  command.add_option("--min-p", o.min_p,
                     "drop tokens below this share of the best one's probability");
  command.add_option("--repeat-penalty", o.repetition_penalty,
                     "divides the logits of earlier tokens, 1.1 for example; 0: off");
  command.add_option("--frequency-penalty", o.frequency_penalty,
                     "subtracted from a token's logit for each occurrence");
  command.add_option("--presence-penalty", o.presence_penalty,
                     "subtracted once from the logits of earlier tokens");
  command.add_option("--repeat-last-n", o.penalty_last_tokens,
                     "window of last tokens for the penalties; 0: 64; at most 4096");
  command
      .add_option("-s,--seed", o.seed, "seed of the sampler; the same seed gives the same tokens")
      .capture_default_str();
  command.add_option("--stop", stops_, "text that ends the answer; may be repeated");
  command.add_flag("--ignore-eos", ignore_end_, "continue after the model's end token");
}

void AnswerOptions::stop_by_default(const std::string& text) {
  if (stops_.empty()) stops_.push_back(text);
}

tarn_generate_options AnswerOptions::for_tokens(u32 max_tokens) {
  stop_texts_.clear();
  for (const std::string& stop : stops_) stop_texts_.push_back(stop.c_str());
  tarn_generate_options options = options_;
  options.max_tokens = max_tokens;
  options.stops = stop_texts_.data();
  options.n_stops = static_cast<uint32_t>(stop_texts_.size());
  options.ignore_end = ignore_end_ ? 1 : 0;
  return options;
}

}  // namespace tarn::tools
