// golden_chat TEMPLATE: renders the conversations of standard input, one a line as in
// conversations.txt, and writes for each `STATUS BYTES` and a line break, then the text or the
// error's sentence. For compare_peer.py, to which a process for each text would take minutes.
#include <array>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>

#include "runtime/chat/chat_template.h"
#include "tools/support/input.h"

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

// name, messages, tools, arguments, prompt or no_prompt
chat::RenderArgs args_of(std::string_view line) {
  std::array<std::string_view, 5> fields;
  for (auto& field : fields) {
    field = line.substr(0, line.find('\t'));
    line.remove_prefix(std::min(field.size() + 1, line.size()));
  }
  const std::time_t now = std::time(nullptr);
  chat::RenderArgs args{.messages = fields[1],
                        .tools = fields[2],
                        .arguments = fields[3],
                        .add_generation_prompt = fields[4] == "prompt"};
  localtime_r(&now, &args.now);
  return args;
}

int run(const char* path) {
  const std::string source = tools::read_file(path);
  const u64 n_bytes = chat::ChatTemplate::memory_bytes(source.size());
  const auto program = std::make_unique_for_overwrite<std::byte[]>(n_bytes);
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(kMemoryBytes);
  const auto parsed = chat::ChatTemplate::parse(source, {program.get(), n_bytes});
  for (std::string line; std::getline(std::cin, line);) {
    if (!parsed) {
      write(parsed.error());
      continue;
    }
    const auto rendered = parsed->render(args_of(line), {memory.get(), kMemoryBytes});
    if (!rendered) {
      write(rendered.error());
    } else if (rendered->origins.size() != rendered->text.size()) {
      write(Status::internal, "an origin for each byte is missing");
    } else {
      write(Status::ok, rendered->text);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tarn

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  return tarn::run(argv[1]);
}
