"""Shared by make_golden.py and compare_peer.py: Jinja2 as transformers sets it up, as an oracle."""

import json
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


def render(source, conversation, tokens):
    """(text, None), or (None, why Jinja2 refuses)."""
    messages, tools, arguments, prompt = conversation
    try:
        # The function behind it would take null contents away, and copy reasoning to other keys.
        template = chat_template_utils._compile_jinja_template(source)
        own = {"messages": messages, "tools": tools, "add_generation_prompt": prompt}
        text = template.render({"documents": None, **tokens, **(arguments or {}), **own})
    except Exception as error:  # whatever a template makes Python raise
        return None, f"{type(error).__name__}: {error}"
    return text, None
