#!/usr/bin/env python3
"""drill.py [--compiler CXX] [--build DIR] [--link FILE...] [--only TEXT] [--list] [--every-index]

Breaks the GPU kernels on purpose, and counts what their tests notice.

Goal    a missing barrier, a missing wait and a wrong index in a kernel each turn a test red.
Method  every barrier(), sync_warp() and copy_wait() in kernels/**/*.cu and kernels/**/*_cta.h is
        deleted, one at a time, and in every kernel one index is shifted by one. A mutant is one
        changed file: the .cu files that contain it are compiled again, linked with the rest, and
        the tests of their family are run, under AddressSanitizer. Caught means that a test failed,
        that the emulator or the sanitizer stopped it, or that it ran for too long. Survivors are
        listed; fewer than 95 % caught is a failure.

What is compiled here, for the sanitizer, is whole folders. All else that the tests call comes from
--link: the archive that the build's own test programs link. So the drill has no list of its own.

The tree itself is not touched: mutants lie in the build folder, which comes first among the include
paths. Standard library only.
"""
import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CAUGHT_RATIO_MIN = 0.95
BASE_SECONDS_MAX = 1200

# What is compiled under the sanitizer beside the kernels.
SANITIZED = ["tests/support/emulator/*.cpp", "tests/kernels/gpu/*.cpp"]
FLAGS = ["-std=c++20", "-O1", "-g1", "-ffp-contract=off", "-fsanitize=address",
         "-fno-omit-frame-pointer"]

# Which test files look at a kernel file.
TESTS = {
    "kernels/act/act_cuda.cu": ["elementwise"],
    "kernels/attn/attn_cuda.cu": ["attn"],
    "kernels/attn/gather_slots_cuda.cu": ["select"],
    "kernels/attn/kv_append_cuda.cu": ["attn"],
    "kernels/attn/kv_read_cuda.cu": ["attn"],
    "kernels/matmul/matmat_cuda.cu": ["matmat"],
    "kernels/matmul/matmul_cuda.cu": ["matmul"],
    "kernels/matmul/matvec_cuda.cu": ["matvec"],
    "kernels/norm/norm_cuda.cu": ["norm", "quantize"],
    "kernels/pq/pq_cuda.cu": ["select"],
    "kernels/quant/activations_cuda.cu": ["quantize"],
    "kernels/quant/dequant_cuda.cu": ["elementwise"],
    "kernels/rope/rope_cuda.cu": ["elementwise"],
    "kernels/sample/sample_cuda.cu": ["sample"],
    "kernels/topk/topk_cuda.cu": ["select"],
}

WAITS = re.compile(r"cta\.(?:barrier\(\)|sync_warp\(\)|copy_wait<\d+>\(\)|copy_commit\(\));")
KERNEL = re.compile(r"^struct (\w+) (?::[^{]*)?\{$", re.MULTILINE)
# By what something is read or written at a computed place: a subscript, a store's offset.
INDEX = re.compile(r"(?<![\w.>])(?:\w+(?:\.|->))*\w+\[([^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]"
                   r"|\bstore\([\w.]+ \+ ([^,]+),")


class Mutant:
    def __init__(self, path, line, what, text):
        self.path, self.line, self.what, self.text = path, line, what, text

    def __str__(self):
        return f"{self.path}:{self.line}: {self.what}"


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def without_waits(path, text):
    for match in WAITS.finditer(text):
        changed = text[:match.start()] + ";" + text[match.end():]
        yield Mutant(path, line_of(text, match.start()), f"without {match.group(0)}", changed)


def bodies(text):
    """(name, begin, end) of each kernel: a struct that has run()."""
    for match in KERNEL.finditer(text):
        end = text.find("\n};", match.start())
        if "static void run(Cta& cta" in text[match.start():end]:
            yield match.group(1), match.start(), end


def shifted(path, text, match, name=""):
    begin, end = match.span(match.lastindex)
    changed = text[:begin] + f"({text[begin:end]}) + 1" + text[end:]
    what = match.group(0).rstrip(",")
    return Mutant(path, line_of(text, match.start()), f"{name}{what} shifted", changed)


def every_index(path, text):
    """Every index of a .cu file's code that is no literal."""
    for match in INDEX.finditer(text):
        line = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
        if re.fullmatch(r"\d*|k\w+", match[match.lastindex]) or "//" in line or line.endswith("&"):
            continue
        if re.search(r"\b(?:[uif](?:8|16|32|64)|U32x\d|Type)\*? (?:\(&\w*)?$", line):
            continue  # a declaration
        yield shifted(path, text, match)


def shifted_indices(path, text):
    """In each kernel the last index of a global or shared array that is no literal."""
    for name, begin, end in bodies(text):
        found = [m for m in INDEX.finditer(text, begin, end)
                 if not re.fullmatch(r"\d*|k\w+", m[m.lastindex])
                 and not text[text.rfind("\n", 0, m.start()):m.start()].strip()
                 .startswith(("f32 m", "static", "const Shared", "//"))]
        if not found:
            # All of its work is done by address: shift the element that a thread takes.
            match = re.search(r"cta\.(?:thread|lane)\(\)", text[begin:end])
            at = begin + match.end()
            changed = text[:at] + " + 1" + text[at:]
            yield Mutant(path, line_of(text, at), f"{name}: thread shifted", changed)
            continue
        yield shifted(path, text, found[-1], f"{name}: ")


def all_mutants(indices):
    for path in sorted(ROOT.glob("kernels/*/*.cu")) + sorted(ROOT.glob("kernels/*/*_cta.h")):
        name = str(path.relative_to(ROOT))
        text = path.read_text()
        yield from without_waits(name, text)
        if name.endswith(".cu"):
            yield from indices(name, text)


