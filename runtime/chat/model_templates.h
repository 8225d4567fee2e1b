// The chat templates of a model: found before the plan is made, parsed while the engine is opened.
//
//   source   the host's, by name or as a text; else the file's: tokenizer.chat_template, and with
//            tools tokenizer.chat_template.tool_use
//   memory   one region (ChatMemory): the parsed templates, and what a call renders in
//   thread   render() shares one memory: a caller at a time
//   errors   a template that cannot be read or parsed refuses its conversations (unsupported), not
//            the model
#pragma once

#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "runtime/arena/carver.h"
#include "runtime/chat/chat_template.h"
#include "runtime/chat/variables.h"
#include "runtime/model/gguf.h"
#include "runtime/text/tokenizer.h"

namespace tarn::chat {

struct TemplateSources {
  Result<std::string_view> text{std::string_view()};        // empty: there is none
  Result<std::string_view> with_tools{std::string_view()};  // empty: `text` serves
  // Returns the bytes of the parsed templates; 0 if there are none.
  u64 memory_bytes() const;
};

// `wanted`: the name of a built-in template, or a text, which has a '{'; empty: the file's own. The
// texts lie in `memory`. Fails for an unknown name, and where the file cannot be read.
Result<TemplateSources> find_templates(std::string_view wanted, const model::GgufFile& file,
                                       Bump& memory);

struct ChatMemory {
  std::span<std::byte> templates, render;
  static ChatMemory carve(Carver& carver, u64 templates_bytes, u64 render_bytes) {
    return {.templates = carver.take<std::byte>("templates", templates_bytes),
            .render = carver.take<std::byte>("render", render_bytes)};
  }
};

class ModelTemplates {
 public:
  // Borrows all but the sources.
  void parse(const TemplateSources& sources, const ChatMemory& memory,
             const text::Tokenizer& tokenizer);
  // Why all conversations are refused, or those with tools.
  Result<void> check(bool has_tools) const;
  // With the vocabulary's variables. The text stays in the memory until the next call.
  Result<Rendered> render(RenderArgs args) const;

 private:
  Result<ChatTemplate> template_{ChatTemplate()};
  Result<ChatTemplate> with_tools_{ChatTemplate()};
  std::span<std::byte> memory_{};
  VocabVariables variables_{};
  u64 n_variables_ = 0;
};

}  // namespace tarn::chat
