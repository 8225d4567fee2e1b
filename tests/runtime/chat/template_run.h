// Renders a template in a test: the text, an origin for each byte, or the sentence that refuses.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/chat_template.h"

namespace tarn::chat::test {

struct Answer {
  std::string text{};
  std::vector<u8> origins{};
  std::string why{};  // not empty: refused
  Status status = Status::ok;
};

inline Answer refused(const Error& error) {
  std::array<char, 512> text{};
  format_error(error, text.data(), text.size());
  return {.why = text.data(), .status = error.status};
}

inline Answer render(std::string_view source, const RenderArgs& args, std::span<std::byte> memory) {
  std::vector<std::byte> region(ChatTemplate::memory_bytes(source.size()));
  const auto made = ChatTemplate::parse(source, region);
  if (!made) return refused(made.error());
  const auto rendered = made->render(args, memory);
  if (!rendered) return refused(rendered.error());
  return {.text = std::string(rendered->text),
          .origins = {rendered->origins.begin(), rendered->origins.end()}};
}

inline Answer render(std::string_view source, const RenderArgs& args, u64 memory_bytes) {
  std::vector<std::byte> memory(memory_bytes);
  return render(source, args, memory);
}

}  // namespace tarn::chat::test
