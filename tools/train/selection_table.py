#!/usr/bin/env python3
"""Measures the cost of selection in answers, by method and share of the tokens that are read.

    make-logbook --tokens 4096 --documents 20 --rounds 30 --first 600000 -o book.jsonl
    selection_table.py TARN MODEL.gguf book.jsonl --results results.jsonl
        [--methods pq-2x6 pq-4x8 oracle ...] [--against oracle] [--divisors 4 10 ...]
        [--documents 5]

Every configuration answers the same questions by `tarn eval logbook`, so differences are paired:
the share right, and the difference to full attention (or to the method that --against names, at
the same share of the tokens) with its 95 % interval, in points. Questions about one document are
not independent: the interval is that of a mean over documents drawn at random (normal, the
documents' sums of differences). A document is a turn of its own, over which the index is made; the
question's rows are exact, as in PQCache, and with them the answer's first token, which is a space
here; every other one reads by selection.

Methods: those of --select, and

    pq-2x8                 2 sub-spaces of 8 bits
    pq-2x8+shuffled-codes  broken on purpose (tarn eval --select shuffled-codes): must lose, or the
                           questions tell nothing
    full-q8_0, full-q4_0   everything, of KV in this type; the same whatever the divisor

Each configuration's answers are a line of the results file, and what has its line is not run again:
a run that was stopped goes on. Prints a table in Markdown. A cell says how many answers read
nothing by selection, since they are full attention's: an index of 2^b centroids takes a middle of
8 * 2^b tokens, which 2,048 tokens have not for 8 bits.

Asked are the kinds whose answer is looked up in the document and has two tokens (--kinds): `bay`
has one, `order` and `cmp` need no look-up or fail with full attention, `before` asks ahead of the
document.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import tempfile

METHODS = ["oracle", "pq-2x6", "pq-2x8", "pq-4x8", "quest", "window", "random"]
DIVISORS = [4, 8, 10, 16, 32, 64]
KINDS = ["hop0", "hop1", "hop2", "hop3", "again"]
PQ = re.compile(r"pq-(\d+)x(\d+)(?:\+([a-z-]+))?")


def toml(method, divisor, args):
    lines = []
    pq = PQ.fullmatch(method)
    if pq:
        lines += [f"select.subspaces = {pq[1]}", f"select.code_bits = {pq[2]}"]
    if method.startswith("full-"):
        lines += [f'kv.type = "{method.split("-")[1]}"']
    lines += [f"select.context_divisor = {divisor}", "select.tokens_min = 0",
              "select.index_delay_tokens = 1", f"select.sink_tokens = {args.sinks}",
              f"select.iterations = {args.iterations}"]
    return "\n".join(lines) + "\n"


def answers(args, book, method, divisor):
    """For each question: right or wrong, and whether it read by selection."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "select.toml")
        config.write_text(toml(method, divisor, args))
        out = pathlib.Path(folder, "answers.jsonl")
        pq = PQ.fullmatch(method)
        select = pq[3] or "pq" if pq else "full" if method.startswith("full") else method
        subprocess.run(
            [args.tarn, "eval", "-m", args.model, "-t", str(args.threads), "--config", config,
             "--select", select, "logbook", book, "--answers-out", out], check=True,
            stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
    return ([line["given"] == line["expected"] for line in lines],
            [line["selected"] for line in lines])


class Results:
    """The answers of all configurations, as a file that grows."""

    def __init__(self, args, book):
        self.args, self.book, self.path = args, book, pathlib.Path(args.results)
        self.right, self.selected = {}, {}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            result = json.loads(line)
            key = result["method"], result["divisor"]
            self.right[key] = [c == "1" for c in result["right"]]
            # A file from before this was written down does not know.
            selected = result.get("selected", "1" * len(result["right"]))
            self.selected[key] = [c == "1" for c in selected]

    def of(self, method, divisor):
        divisor = 0 if method.startswith("full") else divisor
        if (method, divisor) not in self.right:
            right, selected = answers(self.args, self.book, method, divisor)
            self.right[method, divisor], self.selected[method, divisor] = right, selected
            with self.path.open("a") as file:
                line = {"method": method, "divisor": divisor,
                        "right": "".join("01"[r] for r in right),
                        "selected": "".join("01"[s] for s in selected)}
                file.write(json.dumps(line) + "\n")
        return self.right[method, divisor]


def percent(share):
    return f"{100 * share:.1f}"


def difference(some, other, documents):
    """Mean difference in points and half of its 95 % interval, which one document does not have."""
    n = len(other)
    deltas = [int(a) - int(b) for a, b in zip(some, other)]
    mean = sum(deltas) / n
    of_document = {}
    for delta, document in zip(deltas, documents):
        of_document[document] = of_document.get(document, 0) + delta - mean
    n_documents = len(of_document)
    if n_documents == 1:
        return 100 * mean, math.nan
    variance = sum(s * s for s in of_document.values()) * n_documents / (n_documents - 1) / n**2
    return 100 * mean, 100 * 1.96 * math.sqrt(variance)


def cell(results, method, divisor, documents, against="full"):
    some, other = results.of(method, divisor), results.of(against, divisor)
    share = percent(sum(some) / len(some))
    n_dense = 0 if method.startswith("full") else results.selected[method, divisor].count(False)
    if n_dense == len(some):
        return f"{share} (no index: full attention)"
    mean, half = difference(some, other, documents)
    dense = f"; {n_dense} of {len(some)} without an index" if n_dense > 0 else ""
    return f"{share} ({mean:+.1f} ± {half:.1f}{dense})"


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tarn")
    parser.add_argument("model")
    parser.add_argument("book")
    parser.add_argument("--results", required=True, help="file of answers, continued if it exists")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--against", default="full",
                        help="the method to compare with (default full)")
    parser.add_argument("--documents", type=int, help="only the book's first documents")
    parser.add_argument("--divisors", nargs="+", type=int, default=DIVISORS)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--sinks", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse_options()
    lines = [line for line in pathlib.Path(args.book).read_text().splitlines()
             if json.loads(line)["kind"] in args.kinds]
    first = list(dict.fromkeys(json.loads(line)["seed"] for line in lines))[:args.documents]
    lines = [line for line in lines if json.loads(line)["seed"] in first]
    documents = [json.loads(line)["seed"] for line in lines]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as book:
        book.write("\n".join(lines) + "\n")
        book.flush()
        results = Results(args, book.name)
        full = results.of("full", 0)
        print(f"{len(full)} questions about {len(set(documents))} documents; full attention "
              f"{percent(sum(full) / len(full))} % right; differences to {args.against}\n")
        print("| read | " + " | ".join(args.methods) + " |")
        print("|---|" + "---|" * len(args.methods), flush=True)
        for divisor in args.divisors:
            cells = [cell(results, method, divisor, documents, args.against)
                     for method in args.methods]
            print(f"| 1/{divisor} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
