#!/usr/bin/env python3
"""Answers a log book with PyTorch: accuracy by kind and length with a 95 % Wilson interval.

    evaluate.py MODEL.gguf|CHECKPOINT BOOK.jsonl [--window 256] [--shuffle-keys]

MODEL is an exported GGUF or a training checkpoint. An answer counts if greedy decoding would give
exactly its tokens. All questions of a document are read in one pass: each sees the document and
itself, never another question. --window limits attention to the last tokens, --shuffle-keys swaps
the document's keys among its tokens: a good model must lose by both, or the book proves nothing.
"""

import argparse
import itertools
import json
import math
from collections import defaultdict

import torch
import torch.nn.functional as F

import bpe
import checkpoint
import make_logbook
from model import Model

OWN_PREFIX = ("before", "prose")  # kinds whose prompts do not begin with the whole document
Z_95 = 1.96


def wilson(hits, n, z=Z_95):
    """The interval of a share of hits."""
    center = hits / n + z * z / (2 * n)
    spread = z * math.sqrt(hits / n * (1 - hits / n) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, center - spread) / scale, (center + spread) / scale


def length_of(tokens):
    """The nominal length of a document with so many tokens."""
    return min(make_logbook.LENGTHS, key=lambda length: abs(math.log(length / max(1, tokens))))


def groups_of(lines):
    """Neighbouring lines that share a document as prefix."""
    def key(line):
        own = line["kind"] in OWN_PREFIX and line["kind"]
        return line["seed"], length_of(line["tokens"]), own
    for _, group in itertools.groupby(lines, key):
        yield list(group)


def common_length(lists):
    """The length of the common prefix of all lists."""
    n = 0
    for column in zip(*lists):
        if len(set(column)) > 1:
            break
        n += 1
    return n


class Reader:
    """A model, and how its attention is limited, if it is."""

    def __init__(self, model, tokenizer, window=None, shuffle_keys=False):
        self._model, self._tokenizer = model, tokenizer
        self._window, self._shuffle_keys = window, shuffle_keys
        self._device = next(model.parameters()).device

    @torch.no_grad()
    def score(self, lines):
        """(line, all answer tokens right, sum of their losses, their number) for each line."""
        for group in groups_of(lines):
            yield from self._score_group(group)

    def _score_group(self, group):
        start = self._tokenizer.start
        prompts = [[start] + self._tokenizer.encode(line["prompt"]) for line in group]
        answers = [self._tokenizer.encode(line["answer"]) for line in group]
        n_shared = min(common_length(prompts), min(map(len, prompts)) - 1)
        ids, owner, positions = list(prompts[0][:n_shared]), [-1] * n_shared, list(range(n_shared))
        ends = []
        for i, (prompt, answer) in enumerate(zip(prompts, answers)):
            rest = prompt[n_shared:] + answer
            ids += rest
            owner += [i] * len(rest)
            positions += range(n_shared, n_shared + len(rest))
            ends.append(len(ids))
        logits = self._read(*(torch.tensor(column, device=self._device)
                              for column in (ids, owner, positions))).cpu()
        for line, answer, end in zip(group, answers, ends):
            said = logits[end - len(answer) - 1:end - 1]
            right = torch.tensor(answer)
            loss = F.cross_entropy(said, right, reduction="sum").item()
            yield line, bool((said.argmax(-1) == right).all()), loss, len(answer)

    def _read(self, ids, owner, positions):
        index = torch.arange(len(ids), device=self._device)
        mask = (index[:, None] >= index) & ((owner == -1) | (owner[:, None] == owner))
        if self._window:
            mask &= positions[:, None] - positions < self._window
        change = self._shuffled(int((owner == -1).sum())) if self._shuffle_keys else None
        return self._model(ids[None], positions, mask, change_keys=change)[0][0]

    @staticmethod
    def _shuffled(n_shared):
        order = torch.randperm(n_shared, generator=torch.Generator().manual_seed(1))

        def change(keys):
            return torch.cat([keys[:, :, order], keys[:, :, n_shared:]], 2)
        return change


class Tally:
    """Hits by length and kind, and perplexity of prose."""

    def __init__(self):
        self.hits, self.asked = defaultdict(int), defaultdict(int)
        self.loss, self.tokens = defaultdict(float), defaultdict(int)

    def add(self, line, hit, loss, n):
        length = length_of(line["tokens"])
        if line["kind"] == "prose":
            self.loss[length] += loss
            self.tokens[length] += n
        else:
            self.hits[length, line["kind"]] += hit
            self.asked[length, line["kind"]] += 1

    def lengths(self):
        return sorted({length for length, _ in self.asked})

    def kinds(self, length):
        return sorted(kind for at, kind in self.asked if at == length)

    def perplexity(self, length):
        n = self.tokens[length]
        return math.exp(self.loss[length] / n) if n else math.nan

    def short(self, length):
        """One line for a training log."""
        parts = [f"{kind} {self.hits[length, kind] / self.asked[length, kind]:.3f}"
                 f"/{self.asked[length, kind]}" for kind in self.kinds(length)]
        return f"{length}: " + " ".join(parts) + f" perplexity {self.perplexity(length):.2f}"

    def table(self):
        for length in self.lengths():
            for kind in self.kinds(length):
                hits, n = self.hits[length, kind], self.asked[length, kind]
                low, high = wilson(hits, n)
                yield f"{length:6} {kind:7} {hits / n:.3f} [{low:.3f}, {high:.3f}] of {n}"
            if self.tokens[length]:
                yield f"{length:6} prose   perplexity {self.perplexity(length):.2f}"


def evaluate(model, tokenizer, lines, window=None, shuffle_keys=False):
    tally = Tally()
    for scored in Reader(model, tokenizer, window, shuffle_keys).score(lines):
        tally.add(*scored)
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("book")
    parser.add_argument("--window", type=int, help="attend only to this many last tokens")
    parser.add_argument("--shuffle-keys", action="store_true")
    options = parser.parse_args()
    tokenizer = bpe.load()
    model = Model(len(tokenizer.tokens))
    checkpoint.load(options.model, model)
    with open(options.book, encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    tally = evaluate(model, tokenizer, lines, options.window, options.shuffle_keys)
    print("\n".join(tally.table()))


if __name__ == "__main__":
    main()
