#!/usr/bin/env python3
"""ratchet.py ROOT: what of runtime/ is too large today, and may only shrink.

A count above its limit is a finding. So is one below it: lower the limit, and it cannot grow back.
What has no limit of its own here has its kind's. Standard library only.
"""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import tidy  # noqa: E402

METHODS_MAX = 30  # of a class of runtime/
LINES_MAX = 400   # of a file of runtime/

# Classes with more methods, private ones and constructors among them.
METHODS = {
    "Store": 33,
}
# Files with more lines.
LINES = {
    "runtime/api/tarn.h": 454,
}
# Whether KV lies in memory, on a disk or on a GPU, asked in the engine and in the backends.
PLACEMENT_TESTS = 10
# Product files outside of selection and configuration that name one of its methods.
METHOD_FILES = 0
ENGINE_FILES = 24

PLACEMENT = re.compile(r"\bis_on\(\)|\bon_gpu\(\)|\b(?:kv_stream|device)_? [!=]= nullptr")
METHOD = re.compile(r"SelectMethod|Quest|\b(?<!kernels::)Pq[A-Z]")  # arithmetic is none's
METHOD_ROOMS = ("runtime/method/", "runtime/config/", "runtime/lab/")


def body_at(code, begin):
    """The text between the brace at `begin` and the one that closes it."""
    depth = 0
    for at in range(begin, len(code)):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        if depth == 0:
            return code[begin + 1:at]
    return code[begin + 1:]


def members(body):
    """The declarations of a class body, without what stands in inner braces."""
    flat, depth = [], 0
    for c in body:
        if c == "{":
            depth += 1
            if depth == 1:
                flat.append(";")
        elif c == "}":
            depth -= 1
        elif depth == 0:
            flat.append(c)
    return [" ".join(part.split()) for part in re.split(r";|\b(?:public|private|protected):",
                                                        "".join(flat))]


def is_method(member):
    head = re.sub(r"^template <[^()]*>\s*", "", member).split("(")[0]
    head = re.sub(r"\boperator\W+$", "operator", head)
    if "(" not in member or "=" in head or re.match(r"(?:using|friend|static_assert)\b", head):
        return False
    return re.search(r"\w\s*$", head) is not None


def methods(code):
    """(class, number of methods) of a header, structs too."""
    pattern = r"\b(?:class|struct)\s+(?:alignas\([^)]*\)\s*)?(\w+)\b(?!::)[^;{()]*\{"
    for found in re.finditer(pattern, code):
        body = body_at(code, found.end() - 1)
        yield found.group(1), sum(map(is_method, members(body)))


def counts(tree):
    """(path, what, count, limit) of all that is counted."""
    placement = method_files = engine_files = 0
    for path in tree.sources("runtime/"):
        code = tree.code(path)
        n_lines = (tree.text(path) or "").count("\n")
        if n_lines > LINES_MAX or path in LINES:
            yield path, "lines", n_lines, LINES.get(path, LINES_MAX)
        if path.endswith(".h"):
            for name, n in methods(code):
                if n > METHODS_MAX or name in METHODS:
                    yield path, f"methods of {name}", n, METHODS.get(name, METHODS_MAX)
        if path.startswith(("runtime/engine/", "runtime/exec/")):
            placement += len(PLACEMENT.findall(code))
        engine_files += path.startswith("runtime/engine/")
        if METHOD.search(code) and not path.startswith(METHOD_ROOMS):
            method_files += 1
    yield "runtime/engine", "tests of where KV lies", placement, PLACEMENT_TESTS
    yield "runtime/engine", "files", engine_files, ENGINE_FILES
    yield "runtime", "files that name a method of selection", method_files, METHOD_FILES


def findings(tree):
    for path, what, count, limit in counts(tree):
        if count > limit:
            yield f"{path}: {count} {what}, {limit} at most: move or cut something"
        elif count < limit:
            yield f"{path}: {count} {what}, its limit is {limit}: lower that in ratchet.py"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(findings(tidy.Tree(sys.argv[1])))
    for finding in found:
        print(finding)
    print(f"{len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
