#include "tools/tarn/message_file.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "platform/io/stream_file.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"

namespace tarn::tools {

std::string wrong_chat_name(const std::string& name) {
  constexpr size_t kNameBytesMax = 100;
  const auto is_allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  };
  const bool is_good = !name.empty() && name.size() <= kNameBytesMax && name[0] != '.' &&
                       std::all_of(name.begin(), name.end(), is_allowed);
  return is_good ? "" : "1 to 100 letters, digits, . _ - and no dot in front: choose such a name";
}

std::string message_path(const std::string& folder, const std::string& name) {
  return folder + "/" + name + ".chat.json";
}

std::optional<std::vector<ChatMessage>> read_messages(const std::string& path) {
  std::error_code unknown;  // reading reports it
  if (!std::filesystem::exists(path, unknown)) return std::nullopt;
  return messages_from_json(read_file(path), path);
}

void write_messages(const std::string& path, const std::vector<ChatMessage>& messages) {
  const std::string json = messages_to_json(messages);
  FileWriter file;
  value_of(file.create(path.c_str()));
  value_of(file.write(std::as_bytes(std::span(json))));
  value_of(file.finish());
}

}  // namespace tarn::tools
