#!/usr/bin/env python3
"""headers_alone.py ROOT COMPILER FLAG... <LIST: each header of LIST, one path a line, compiles when
it is all that is included.

Goal    no header leans on what its includer happened to include before it.
Method  one -fsyntax-only run for each header, on a source of two lines: twice the same include, so
        that a missing guard fails as well. What its own source includes first was seen alone by the
        build. The public C header is compiled as C11 too. Headers below a folder cuda/ need CUDA's
        own: with a flag --cuda=DIR, which says where those are.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import tidy  # noqa: E402

PUBLIC = ("runtime/api/tarn.h", "runtime/api/tarn_error.h", "runtime/api/tarn_chat.h",
          "runtime/api/tarn_chunks.h", "runtime/api/tarn_explain.h", "runtime/api/tarn_store.h")


def is_first_in_its_source(tree, header):
    source = Path(tree.root, header).with_suffix(".cpp")
    first = source.is_file() and re.search(r"^#include\s+(\S+)", source.read_text(), re.M)
    return bool(first) and first.group(1) == f'"{header}"'


def compile_alone(job):
    header, language, command = job
    source = f'#include "{header}"\n' * 2
    run = subprocess.run([*command, "-x", language, "-fsyntax-only", "-"], input=source, text=True,
                         capture_output=True, check=False)
    return header, run.returncode, run.stderr


def main():
    root, compiler, *flags = sys.argv[1:]
    tree = tidy.Tree(root)
    cuda = [f.split("=", 1)[1] for f in flags if f.startswith("--cuda=")]
    flags = [f for f in flags if not f.startswith("--cuda=")]
    flags += [word for folder in cuda for word in ("-isystem", folder)]
    asked = set(sys.stdin.read().split())
    headers = [p for p in tree.files if p in asked and p.endswith(".h")]
    headers = [p for p in headers if cuda or "/cuda/" not in p]
    headers = [p for p in headers if p in PUBLIC or not is_first_in_its_source(tree, p)]
    jobs = [(h, "c++", [compiler, "-std=c++20", "-I", root, *flags]) for h in headers]
    jobs += [(h, "c", [compiler, "-std=c11", "-pedantic-errors", "-I", root])
             for h in headers if h in PUBLIC]
    n_bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, status, text in pool.map(compile_alone, jobs):
            if status != 0:
                n_bad += 1
                print(f"{header} does not compile alone:\n{text}")
    print(f"{len(jobs)} headers, {n_bad} do not compile alone")
    sys.exit(1 if n_bad else 0)


if __name__ == "__main__":
    main()
