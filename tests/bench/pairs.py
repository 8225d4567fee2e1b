#!/usr/bin/env python3
"""Compares the speed of two builds in alternated pairs of runs; standard library only.

    tests/bench/pairs.py OLD NEW -m MODEL [-n PAIRS] [--store DIR] [CASE...]

OLD and NEW are folders with `tarn` and `tarn-bench`. Each pair runs a case once with either, and
the one that goes first changes from pair to pair. A row shows the medians, the median of the
pairs' ratios (new to old, above 1: faster), and how many pairs are below 1. A case is red, and the
script ends with 1, where that median is below 0.98 and 7 of 9 pairs are below 1. The cases over a
disk need --store.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

TG_32K = ["-p", "0", "-n", "64", "--fill-kv", "32768"]
STORE = ["--kv-memory", "64MiB"]
CASES = {
    "pp512": ["-p", "512", "-n", "0"],
    "tg64": ["-p", "0", "-n", "64"],
    "tg64 @ 32K, f16": TG_32K,
    "tg64 @ 32K, q8_0": [*TG_32K, "--ctk", "q8_0"],
    "tg64 @ 32K, pq": [*TG_32K, "--select", "pq"],
    "tg64 @ 32K, pq over a disk": [*TG_32K, "--select", "pq", *STORE],
    "tg64 of 4 sequences": ["-p", "0", "-n", "64", "--np", "4"],
    "READY": [],
}


def tokens_per_s(folder, args, extra):
    command = [os.path.join(folder, "tarn-bench"), *args, *extra, "-r", "1", "--no-bandwidth",
               "-o", "jsonl"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])["avg_ts"]


def opens_per_s(folder, extra):
    """Until the first token, of a prompt of one."""
    begin = time.monotonic()
    subprocess.run([os.path.join(folder, "tarn"), "run", *extra, "-p", "a", "-n", "1", "-c", "512"],
                   capture_output=True, check=True)
    return 1 / (time.monotonic() - begin)


def measure(case, folder, options, store):
    extra = ["-m", options.model]
    if not CASES[case]:
        return opens_per_s(folder, extra)
    return tokens_per_s(folder, CASES[case], extra + (["--store", store] if store else []))


def is_red(ratios):
    n_slower = sum(r < 1 for r in ratios)
    return statistics.median(ratios) < 0.98 and n_slower * 9 >= 7 * len(ratios)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-n", "--pairs", type=int, default=9)
    parser.add_argument("--store", help="a folder on the disk that is to be measured")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    names = [c for c in options.cases or CASES if options.store or "disk" not in c]
    if unknown := set(names) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are: {', '.join(CASES)}")
    n_red = 0
    print("| case | old | new | ratio | pairs below 1 |\n|---|---|---|---|---|", flush=True)
    for case in names:
        speeds = {options.old: [], options.new: []}
        for pair in range(options.pairs):
            order = [options.old, options.new]
            for folder in order if pair % 2 == 0 else reversed(order):
                # A store of its own for each run: neither finds what the other one wrote.
                with tempfile.TemporaryDirectory(dir=options.store) as store:
                    on_disk = store if "disk" in case else None
                    speeds[folder].append(measure(case, folder, options, on_disk))
        old, new = speeds[options.old], speeds[options.new]
        ratios = [b / a for a, b in zip(old, new)]
        n_red += is_red(ratios)
        print(f"| {case} | {statistics.median(old):.2f} | {statistics.median(new):.2f} "
              f"| {statistics.median(ratios):.3f}{', RED' * is_red(ratios)} "
              f"| {sum(r < 1 for r in ratios)} of {len(ratios)} |", flush=True)
    sys.exit(1 if n_red else 0)


if __name__ == "__main__":
    main()
