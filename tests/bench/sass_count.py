#!/usr/bin/env python3
"""sass_count.py NVCC NVDISASM [--arch 87]

Counts the instructions that a lane of the decode products executes for 32 bytes of weights, from
the machine code of their inner loops, and says what share of the issue slots and of the integer
units of two boards that is while their memory gives all it can; then those of a warp of a prompt's
products for 32 rows, 32 outputs and 32 k: the tables of kernels/NAPKIN.md.

A loop is told by its instructions: only q4_k adds pairs (IDP.2A), only q6_k has the mask 0x3c, only
q8_0 multiplies bytes without either, only f16 without any. An SM of sm_87 issues 128 lanes a clock,
its integer units take 64 (CUDA's programming guide, arithmetic throughput of 8.6 and 8.7).
"""
import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DECODE, PROMPT = "kernels/matmul/matvec_cuda.cu", "kernels/matmul/matmat_cuda.cu"
# Weight bytes of a chunk, and how many IDP.4A (f16: FFMA) it takes for each row of activations.
TYPES = {"q4_k": (18, 8), "q6_k": (26.25, 8), "q8_0": (17, 4), "f16": (16, 8)}
INTEGER = re.compile(r"^(@!?U?P\d+ )?(IDP|LOP3|SHF|IADD3|IMAD|LEA|ISETP|SEL|PRMT|IABS|IMNMX|BFE)")
LANES_ISSUED, LANES_INTEGER = 128, 64
BOARDS = (("Nano", 8, 1.02, 102.0), ("AGX", 16, 1.3, 204.8))  # SMs, GHz, GB/s
WINDOW_K = {"q4_k": 32, "q6_k": 32, "q8_0": 16}  # of a warp, in a prompt's product
LAYER_WEIGHTS = 6.98e9  # of Llama 3.1 8B


def disassemble(nvcc, nvdisasm, arch, source):
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        subprocess.run([nvcc, "-cubin", f"-arch=sm_{arch}", "-std=c++20", "--fmad=false",
                        "--expt-relaxed-constexpr", "-O3", f"-I{ROOT}", "-o", cubin,
                        ROOT / source], check=True)
        return subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True,
                              text=True).stdout


def kernels(sass, name):
    """(the first group of `name`, instructions, {label: index}) of each kernel."""
    for match in re.finditer(rf"^\.text\.\S*{name}\S*:\n(.*?)(?=^\s*\.section|\Z)", sass,
                             re.DOTALL | re.MULTILINE):
        instructions, labels = [], {}
        for line in match.group(2).split("\n"):
            label = re.match(r"(\.L_x_\d+):", line)
            if label:
                labels[label.group(1)] = len(instructions)
            instruction = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)
            if instruction:
                instructions.append(instruction.group(1))
        yield match.group(1), instructions, labels


def loops(instructions, labels):
    for end, text in enumerate(instructions):
        branch = re.search(r"BRA\b.*?(\.L_x_\d+)", text)
        if branch and labels.get(branch.group(1), end + 1) < end:
            yield instructions[labels[branch.group(1)]:end + 1]


def count(loop, pattern):
    return sum(1 for text in loop if re.search(pattern, text))


def type_of(loop):
    if not count(loop, r"LDG"):
        return None
    if count(loop, r"IDP\.2A"):
        return "q4_k"
    if count(loop, "0x3c3c3c3c"):
        return "q6_k"
    return "q8_0" if count(loop, r"IDP\.4A") else "f16"


def figures(sass):
    """{(type, rows): (instructions, integer instructions) for 32 weight bytes}"""
    found = {}
    for rows, instructions, labels in kernels(sass, r"MatvecILj(\d+)E"):
        rows = int(rows)
        for loop in loops(instructions, labels):
            name = type_of(loop)
            if name is None:
                continue
            chunk_bytes, products = TYPES[name]
            n_products = count(loop, "FFMA" if name == "f16" else r"IDP\.4A")
            weight_bytes = n_products / (products * rows) * chunk_bytes
            n_integer = sum(1 for text in loop if INTEGER.match(text))
            per_32 = (len(loop) * 32 / weight_bytes, n_integer * 32 / weight_bytes)
            found[name, rows] = max(per_32, found.get((name, rows), (0, 0)))
    return found


def prompt_figures(sass):
    """{type: instructions of a warp for 32 rows, 32 outputs and 32 k}"""
    found = {}
    for _, instructions, labels in kernels(sass, r"(Matmat)"):
        for loop in loops(instructions, labels):
            if not count(loop, "IMMA"):
                continue
            name = ("q4_k" if count(loop, r"IDP\.2A") else
                    "q6_k" if count(loop, "0x3c3c3c3c") else "q8_0")
            n = len(loop) * 32 // WINDOW_K[name]
            found[name] = min(n, found.get(name, n))  # the others are loops around it
    return found


def print_prompt(found):
    boards = " | ".join(f"{name}: ms a row, tokens/s" for name, *_ in BOARDS)
    print(f"| type | instructions | {boards} |")
    print("|---|---|---|---|")
    for name, n in sorted(found.items()):
        shares = []
        for _, sms, ghz, _ in BOARDS:
            warps_per_s = sms * 4 * ghz * 1e9
            ms = LAYER_WEIGHTS / 32**3 * n / warps_per_s * 1e3
            shares.append(f"{ms:.2f}, {1e3 / ms:.0f}")
        print(f"| {name} | {n} | {' | '.join(shares)} |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("nvcc")
    parser.add_argument("nvdisasm")
    parser.add_argument("--arch", default="87")
    args = parser.parse_args()
    found = figures(disassemble(args.nvcc, args.nvdisasm, args.arch, DECODE))
    if len(found) != len(TYPES) * 4:
        sys.exit(f"{len(found)} inner loops were found, {len(TYPES) * 4} wanted: has the kernel or "
                 "the compiler changed?")
    boards = " | ".join(f"{name}: issue, integer" for name, *_ in BOARDS)
    print(f"| type | rows | instructions | integer ones | {boards} |")
    print("|---|---|---|---|---|---|")
    for name in TYPES:
        for rows in (1, 4, 8):
            n, n_integer = found[name, rows]
            shares = []
            for _, sms, ghz, gb_per_s in BOARDS:
                clocks = sms * ghz / gb_per_s * 32  # of an SM while 32 bytes come
                shares.append(f"{100 * n / LANES_ISSUED / clocks:.0f} %, "
                              f"{100 * n_integer / LANES_INTEGER / clocks:.0f} %")
            print(f"| {name} | {rows} | {n:.0f} | {n_integer:.0f} | {' | '.join(shares)} |")
    print()
    prompt = prompt_figures(disassemble(args.nvcc, args.nvdisasm, args.arch, PROMPT))
    if len(prompt) != len(WINDOW_K):
        sys.exit(f"of a prompt's product {sorted(prompt)} were found, not {sorted(WINDOW_K)}")
    print_prompt(prompt)


if __name__ == "__main__":
    main()
