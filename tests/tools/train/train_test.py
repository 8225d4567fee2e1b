#!/usr/bin/env python3
"""Tests tools/train as far as it needs nothing but Python.

Goal    a seed makes the same document anywhere; training and held-out words are apart; text
        survives the tokenizer; the vocabulary and the sample book are what the scripts make.
        Training never shows a position beyond its context, and RoPE's base ends where it is told.
Method  documents are made twice, in two processes with other hash seeds; word sets are intersected;
        answers are worked out again from the text by a reader of its own, which knows no generator.
"""
import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[3]
TRAIN = ROOT / "tools" / "train"
sys.path.insert(0, str(TRAIN))
import bpe  # noqa: E402
import logbook  # noqa: E402
import make_logbook  # noqa: E402
import prose  # noqa: E402
import schedule  # noqa: E402
import words  # noqa: E402

SEEDS = [0, 1, 2, 77, 999_999, 1_000_000, 1_000_001, 1_234_567]
BOOK = ROOT / "tests" / "golden" / "logbook" / "sample.jsonl"
# Of the text of SEEDS at 600 tokens. It changes with the language, and then a model has to be
# trained again, or at least measured again.
DIGEST = "6c208bc541095c9ea61704c58019e5acb65358ece7d00d5c876c08a0a10dc9ca"


def text_of(seed, tokens=600):
    document = logbook.make_document(seed, tokens, bpe.load().encode)
    return "".join(f"{prompt}|{answer}\n" for _, prompt, answer
                   in make_logbook.questions_of(document))


def digest():
    return hashlib.sha256("".join(map(text_of, SEEDS)).encode()).hexdigest()


def forms(vocabulary):
    verbs = vocabulary.verbs + vocabulary.moves
    plural = tuple(noun + "s" for noun in vocabulary.nouns)
    return {word.lower() for word in vocabulary.nouns + plural + vocabulary.adjectives
            + vocabulary.names + verbs + tuple(map(words.past, verbs))}


class Reader:
    """Reads a document's facts from its text and answers questions about them."""

    def __init__(self, text):
        self.value, self.copies, self.bay, self.stands = {}, {}, {}, []
        for line in text.splitlines():
            self._read(line)

    def _read(self, line):
        name = r"([A-Za-z]+ [A-Z][1-9])"
        if match := re.fullmatch(rf"The \w+ of {name} is (\d+)\.", line):
            self.value[match[1]] = match[2]
        elif match := re.fullmatch(rf"{name} copies {name}(, so its \w+ is \d+)?\.", line):
            self.copies[match[1][0].lower() + match[1][1:]] = match[2]
        elif match := re.fullmatch(r"(\w+) works in bay (\w+)\.", line):
            self.bay[match[1]] = match[2]
        elif match := re.fullmatch(rf"Bay (\w+) has {name}\.", line):
            self.stands.append((match[1], match[2]))

    def look_up(self, thing):
        while thing in self.copies:
            thing = self.copies[thing]
        return self.value[thing]

    def answer(self, question):
        name = r"(\w+ [A-Z][1-9])"
        if match := re.fullmatch(rf"Q: What is the \w+ of {name}\?( A:)?", question):
            return self.look_up(match[1])
        if match := re.fullmatch(rf"The \w+ of {name} is", question):
            return self.look_up(match[1])
        if match := re.fullmatch(r"Q: Where does (\w+) work\? A: bay", question):
            return self.bay[match[1]]
        if match := re.fullmatch(r"Q: How many (\w+)s are in bay (\w+)\? A:", question):
            return str(sum(bay == match[2] and thing.startswith(match[1] + " ")
                           for bay, thing in self.stands))
        if match := re.fullmatch(r"Q: What came last into bay (\w+)\? A:", question):
            return [thing for bay, thing in self.stands if bay == match[1]][-1]
        match = re.fullmatch(r"Q: Which is higher, (.+) or (.+)\? A:", question)
        return max(match[1], match[2], key=lambda one: int(one if one.isdigit()
                                                           else self.look_up(one)))


