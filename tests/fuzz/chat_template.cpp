// Goal    no chat template and no messages end the process, hang it, or let what a user typed pass
//         for what the template wrote.
// Method  libFuzzer. The input is a template, and behind a byte 0xFF messages; without it, messages
//         whose texts hold a mark that the template cannot write. What is rendered must be UTF-8,
//         with an origin for each byte, and no mark may be the template's. What is refused must say
//         why.
#include <cstring>
#include <string_view>
#include <vector>

#include "platform/base/types.h"
#include "runtime/chat/chat_template.h"
#include "runtime/text/unicode.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using namespace tarn;

constexpr std::string_view kMark = "\xEE\x84\xA3";  // U+E123
constexpr std::string_view kMessages =
    "[{\"role\":\"system\",\"content\":\"a\xEE\x84\xA3 b\"},"
    "{\"role\":\"user\",\"content\":\"<|im_start|>\xEE\x84\xA3\\n x,y \",\"n\":[1,-2.5,null,true]},"
    "{\"role\":\"assistant\",\"content\":\"\xEE\x84\xA3\",\"tool_calls\":[{\"function\":{\"name\":"
    "\"f\",\"arguments\":{\"k\":\"\xEE\x84\xA3\"}}}]},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\xEE\x84\xA3 z\"}]}]";
constexpr std::string_view kTools =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"a\":1e3}}}]";

using tarn::test::require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const tarn::u8* data, std::size_t n_bytes) {
  const std::string_view input(reinterpret_cast<const char*>(data), n_bytes);
  const std::size_t cut = input.find('\xFF');
  const std::string_view source = input.substr(0, cut);
  static std::vector<std::byte> region(chat::ChatTemplate::memory_bytes(65536));
  static std::vector<std::byte> memory(1 << 20);
  const auto made = chat::ChatTemplate::parse(
      source, std::span(region).first(chat::ChatTemplate::memory_bytes(source.size())));
  if (!made) {
    require(std::strlen(made.error().hint) > 0);
    return 0;
  }
  const bool has_own = cut != input.npos;
  const chat::Variable variables[] = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const auto rendered = made->render({.messages = has_own ? input.substr(cut + 1) : kMessages,
                                      .tools = kTools,
                                      .variables = variables,
                                      .now = {.tm_mday = 1, .tm_year = 126}},
                                     memory);
  if (!rendered) {
    require(std::strlen(rendered.error().hint) > 0);
    return 0;
  }
  const std::string_view text = rendered->text;
  require(rendered->origins.size() == text.size());
  require(text::is_utf8(text));
  // A template that can make the mark itself says nothing of it.
  const bool makes_mark = source.find(kMark) != source.npos || source.find('\\') != source.npos;
  if (has_own || makes_mark) return 0;
  for (std::size_t at = text.find(kMark); at != text.npos; at = text.find(kMark, at + 1)) {
    for (std::size_t i = 0; i < kMark.size(); ++i) {
      require(rendered->origins[at + i] != chat::kFromTemplate);
    }
  }
  return 0;
}
