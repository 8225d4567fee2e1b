// How a conversation becomes a text: what `tarn chat` and `tarn run --chat` take.
#pragma once

#include <optional>
#include <string>

#include "tools/support/command_line.h"

namespace tarn::tools {

struct ChatOptions {
  std::optional<std::string> system;
  std::string chat_template;  // empty: the model's own

  void add_to(const Command& command);
  // For tarn_options: reads the template's file. The built-in model has a template here. Throws
  // Failure.
  std::string template_text(bool is_built_in_model) const;
};

// The built-in model goes on with questions of its own; this ends its answer.
inline constexpr const char* kBuiltInStop = "\n";

}  // namespace tarn::tools
