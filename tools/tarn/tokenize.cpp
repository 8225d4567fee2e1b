// tarn tokenize: prints ids and pieces of a text; works with vocabulary-only files.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>

#include "runtime/text/unicode.h"
#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/json.h"
#include "tools/support/model_file.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

struct TokenizeCommand {
  std::string model, text, file;
  text::EncodeOptions options;
  bool json = false;
};

// A piece in quotes on one line.
std::string in_quotes(std::string_view piece) {
  std::string out = "\"";
  while (!piece.empty()) {
    const size_t n_plain = std::min(piece.find_first_of("\n\"\\"), piece.size());
    out += escaped(piece.substr(0, n_plain));
    piece.remove_prefix(n_plain);
    if (piece.empty()) break;
    out += piece[0] == '\n' ? "\\n" : piece[0] == '"' ? "\\x22" : "\\x5c";
    piece.remove_prefix(1);
  }
  return out + "\"";
}

void run(TokenizeCommand& command) {
  const auto built_in = built_in_unless_named(command.model);
  ModelFile file(command.model);
  const std::string text = command.file.empty() ? command.text : read_file(command.file);
  if (text.empty()) warn_of_empty("text", command.file);
  const std::vector<text::TokenId> ids =
      text.empty() ? std::vector<text::TokenId>{} : file.encode(text, command.options);
  if (!command.json) {
    for (const text::TokenId id : ids)
      std::printf("%6u  %s\n", id, in_quotes(file.piece(id)).c_str());
    return;
  }
  Json json;
  json.begin_object();
  json.key("tokens").begin_array();
  for (const text::TokenId id : ids) {
    const std::string piece = file.piece(id);
    json.begin_object();
    json.key("id").number(id);
    json.key("piece");
    if (text::is_utf8(piece)) {
      json.text(piece);
    } else {
      json.bytes(piece);
    }
    json.end_object();
  }
  json.end_array();
  json.end_object();
  print_json(json);
}

}  // namespace

void add_tokenize(const Command& app) {
  auto command = std::make_shared<TokenizeCommand>();
  const Command sub = app.add_subcommand("tokenize", "ids and pieces of a text");
  sub.footer(
      "\nExamples:\n"
      "  tarn tokenize -m model.gguf -p \"Hello there\"\n"
      "  tarn tokenize -m model.gguf -f chat.txt --add-special --parse-special --json\n");
  sub.add_option("-m,--model", command->model,
                 "a GGUF file, with or without tensors, or a name that toolchain/model has "
                 "(default: the built-in model)")
      .check(is_not_empty);
  const Option text = sub.add_option("-p,--prompt", command->text, "the text");
  const Option file = sub.add_option("-f,--file", command->file,
                                     "the text, from a file, byte for byte; -: standard input");
  file.excludes(text);
  sub.add_flag("--add-special", command->options.add_special, "add BOS and EOS as the file says");
  sub.add_flag("--parse-special", command->options.parse_special,
               "read control tokens written in the text as such");
  sub.add_flag("--json", command->json, "one JSON object on standard output");
  sub.callback([command, text, file] {
    if (text.count() + file.count() == 0) {
      throw Failure{kExitUsage, "tokenize needs a text: -p TEXT or -f FILE"};
    }
    run(*command);
  });
}

}  // namespace tarn::tools
