#include "runtime/chat/built_in_templates.h"

namespace tarn::chat {
namespace {

// Formats without a place for the system have its text in the first user message. Contents are
// trimmed where the format's makers trim them.
constexpr BuiltInTemplate kTemplates[] = {
    {"chatml", R"({%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %})"},
    {"llama2", R"({%- set has_system = messages and messages[0].role == 'system' %}
{%- set turns = messages[1:] if has_system else messages %}
{%- if not turns or turns[0].role != 'user' %}
{{- raise_exception('the conversation must begin with a user message, or a system and a user') }}
{%- endif %}
{%- for message in turns %}
{%- if message.role == 'user' %}
{{- bos_token }}{{ '[INST] ' }}
{%- if loop.first and has_system %}
{{- '<<SYS>>\n' + messages[0].content.strip() + '\n<</SYS>>\n\n' }}
{%- endif %}
{{- message.content.strip() + ' [/INST]' }}
{%- elif message.role == 'assistant' %}
{{- ' ' + message.content.strip() + ' ' }}{{ eos_token }}
{%- else %}
{{- raise_exception('a message must be of user or assistant') }}
{%- endif %}
{%- endfor %})"},
    {"llama3", R"({{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
{{- message.content.strip() + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})"},
    {"mistral", R"({%- set has_system = messages and messages[0].role == 'system' %}
{%- set turns = messages[1:] if has_system else messages %}
{%- if not turns or turns[0].role != 'user' %}
{{- raise_exception('the conversation must begin with a user message, or a system and a user') }}
{%- endif %}
{{- bos_token }}
{%- for message in turns %}
{%- if message.role == 'user' %}
{{- '[INST] ' }}
{%- if loop.first and has_system %}
{{- messages[0].content.strip() + '\n\n' }}
{%- endif %}
{{- message.content.strip() + ' [/INST]' }}
{%- elif message.role == 'assistant' %}
{{- ' ' + message.content.strip() }}{{ eos_token }}
{%- else %}
{{- raise_exception('a message must be of user or assistant') }}
{%- endif %}
{%- endfor %})"},
    {"gemma", R"({%- set has_system = messages and messages[0].role == 'system' %}
{%- set turns = messages[1:] if has_system else messages %}
{%- if not turns or turns[0].role != 'user' %}
{{- raise_exception('the conversation must begin with a user message, or a system and a user') }}
{%- endif %}
{{- bos_token }}
{%- for message in turns %}
{%- if message.role == 'user' %}
{{- '<start_of_turn>user\n' }}
{%- if loop.first and has_system %}
{{- messages[0].content.strip() + '\n\n' }}
{%- endif %}
{{- message.content.strip() + '<end_of_turn>\n' }}
{%- elif message.role == 'assistant' %}
{{- '<start_of_turn>model\n' + message.content.strip() + '<end_of_turn>\n' }}
{%- else %}
{{- raise_exception('a message must be of user or assistant') }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\n' }}
{%- endif %})"},
    {"phi3", R"({%- for message in messages %}
{%- if message.role not in ['system', 'user', 'assistant'] %}
{{- raise_exception('a message must be of system, user or assistant') }}
{%- endif %}
{{- '<|' + message.role + '|>\n' + message.content.strip() + '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>\n' }}
{%- endif %})"},
    {"zephyr", R"({%- for message in messages %}
{%- if message.role not in ['system', 'user', 'assistant'] %}
{{- raise_exception('a message must be of system, user or assistant') }}
{%- endif %}
{{- '<|' + message.role + '|>\n' + message.content }}{{ eos_token }}{{ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>\n' }}
{%- endif %})"},
    {"vicuna", R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}
{{- message.content.strip() + '\n\n' }}
{%- elif message.role == 'user' %}
{{- 'USER: ' + message.content.strip() + ' ' }}
{%- elif message.role == 'assistant' %}
{{- 'ASSISTANT: ' + message.content.strip() }}{{ eos_token }}
{%- else %}
{{- raise_exception('a message must be of system, user or assistant') }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- 'ASSISTANT:' }}
{%- endif %})"},
    {"alpaca", R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}
{{- message.content.strip() + '\n\n' }}
{%- elif message.role == 'user' %}
{{- '### Instruction:\n' + message.content.strip() + '\n\n' }}
{%- elif message.role == 'assistant' %}
{{- '### Response:\n' + message.content.strip() }}{{ eos_token }}{{ '\n\n' }}
{%- else %}
{{- raise_exception('a message must be of system, user or assistant') }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '### Response:\n' }}
{%- endif %})"},
    // The built-in log book model was trained on this one: the system's text is the log.
    {"plain", R"({%- for message in messages %}
{%- if message.role == 'system' %}
{{- message.content.strip() + '\n' }}
{%- elif message.role == 'user' %}
{{- 'Q: ' + message.content.strip() }}
{%- elif message.role == 'assistant' %}
{{- ' A: ' + message.content.strip().rstrip('.') + '.\n' }}
{%- else %}
{{- raise_exception('a message must be of system, user or assistant') }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- ' A:' }}
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
