#include "runtime/chat/model_templates.h"

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/chat/built_in_templates.h"

namespace tarn::chat {
namespace {

Unexpected too_long(Status status, u64 n_bytes) {
  return fail({.status = status,
               .hint = "the chat template is longer than any in use: give another one with "
                       "--chat-template (chat_template of the options)",
               .figures = {{{"bytes", n_bytes}, {"limit", kSourceBytesMax}}}});
}

Result<std::string_view> named_template(std::string_view wanted) {
  if (wanted.find('{') == std::string_view::npos) {
    if (const auto source = built_in_template(wanted)) return *source;
    return fail({.status = Status::invalid_config,
                 .hint = "there is no built-in chat template of this name; `tarn template --help` "
                         "lists them, and the text of a template has a brace",
                 .detail = Detail(wanted)});
  }
  if (wanted.size() > kSourceBytesMax) return too_long(Status::invalid_config, wanted.size());
  return wanted;
}

// A value that is no template is kept as an error. Only a file that cannot be read is returned.
Result<void> read_template(const model::GgufFile& file, const char* name, Bump& memory,
                           Result<std::string_view>* out) {
  const model::GgufKey* key = file.find_key(name);
  if (key == nullptr) return {};
  if (key->type == model::GgufType::string && key->bytes > kSourceBytesMax) {
    *out = too_long(Status::unsupported, key->bytes);
    return {};
  }
  const auto text = file.get_string(name, memory, kSourceBytesMax);
  if (!text && text.error().status == Status::io_failed) return fail(text.error());
  if (text) {
    *out = **text;
  } else {
    *out = fail(text.error());
  }
  return {};
}

u64 parsed_bytes(const Result<std::string_view>& source) {
  if (!source || source->empty()) return 0;
  return align_up(ChatTemplate::memory_bytes(source->size()), Carver::kAlignment);
}

Result<ChatTemplate> parsed(const Result<std::string_view>& source, Bump& memory) {
  if (!source) return fail(source.error());
  const auto region = memory.alloc_bytes(parsed_bytes(source), Carver::kAlignment);
  TARN_ASSERT(region.has_value());  // memory_bytes() counted it
  return source->empty() ? ChatTemplate() : ChatTemplate::parse(*source, *region);
}

}  // namespace

u64 TemplateSources::memory_bytes() const { return parsed_bytes(text) + parsed_bytes(with_tools); }

Result<TemplateSources> find_templates(std::string_view wanted, const model::GgufFile& file,
                                       Bump& memory) {
  TemplateSources sources;
  if (!wanted.empty()) {
    TARN_TRY(sources.text, named_template(wanted));
    return sources;
  }
  TARN_CHECK(read_template(file, "tokenizer.chat_template", memory, &sources.text));
  TARN_CHECK(read_template(file, "tokenizer.chat_template.tool_use", memory, &sources.with_tools));
  return sources;
}

Result<void> ModelTemplates::parse(const TemplateSources& sources, const ChatMemory& memory,
                                   const text::Tokenizer& tokenizer) {
  Bump region(memory.templates);
  template_ = parsed(sources.text, region);
  with_tools_ = parsed(sources.with_tools, region);
  memory_ = memory.render;
  n_variables_ = variables_of(tokenizer, variables_).size();
  if (!template_) return fail(template_.error());
  if (!with_tools_) return fail(with_tools_.error());
  return {};
}

Result<Rendered> ModelTemplates::render(RenderArgs args) const {
  const bool by_own = !args.tools.empty() && (!with_tools_ || with_tools_->is_there());
  const Result<ChatTemplate>& chosen = by_own ? with_tools_ : template_;
  if (!chosen) return fail(chosen.error());
  if (!chosen->is_there()) {
    return fail({.status = Status::unsupported,
                 .hint = "the model's file has no chat template: give one with --chat-template "
                         "(chat_template of the options), such as chatml"});
  }
  args.variables = std::span(variables_).first(n_variables_);
  return chosen->render(args, memory_);
}

}  // namespace tarn::chat
