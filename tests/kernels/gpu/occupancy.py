#!/usr/bin/env python3
"""occupancy.py [--nvcc NVCC] [--compiler CXX] [--archs 87,...] [--update]

What each GPU kernel takes of an SM on each architecture: the table of kernels/OCCUPANCY.md.

Goal    a change that leaves an SM with fewer CTAs, or spills more, is seen in its diff.
Method  nvcc compiles kernels/**/*.cu as the build does; ptxas says registers and spills; threads
        and shared bytes stand in the kernel's name (cta_cuda.h). CTAs an SM follow from these and
        from the architecture's limits. The columns of --archs (what toolchain/cuda.cmake builds)
        are compared with the page's, or replaced in it by --update. Another nvcc than the page's
        allots other registers: then, and without any, the exit status is 77, "skipped". Standard
        library only.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "kernels/OCCUPANCY.md"
BUILT = ROOT / "toolchain/cuda.cmake"
FLAGS = ["-std=c++20", "-O3", "--fmad=false", "--expt-relaxed-constexpr", "-Xptxas=-v"]
SKIPPED = 77

# Threads, CTAs and KiB of shared memory of an SM (CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability"); what is the same in all of them stands in ctas_a_sm.
LIMITS = {80: (2048, 32, 164), 86: (1536, 16, 100), 87: (1536, 16, 164), 89: (1536, 24, 100),
          90: (2048, 32, 228), 100: (2048, 32, 228), 110: (1536, 24, 228), 120: (1536, 24, 100)}

ENTRY = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
NAME = re.compile(r"::(\w+(?:<[^<>]*>)?) ?, (\d+)u, (\d+)ul+>\(")


def ctas_a_sm(arch, n_threads, n_registers, shared_bytes):
    """As cuda_occupancy.h counts: the least of what four kinds of room have place for."""
    threads_max, ctas_max, shared_kib = LIMITS[arch]
    n_warps = n_threads // 32
    # An SM's quarter has 16,384 registers, and gives a warp multiples of 256.
    warps_by_registers = 4 * (16384 // (-(-n_registers * 32 // 256) * 256))
    # In pieces of 128 bytes; the system takes 1 KiB of each CTA's.
    cta_bytes = -(-(shared_bytes + 1024) // 128) * 128
    return min(threads_max // n_threads, ctas_max, warps_by_registers // n_warps,
               shared_kib * 1024 // cta_bytes)


def parsed(log, arch):
    """{(kernel, threads, shared bytes): cell} of what ptxas said."""
    cells = {}
    entries = ENTRY.findall(log)
    names = subprocess.run(["c++filt"], input="\n".join(entries), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    for text, name in zip(ENTRY.split(log)[2::2], names, strict=True):
        name = re.sub(r"\(tarn::kernels::\w+\)|\(anonymous namespace\)::", "", name)
        kernel, n_threads, shared_bytes = NAME.search(name).groups()
        kernel = re.sub(r"(\d)u\b", r"\1", kernel)
        n_registers = int(REGISTERS.search(text).group(1))
        stored, loaded = map(int, SPILLS.search(text).groups())
        n_ctas = ctas_a_sm(arch, int(n_threads), n_registers, int(shared_bytes))
        spills = f", spills {stored}/{loaded}" if stored + loaded else ""
        cells[kernel, int(n_threads), int(shared_bytes)] = f"{n_registers}, {n_ctas}{spills}"
    return cells


def compiled(nvcc, compiler, arch):
    """{(file, kernel, threads, shared bytes): cell}"""
    def one(source):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([nvcc, "-ccbin", compiler, "-cubin", f"-arch=sm_{arch}", *FLAGS,
                                  f"-I{ROOT}", "-o", f"{folder}/kernel.cubin", source],
                                 capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"{source} does not compile for sm_{arch}:\n{run.stderr}")
        name = f"{source.parent.name}/{source.name}"
        return {(name, *key): cell for key, cell in parsed(run.stderr + run.stdout, arch).items()}

    cells = {}
    with ThreadPoolExecutor(2) as pool:
        for of_file in pool.map(one, sorted(ROOT.glob("kernels/*/*.cu"))):
            cells.update(of_file)
    return cells


def read_page(text):
    """{arch: {(file, kernel, threads, shared bytes): cell}} of the table."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")]
             for line in text.splitlines() if line.startswith("|")]
    archs = [int(cell.removeprefix("sm_")) for cell in lines[0][4:]]
    rows = {(row[0], row[1], int(row[2]), int(row[3])): row[4:] for row in lines[2:]}
    return {arch: {key: row[i] for key, row in rows.items()} for i, arch in enumerate(archs)}


def table(columns):
    archs = sorted(columns)
    keys = sorted(set().union(*(columns[arch] for arch in archs)))
    lines = ["| file | kernel | threads | shared bytes | " +
             " | ".join(f"sm_{arch}" for arch in archs) + " |", "|---" * (4 + len(archs)) + "|"]
    for key in keys:
        cells = [*map(str, key), *(columns[arch].get(key, "") for arch in archs)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--compiler", default="g++")
    built = re.search(r"set\(archs_auto ([\d ]+)\)", BUILT.read_text()).group(1)
    parser.add_argument("--archs", default=",".join(built.split()))
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if not Path(options.nvcc).exists():
        print(f"skipped: no nvcc in the PATH or at {options.nvcc}")
        sys.exit(SKIPPED)
    said = subprocess.run([options.nvcc, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"release ([\d.]+)", said.stdout).group(1)
    text = PAGE.read_text()
    of_page = re.search(r"nvcc (\d+\.\d+)", text).group(1)
    if version != of_page and not options.update:
        print(f"skipped: {PAGE.name} is of nvcc {of_page}, and this is {version}")
        sys.exit(SKIPPED)
    archs = [int(arch) for arch in options.archs.split(",")]
    if unknown := set(archs) - set(LIMITS):
        sys.exit(f"the limits of an SM of sm_{min(unknown)} are missing in {Path(__file__).name}")
    found = {arch: compiled(options.nvcc, options.compiler, arch) for arch in archs}
    wanted = read_page(text)
    if options.update:
        begin, end = text.index("|"), text.rindex("|") + 1
        text = text[:begin] + table({**wanted, **found}) + text[end:]
        PAGE.write_text(text.replace(f"nvcc {of_page}", f"nvcc {version}"))
        return
    wrong = 0
    for arch in archs:
        here, there = found[arch], {k: c for k, c in wanted.get(arch, {}).items() if c}
        for key in sorted(set(here) | set(there)):
            if here.get(key) != there.get(key):
                wrong += 1
                print(f"sm_{arch}: {', '.join(map(str, key))}: {here.get(key)}; the page has "
                      f"{there.get(key)}")
    if wrong:
        sys.exit(f"{wrong} cells differ. If that is meant, run {Path(__file__).name} --update, and "
                 "look at the diff of kernels/OCCUPANCY.md")
    print(f"{sum(map(len, found.values()))} cells as on the page")


if __name__ == "__main__":
    main()
