#!/usr/bin/env python3
"""Writes down what Jinja2 makes of each built-in template and conversation, and of the templates in
language.txt: the goldens of tests/runtime/chat, which need neither this script nor Jinja2.

    make_golden.py [--update-golden]

Without --update-golden the files are compared with what they would become.

    built_in.txt          the first line names the templates; the others have a conversation's name,
                          and for each template the begin of the text's SHA-256, or `refused`
    language_answers.txt  messages and variables as JSON; then a line for each of language.txt: its
                          text between =, or `refused`
Needs the Python packages transformers and jinja2.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import language  # noqa: E402
import peer  # noqa: E402

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "runtime/chat/built_in_templates.cpp"


def templates():
    """(name, source): the pairs of a name and a raw string in the source."""
    return re.findall(r'\{"([\w-]+)", R"\((.*?)\)"\}', SOURCE.read_text(encoding="ascii"), re.S)


def answer(source, conversation):
    text, _ = peer.render(source, conversation, peer.TOKENS)
    return "refused" if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


def built_in_answers():
    yield "conversation " + " ".join(name for name, _ in templates())
    for key, conversation in peer.conversations().items():
        yield " ".join([key, *(answer(source, conversation) for _, source in templates())])


def language_answers():
    yield json.dumps(language.MESSAGES)
    yield json.dumps(language.VARIABLES)
    for source in language.curated():
        text, _ = peer.render(source, language.CONVERSATION, peer.TOKENS)
        yield "refused" if text is None else f"={peer.escaped(text)}="


def main():
    if sys.argv[1:] not in ([], ["--update-golden"]):
        sys.exit(__doc__)
    files = {"built_in.txt": built_in_answers(), "language_answers.txt": language_answers()}
    for name, lines in files.items():
        text = "".join(line + "\n" for line in lines)
        path = HERE / name
        if sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{name} is not what Jinja2 makes: --update-golden writes it anew")


if __name__ == "__main__":
    main()
