#include "runtime/chat/built_in_templates.h"

namespace tarn::chat {
namespace {

constexpr BuiltInTemplate kTemplates[] = {
    {"chatml", R"({%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %})"},
};

}  // namespace

std::span<const BuiltInTemplate> built_in_templates() { return kTemplates; }

std::optional<std::string_view> built_in_template(std::string_view name) {
  for (const BuiltInTemplate& known : kTemplates) {
    if (known.name == name) return known.source;
  }
  return std::nullopt;
}

}  // namespace tarn::chat
