// tarn template: a conversation as the text that a model reads; works with vocabulary-only files.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "platform/clock/clock.h"
#include "runtime/chat/built_in_templates.h"
#include "runtime/chat/chat_template.h"
#include "runtime/chat/variables.h"
#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/json.h"
#include "tools/support/model_file.h"
#include "tools/support/shown_answer.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

struct TemplateCommand {
  std::string model, source, messages, tools, arguments;
  bool no_generation_prompt = false;
  bool json = false;
};

// Memory that is not touched before it is used.
std::span<std::byte> take(std::unique_ptr<std::byte[]>& owner, u64 n_bytes) {
  owner = std::make_unique_for_overwrite<std::byte[]>(n_bytes);
  return {owner.get(), n_bytes};
}

std::string built_in_template_names() {
  std::string names;
  for (const auto& known : chat::built_in_templates()) {
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return names;
}

// --chat-template: a built-in one's name, or a file. Without it the model's own; the built-in
// model reads plain.
std::string source_of(const TemplateCommand& command, ModelFile* file, bool is_built_in) {
  if (const auto known = chat::built_in_template(command.source)) return std::string(*known);
  if (!command.source.empty()) return read_text(command.source, chat::kSourceBytesMax);
  if (is_built_in) return std::string(*chat::built_in_template("plain"));
  std::string source = file->chat_template();
  if (source.empty()) {
    throw Failure{kExitRefused,
                  "the model's file has no chat template: choose one with --chat-template, a file "
                  "or one of: " +
                      built_in_template_names()};
  }
  return source;
}

void run(TemplateCommand& command) {
  std::unique_ptr<BuiltInModel> built_in;
  std::unique_ptr<ModelFile> file;
  if (!command.model.empty() || command.source.empty()) {
    built_in = built_in_unless_named(command.model);
    file = std::make_unique<ModelFile>(command.model);
  }
  const std::string source = source_of(command, file.get(), built_in != nullptr);
  const std::string messages = read_file(command.messages);
  const std::string tools = command.tools.empty() ? "" : read_file(command.tools);

  std::unique_ptr<std::byte[]> program, memory;
  const auto parsed = value_of(chat::ChatTemplate::parse(
      source, take(program, chat::ChatTemplate::memory_bytes(source.size()))));
  const u64 n_bytes = messages.size() + tools.size() + command.arguments.size();
  chat::VocabVariables variables;
  chat::RenderArgs args{.messages = messages,
                        .tools = tools,
                        .arguments = command.arguments,
                        .add_generation_prompt = !command.no_generation_prompt};
  if (file != nullptr) args.variables = chat::variables_of(file->tokenizer(), variables);
  args.now = utc_time(SystemClock().unix_s());  // as the engine does
  const auto rendered = value_of(parsed.render(args, take(memory, 16 * n_bytes + 4 * kMiB)));

  if (!command.json) {
    print_answer(rendered.text);
    return end_line(rendered.text);
  }
  Json json;
  json.begin_object();
  json.key("text").text(rendered.text);
  if (file != nullptr) {
    json.key("ids").begin_array();
    const text::EncodeOptions options{
        .add_bos = true, .may_have_bos = true, .parse_special = true, .origins = rendered.origins};
    for (const auto id : file->encode(std::string(rendered.text), options)) json.number(id);
    json.end_array();
  }
  json.end_object();
  print_json(json);
}

}  // namespace

void add_template(const Command& app) {
  auto command = std::make_shared<TemplateCommand>();
  const Command sub = app.add_subcommand("template", "a conversation as the model reads it");
  sub.footer(
      "\nExamples:\n"
      "  tarn template -m model.gguf --messages chat.json\n"
      "  tarn template --chat-template chatml --messages - --no-generation-prompt\n"
      "  tarn template -m model.gguf --messages chat.json --args '{\"enable_thinking\":false}'\n");
  sub.add_option("-m,--model", command->model,
                 "a GGUF file, with or without tensors, or a name that toolchain/model has "
                 "(default: the built-in model)")
      .check(is_not_empty);
  sub.add_option("--chat-template", command->source,
                 "a file with a Jinja template, or one of: " + built_in_template_names() +
                     " (default: the model's own)")
      .check(is_not_empty);
  sub.add_option("--messages", command->messages,
                 "a file with a JSON array of messages; -: standard input")
      .required();
  sub.add_option("--tools", command->tools, "a file with a JSON array of tools");
  sub.add_option("--args", command->arguments, "a JSON object: more variables of the template");
  sub.add_flag("--no-generation-prompt", command->no_generation_prompt,
               "end behind the last message");
  sub.add_flag("--json", command->json, "one JSON object: the text, and with a model its ids");
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
