"""Byte-level BPE with the split that GGUF calls `llama-bpe`: trains it, applies it, keeps its file.

A number of up to three digits is one token: with single digits a small model took far longer to
learn to copy a number. Whole words of the vocabulary are taken as they are (`ignore_merges`).
Numbers need no training: their merges come first, by rule; the vocabulary file holds the others,
one a line, in the spelling of GPT-2's merges.txt.
"""

import collections
import re
from pathlib import Path

VOCABULARY = Path(__file__).parent / "vocab.txt"
START, END = "<|start|>", "<|end|>"
SPACE = "\u0120"

# llama-bpe in the words of Python's re: [^\W\d_] is a letter. The same splits on ASCII.
SPLIT = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\w]?[^\W\d_]+|_?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_spellings():
    """GPT-2's printable character for every byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    spelling = {byte: chr(byte) for byte in plain}
    spelling.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [spelling[byte] for byte in range(256)]


SPELLING = byte_spellings()
BYTE_OF = {char: byte for byte, char in enumerate(SPELLING)}


def spell(word):
    return [SPELLING[byte] for byte in word.encode()]


def number_merges():
    """The merges that make one token of every number from 10 to 999."""
    tens = [(a, b) for a in "123456789" for b in "0123456789"]
    return tens + [(a + b, c) for a, b in tens for c in "0123456789"]


def merge_pair(parts, pair):
    """`parts` with every neighbouring `pair` made one."""
    merged, i = [], 0
    while i < len(parts):
        if tuple(parts[i:i + 2]) == pair:
            merged.append(pair[0] + pair[1])
            i += 2
        else:
            merged.append(parts[i])
            i += 1
    return merged


def train_merges(word_counts, n):
    """The n merges that shorten these words most, the most frequent pair first."""
    words = {word: spell(word) for word in sorted(word_counts) if not word.isdigit()}
    pairs, users = collections.Counter(), collections.defaultdict(set)

    def count(word, sign):
        for pair in zip(words[word], words[word][1:]):
            pairs[pair] += sign * word_counts[word]
            users[pair].add(word)

    for word in words:
        count(word, 1)
    merges = []
    while len(merges) < n:
        best = max(pairs, key=lambda pair: (pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            break
        merges.append(best)
        for word in sorted(users.pop(best)):
            count(word, -1)
            words[word] = merge_pair(words[word], best)
            count(word, 1)
        del pairs[best]
    return merges


class Tokenizer:
    """Text to ids and back. Specials are never made from text."""

    def __init__(self, merges):
        self.merges = number_merges() + merges
        self.tokens = SPELLING + [a + b for a, b in self.merges] + [START, END]
        self.id_of = {token: i for i, token in enumerate(self.tokens)}
        self.start, self.end = self.id_of[START], self.id_of[END]
        self._rank = {pair: i for i, pair in enumerate(self.merges)}
        self._cache = {}

    def encode(self, text):
        return [i for word in SPLIT.findall(text) for i in self._encode_word(word)]

    def _encode_word(self, word):
        if word not in self._cache:
            parts = spell(word)
            if "".join(parts) in self.id_of:
                parts = ["".join(parts)]
            while len(parts) > 1:
                best = min(zip(parts, parts[1:]),
                           key=lambda pair: self._rank.get(pair, len(self._rank)))
                if best not in self._rank:
                    break
                parts = merge_pair(parts, best)
            self._cache[word] = [self.id_of[part] for part in parts]
        return self._cache[word]

    def decode(self, ids):
        text = "".join(self.tokens[i] for i in ids if i not in (self.start, self.end))
        return bytes(BYTE_OF[char] for char in text).decode("utf-8", "replace")

    def content_offset(self, ids):
        """1 where the ids begin with a lone space, as those of " 482" do; else 0."""
        return int(len(ids) > 1 and self.tokens[ids[0]] == SPACE)


def save(merges, path=VOCABULARY):
    path.write_text("".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")


def load(path=VOCABULARY):
    lines = path.read_text(encoding="utf-8").splitlines()
    return Tokenizer([tuple(line.split(" ")) for line in lines])
