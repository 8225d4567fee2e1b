#include "runtime/chat/model_templates.h"

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/chat/built_in_templates.h"

namespace tarn::chat {
namespace {

// No error of a template is one of the model.
Unexpected unusable(Error why) {
  why.status = Status::unsupported;
  return fail(why);
}

Result<std::string_view> named_template(std::string_view wanted) {
  if (wanted.find('{') == std::string_view::npos) {
    if (const auto source = built_in_template(wanted)) return *source;
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "chat_template",
                 .hint = "there is no built-in chat template of this name; `tarn template --help` "
                         "lists them, and the text of a template has a brace",
                 .detail = Detail(wanted)});
  }
  return wanted;
}

// A value that is no template is kept as an error. Only a file that cannot be read is returned.
Result<void> read_template(const model::GgufFile& file, const char* name, Bump& memory,
                           Result<std::string_view>* out) {
  const auto text = file.get_string(name, memory, kSourceBytesMax);
  if (text) {
    *out = text->value_or("");
    return {};
  }
  Error why = text.error();
  if (why.status == Status::io_failed) return fail(why);
  why.hint =
      "the chat template in the model's file is no text, or too long: pass another with "
      "--chat-template (chat_template)";
  *out = unusable(why);
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
  if (source->empty()) return ChatTemplate();
  const auto made = ChatTemplate::parse(*source, *region);
  return made ? made : unusable(made.error());
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

void ModelTemplates::parse(const TemplateSources& sources, const ChatMemory& memory,
                           const text::Tokenizer& tokenizer) {
  Bump region(memory.templates);
  template_ = parsed(sources.text, region);
  with_tools_ = parsed(sources.with_tools, region);
  memory_ = memory.render;
  n_variables_ = variables_of(tokenizer, variables_).size();
}

Result<void> ModelTemplates::check(bool has_tools) const {
  const Result<ChatTemplate>& asked = has_tools ? with_tools_ : template_;
  return asked ? Result<void>{} : fail(asked.error());
}

Result<Rendered> ModelTemplates::render(RenderArgs args) const {
  const bool by_own = !args.tools.empty() && (!with_tools_ || with_tools_->is_there());
  const Result<ChatTemplate>& chosen = by_own ? with_tools_ : template_;
  if (!chosen) return fail(chosen.error());
  if (!chosen->is_there()) {
    return fail({.status = Status::unsupported,
                 .reason = Reason::no_template,
                 .key = "chat_template",
                 .hint = "the model's file has no chat template: give one with --chat-template "
                         "(chat_template of the options), such as chatml"});
  }
  args.variables = std::span(variables_).first(n_variables_);
  TARN_TRY(const Rendered rendered, chosen->render(args, memory_));
  if (rendered.text.empty()) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::template_failed,
                 .hint = "the chat template writes nothing for these messages: check their roles, "
                         "or pass another with --chat-template (chat_template)"});
  }
  return rendered;
}

}  // namespace tarn::chat
