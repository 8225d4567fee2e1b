// The seeds of chat_template: the built-in templates, and each construct of the language on its
// own.
#include <fstream>
#include <string>
#include <vector>

#include "runtime/chat/built_in_templates.h"

namespace {

constexpr const char* kConstructs[] = {
    "{{ messages[0].content[1:-1] ~ messages[-1]['content'][0].text }}",
    "{%- for m in messages if m.role != 'system' -%}{{ loop.index }}{% else %}x{%- endfor +%}",
    "{% set ns = namespace(a=1, b=[]) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}",
    "{% macro f(a, b='c') %}{{ a }}{{ b }}{% endmacro %}{{ f('x') }}{{ f(b=1, a=2) }}",
    "{{ tools | tojson(indent=2) }}{{ tools | tojson(separators=(',', ':'), sort_keys=true) }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
    "{{ messages[0] | dictsort }}{{ messages[0].items() | list }}{{ [3, 1, 2] | sort | join(',') "
    "}}",
    "{{ messages[1].content.split(',', 1) }}{{ ' a '.strip() }}{{ 'abc'.replace('b', 'd') }}",
    "{{ 'a' if messages is defined and not (1 > 2 or x is string) else none }}",
    "{% raw %}{{ x }}{% endraw %}{# a comment -#}  {%- generation -%}x{% endgeneration %}",
    "{% for a, b in {'x': 1, 'y': 2}.items() %}{% if loop.last %}{% break %}{% endif %}{% endfor "
    "%}",
    "{% filter upper %}abc{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}",
    "{% set x %}text {{ 1 }}{% endset %}{{ x | trim | indent(2, first=true) | title }}",
    "{{ 7 // 2 }}{{ -7 % 3 }}{{ 2 ** 8 }}{{ 1.5 / 3 }}{{ '%s-%d' % ('a', 3) }}{{ '{}'.format(1) }}",
    "{{ range(10)[::-2] | list }}{{ ('a' 'b') in 'cab' }}{{ [1] + [2] == [1, 2] }}",
    "{{ raise_exception('no') }}{{ strftime_now('%d %b %Y') }}{{ dict(a=1) | length }}",
    "{{ messages[0].content | safe + '<' | escape }}{{ 'x' | default('y', true) | int(3) | abs }}",
    "{% if 1 %}\n  {% elif 2 %}\n{% else %}\n{% endif %}\n{{ loop.cycle(1, 2) }}{{ [1, 1] | unique "
    "}}",
    "{{ messages }}\xFF[{\"role\": \"user\", \"content\": \"\\u00e9\\ud83d\\ude00\"}]",
    "{{ messages[0] }}\xFF[{\"role\": [1e999, -0, {\"a\": {}}, 123456789012345678901]}]",
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  std::vector<std::string> texts(std::begin(kConstructs), std::end(kConstructs));
  for (const auto& known : tarn::chat::built_in_templates()) texts.emplace_back(known.source);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::ofstream(std::string(argv[1]) + "/template" + std::to_string(i), std::ios::binary)
        << texts[i];
  }
  return 0;
}
