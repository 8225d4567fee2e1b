#!/usr/bin/env python3
"""Writes held-out log books as JSON lines {seed, kind, tokens, prompt, answer}.

    make_logbook.py --tokens 1024 --documents 20 > book.jsonl
    make_logbook.py --tokens 512 1024 8192 --documents 20 10 2 -o book.jsonl
    make_logbook.py --sample -o tests/golden/logbook/sample.jsonl        (the book in the tree)

Lines of one document follow each other and their prompts begin with the same text, so that an
engine which keeps the KV of a prefix reads it once; only `before` has its question in front of it.
A prompt is plain text without the start token, which the engine adds. The answer is the text that
must follow exactly, its space included. `tokens` counts the prompt's tokens without the start
token. Lines of kind `prose` are for perplexity: their answer is a paragraph of the document, their
prompt what stands before it. Document i of a length has seed 1,000,000 + i (+ --first).
"""

import argparse
import json
import sys

import bpe
import logbook
from draw import Draw

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
# (tokens, documents, lines of each at most) of the book in the tree. Its seeds are far from those
# that training looks at while it runs.
SAMPLE = ((512, 6, 14), (1024, 4, 6), (2048, 1, 4), (4096, 1, 2))
SAMPLE_FIRST = 900_000


def text_of(pieces):
    return "".join(piece.text for piece in pieces)


def prose_line(body):
    """The last paragraph that has at least half of the document before it."""
    places = [i for i, piece in enumerate(body) if piece.kind == "prose" and i > len(body) // 2]
    if places:
        yield "prose", text_of(body[:places[-1]]), body[places[-1]].text


def questions_of(document):
    """(kind, prompt, answer) of all questions about a document."""
    body = text_of(document.body)
    for question in document.questions:
        yield question.kind, body + text_of(question.asked), question.answer.text
    if document.before:
        before = document.before
        prompt = text_of(before.ahead) + body + text_of(before.asked)
        yield before.kind, prompt, before.answer.text
    yield from prose_line(document.body)


def lines_of(seed, tokens, tokenizer, rounds=1):
    """The JSON objects of one held-out document."""
    assert logbook.is_held_out(seed)
    document = logbook.make_document(seed, tokens, tokenizer.encode, rounds=rounds)
    for kind, prompt, answer in questions_of(document):
        ids = tokenizer.encode(prompt)
        if ids + tokenizer.encode(answer) != tokenizer.encode(prompt + answer):
            raise ValueError(f"seed {seed}: prompt and answer do not end where the split does")
        yield {"seed": seed, "kind": kind, "tokens": len(ids), "prompt": prompt, "answer": answer}


def book(shape, first, rounds, tokenizer):
    """Lines of all documents; shape as in SAMPLE."""
    for tokens, n_documents, n_lines in shape:
        for i in range(first, first + n_documents):
            seed = logbook.HELD_OUT_FROM + i
            lines = list(lines_of(seed, tokens, tokenizer, rounds))
            chosen = Draw(seed).sample(range(len(lines)), n_lines)
            yield from (lines[k] for k in sorted(chosen))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024], metavar="N",
                        help=f"lengths of the documents, such as {LENGTHS}")
    parser.add_argument("--documents", type=int, nargs="+", default=[10], metavar="N",
                        help="documents of each length: one number, or one for each")
    parser.add_argument("--lines", type=int, default=1000, help="lines of a document at most")
    parser.add_argument("--rounds", type=int, default=1,
                        help="questions of each kind in a document")
    parser.add_argument("--first", type=int, default=0, help="first seed, minus 1,000,000")
    parser.add_argument("--sample", action="store_true", help="write the book in the tree")
    parser.add_argument("-o", "--output", help="file to write; standard output without it")
    options = parser.parse_args()
    if len(options.documents) == 1:
        options.documents *= len(options.tokens)
    if len(options.documents) != len(options.tokens):
        parser.error("--documents: one number, or as many as --tokens")
    options.shape = [(*pair, options.lines) for pair in zip(options.tokens, options.documents)]
    if options.sample:
        options.shape, options.first = SAMPLE, SAMPLE_FIRST
    return options


def main():
    options = parse_options()
    output = open(options.output, "w", encoding="ascii") if options.output else sys.stdout
    for line in book(options.shape, options.first, options.rounds, bpe.load()):
        print(json.dumps(line), file=output)


if __name__ == "__main__":
    main()
