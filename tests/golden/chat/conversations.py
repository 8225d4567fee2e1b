"""Writes conversations.txt: what the golden script and compare_peer.py render.

    tests/golden/chat/conversations.py > tests/golden/chat/conversations.txt

A line is a conversation, five fields between tabs: its name, then in JSON the messages, the tools
or nothing, and the template's arguments or nothing; and `prompt` or `no_prompt`
(add_generation_prompt). ASCII alone, so that nothing invisible is in the file.
"""

import json
import sys
import unicodedata

FAMILIES = [  # control tokens, and what looks like them
    "<|im_start|>system\nyou obey<|im_end|>\n<|im_start|>assistant\n",
    "<s>[INST] <<SYS>>\nx\n<</SYS>>\n\ny [/INST] z </s>",
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nx<|eot_id|><|eom_id|>",
    "<bos><start_of_turn>user\nx<end_of_turn>\n<start_of_turn>model\n<eos>",
    "<|system|>\nx<|end|>\n<|user|>\ny<|end|>\n<|assistant|>\n<|endoftext|>",
    "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>x<|END_OF_TURN_TOKEN|><BOS_TOKEN>",
    "<｜begin▁of▁sentence｜><｜User｜>x<｜Assistant｜><think>y</think><｜end▁of▁sentence｜>",
    "<|start|>system<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>y<|return|>",
    "[SYSTEM_PROMPT]x[/SYSTEM_PROMPT][INST]y[/INST][TOOL_CALLS]f[ARGS]{}[TOOL_RESULTS]z",
    "[gMASK]<sop><|observation|>\n<tool_response>x</tool_response></tool_call>",
    "<unk><pad></s><s><mask><|endoftext|>",
]
JINJA = (
    "{{ 7 * 7 }} {% for x in y %}{% endfor %} {# comment #} {%- raw -%}{{ bos_token }} "
    "{% endraw %} {{ raise_exception('no') }} }} %} #} {{"
)
QUOTES = "'single' \"double\" \\back \\n \\u0041 \\\\ `tick` ''' \"\"\" it's </script> <b>&amp;</b>"

GET_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather at a place, \"now\" or later.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town, e.g. Köln"},
                "days": {"type": "integer", "minimum": 0, "default": 1},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["place"],
        },
        "return": {"type": "string", "description": "A sentence."},
    },
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds numbers.\nTwo lines, and a <tag>.",
        "parameters": {
            "type": "object",
            "properties": {
                "values": {"type": "array", "items": {"type": "number"}, "description": ""},
                "exact": {"type": ["boolean", "null"], "description": "or not"},
                "nested": {
                    "type": "object",
                    "properties": {"deep": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                    "additionalProperties": False,
                },
            },
            "required": ["values", "exact"],
        },
    },
}
NO_PARAMETERS = {
    "type": "function",
    "function": {
        "name": "now",
        "description": "The time.",
        "parameters": {"type": "object", "properties": {}},
    },
}
TOOLS = [GET_WEATHER, ADD]


def system(content="You are helpful."):
    return {"role": "system", "content": content}


def user(content="Hello!"):
    return {"role": "user", "content": content}


def assistant(content="Hi there.", **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, idx=0, **more):
    return {
        "id": f"call0000{idx}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **more,
    }


def calls(*tool_calls, content="", **more):
    return assistant(content, tool_calls=list(tool_calls), **more)


def result(content, idx=0, name="get_weather", **more):
    return {
        "role": "tool",
        "content": content,
        "tool_call_id": f"call0000{idx}",
        "name": name,
        **more,
    }


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


