// Goal    a hostile template, or messages that are none, are refused with a sentence, within the
//         bounds; what fits the stated memory is rendered.
// Method  tables of templates and of messages, each with words of its refusal. Steps, depth and
//         memory are counted, so no test here reads a clock.
#include <doctest/doctest.h>

#include <string>

#include "tests/runtime/chat/template_run.h"

namespace tarn::chat::test::refusals_test {
namespace {

constexpr std::string_view kOne = R"([{"role": "user", "content": "Hi"}])";
constexpr u64 kMemoryBytes = u64{32} << 20;

std::string repeated(std::string_view what, u32 n) {
  std::string text;
  for (u32 i = 0; i < n; ++i) text += what;
  return text;
}

struct Case {
  std::string source;
  const char* why;
};

TEST_CASE("a hostile template ends within the bounds") {
  const std::string doubling =
      "{% set ns = namespace(s='0123456789abcdef', l=[1], k=[1]) %}{% for i in range(60) %}";
  const Case cases[] = {
      {"{% for i in range(1000000000) %}x{% endfor %}", "range: too large"},
      {"{% for i in range(99999) %}{% for j in range(99999) %}{% set x = 1 %}{% endfor %}"
       "{% endfor %}",
       "too many steps"},
      {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "too deeply"},
      {doubling + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}", "chat.memory_bytes"},
      {"{{ 'abcdefgh' * 1000000000 }}", "too many steps"},
      {"{{ [1, 2] * 90000 * 10 }}", "chat.memory_bytes"},
      {"{{ [1, 2] * 1000000000 }}", "chat.memory_bytes"},
      {doubling + "{% set ns.l = [ns.l, ns.l] %}{% set ns.k = [ns.k, ns.k] %}{% endfor %}"
                  "{{ ns.l == ns.k }}",
       "too many steps"},
      {doubling + "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}", "too many steps"},
      {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
       "{{ ns.l }}",
       "too deeply"},
      {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "printing"},
      {"{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}", "too deeply"},
      {"{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}", "too deeply"},
      {"{{ " + repeated("not ", 5000) + "1 }}", "too deeply"},
      {"{{ " + repeated("-", 5000) + "1 }}", "too deeply"},
      {"{{ 1" + repeated("|string", 5000) + " }}", "too deeply"},
      {"{{ 1" + repeated("+1", 200) + " }}", "more parts"},
      {"{{ messages" + repeated(".abc", 5000) + " }}", "too deeply"},
      {repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000), "too deeply"},
      {repeated("{% for i in [1] %}", 300) + repeated("{% endfor %}", 300), "too deeply"},
      {"{% set ab='ab' * 100000 %}{% set t = ab ~ 'x' %}{% set u = ab ~ ab %}"
       "{% for i in range(99999) %}{% set x = t in u %}{% endfor %}",
       "too many steps"},
      {"{% set ab='ab' * 100000 %}{% for i in range(99999) %}{% set x = ab.rfind(ab) %}{% endfor "
       "%}",
       "too many steps"},
      // What no node stands for costs, too.
      {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
       "too many steps"},
      {"{% set d = messages[0] %}{% for i in range(99999) %}{% set x = ('a' * 100000).isdigit() %}"
       "{% set x = ('a' * 100000).removeprefix('b' * 100000) %}{% endfor %}",
       "too many steps"},
      {"{% for i in range(99999) %}{% set x = ('a',) * 10000 %}{% set y = 'b'.startswith(x) %}"
       "{% set y = ([[]] * 1000) | map('unique') %}{% endfor %}",
       "too many steps"},
      {"{% for i in range(99999) %}{{ strftime_now('%c%c%c%c%c%c%c%c') }}{% endfor %}",
       "too many steps"},
      {"{{ strftime_now('%Y\\x00%d') }}", "zero byte"},  // strftime(3) would end there
  };
  for (const Case& c : cases) {
    CAPTURE(c.source.substr(0, 200));
    const Answer answer = render(c.source, {.messages = kOne}, kMemoryBytes);
    CAPTURE(answer.why);
    CHECK(answer.why.find(c.why) != std::string::npos);
  }
  // More variables than names have room for.
  std::string many;
  for (u32 i = 0; i < 2000; ++i) many += "{% set v" + std::to_string(i) + " = 1 %}";
  CHECK(render(many, {.messages = kOne}, kMemoryBytes).why.find("variables") != std::string::npos);
}

TEST_CASE("what is no template, or not known, is refused with its line") {
  const Case cases[] = {
      {"{{ 1 + }}", "means nothing"},
      {"{{ 1 ! 2 }}", "no meaning"},
      {"\n{% include 'x' %}",
       "tag that Tarn does not know: pass another with --chat-template "
       "(chat_template): include (line 2)"},
      {"{% for x in y recursive %}{% endfor %}", "recursive"},
      {"{{ messages\n | from_json }}",
       "filter that Tarn does not know: pass another with --chat-template (chat_template): "
       "from_json (line 2)"},
      {"{{ 1 is odder }}", "test that Tarn does not know"},
      {"{{ cycler(1, 2) }}", "cycler"},
      {"{{ 'a'.zfill(3) }}", "zfill"},
      {"\xFF", "UTF-8"},
      {"\n{{ messages[0].missing.more }}", "missing (line 2)"},
      {"{{ missing + 1 }}", "missing"},
      {"{{ 1 + 'a' }}", "does not join"},
      {"{{ 1 // 0 }}", "division by 0"},
      {"{{ 9223372036854775807 + 1 }}", "integer so large"},
      {"{{ f(1) }}", "f (line 1)"},
      {"{{ raise_exception('Roles must alternate, user and assistant, and so on to the end!') }}",
       "refuses these messages: Roles must alternate, user and assistant, and so on to the end!"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.source);
    const Answer answer = render(c.source, {.messages = kOne}, kMemoryBytes);
    CAPTURE(answer.why);
    CHECK(answer.why.find(c.why) != std::string::npos);
  }
}

// Each is broken at its third line, in front of a whole construct of each kind.
TEST_CASE("a template that cannot be read names the construct and the line where it begins") {
  const Case cases[] = {
      {"{% if x %}", "an if without its endif"},
      {"{% if x %}{% elif y %}\n", "an if without its endif"},
      {"{% if x %}\n{% else %}", "an if without its endif"},
      {"{% for x in y %}", "a for without its endfor"},
      {"{% for x in y %}\n{% else %}", "a for without its endfor"},
      {"{% macro f(x) %}", "a macro without its endmacro"},
      {"{% set x %}", "a set without its endset"},
      {"{% set x | trim %}", "a set without its endset"},
      {"{% filter trim %}", "a filter without its endfilter"},
      {"{% with x = 1 %}", "a with without its endwith"},
      {"{% generation %}", "a generation without its endgeneration"},
      {"{% raw %}", "a raw without its endraw"},
      {"{% raw -%}\n\n", "a raw without its endraw"},
      {"{#", "a {# without its #}"},
      {"{{ x", "a {{ without its }}"},
      {"{{\nx\n", "a {{ without its }}"},
      {"{{ x }", "a {{ without its }}"},
      {"{{ {1: 2 }}", "a {{ without its }}"},
      {"{% if x", "a {% without its %}"},
      {"{% if x }", "a {% without its %}"},
      {"{{ (1 + 2 }}", "a ( without its )"},
      {"{{ (1 +\n2 }}", "a ( without its )"},
      {"{{ f(1", "a ( without its )"},
      {"{% if (x %}", "a ( without its )"},
      {"{{ x[1 }}", "a [ without its ]"},
      {"{{ [1, 2) }}", "a [ without its ]"},
      {"{{ {1: 2", "a { without its }"},
      {"{{ {1: [2} }}", "a [ without its ]"},
      {"{{ 1 ) }}", "a ) without its ("},
      {"{{ 1 ] }}", "a ] without its ["},
      {"{{ 'abc }}", "a text without its closing quote"},
      {"{{ \"abc\n }}", "a text without its closing quote"},
      {"{{ x y }}", "y, where }} should be"},
      {"{{ f(1 2) }}", "2, where ) should be"},
      {"{{ {1 2} }}", "2, where : should be"},
      {"{% for x y %}{% endfor %}", "y, where in should be"},
      {"{% if x y %}{% endif %}", "y, where %} should be"},
      {"{% 1 %}", "1, where a tag's name should be"},
      {"{{ x | 1 }}", "1, where a filter's name should be"},
      {"{{ x is 1 }}", "1, where a test's name should be"},
      {"{% set 1 = 2 %}", "1, where a variable's name should be"},
      {"{% macro 1() %}{% endmacro %}", "1, where the macro's name should be"},
      {"{% endif %}", "an endif without its if"},
      {"{% elif x %}", "an elif without its if"},
      {"{% else %}", "an else without its if"},
      {"{% endfor %}", "an endfor without its for"},
      {"{% endmacro %}", "an endmacro without its macro"},
      {"{% endset %}", "an endset without its set"},
      {"{% endfilter %}", "an endfilter without its filter"},
      {"{% endwith %}", "an endwith without its with"},
      {"{% endgeneration %}", "an endgeneration without its generation"},
      {"{% endraw %}", "an endraw without its raw"},
      {"{% endcall %}", "an endcall without its call"},
      {"{% break %}", "a break outside of a for"},
      {"{% continue %}", "a continue outside of a for"},
      {"{% for x in y %}{% set z %}{% break %}{% endset %}{% endfor %}",
       "a break outside of a for"},
      {"{% if x %}{% else %}{% else %}{% endif %}", "an else behind an else"},
      {"{% if x %}{% else %}{% elif x %}{% endif %}", "an elif behind an else"},
      {"{% for x in y %}{% else %}{% else %}{% endfor %}", "an else behind an else"},
      {"{% for x in y %}{% elif x %}{% endfor %}", "an elif without its if"},
      {"{% for x in y %}{% endif %}", "an endif without its if"},
      {"{% call f() %}x{% endcall %}", "tag that Tarn does not know"},
      {"{% block x %}x{% endblock %}", "tag that Tarn does not know"},
  };
  const std::string whole =
      "{% for i in [1] %}{% if i %}({{ {'a': [i]} }}{% endif %}{% endfor %}{# c #}\n";
  for (const Case& c : cases) {
    CAPTURE(c.source);
    const Answer answer = render(whole + "\n" + c.source, {.messages = kOne}, kMemoryBytes);
    CAPTURE(answer.why);
    CHECK(answer.why.find(c.why) != std::string::npos);
    CHECK(answer.why.ends_with("(line 3)"));
    CHECK((answer.status == Status::invalid_model || answer.status == Status::unsupported));
  }
  const Case nested[] = {
      {"{% if 1 %}\n{% for x in y %}\n{% endif %}", "a for without its endfor (line 2)"},
      {"{% for x in y %}\n{% if 1 %}\n{% endfor %}", "an if without its endif (line 2)"},
      {"{% if 1 %}\n{% set x %}\n{% else %}\n{% endif %}", "a set without its endset (line 2)"},
      {"{% macro f() %}\n{% if 1 %}\n{% filter trim %}\n{% endmacro %}",
       "a filter without its endfilter (line 3)"},
      {"{% if 1 %}\n{% raw %}\n{% endif %}", "a raw without its endraw (line 2)"},
      {"{% if 1 %}\n{# c\n{% endif %}", "a {# without its #} (line 2)"},
  };
  for (const Case& c : nested) {
    CAPTURE(c.source);
    const Answer answer = render(c.source, {.messages = kOne}, kMemoryBytes);
    CAPTURE(answer.why);
    CHECK(answer.why.ends_with(c.why));
  }
}

TEST_CASE("messages that are none are refused") {
  struct Bad {
    std::string messages;
    const char* why;
  };
  const Bad cases[] = {
      {"", "no JSON"},
      {"[", "no JSON"},
      {"[{\"role\": \"user\", \"content\": \"a\"}] x", "no JSON"},
      {"[{\"role\": \"user\" \"content\": \"a\"}]", "no JSON"},
      {"[{\"role\": \"\xFF\"}]", "no JSON"},
      {"[{\"role\": \"\xF0\x9F", "no JSON"},
      {"[{\"role\": \"\\udc00\"}]", "no JSON"},
      {std::string("[{\"role\": \"user\"}]\0x", 20), "no JSON"},
      {"{}", "array of objects"},
      {"[]", "array of objects"},
      {"[1]", "array of objects"},
      {"\"text\"", "array of objects"},
      {repeated("[", 100) + repeated("]", 100), "nested too deeply"},
      {"[{\"role\": \"user\", \"content\": \"" + repeated("x", 40'000'000) + "\"}]",
       "chat.memory_bytes"},
      {"[" + repeated("{},", 2'000'000) + "{}]", "chat.memory_bytes"},
  };
  for (const Bad& c : cases) {
    CAPTURE(c.messages.substr(0, 100));
    const Answer answer =
        render("{{ messages[0].content }}", {.messages = c.messages}, kMemoryBytes);
    CAPTURE(answer.why);
    CHECK(answer.why.find(c.why) != std::string::npos);
    CHECK(answer.status == Status::invalid_request);
  }
  CHECK(render("{{ tools }}", {.messages = kOne, .tools = "{}"}, kMemoryBytes)
            .why.find("tools must be") != std::string::npos);
  CHECK(render("{{ x }}", {.messages = kOne, .arguments = "[]"}, kMemoryBytes)
            .why.find("must be a JSON object") != std::string::npos);
}

TEST_CASE("an argument takes no name that rendering sets itself") {
  for (const char* name :
       {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "unk_token",
        "pad_token", "raise_exception", "range", "mess\\u0061ges"}) {
    CAPTURE(name);
    const std::string arguments = R"({"x": 1, ")" + std::string(name) + R"(": []})";
    const Answer answer =
        render("{{ x }}", {.messages = kOne, .arguments = arguments}, kMemoryBytes);
    CHECK(answer.status == Status::invalid_request);
    CHECK(answer.why.find("rendering sets itself") != std::string::npos);
  }
  for (const char* name : {"documents", "Messages", "message", "enable_thinking", ""}) {
    const std::string arguments = R"({"x": 1, ")" + std::string(name) + R"(": []})";
    CHECK(render("{{ x }}", {.messages = kOne, .arguments = arguments}, kMemoryBytes).why == "");
  }
}

TEST_CASE("any memory is enough to refuse, and what the header states to render") {
  const std::string content = repeated("words and words, ", 4000);
  const std::string messages = "[{\"role\": \"user\", \"content\": \"" + content + "\"}]";
  constexpr std::string_view kSource =
      "{% for m in messages %}{{ '<|' + m.role ~ '|>' + m['content'] | trim + '<|end|>' }}"
      "{% endfor %}";
  CHECK(render(kSource, {.messages = messages}, 4 * messages.size() + 65536).why == "");
  constexpr std::string_view kCopies =
      "{% for m in messages %}{% set text = '<|' + m.role ~ '|>' + m['content'] %}{{ text }}"
      "{% endfor %}";
  CHECK(render(kCopies, {.messages = messages}, 8 * messages.size() + 65536).why == "");
  for (u64 n = 0; n < 300'000; n += 997) {
    const Answer answer = render(kSource, {.messages = messages}, n);
    CHECK((answer.why.empty() || answer.why.find("chat.memory_bytes") != std::string::npos));
  }
}

}  // namespace
}  // namespace tarn::chat::test::refusals_test
