#!/usr/bin/env python3
"""Answers a log book with llama.cpp, and counts the answers on which another engine agrees.

    compare_peer.py --llama-source DIR --llama-lib DIR MODEL.gguf BOOK.jsonl
                    [--answers OURS.jsonl] [-o THEIRS.jsonl]

    --llama-source   llama.cpp's sources, for include/llama.h and ggml/include
    --llama-lib      the folder of its libllama.so
    --answers        answers of another engine

Answers are JSON lines {seed, index, kind, expected, given}; index is the number of the question's
line in the book, from 0. `given` is the greedy continuation, as many tokens as `expected` has.
Lines of kind `prose` are left out. Needs a C++ compiler; takes the same prompts as text, so that
the two tokenizers are compared as well. Fails if fewer than --least of the answers are the same.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SPARE_TOKENS = 512  # for the answer, and where the tokenizers should not agree


def build_driver(options, folder):
    source, driver = Path(__file__).parent / "peer_answers.cpp", Path(folder) / "peer_answers"
    library = Path(options.llama_lib).resolve()
    subprocess.run(
        ["c++", "-std=c++17", "-O2", source, "-o", driver,
         "-I", Path(options.llama_source) / "include",
         "-I", Path(options.llama_source) / "ggml" / "include",
         "-L", library, "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{library}"], check=True)
    return driver


def ask(driver, model, questions):
    """llama.cpp's continuation of each question's prompt."""
    context_tokens = max(question["tokens"] for question in questions) + SPARE_TOKENS
    with subprocess.Popen([driver, model, str(context_tokens)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        for question in questions:
            prompt, answer = question["prompt"].encode(), question["answer"].encode()
            process.stdin.write(f"{len(prompt)} {len(answer)}\n".encode() + prompt + answer)
            process.stdin.flush()
            header = process.stdout.readline()
            if not header:
                sys.exit("llama.cpp failed")
            yield process.stdout.read(int(header)).decode("utf-8", "replace")
        process.stdin.close()


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def answers_of_peer(options):
    book = [(i, line) for i, line in enumerate(read_lines(options.book)) if line["kind"] != "prose"]
    with tempfile.TemporaryDirectory() as folder:
        driver = build_driver(options, folder)
        given = ask(driver, options.model, [line for _, line in book])
        return [{"seed": line["seed"], "index": i, "kind": line["kind"], "expected": line["answer"],
                 "given": text} for (i, line), text in zip(book, given)]


def compare(theirs, ours):
    """The share of equal answers; prints a line for each different one."""
    by_index, n_same = {answer["index"]: answer for answer in ours}, 0
    for answer in theirs:
        other = by_index.get(answer["index"], {}).get("given")
        n_same += other == answer["given"]
        if other != answer["given"]:
            print(f"{answer['index']}: {answer['kind']} expected {answer['expected']!r}, "
                  f"llama.cpp {answer['given']!r}, other engine {other!r}")
    return n_same / len(theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-source", required=True)
    parser.add_argument("--llama-lib", required=True)
    parser.add_argument("--answers", help="JSON lines of another engine")
    parser.add_argument("--least", type=float, default=0.99, help="share that must agree")
    parser.add_argument("-o", "--output", help="write llama.cpp's answers")
    parser.add_argument("model")
    parser.add_argument("book")
    options = parser.parse_args()
    theirs = answers_of_peer(options)
    if options.output:
        Path(options.output).write_text("".join(json.dumps(a) + "\n" for a in theirs))
    n_right = sum(answer["given"] == answer["expected"] for answer in theirs)
    print(f"llama.cpp: {n_right} of {len(theirs)} right")
    if options.answers:
        share = compare(theirs, read_lines(options.answers))
        print(f"{share:.4f} of {len(theirs)} answers are the same")
        sys.exit(share < options.least)


if __name__ == "__main__":
    main()
