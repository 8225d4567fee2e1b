#include "tools/tarn/answer_options.h"

namespace tarn::tools {

void AnswerOptions::add_to(const Command& command) {
  for (const AnswerField& field : kAnswerFields) {
    if (field.integer == &AnswerFields::max_tokens) continue;
    add_option(command, field, fields_).capture_default_str();
  }
  command.add_option("--stop", stops_, "text that ends the answer; may be repeated");
  command.add_flag("--ignore-eos", ignore_end_, "continue after the model's end token");
}

void AnswerOptions::stop_by_default(const std::string& text) {
  if (stops_.empty()) stops_.push_back(text);
}

tarn_generate_options AnswerOptions::for_tokens(u32 max_tokens) {
  stop_texts_.clear();
  for (const std::string& stop : stops_) stop_texts_.push_back(stop.c_str());
  tarn_generate_options options = options_of(fields_);
  options.max_tokens = max_tokens;
  options.stops = stop_texts_.data();
  options.n_stops = static_cast<uint32_t>(stop_texts_.size());
  options.ignore_end = ignore_end_ ? 1 : 0;
  return options;
}

}  // namespace tarn::tools
