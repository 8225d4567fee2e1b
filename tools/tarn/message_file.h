// The messages of a kept conversation (tarn chat --session), as a JSON file beside the store's. The
// messages are the conversation. The session in the store only spares computing it again, and may
// be older or gone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/chat/conversation.h"

namespace tarn::tools {

// Returns what is wrong with the name of a kept conversation, or "": it is a part of a file's name.
std::string wrong_chat_name(const std::string& name);
// DIR/NAME.chat.json
std::string message_path(const std::string& folder, const std::string& name);

// Without a value if there is no file. Throws Failure.
std::optional<std::vector<ChatMessage>> read_messages(const std::string& path);
// Replaces the file (mode 0600) when the new one is whole and on the disk. Throws Failure.
void write_messages(const std::string& path, const std::vector<ChatMessage>& messages);

}  // namespace tarn::tools
