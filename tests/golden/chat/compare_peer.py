#!/usr/bin/env python3
"""Compares Tarn's chat templates with Jinja2 as transformers sets it up, byte by byte.

    ninja -C BUILD golden_chat
    compare_peer.py --driver BUILD/tests/golden/golden_chat TEMPLATE... [--only NAME]
                    [--conversation NAME] [--diff]
    compare_peer.py --driver BUILD/tests/golden/golden_chat --language [--only TEXT] [--diff]

TEMPLATE is a file of Jinja, a folder of them (*.jinja), or a GGUF file with templates. Prints a
line for each template and every difference, and fails if a text differs silently or fewer than
98 % of the templates are equal in all conversations. --only and --conversation take a part of a
name; --diff shows every sentence and whole texts. Needs the Python packages transformers, jinja2.

    equal      the same bytes
    refused    both refuse
    by name    Tarn alone refuses, with a sentence
    DIFFERENT  other bytes, or a text where Jinja2 refuses, or another error
"""

import argparse
import collections
import difflib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import gguf_file  # noqa: E402
import language  # noqa: E402
import peer  # noqa: E402

# The statuses of a refusal, each before its sentence.
REFUSALS = ("unsupported: ", "invalid_request: ", "invalid_model: ")
KEY = "tokenizer.chat_template"
SHARE_MIN = 0.98
SHOWN_MAX = 3  # of the same sentence, without --diff


def gguf_templates(path):
    """(name, source) of each template in a GGUF file."""
    for key, text in gguf_file.keys_of(path).items():
        if key.startswith(KEY) and isinstance(text, str):
            yield path.stem + key.removeprefix(KEY), text


def templates(paths):
    for path in map(Path, paths):
        if path.is_dir():
            yield from templates(sorted(path.glob("*.jinja")))
        elif path.suffix == ".gguf":
            yield from gguf_templates(path)
        else:
            yield path.stem, path.read_text(encoding="utf-8")


def tarn_renders(command, requests):
    """For each (source, conversation): (text, None), or (None, its status and sentence)."""
    lines = []
    for source, (messages, tools, arguments, prompt) in requests:
        values = messages, tools, arguments or {}
        texts = ["" if value is None else json.dumps(value, ensure_ascii=False) for value in values]
        flag = "prompt" if prompt else "no_prompt"
        lines.append("\t".join(["-", *texts, flag, peer.escaped(source)]) + "\n")
    request = "".join(lines).encode()
    ended = subprocess.run(command, input=request, capture_output=True, check=False)
    out, at = ended.stdout, 0
    for _ in requests:
        end = out.find(b"\n", at)
        if end < 0:
            yield None, f"ended by {ended.returncode}: {ended.stderr.decode()}"
            continue
        status, n_bytes = out[at:end].decode().rsplit(" ", 1)
        at = end + 1 + int(n_bytes)
        text = out[end + 1 : at]
        ok = status == "ok"
        yield (text, None) if ok else (None, f"{status}: {text.decode(errors='replace')}")


def show_difference(ours, theirs, whole):
    if whole:
        lines = [text.decode(errors="replace").splitlines(keepends=True) for text in (theirs, ours)]
        for line in difflib.unified_diff(*lines, "jinja2", "tarn"):
            print("    " + repr(line))
        return
    both = enumerate(zip(ours, theirs))
    at = next((i for i, (a, b) in both if a != b), min(len(ours), len(theirs)))
    begin = max(0, at - 40)
    print(f"    at byte {at} of {len(theirs)}")
    print(f"    jinja2  ...{theirs[begin:at + 40]!r}")
    print(f"    tarn    ...{ours[begin:at + 40]!r}")


def verdict_of(theirs, ours):
    """equal, refused, by name or DIFFERENT, and what to say about it"""
    (text, why), (our_text, end) = theirs, ours
    if our_text is not None:
        if text is None:
            return "DIFFERENT", f"jinja2 refuses: {why}"
        return ("equal", None) if our_text == text.encode() else ("DIFFERENT", "other bytes")
    if not end.startswith(REFUSALS):
        return "DIFFERENT", end
    return ("refused", None) if text is None else ("by name", end)


def compare(name, requests, options):
    """Prints a row and the differences of requests, key -> (source, conversation); their counts."""
    counts, sentences = collections.Counter(), collections.Counter()
    said = []
    ours = dict(zip(requests, tarn_renders([options.driver], requests.values())))
    for key, (source, conversation) in requests.items():
        theirs = peer.render(source, conversation, peer.TOKENS)
        verdict, words = verdict_of(theirs, ours[key])
        counts[verdict] += 1
        sentences[verdict, words] += 1
        shown_max = SHOWN_MAX if verdict == "by name" and not options.diff else len(requests)
        if words is not None and sentences[verdict, words] <= shown_max:
            said.append((f"{verdict}: {key}: {words}", ours[key][0], theirs[0]))
        if options.diff and words is None and ours[key][1] is not None:
            said.append((f"refused: {key}: {ours[key][1]} | {theirs[1]}", None, None))
    print(f"{name:52} " + "  ".join(f"{what} {n}" for what, n in sorted(counts.items())))
    for words, our_text, their_text in said:
        print("  " + words)
        if our_text is not None and their_text is not None:
            show_difference(our_text, their_text.encode(), options.diff)
    sys.stdout.flush()
    return counts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("templates", nargs="*", metavar="TEMPLATE")
    parser.add_argument("--language", action="store_true", help="language.py in their place")
    parser.add_argument("--driver", required=True, help="the program golden_chat")
    parser.add_argument("--only", default="", help="templates with this in their names")
    parser.add_argument("--conversation", default="", help="conversations with this in their names")
    parser.add_argument("--diff", action="store_true", help="every sentence, and whole texts")
    options = parser.parse_args()
    conversations = {
        name: conversation
        for name, conversation in peer.conversations().items()
        if options.conversation in name
    }
    if options.language:
        sources = [*language.curated(), *language.crossed()]
        requests = {text: (text, language.CONVERSATION) for text in sources if options.only in text}
        sys.exit(compare("language", requests, options)["DIFFERENT"] > 0)
    total = collections.Counter()
    n_templates = n_equal = 0
    for name, source in templates(options.templates):
        if options.only in name:
            requests = {key: (source, value) for key, value in conversations.items()}
            counts = compare(name, requests, options)
            total += counts
            n_templates += 1
            n_equal += counts["DIFFERENT"] == 0 and counts["by name"] == 0
    n = len(conversations)
    print(f"{n_templates} templates, {n_equal} equal in all {n} conversations: {dict(total)}")
    if total["DIFFERENT"] > 0 or n_equal < SHARE_MIN * n_templates:
        sys.exit(1)


if __name__ == "__main__":
    main()
