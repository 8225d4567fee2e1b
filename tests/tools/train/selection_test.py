#!/usr/bin/env python3
"""Tests that the questions about a log book tell a KV method that works from one that does not.

    selection_test.py TARN

Goal    with the built-in model, reading one token in ten by PQCache's codes answers nearly as many
        questions as reading all, and as the best by exact scores; the same number of tokens in a
        window, by chance and by shuffled codes lose 20 points at least each, else the tables in
        tests/bench/RECORDS.md would prove nothing. Where no index is made the table says so,
        instead of full attention's share as the method's. Differences are those to the method that
        was asked for, with their interval.
Method  selection_table.py's own runs of `tarn eval` on a document of 1,024 tokens. What the table
        makes of answers is checked on a results file written by hand.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools" / "train"))
import bpe  # noqa: E402
import make_logbook  # noqa: E402
import selection_table  # noqa: E402

CODES = "pq-2x6"
ARGS = argparse.Namespace(tarn=None, model=ROOT / "tools" / "builtin" / "logbook.gguf", sinks=32,
                          iterations=8, threads=1)


class SelectionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lines = [line for line in make_logbook.book(((1024, 1, 1000),), 600_000, 12, bpe.load())
                 if line["kind"] in selection_table.KINDS]
        cls.n = len(lines)
        cls.folder = tempfile.TemporaryDirectory()
        cls.book = Path(cls.folder.name, "book.jsonl")
        cls.book.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")
        cls.full = cls.points("full", 0)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def points(cls, method, divisor=10):
        right, selected = selection_table.answers(ARGS, cls.book, method, divisor)
        assert len(right) == cls.n
        assert all(s == (method != "full") for s in selected)
        return 100 * sum(right) / cls.n

    def test_full_attention_answers(self):
        self.assertGreaterEqual(self.n, 24)
        self.assertGreaterEqual(self.full, 90)

    def test_codes_find_what_is_asked(self):
        self.assertGreaterEqual(self.points(CODES), self.full - 10)

    def test_exact_scores_find_what_is_asked(self):
        self.assertGreaterEqual(self.points("oracle"), self.full - 5)

    def test_a_window_loses(self):
        self.assertLessEqual(self.points("window"), self.full - 20)

    def test_chance_loses(self):
        self.assertLessEqual(self.points("random"), self.full - 20)

    def test_shuffled_codes_lose(self):
        self.assertLessEqual(self.points(CODES + "+shuffled-codes"), self.full - 20)

    def test_a_document_too_short_for_an_index_is_said_to_be(self):
        with tempfile.TemporaryDirectory() as folder:
            ARGS.results = Path(folder, "results.jsonl")
            for _ in range(2):  # the second time out of the file
                results = selection_table.Results(ARGS, self.book)
                documents = list(range(self.n))
                self.assertIn("(no index: full attention)",
                              selection_table.cell(results, "pq-2x8", 10, documents))
                self.assertNotIn("index", selection_table.cell(results, CODES, 10, documents))
                self.assertNotIn("index", selection_table.cell(results, "full", 0, documents))
            results.selected[CODES, 10][0] = False
            self.assertIn(f"; 1 of {self.n} without an index",
                          selection_table.cell(results, CODES, 10, documents))


class TableTest(unittest.TestCase):
    """Two questions about each of two documents; nothing is run, as every answer is there."""

    RIGHT = {("full", 0): "1111", ("oracle", 4): "1110", ("oracle", 10): "0110",
             ("pq-2x6", 4): "1111", ("pq-2x6", 10): "0010"}

    def table(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            book, results = Path(folder, "book.jsonl"), Path(folder, "results.jsonl")
            book.write_text("".join(json.dumps({"kind": "hop0", "seed": seed}) + "\n"
                                    for seed in (1, 1, 2, 2)), encoding="ascii")
            results.write_text("".join(
                json.dumps({"method": method, "divisor": divisor, "right": right}) + "\n"
                for (method, divisor), right in self.RIGHT.items()), encoding="ascii")
            script = ROOT / "tools" / "train" / "selection_table.py"
            return subprocess.run(
                [sys.executable, script, "no-program", "no-model", book, "--results", results,
                 "--methods", "pq-2x6", "--divisors", "4", "10", *options],
                check=True, capture_output=True, text=True).stdout

    def test_differences_are_to_full_attention(self):
        table = self.table()
        self.assertIn("full attention 100.0 % right; differences to full\n", table)
        self.assertIn("| 1/4 | 100.0 (+0.0 ± 0.0) |", table)
        self.assertIn("| 1/10 | 25.0 (-75.0 ± 49.0) |", table)

    def test_differences_are_to_the_method_that_is_asked_for_at_the_same_share(self):
        table = self.table("--against", "oracle")
        self.assertIn("full attention 100.0 % right; differences to oracle\n", table)
        self.assertIn("| 1/4 | 100.0 (+25.0 ± 49.0) |", table)
        self.assertIn("| 1/10 | 25.0 (-25.0 ± 49.0) |", table)


if __name__ == "__main__":
    ARGS.tarn = sys.argv.pop(1)
    unittest.main()
