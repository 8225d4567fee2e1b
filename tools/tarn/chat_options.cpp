#include "tools/tarn/chat_options.h"

#include "runtime/chat/built_in_templates.h"
#include "runtime/chat/chat_template.h"
#include "tools/support/engine_options.h"
#include "tools/support/input.h"

namespace tarn::tools {

void ChatOptions::add_to(const Command& command) {
  command.add_option("--system", system, "the system message");
  command
      .add_option("--chat-template", chat_template,
                  "a file with a Jinja template, or a built-in one's name (tarn template --help; "
                  "default: the model's own)")
      .check(is_not_empty);
}

std::string ChatOptions::template_text(bool is_built_in_model) const {
  if (chat_template.empty()) return is_built_in_model ? "plain" : "";
  if (chat::built_in_template(chat_template)) return chat_template;
  return read_text(chat_template, chat::kSourceBytesMax);
}

}  // namespace tarn::tools
