#!/usr/bin/env python3
"""Compares our dequantisation with ggml's on random blocks, bit by bit; by hand. Needs numpy.

    compare_peer.py --golden-quant TOOL --ggml-base LIBRARY [--blocks 1000000] [TYPE...]

    --golden-quant   our tool: cmake --build BUILD --target golden_quant, then
                     BUILD/tests/golden/golden_quant
    --ggml-base      path of libggml-base.so

All bytes of a block are random, its scales too, so one f16 scale of 32 is infinite or NaN. A NaN
equals a NaN of any sign and payload. Prints a line for each type; exits with 1 after a difference.
"""
import argparse
import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import llama_peer  # noqa: E402

PIECE_BLOCKS = 50000


def peer_values(lib, type_id, blocks, n_values):
    traits = lib.ggml_get_type_traits(type_id).contents
    values = np.empty(n_values, np.float32)
    ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)(traits.to_float)(
        blocks, values.ctypes.data, n_values)
    return values


def count_differences(arguments, lib, row, rng):
    name, type_id, elems, n_bytes = row[0], *map(int, row[1:])
    differ = 0
    for first in range(0, arguments.blocks, PIECE_BLOCKS):
        n_blocks = min(PIECE_BLOCKS, arguments.blocks - first)
        blocks = rng.bytes(n_blocks * n_bytes)
        theirs = peer_values(lib, type_id, blocks, n_blocks * elems)
        ours = np.frombuffer(subprocess.run([arguments.golden_quant, name], input=blocks,
                                            stdout=subprocess.PIPE, check=True).stdout, np.float32)
        same = ours.view(np.uint32) == theirs.view(np.uint32)
        same |= np.isnan(ours) & np.isnan(theirs)
        differ += int((~same.reshape(n_blocks, elems)).any(axis=1).sum())
    return differ


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden-quant", required=True)
    parser.add_argument("--ggml-base", required=True)
    parser.add_argument("--blocks", type=int, default=1000000)
    parser.add_argument("types", nargs="*", metavar="TYPE", help="all without one")
    arguments = parser.parse_args()
    lib = llama_peer.load_ggml(arguments.ggml_base)
    rng = np.random.default_rng(20240229)
    rows = [line.split() for line in subprocess.run(
        [arguments.golden_quant, "list"], capture_output=True, text=True,
        check=True).stdout.splitlines()]
    total = 0
    for row in rows:
        if arguments.types and row[0] not in arguments.types:
            continue
        differ = count_differences(arguments, lib, row, rng)
        print(f"{row[0]}: {differ} of {arguments.blocks} blocks differ", flush=True)
        total += differ
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