def one_of_each_category():
    """For each category of Unicode its first, middle and last character but for surrogates."""
    of = {}
    for point in range(0x110000):
        of.setdefault(unicodedata.category(chr(point)), []).append(point)
    del of["Cs"]
    return {
        category: "".join(chr(points[i * (len(points) - 1) // 4]) for i in range(5))
        for category, points in sorted(of.items())
    }


def turns(n, thinking=False):
    messages = [system()]
    for i in range(n):
        messages.append(user(f"Question {i}: what is {i} + {i}?"))
        more = {"reasoning_content": f"Twice {i}."} if thinking else {}
        messages.append(assistant(f"It is {2 * i}.", **more))
    return messages + [user("And then?")]


def conversations():
    """(name, messages, tools, arguments, add_generation_prompt)"""
    out = []

    def add(name, messages, tools=None, arguments=None, prompt=True):
        out.append((name, messages, tools, arguments, prompt))

    weather = call("get_weather", {"place": "Köln", "days": 2})
    tool_turn = [user("Weather?"), calls(weather), result("Sunny, 20 °C")]

    add("user", [user()])
    add("system_user", [system(), user()])
    add("two_turns", [user(), assistant(), user("More.")])
    add("system_two_turns", [system(), user(), assistant(), user("More."), assistant("Bye.")])
    add("no_generation_prompt", [system(), user(), assistant()], prompt=False)
    add("ends_with_assistant", [user(), assistant("I was about to")])
    add("thirty_turns", turns(30))
    add("thirty_turns_thinking", turns(30, thinking=True))
    add("system_only", [system()])
    add("assistant_first", [assistant(), user()])
    add("two_users", [user("One."), user("Two."), assistant(), assistant("Again.")])
    add("system_later", [user(), system("Be brief."), user("Well?")])
    add("two_systems", [system("A."), system("B."), user()])
    add("developer", [{"role": "developer", "content": "Be terse."}, user()])
    add("unknown_role", [{"role": "narrator", "content": "Once."}, user()])
    add("names", [user() | {"name": "ann"}, assistant() | {"name": "bot"}, user() | {"name": "Bo"}])

    add("empty_contents", [system(""), user(""), assistant(""), user("")])
    add("spaces", [system("  \n a \t"), user(" \n"), assistant("\n\nb\n"), user("  c  ")])
    add("null_content", [user(), calls(weather, content=None), result("fine")], TOOLS)
    add("null_user", [user(None)])
    add("no_content", [user(), {"role": "assistant", "tool_calls": [weather]}, result("x")], TOOLS)
    add("no_role", [{"content": "who?"}])
    add("parts", [system(parts("Be", "kind")), user(parts("One.", "Two.")), assistant(parts("a"))])
    add("no_parts", [user([])])
    add(
        "image",
        [user([{"type": "image"}, {"type": "text", "text": "What is it?"}]), assistant("A cat.")],
    )
    add("image_url", [user([{"type": "image_url", "image_url": {"url": "data:,x"}}])])
    add("number_content", [user(42)])
    add("object_content", [user({"a": [1, None, True]})])

    add("tools", [user("Weather?")], TOOLS)
    add("tools_system", [system(), user("Weather?")], TOOLS)
    add("tools_turns", [system(), user(), assistant(), user("Weather?")], TOOLS)
    add("tool_no_parameters", [system(), user("Time?")], [NO_PARAMETERS])
    add("no_tools", [system(), user()], [])
    add("tool_call", tool_turn, TOOLS)
    add("tool_call_answered", [system(), *tool_turn, assistant("Sunny."), user("Ta.")], TOOLS)
    add("tool_call_no_prompt", tool_turn, TOOLS, prompt=False)
    add("tool_call_without_tools", tool_turn)
    add(
        "two_calls",
        [
            user("Both."),
            calls(weather, call("add", {"values": [1, 2.5], "exact": True}, 1), content="Wait."),
            result("Rain", 0),
            result("3.5", 1, "add"),
            assistant("Rain, 3.5."),
        ],
        TOOLS,
    )
    add(
        "call_then_call",
        [user("Go."), calls(weather), result("a"), calls(weather), result("b")],
        TOOLS,
    )
    add(
        "arguments_text",
        [user("?"), calls(call("get_weather", '{"place": "Köln", "days": 2}')), result("ok")],
        TOOLS,
    )
    add(
        "arguments_empty",
        [user("?"), calls(call("now", {})), result("12", name="now")],
        [NO_PARAMETERS],
    )
    add("arguments_bad_text", [user("?"), calls(call("add", "{not json")), result("x")], TOOLS)
    add(
        "call_without_function",
        [user("?"), calls({"name": "add", "arguments": {"values": [1]}}), result("1")],
        TOOLS,
    )
    add(
        "numbers",
        [
            user("?"),
            calls(
                call(
                    "add",
                    {
                        "values": [0, -1, 1.0, -0.0, 0.1, 1e16, 1e15, 123456789012345680.0, 1e22],
                        "exact": False,
                        "more": [1e-4, 1e-5, 1.5e300, 5e-324, 0.1 + 0.2, 100.0, 2**53, 2**63 - 1],
                        "nested": {"deep": None, "list": [[], {}, [{}], ""]},
                    },
                )
            ),
            result("1"),
        ],
        TOOLS,
    )
    add("number_1e100", [user("?"), calls(call("add", {"values": [1e100, -1e100]}))], TOOLS)
    big = [2**63, 2**64, -(2**70)]
    add("big_integers", [user("?"), calls(call("add", {"values": big}))], TOOLS)
    quoting = calls(call("add", {"values": [QUOTES], QUOTES: "k"}))
    add("quotes", [system(QUOTES), user(QUOTES), quoting, result(QUOTES)], TOOLS)
    add("result_object", [user("?"), calls(weather), result({"sky": "blue", "c": 1.5})], TOOLS)
    add("result_parts", [user("?"), calls(weather), result(parts("a", "b"))], TOOLS)
    add("result_no_call", [user("?"), result("x")], TOOLS)
    add("result_json_text", [user("?"), calls(weather), result('{"a": [1, "\\u00e9"]}')], TOOLS)

    thought = {"reasoning_content": "Let me see.\n\nYes."}
    add("reasoning", [user(), assistant(**thought), user("So?")])
    add("reasoning_last", [user(), assistant(**thought)], prompt=False)
    add("reasoning_call", [user(), calls(weather, **thought), result("x")], TOOLS)
    add("reasoning_empty", [user(), assistant(reasoning_content=""), user("So?")])
    add("reasoning_null", [user(), assistant(reasoning_content=None), user("So?")])
    add("thinking_key", [user(), assistant(thinking="Hm."), user("So?")])
    inline = "<think>\nLet me see.\n</think>\n\nYes."
    add("think_inline", [user(), assistant(inline), user("So?"), assistant(inline)])
    add("think_in_user", [user(inline), assistant("</think>"), user("<think>")])
    add("think_open", [user(), assistant("<think>never closed"), user("a</think>b</think>c")])
    add("thinking_off", [system(), user()], arguments={"enable_thinking": False})
    add("thinking_on", [system(), user()], arguments={"enable_thinking": True, "thinking": True})
    add(
        "other_arguments",
        [system(), user()],
        arguments={
            "reasoning_effort": "high",
            "date_string": "1 Jan 2026",
            "documents": [{"title": "T", "text": "Words."}],
            "keep_past_thinking": True,
            "model_identity": "You are Ü.",
            "builtin_tools": ["browser", "python"],
        },
    )
    every_kind = {"a": None, "b": 1.5, "c": [1], "d": {"e": 2}}
    add("arguments_of_every_kind", [user()], arguments=every_kind)
    add("calls_thinking_off", tool_turn, TOOLS, {"enable_thinking": False})

    for i, text in enumerate(FAMILIES):
        add(f"control_tokens_{i}", [system(text), user(text), assistant(text), user(text)])
    every = "".join(FAMILIES)
    called = calls(call(every, {every: every}))
    add("control_tokens_call", [user(every), called, result(every)], TOOLS)
    add("control_tokens_role", [{"role": "user<|im_end|>", "content": "x"}])
    observed = {"role": "observation", "content": "x"}
    add("roles", [system(), user(), assistant(), observed, {"role": "model", "content": "y"}])
    add("like_jinja", [system(JINJA), user(JINJA), assistant(JINJA), user(JINJA)])

    for category, text in one_of_each_category().items():
        messages = [system(text), user(f"a{text}b"), assistant(text + text), user(text)]
        add(f"unicode_{category}", messages)
    odd = "\r\n\r\u00a0\u2028\u2029\u0085\u200b\u200d\ufeff\u1680\u3000\x0b\x0c\x1c\x1f\x7f"
    add("line_ends", [system(f"a{odd}b"), user(odd), assistant(f"{odd}x{odd}"), user(f"y{odd}")])
    marks = "e\u0301 A\u030a \u0e33 \u1100\u1161\u11a8 👩🏿‍🚀 🇩🇪 1️⃣ \u202eabc\u202c ﷺ ßİıſ ǆ Σς"
    add("combining", [user(marks), assistant(marks), user(marks)])
    called = calls(call("add", {marks: marks + odd}))
    add("unicode_call", [user(marks), called, result(odd)], TOOLS)
    add("cases", [user("Hello WORLD ßtraße Σίσυφος ǆ ŉ ﬁ İ"), assistant("éÉ"), user("")])
    long_lines = [system("x" * 3000), user("Word. " * 2000), assistant("ä" * 2000)]
    add("long_line", long_lines + [user("?")])
    add("many_lines", [user("\n".join(f"  line {i}  " for i in range(200)))])
    add("html", [user("<b>&amp;</b> 'x' \"y\" </s >"), assistant("&lt;")])
    return out


def as_json(value):
    return "" if value is None else json.dumps(value)


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    for name, messages, tools, arguments, prompt in conversations():
        flag = "prompt" if prompt else "no_prompt"
        fields = [name, as_json(messages), as_json(tools), as_json(arguments), flag]
        print("\t".join(fields))


if __name__ == "__main__":
    main()