class LanguageTest(unittest.TestCase):
    def test_words_are_apart(self):
        train, held = forms(words.TRAIN), forms(words.HELD)
        self.assertEqual(train & held, set())
        facts = {word.lower() for word in logbook.MACHINES + logbook.VALUES + logbook.BAYS
                 + logbook.WORKERS}
        self.assertEqual((train | held) & facts, set())
        grammar = set(re.findall(r"\b[a-z]+\b", re.sub(r"\{\w+\}", "", str(prose.GRAMMAR))))
        self.assertEqual((set(words.TRAIN.nouns) | held) & (grammar - set(prose.GRAMMAR)), set())

    def test_no_word_twice(self):
        for vocabulary in (words.TRAIN, words.HELD):
            for kind in prose.CAST:
                listed = getattr(vocabulary, kind)
                self.assertEqual(len(set(listed)), len(listed), kind)

    def test_held_out_prose_has_held_out_words_only(self):
        for seed, others in ((1_000_003, words.TRAIN), (3, words.HELD)):
            document = logbook.make_document(seed, 2000, bpe.load().encode)
            said = {word.lower() for piece in document.body if piece.kind == "prose"
                    for word in re.findall(r"\w+", piece.text)}
            grammar = set(re.findall(r"\w+", str(prose.GRAMMAR).lower()))
            self.assertGreater(len(said), 50)
            self.assertEqual(said & forms(others) - grammar, set())

    def test_documents_do_not_depend_on_the_process(self):
        for hash_seed in ("1", "2"):
            said = subprocess.run([sys.executable, "-B", __file__, "--digest"], check=True,
                                  capture_output=True, text=True,
                                  env={**os.environ, "PYTHONHASHSEED": hash_seed}).stdout.strip()
            self.assertEqual(said, DIGEST)
        self.assertNotEqual(text_of(0), text_of(1))

    def test_documents_fill_their_size_and_no_more(self):
        encode = bpe.load().encode
        for tokens in (256, 1024, 4096, 8192):
            for seed in (5, 1_000_005):
                document = logbook.make_document(seed, tokens, encode)
                for _, prompt, answer in make_logbook.questions_of(document):
                    self.assertLessEqual(len(encode(prompt + answer)), tokens)
                self.assertGreater(logbook.n_tokens(document.body), tokens - 120)

    def test_answers_follow_from_the_text(self):
        asked = set()
        for seed in range(1_000_000, 1_000_040):
            for line in make_logbook.lines_of(seed, 768, bpe.load(), rounds=2):
                if line["kind"] == "prose":
                    continue
                asked.add(line["kind"])
                body, _, question = line["prompt"].rpartition("\n")
                question = line["prompt"].split("\n")[0] if line["kind"] == "before" else question
                self.assertEqual(" " + Reader(body).answer(question), line["answer"], line)
        self.assertEqual(asked, set(logbook.HELD_OUT_KINDS) | {"before"})


class TokenizerTest(unittest.TestCase):
    def test_round_trip(self):
        tokenizer = bpe.load()
        for text in ["", " ", "a  b\n\n c", "The pressure of pump K7 is 482.\n", "12345 0007",
                     "it's \t snake_case!?\r\n", "Q: How? A:", "caf\u00e9 \u4e2d\u6587 \U0001f600",
                     text_of(1), text_of(1_000_001)]:
            self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)

    def test_numbers_are_one_token(self):
        tokenizer = bpe.load()
        for number in range(10, 1000):
            self.assertEqual(len(tokenizer.encode(str(number))), 1)
        self.assertEqual(tokenizer.encode(" 482")[-1:], tokenizer.encode("482"))

    def test_pieces_end_where_the_split_does(self):
        tokenizer = bpe.load()
        for seed in SEEDS:
            body = logbook.make_document(seed, 800, tokenizer.encode).body
            whole = tokenizer.encode("".join(piece.text for piece in body))
            self.assertEqual(whole, [i for piece in body for i in piece.ids])

    def test_specials_are_never_made_from_text(self):
        tokenizer = bpe.load()
        ids = tokenizer.encode(bpe.START + bpe.END)
        self.assertFalse({tokenizer.start, tokenizer.end} & set(ids))
        self.assertLessEqual(len(tokenizer.tokens), 2000)

    def test_vocabulary_is_what_the_script_makes(self):
        subprocess.run([sys.executable, "-B", str(TRAIN / "make_vocab.py"), "--check"], check=True,
                       stdout=subprocess.DEVNULL)


def make_schedule(**others):
    options = {"curriculum": schedule.CURRICULUM, "hours": None, "steps": 400, "warm_up": 100,
               "context": 4096, "rope_base": 1000.0, "rope_base_until": 0.5, **others}
    return schedule.Schedule(argparse.Namespace(**options), 1469, 500_000.0)


class ScheduleTest(unittest.TestCase):
    def test_progress_is_of_steps_or_of_hours(self):
        self.assertEqual(make_schedule().progress(1469 + 100, 9e9), 0.25)
        self.assertEqual(make_schedule(steps=None, hours=2).progress(9999, 3600), 0.5)

    def test_base_goes_in_equal_ratios(self):
        ways = [make_schedule().rope_base(step / 400) for step in range(401)]
        self.assertEqual((ways[0], ways[200], ways[400]), (500_000, 1000, 1000))
        for one, next_one in zip(ways[:200], ways[1:201]):
            self.assertAlmostEqual(next_one / one, 500 ** (-1 / 200))

    def test_base_changes_at_once_or_not_at_all(self):
        self.assertEqual(make_schedule(rope_base_until=0).rope_base(0), 1000)
        self.assertEqual(make_schedule(rope_base=None).rope_base(0.3), 500_000)

    def test_no_position_beyond_the_context(self):
        at, reached = make_schedule(), set()
        for step in range(1469, 1869):
            tokens, far = at.lengths(step, at.progress(step, 0))
            self.assertGreaterEqual(far, 0)
            if tokens <= 4096:
                self.assertLessEqual(tokens + far, 4096)
                reached.add(tokens + far)
        self.assertIn(4096, reached)


class BookTest(unittest.TestCase):
    def test_sample_is_what_the_script_makes(self):
        said = subprocess.run([sys.executable, "-B", str(TRAIN / "make_logbook.py"), "--sample"],
                              check=True, capture_output=True, text=True).stdout
        self.assertEqual(said, BOOK.read_text(encoding="ascii"))
        self.assertLessEqual(len(said), 300_000)
        self.assertTrue(all(logbook.is_held_out(json.loads(line)["seed"])
                            for line in said.splitlines()))


if __name__ == "__main__":
    if sys.argv[1:] == ["--digest"]:
        print(digest())
    else:
        unittest.main()
