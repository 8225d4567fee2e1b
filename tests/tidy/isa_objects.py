#!/usr/bin/env python3
"""isa_objects.py NM ROOT OBJECT...: the objects of the ISA files are sterile.

Goal    an object that was compiled for AVX2 or AVX-512 defines its kernels and nothing else. Of an
        inline function that several objects define, the linker keeps any one; were it this
        object's, the generic path would die of SIGILL on a machine without the ISA.
Method  nm on each object whose name ends in _<isa>.cpp.o: every symbol that it defines for others
        is a strong function named ..._<isa>, which a header of the same folder declares.
        isa_objects_test.py compiles objects with one fault each.
"""
import re
import subprocess
import sys
from pathlib import Path

ISAS = ("avx2", "avx512", "neon")
OBJECT_NAME = re.compile(rf"(kernels/\w+)/\w+_({'|'.join(ISAS)})\.cpp\.o(bj)?$")


def declared_names(headers):
    """Names of functions that these headers' texts declare with a semicolon."""
    return {name for text in headers for name in re.findall(r"\b(\w+)\([^(){}]*\);", text)}


def problems(listing, isa, declared):
    """`listing` is nm -C's; yields one sentence for each symbol that must not be there."""
    n_kernels = 0
    for line in listing.splitlines():
        match = re.match(r"^[0-9a-fA-F]+\s+([A-Za-z])\s+(.+)$", line)
        if not match:
            continue
        kind, name = match.groups()
        if kind.islower() and kind not in "uvwi":
            continue  # local: the linker keeps it with its object
        function = re.match(rf"^tarn::kernels::(\w+_{isa})\(", name)
        if kind != "T":
            yield f"'{name}' is of kind {kind}: another object's copy may be replaced by this one"
        elif not function:
            yield f"'{name}' is not a function of tarn::kernels named ..._{isa}"
        elif function.group(1) not in declared:
            yield f"'{name}' is declared by no header of its folder"
        else:
            n_kernels += 1
    if n_kernels == 0:
        yield "it defines no kernel at all"


def main():
    nm, root, *objects = sys.argv[1:]
    n_seen = n_bad = 0
    for path in objects:
        match = OBJECT_NAME.search(path.replace("\\", "/"))
        if not match:
            continue
        n_seen += 1
        folder, isa = match.group(1), match.group(2)
        headers = [h.read_text() for h in Path(root, folder).glob("*.h")]
        listing = subprocess.run([nm, "-C", path], check=True, capture_output=True,
                                 text=True).stdout
        for sentence in problems(listing, isa, declared_names(headers)):
            n_bad += 1
            print(f"{match.group(0)}: {sentence}")
    print(f"{n_seen} ISA objects, {n_bad} problems")
    if n_seen == 0:
        sys.exit(77)  # an architecture without ISA files
    sys.exit(1 if n_bad else 0)


if __name__ == "__main__":
    main()
