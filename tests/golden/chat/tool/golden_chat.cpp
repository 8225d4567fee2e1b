// golden_chat: renders the conversations of standard input, one a line. A line is as in
// conversations.txt, with the template behind it. Writes `STATUS BYTES` and a line break for each,
// then the text or the error's sentence. A backslash stands before \, n, t and r of a template.
// With a GGUF file as its argument: ids in the text's place, and the file's special tokens as
// variables. For compare_peer.py and compare_ids.py, which a process for each text would slow.
#include <array>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>

#include "runtime/chat/chat_template.h"
#include "runtime/chat/variables.h"
#include "tools/support/exit_code.h"
#include "tools/support/model_file.h"

namespace tarn {
namespace {

constexpr u64 kMemoryBytes = 64 * kMiB;

void write(Status status, std::string_view text) {
  std::printf("%s %zu\n", status_name(status), text.size());
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void write(const Error& error) {
  char text[512];
  format_error(error, text, sizeof text);
  write(error.status, text);
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (u64 at = 0; at < text.size(); ++at) {
    const bool is_escape = text[at] == '\\' && at + 1 < text.size();
    const char c = text[is_escape ? ++at : at];
    out += !is_escape ? c : c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }
  return out;
}

// name, messages, tools, arguments, prompt or no_prompt, template
void render(std::string_view line, std::span<std::byte> memory, tools::ModelFile* vocabulary) {
  std::array<std::string_view, 6> fields;
  for (auto& field : fields) {
    field = line.substr(0, line.find('\t'));
    line.remove_prefix(std::min(field.size() + 1, line.size()));
  }
  const std::string source = unescaped(fields[5]);
  const u64 n_bytes = chat::ChatTemplate::memory_bytes(source.size());
  const auto program = std::make_unique_for_overwrite<std::byte[]>(n_bytes);
  const auto parsed = chat::ChatTemplate::parse(source, {program.get(), n_bytes});
  if (!parsed) return write(parsed.error());
  const std::time_t now = std::time(nullptr);
  chat::RenderArgs args{.messages = fields[1],
                        .tools = fields[2],
                        .arguments = fields[3],
                        .add_generation_prompt = fields[4] == "prompt"};
  localtime_r(&now, &args.now);
  constexpr chat::Variable kTokens[] = {{"bos_token", "<s>"},
                                        {"eos_token", "</s>"},
                                        {"unk_token", "<unk>"},
                                        {"pad_token", "<pad>"}};  // peer.py's
  chat::VocabVariables variables;
  args.variables = vocabulary != nullptr ? chat::variables_of(vocabulary->tokenizer(), variables)
                                         : std::span<const chat::Variable>(kTokens);
  const auto rendered = parsed->render(args, memory);
  if (!rendered) return write(rendered.error());
  if (rendered->origins.size() != rendered->text.size()) {
    return write(Status::internal, "an origin for each byte is missing");
  }
  if (vocabulary == nullptr) return write(Status::ok, rendered->text);
  const text::EncodeOptions options{
      .add_bos = true, .may_have_bos = true, .parse_special = true, .origins = rendered->origins};
  std::string ids;
  for (const auto id : vocabulary->encode(std::string(rendered->text), options)) {
    ids += std::to_string(id) + " ";
  }
  write(Status::ok, ids);
}

}  // namespace
}  // namespace tarn

int main(int n_arguments, char** arguments) try {
  std::unique_ptr<tarn::tools::ModelFile> vocabulary;
  if (n_arguments > 1) vocabulary = std::make_unique<tarn::tools::ModelFile>(arguments[1]);
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(tarn::kMemoryBytes);
  for (std::string line; std::getline(std::cin, line);) {
    tarn::render(line, {memory.get(), tarn::kMemoryBytes}, vocabulary.get());
  }
} catch (const tarn::tools::Failure& failure) {
  std::fprintf(stderr, "%s\n", failure.text.c_str());
  return 1;
}
