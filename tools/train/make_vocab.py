#!/usr/bin/env python3
"""make_vocab.py [--check]: writes vocab.txt, or fails if it is not what would be written.

The vocabulary is trained on documents of training seeds alone. It depends on logbook.py, prose.py
and words.py; a model has to be trained again, or warm-started, when it changes.
"""

import argparse
import collections
import sys

import bpe
import logbook

N_MERGES = 740
N_DOCUMENTS = 400
DOCUMENT_WORDS = 1000


def count_words():
    """How often each word of the split stands in some training documents."""
    counts = collections.Counter()
    for seed in range(N_DOCUMENTS):
        document = logbook.make_document(seed, DOCUMENT_WORDS, bpe.SPLIT.findall, 300)
        pieces = document.before.ahead + document.body
        for question in [*document.questions, document.before]:
            pieces += [*question.asked, question.answer]
        for piece in pieces:
            counts.update(piece.ids)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    merges = bpe.train_merges(count_words(), N_MERGES)
    if not options.check:
        bpe.save(merges)
    elif bpe.Tokenizer(merges).tokens != bpe.load().tokens:
        sys.exit(f"{bpe.VOCABULARY} is not what this script makes: run it without --check")
    print(f"{len(bpe.load().tokens)} tokens")


if __name__ == "__main__":
    main()
