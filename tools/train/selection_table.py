"""What decoding by selection costs in answers, by method and share of the tokens that are read.

    make-logbook --tokens 2048 --documents 100 --rounds 2 --first 600000 -o book.jsonl
    selection_table.py TARN MODEL.gguf book.jsonl [--methods pq oracle ...] [--divisors 4 10 ...]

Every configuration answers the same questions by `tarn eval logbook`, so differences are paired:
the share right, and the difference to full attention with its 95 % interval (normal, of the mean
of the questions' differences). A document is a turn of its own, over which the index is made; the
question's rows are exact, as in PQCache, and with them the answer's first token; every other one
reads by selection. Prints a table in Markdown.

`before` asks ahead of the document and prose asks nothing: both are left out. So are the kinds that
the model cannot answer with full attention either (--kinds).
"""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile

METHODS = ["pq", "oracle", "quest", "window", "random"]
DIVISORS = [4, 8, 10, 16, 32, 64]
KINDS = ["hop0", "hop1", "hop2", "hop3", "bay", "again", "last", "order"]


def toml(method, divisor, args):
    return (f'select.method = "{method}"\nselect.context_divisor = {divisor}\n'
            f"select.tokens_min = 0\nselect.swap_tokens = 1\n"
            f"select.sink_tokens = {args.sinks}\nselect.iterations = {args.iterations}\n"
            f"select.subspaces = {args.subspaces}\nselect.code_bits = {args.bits}\n")


def answers(args, book, method, divisor):
    """Right or wrong, a question each."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "select.toml")
        config.write_text(toml(method, divisor, args))
        out = pathlib.Path(folder, "answers.jsonl")
        subprocess.run(
            [args.tarn, "eval", "-m", args.model, "-t", str(args.threads), "--config", config,
             "logbook", book, "--answers-out", out], check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
    return [line["given"] == line["expected"] for line in lines]


def percent(share):
    return f"{100 * share:.1f}"


def difference(some, full):
    """Mean difference in points and half of its 95 % interval."""
    n = len(full)
    deltas = [int(a) - int(b) for a, b in zip(some, full)]
    mean = sum(deltas) / n
    variance = sum((d - mean) ** 2 for d in deltas) / (n - 1)
    return 100 * mean, 100 * 1.96 * math.sqrt(variance / n)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tarn")
    parser.add_argument("model")
    parser.add_argument("book")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--divisors", nargs="+", type=int, default=DIVISORS)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--questions", type=int, default=1 << 30, help="at most")
    parser.add_argument("--sinks", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--subspaces", type=int, default=2)
    parser.add_argument("--bits", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    lines = [line for line in pathlib.Path(args.book).read_text().splitlines()
             if json.loads(line)["kind"] in args.kinds][:args.questions]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as book:
        book.write("\n".join(lines) + "\n")
        book.flush()
        full = answers(args, book.name, "full", 0)
        share = percent(sum(full) / len(full))
        print(f"{len(full)} questions; full attention {share} % right\n", flush=True)
        print("| read | " + " | ".join(args.methods) + " |")
        print("|---|" + "---|" * len(args.methods), flush=True)
        for divisor in args.divisors:
            cells = []
            for method in args.methods:
                some = answers(args, book.name, method, divisor)
                mean, half = difference(some, full)
                cells.append(f"{percent(sum(some) / len(some))} ({mean:+.1f} ± {half:.1f})")
            print(f"| 1/{divisor} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
