#!/usr/bin/env python3
"""Holds the store's speed against fio's best figure on the same file system in the same minutes.

    store_against_fio.py --bench BUILD/tests/store_bench --dir DIR [--mib 2048] [--rounds 5]

Each round runs fio once per block size (both ways) and store_bench before and behind them, so that
a disk whose speed changes by the minute does so for both. Printed are medians over the rounds; the
share is of fio's best median at any block size. fio's and the store's files both exist before the
first timed run; both register their buffers, and read every block once.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

# Block size, queue depth, jobs (processes, each with a part of the file).
FIO_CASES = [("4k", 128, 1), ("16k", 64, 1), ("64k", 64, 1), ("256k", 64, 1), ("1M", 64, 1),
             ("4M", 16, 1), ("256k", 32, 2), ("1M", 32, 2), ("4M", 16, 2)]


def fio_mb_per_s(path, mib, direction, block, depth, jobs):
    command = ["fio", "--name=x", f"--filename={path}", f"--size={mib // jobs}M", f"--bs={block}",
               f"--numjobs={jobs}", f"--offset_increment={mib // jobs}M", "--group_reporting",
               f"--iodepth={depth}", f"--rw={direction}", "--direct=1", "--ioengine=io_uring",
               "--fixedbufs=1", "--registerfiles=1", "--output-format=json"]
    if direction == "write":
        command.append("--end_fsync=1")
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    job = json.loads(out[out.index("{"):])["jobs"][0]
    return job["write" if direction == "write" else "read"]["bw_bytes"] / 1e6


def store_mb_per_s(bench, path, mib, depth):
    out = subprocess.run([bench, path, str(mib), str(depth)], check=True, capture_output=True,
                         text=True).stdout
    line = [line for line in out.splitlines() if line.startswith("write")][-1]
    match = re.match(r"write\s+(\d+) MB/s with\s+(\d+) syncs\s+random read\s+(\d+) MB/s", line)
    return float(match[1]), float(match[3])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--depth", type=int, default=64, help="the store's buffers at one time")
    args = parser.parse_args()
    fio_path = os.path.join(args.dir, "fio.dat")
    store_path = os.path.join(args.dir, "store.dat")
    results = {}
    try:
        fio_mb_per_s(fio_path, args.mib, "write", "1M", 16, 1)
        store_mb_per_s(args.bench, store_path, args.mib, args.depth)
        def run_store():
            written, read = store_mb_per_s(args.bench, store_path, args.mib, args.depth)
            results.setdefault(("write", "store"), []).append(written)
            results.setdefault(("randread", "store"), []).append(read)

        for _ in range(args.rounds):
            run_store()
            for direction in ("write", "randread"):
                for block, depth, jobs in FIO_CASES:
                    rate = fio_mb_per_s(fio_path, args.mib, direction, block, depth, jobs)
                    name = f"fio {block} x {depth}" + (f" x {jobs}" if jobs > 1 else "")
                    results.setdefault((direction, name), []).append(rate)
            run_store()
    finally:
        for path in (fio_path, store_path):
            if os.path.exists(path):
                os.remove(path)
    for direction in ("write", "randread"):
        medians = {name: statistics.median(rates) for (way, name), rates in results.items()
                   if way == direction}
        best = max(rate for name, rate in medians.items() if name != "store")
        for name, rate in medians.items():
            rates = results[(direction, name)]
            spread = f"({min(rates):.0f} to {max(rates):.0f})"
            print(f"{direction:9} {name:16} {rate:6.0f} MB/s  {spread:14}"
                  f"{100 * rate / best:4.0f} % of fio's best")
    return 0


if __name__ == "__main__":
    sys.exit(main())
