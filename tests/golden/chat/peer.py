"""Shared by make_golden.py and compare_peer.py: Jinja2 as transformers sets it up, as an oracle."""

import copy
import json
import re
from pathlib import Path

from transformers.utils import chat_template_utils

CONVERSATIONS = Path(__file__).parent / "conversations.txt"
# What a vocabulary would say, for templates that come without one.
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def conversations():
    """name -> (messages, tools, arguments, add_generation_prompt)"""
    result = {}
    for line in CONVERSATIONS.read_text(encoding="ascii").splitlines():
        name, *texts, flag = line.split("\t")
        messages, tools, arguments = (json.loads(text) if text else None for text in texts)
        result[name] = messages, tools, arguments, flag == "prompt"
    return result


ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}>")
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def escaped(text):
    """On one line, without tabs."""
    return "".join(ESCAPES.get(char, char) for char in text)


def unescaped(text):
    return re.sub(r"\\([\\ntr])", lambda m: {"n": "\n", "t": "\t", "r": "\r"}.get(m[1], m[1]), text)


def render(source, conversation, tokens):
    """(text, None), or (None, why Jinja2 refuses)."""
    messages, tools, arguments, prompt = conversation
    try:
        # The function behind it would take null contents away, and copy reasoning to other keys.
        template = chat_template_utils._compile_jinja_template(source)
        own = {"messages": messages, "tools": tools, "add_generation_prompt": prompt}
        values = {"documents": None, **tokens, **(arguments or {}), **own}
        text = template.render(copy.deepcopy(values))  # the filter indent changes a list
    except Exception as error:  # whatever a template makes Python raise
        return None, f"{type(error).__name__}: {error}"
    if ADDRESS.search(text):
        return None, "an object's address is in the text"
    return text, None
