#!/usr/bin/env python3
"""napkin.py [--check NAPKIN.md]

What a token of an 8B should cost on two boards, from bytes, launches and the assumptions below:
prints the tables of kernels/NAPKIN.md, or holds the page to them. Standard library only.
"""
import argparse
import sys
from pathlib import Path

# Llama 3.1 8B.
D, N_FF, D_KV, HEAD_DIM, N_KV_HEADS, N_LAYERS, N_VOCAB = 4096, 14336, 1024, 128, 8, 32, 128256
LAYERS_MORE_BITS = 16  # v and down are q6_k there, in llama.cpp's mix Q4_K_M
BITS = {"q4_k": 4.5, "q6_k": 6.5625, "q8_0": 8.5}
KV_BYTES = {"f16": 2.0, "q8_0": 34 / 32}  # an element
# Launches in a layer and around the layers; tests/runtime/engine_gpu/select_test.cpp and
# engine_gpu_test.cpp count them, tests/tools/gpu_check/kernel_bench_test.cpp those of the 8B.
READS = {"everything": (11, 4), "by selection, pairs of codes (2 x 6 bits)": (11 + 3, 4 + 1),
         "by selection, token by token (4 x 8 bits)": (11 + 5, 4 + 1), "a window": (11 + 1, 4)}
N_SMALL_KERNELS = 195  # of those that read everything, the ones that read neither weights nor KV

# Assumptions; `tarn-board-check` measures each.
READ_SHARE = 0.92     # of the nominal bandwidth, a plain read: MLC reaches 0.86 on a Nano Super
PRODUCT_SHARE = 0.97  # of a plain read, the products and attention; the target is 0.85 of a copy
GAP_US = 1.0          # between two kernels of a graph
SMALL_US = 2.0        # of a kernel that has next to nothing to do
OTHER_GB = 0.8        # embedding, activations, driver, engine, beside weights and KV

BOARDS = (("Orin Nano Super", 102.0, 6.0), ("AGX Orin 64", 204.8, 56.0))  # GB/s, GB that are free
DEPTHS = (0, 4096, 32768)


def weight_bytes(mix):
    """What a token reads: all but the embedding table, of which it reads one row."""
    layer = {"q": D * D, "k": D * D_KV, "v": D * D_KV, "o": D * D, "gate": D * N_FF, "up": D * N_FF,
             "down": D * N_FF}
    total = 0.0
    for index in range(N_LAYERS):
        for name, n in layer.items():
            bits = BITS["q8_0"]
            if mix == "Q4_K_M":
                more = index < LAYERS_MORE_BITS and name in ("v", "down")
                bits = BITS["q6_k" if more else "q4_k"]
            total += n * bits / 8
    return total + N_VOCAB * D * BITS["q8_0" if mix == "Q8_0" else "q6_k"] / 8


def kv_bytes(kv_type, depth):
    return depth * N_LAYERS * N_KV_HEADS * 2 * HEAD_DIM * KV_BYTES[kv_type]


def n_kernels(reads):
    of_layer, around = READS[reads]
    return N_LAYERS * of_layer + around


def rows():
    for board, gb_per_s, free_gb in BOARDS:
        for mix in ("Q4_K_M", "Q8_0"):
            for depth in DEPTHS if mix == "Q4_K_M" else (0,):
                for kv_type in ("f16", "q8_0") if depth > 0 else ("f16",):
                    weights, kv = weight_bytes(mix), kv_bytes(kv_type, depth)
                    limit_s = (weights + kv) * 1e-9 / gb_per_s
                    seconds = limit_s / (READ_SHARE * PRODUCT_SHARE) + \
                        (n_kernels("everything") * GAP_US + N_SMALL_KERNELS * SMALL_US) * 1e-6
                    fits = (weights + kv) * 1e-9 + OTHER_GB <= free_gb
                    yield (f"| {board} | {mix} | {depth} | {kv_type} | {(weights + kv) * 1e-9:.2f} "
                           f"| {1 / limit_s:.1f} | "
                           + (f"{1 / seconds:.1f} | {limit_s / seconds:.2f} |" if fits else
                              "does not fit | |"))


def kernels_table():
    lines = ["| what a token reads | a layer | around | Llama 3.1 8B |", "|---|---|---|---|"]
    for reads, (of_layer, around) in READS.items():
        lines.append(f"| {reads} | {of_layer} | {around} | {n_kernels(reads)} |")
    return "\n".join(lines)


def table():
    return "\n".join(["| board | weights | depth | KV | GB a token | limit, tokens/s | expected | "
                      "share of the limit |", "|---|---|---|---|---|---|---|---|", *rows()])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--check", type=Path)
    args = parser.parse_args()
    for text in (table(), kernels_table()):
        if args.check is None:
            print(text, end="\n\n")
        elif text not in args.check.read_text():
            sys.exit(f"{args.check} has another table than this script, which gives\n{text}")


if __name__ == "__main__":
    main()
