#include "runtime/chat/chat_template.h"

namespace tarn::chat {

u64 ChatTemplate::memory_bytes(u64 source_bytes) { return 16 * source_bytes + 4096; }

Result<ChatTemplate> ChatTemplate::parse(std::string_view, std::span<std::byte>) {
  return fail({.status = Status::unsupported, .hint = "chat templates cannot be parsed yet"});
}

Result<Rendered> ChatTemplate::render(const RenderArgs&, std::span<std::byte>) const {
  return fail({.status = Status::unsupported, .hint = "chat templates cannot be rendered yet"});
}

}  // namespace tarn::chat