class Builder:
    def __init__(self, compiler, folder, libraries):
        self.compiler, self.folder = compiler, Path(folder)
        self.libraries = [name if "/" in name else f"-l{name}" for name in libraries if name]
        self.mutant_root = self.folder / "mutant"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.seconds_max = BASE_SECONDS_MAX  # of a run of the tests

    def compile(self, source, target, mutated=None):
        command = self.compiler.split() + FLAGS
        if mutated:
            command += ["-I", str(self.mutant_root)]
        command += ["-I", str(ROOT)]
        if str(source).endswith(".cu"):
            command += ["-x", "c++"]
        command += ["-c", str(source), "-o", str(target)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def base_object(self, name):
        return self.folder / (name.replace("/", "_") + ".o")

    def build_base(self):
        kernels = [str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("kernels/**/*.cu"))]
        tests = [str(p.relative_to(ROOT)) for pattern in SANITIZED
                 for p in sorted(ROOT.glob(pattern))]
        for name in kernels + tests:
            target = self.base_object(name)
            run = self.compile(ROOT / name, target)
            if run.returncode != 0:
                sys.exit(f"{name} does not compile:\n{run.stderr}")
        self.kernels = kernels
        self.objects = {name: self.base_object(name) for name in kernels + tests}

    def link(self, objects, program):
        # The archives need each other, so the linker looks through them until nothing is missing.
        command = self.compiler.split() + [
            "-fsanitize=address", *map(str, objects), "-Wl,--start-group", *self.libraries,
            "-Wl,--end-group", "-lpthread", "-o", str(program)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def users(self, name):
        """The .cu files in which a change of `name` matters."""
        if name.endswith(".cu"):
            return [name]
        wanted, changed = {name}, True
        headers = [str(p.relative_to(ROOT)) for p in ROOT.glob("kernels/*/*.h")]
        while changed:
            changed = False
            for header in headers:
                text = (ROOT / header).read_text()
                if header not in wanted and any(f'"{w}"' in text for w in wanted):
                    wanted.add(header)
                    changed = True
        return [k for k in self.kernels
                if k in TESTS and any(f'"{w}"' in (ROOT / k).read_text() for w in wanted)]

    def run_tests(self, program, kernels):
        """None if all pass, else how it was noticed."""
        files = sorted({test for kernel in kernels for test in TESTS[kernel]})
        filters = ",".join(f"*/{test}_test.cpp" for test in files)
        try:
            run = subprocess.run([str(program), f"--source-file={filters}", "--abort-after=1"],
                                 capture_output=True, text=True, check=False,
                                 timeout=self.seconds_max)
        except subprocess.TimeoutExpired:
            return "ran for too long"
        if run.returncode == 0:
            return None
        if "a rule of kernels/common/cta.h" in run.stderr:
            return "emulator"
        return "sanitizer" if "AddressSanitizer" in run.stderr else "test"

    def try_mutant(self, mutant):
        source = self.mutant_root / mutant.path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(mutant.text)
        try:
            users = self.users(mutant.path)
            objects = dict(self.objects)
            for i, user in enumerate(users):
                target = self.folder / f"mutant{i}.o"
                run = self.compile(source if user == mutant.path else ROOT / user, target, True)
                if run.returncode != 0:
                    return "does not compile"
                objects[user] = target
            program = self.folder / "mutant_tests"
            if self.link(objects.values(), program).returncode != 0:
                return "does not link"
            return self.run_tests(program, users)
        finally:
            source.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
    parser.add_argument("--compiler", default="clang++-14")
    parser.add_argument("--build", default="build/drill")
    parser.add_argument("--link", nargs="+", default=["build/release/tests/libtarn_test_support.a"],
                        help="files and names of libraries")
    parser.add_argument("--only", default="", help="mutants whose line contains this")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--every-index", action="store_true", help="not one of each kernel alone")
    options = parser.parse_args()
    indices = every_index if options.every_index else shifted_indices
    mutants = [m for m in all_mutants(indices) if options.only in str(m)]
    unknown = {m.path for m in mutants if m.path.endswith(".cu")} - set(TESTS)
    if unknown:
        sys.exit(f"no tests are named for {', '.join(sorted(unknown))}")
    if options.list:
        print(*mutants, sep="\n")
        return
    builder = Builder(options.compiler, options.build, options.link)
    builder.build_base()
    program = builder.folder / "tests"
    linked = builder.link(builder.objects.values(), program)
    if linked.returncode != 0:
        sys.exit(f"the tests do not link:\n{linked.stderr}")
    began = time.monotonic()
    noticed = builder.run_tests(program, list(TESTS))
    if noticed:
        sys.exit(f"the tests are red without any change: {noticed}")
    # A mutant runs some of these tests; what takes twice as long as all of them hangs.
    builder.seconds_max = 2 * (time.monotonic() - began) + 10
    survivors, n_tried = [], 0
    for mutant in mutants:
        how = builder.try_mutant(mutant)
        if how in ("does not compile", "does not link"):
            sys.exit(f"{mutant}: {how}; the drill must learn to change it otherwise")
        n_tried += 1
        print(f"{mutant}: {how or 'SURVIVED'}", flush=True)
        if how is None:
            survivors.append(mutant)
    n_caught = n_tried - len(survivors)
    print(f"{n_caught} of {n_tried} caught ({100 * n_caught / max(n_tried, 1):.1f} %)")
    for mutant in survivors:
        print(f"survivor: {mutant}")
    sys.exit(0 if n_tried and n_caught >= CAUGHT_RATIO_MIN * n_tried else 1)


if __name__ == "__main__":
    main()
