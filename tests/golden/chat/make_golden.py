#!/usr/bin/env python3
"""Writes down what Jinja2 makes of each built-in template and conversation: the golden of
tests/runtime/chat/built_in_golden_test.cpp, which needs neither this script nor Jinja2.

    make_golden.py [--update-golden]

Without --update-golden built_in.txt is compared with what it would become. The first line names
the templates. The others have a conversation's name, and for each template the begin of the text's
SHA-256, or `refused`.
Needs the Python packages transformers and jinja2.
"""

import hashlib
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import peer  # noqa: E402

HERE = Path(__file__).parent
GOLDEN = HERE / "built_in.txt"
SOURCE = HERE.parents[2] / "runtime/chat/built_in_templates.cpp"


def templates():
    """(name, source): the pairs of a name and a raw string in the source."""
    return re.findall(r'\{"([\w-]+)", R"\((.*?)\)"\}', SOURCE.read_text(encoding="ascii"), re.S)


def answer(source, conversation):
    text, _ = peer.render(source, conversation, peer.TOKENS)
    return "refused" if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


def main():
    if sys.argv[1:] not in ([], ["--update-golden"]):
        sys.exit(__doc__)
    rows = ["conversation " + " ".join(name for name, _ in templates())]
    for key, conversation in peer.conversations().items():
        answers = [answer(source, conversation) for _, source in templates()]
        rows.append(" ".join([key, *answers]))
    text = "\n".join(rows) + "\n"
    if sys.argv[1:]:
        GOLDEN.write_text(text, encoding="ascii")
    elif GOLDEN.read_text(encoding="ascii") != text:
        sys.exit("built_in.txt is not what Jinja2 makes: --update-golden writes it anew")


if __name__ == "__main__":
    main()
