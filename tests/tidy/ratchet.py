#!/usr/bin/env python3
"""ratchet.py ROOT [--table | --placement]: what is too large today, and may only shrink.

A count above its limit is a finding. So is one below it: lower the limit, and it cannot grow back.
What has no limit of its own here has its kind's. --table prints figures of the whole tree;
--placement the lines that decide where KV lies. Standard library only.
"""
import collections
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import tidy  # noqa: E402

METHODS_MAX = 30  # of a class, with those of its bases but for interfaces
LINES_MAX = 400   # of a file of runtime/
METHOD_FREE = "kernels/"  # vectors of an ISA have a method an instruction
COUNTED = ("platform/", "kernels/", "runtime/", "tools/")

# Classes with more, private ones and constructors among them.
METHODS = {
    "platform/gpu/cuda/cuda_device.h: CudaDevice": 39,
    "platform/gpu/device.h: Device": 33,
    "runtime/store/store.h: Store": 33,
    "tools/tarnd/answers.h: Answer": 35,
    "tools/tarnd/connection.h: Connection": 31,
}
# Files with more lines.
LINES = {
    "runtime/api/tarn.h": 454,
}
# Lines outside of the plan that ask where KV lies, or whether a CPU or a GPU computes.
PLACEMENT_LINES = 8
# Classes that inherit from one of another file that is no interface.
INHERITS = {(name, base) for base, names in {
    "Head": ["BlockHead"],
    "Singly": ["Pairs8", "Scalar"],
    "Q4K": ["Q5K"],
    "Score": ["Trial"],
    "AnswerFields": ["Body"],
    "ValueReader": ["Copy", "IdReader", "Members", "MessagesReader", "PassageTexts", "Refuse",
                    "Scalar", "Skip", "Texts"],
}.items() for name in names}
# Product files that name a method of selection, beside its own, the table of methods, the
# configuration and lab.
METHOD_FILES = 0
FOLDER_FILES = 20  # of a folder of runtime/engine

# A decision asks one of these, and has a branch. What a store has of frames is none of it, and the
# choice of a device comes before there is a plan.
PLACEMENT = re.compile(
    r"\b(?:(?:runs_|is_)?on_gpu|has_gpu|in_tiers|has_tiers|is_on_device|is_resident|in_place"
    r"|in_stripes|if_stripes|n_staged|in_chunks|if_chunks|in_parts|pins_arena|is_pinned)_?\b"
    r"|\b(?:facts|args)_?\.has_disk\b|\b(?:parts|chooser)_\.is_on\(\)|\btiers\.is_on\(\)"
    r"|\bgpu_kernels [!=]= nullptr|\b(?:args_?\.device|e_\.device_|watched) [!=]= nullptr"
    r"|\bDeviceKind::cpu|\btiers\.n_frames [<>!=]=? 0|\(n_frames [<>!=]=? 0")
BRANCH = re.compile(r"\bif \(|\?|&& |\|\||(?<![\w)])!|[!=]= |\s[<>] |\bif_\w+ \*|ASSERT")
PLANS = ("runtime/plan/", "runtime/store/", "runtime/engine/model_file.cpp")
METHOD = re.compile(r"SelectMethod|Quest|\bpq_of\b|\b(?<!kernels::)Pq[A-Z]")  # arithmetic is none's
METHOD_ROOMS = ("runtime/method/pq/", "runtime/method/read/", "runtime/method/methods.cpp",
                "runtime/config/", "runtime/lab/")


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
    return re.search(r"\w\s*$", head) is not None and "(*" not in member.split(")")[0]


def without_angles(text):
    n = 1
    while n > 0:
        text, n = re.subn(r"<[^<>]*>", "", text)
    return text


NO_DATA = re.compile(
    r"(?:using|friend|static|static_assert|constexpr|enum|struct|class|union|typedef|template"
    r"|inline|explicit|operator|~|:|=|const$|override|noexcept)(?!\w)")


def n_data(member):
    """How many data members of each object it declares; `, b` is what follows `int a{}`."""
    if not re.search(r"\w", member) or is_method(member) or NO_DATA.match(member):
        return 0
    return 1 + re.sub(r"\([^()]*\)", "", without_angles(member).lstrip(",")).count(",")


CLASS = re.compile(r"\b(?<!enum )(?:class|struct)\s+(?:alignas\([^)]*\)\s*)?(\w+)\b(?!::)"
                   r"([^;{()]*)\{")


class Class:
    """A class as its definition has it; `bases` are the last words of their names.

    An interface has virtual methods alone, pure or with a default, and no data.
    """

    def __init__(self, path, found, code):
        self.path, self.name = path, found.group(1)
        declared = members(body_at(code, found.end() - 1))
        after = without_angles(found.group(2)).partition(":")[2]
        self.bases = [re.findall(r"\w+", base)[-1] for base in re.split(r",", after)
                      if re.search(r"\w", base)]
        self.methods = sum(map(is_method, declared))
        self.data = sum(map(n_data, declared))
        owned = [m for m in declared if is_method(m) and not re.match(r"(?:virtual\b|~)", m)]
        self.is_interface = self.methods > 0 and not owned and self.data == 0


def classes(code, path=""):
    """The classes of a file, structs and inner ones too."""
    return [Class(path, found, code) for found in CLASS.finditer(code)]


class Hierarchy:
    """All classes of a tree, and what each has of its bases."""

    def __init__(self, tree):
        self.all = [c for path in tree.sources(*COUNTED) for c in classes(tree.code(path), path)]
        self.by_name = {}
        for c in self.all:
            self.by_name.setdefault(c.name, []).append(c)

    def bases(self, c):
        """Those that the tree defines: of equal names the nearest."""
        for name in c.bases:
            named = [b for b in self.by_name.get(name, []) if b is not c]
            if named:
                yield max(named, key=lambda b: (b.path == c.path, common(b.path, c.path)))

    def through_bases(self, c, count):
        """Of the class and of its bases but for interfaces, `count` being "methods" or "data"."""
        return getattr(c, count) + sum(self.through_bases(b, count) for b in self.bases(c)
                                       if not b.is_interface)

    def inherits(self):
        """(class, base) between files, where the base is no interface."""
        for c in self.all:
            for b in self.bases(c):
                if b.path != c.path and not self.is_pure(b):
                    yield c, b

    def is_pure(self, c):
        return c.is_interface and all(map(self.is_pure, self.bases(c)))

    def count(self, name, what):
        return max((self.through_bases(c, what) for c in self.by_name.get(name, [])), default=0)

    def largest(self):
        return max((c for c in self.all if not c.path.startswith(METHOD_FREE)),
                   key=lambda c: self.through_bases(c, "methods"))


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def placement(tree):
    """(path, line number, line) of every decision on where KV lies, or what computes."""
    for path in tree.sources("runtime/"):
        if path.startswith(PLANS):
            continue
        for number, line in tree.code_lines(path):
            if PLACEMENT.search(line) and BRANCH.search(line):
                yield path, number, line.strip()


def counts(tree):
    """(path, what, count, limit) of all that is counted."""
    method_files, engine_files = 0, collections.Counter()
    hierarchy = Hierarchy(tree)
    for c in hierarchy.all:
        n, limit = hierarchy.through_bases(c, "methods"), METHODS.get(f"{c.path}: {c.name}")
        if not c.path.startswith(METHOD_FREE) and (n > METHODS_MAX or limit):
            yield c.path, f"methods of {c.name}", n, limit or METHODS_MAX
    for path in tree.sources("runtime/"):
        code = tree.code(path)
        n_lines = (tree.text(path) or "").count("\n")
        if n_lines > LINES_MAX or path in LINES:
            yield path, "lines", n_lines, LINES.get(path, LINES_MAX)
        engine_files[path.rpartition("/")[0]] += path.startswith("runtime/engine/")
        if METHOD.search(code) and not path.startswith(METHOD_ROOMS):
            method_files += 1
    yield "runtime", "lines that decide on placement", len(list(placement(tree))), PLACEMENT_LINES
    yield "runtime/engine", "files in its largest folder", max(engine_files.values()), FOLDER_FILES
    yield "runtime", "files that name a method of selection", method_files, METHOD_FILES


def findings(tree):
    for path, what, count, limit in counts(tree):
        if count > limit:
            yield f"{path}: {count} {what}, {limit} at most: move or cut something"
        elif count < limit:
            yield f"{path}: {count} {what}, its limit is {limit}: lower that in ratchet.py"
    inherits = {(c.name, b.name): c.path for c, b in Hierarchy(tree).inherits()}
    for (name, base), path in inherits.items():
        if (name, base) not in INHERITS:
            yield f"{path}: {name} inherits {base} of another file: hold it, or an interface"
    for name, base in sorted(INHERITS - inherits.keys()):
        yield f"{name} does not inherit {base}: strike that from INHERITS in ratchet.py"


def n_lines(tree, *prefixes):
    return sum((tree.text(path) or "").count("\n") for path in tree.sources(*prefixes))


def table(tree):
    """(cell, figure) of what the tree is to become, as far as a script can count it."""
    hierarchy = Hierarchy(tree)
    largest = hierarchy.largest()
    yield "methods of Engine, through bases", hierarchy.count("Engine", "methods")
    yield "data members of Engine, through bases", hierarchy.count("Engine", "data")
    yield "fields of Session", hierarchy.count("Session", "data")
    yield (f"methods of the largest class, {largest.name}, through bases",
           hierarchy.through_bases(largest, "methods"))
    yield "lines that decide on placement", len(list(placement(tree)))
    yield "product lines", n_lines(tree, *COUNTED)
    yield "test lines", n_lines(tree, "tests/")
    for path in ("README.md", "runtime/ARCHITECTURE.md"):
        yield f"lines of {path}", sum(tree.text(p).count("\n") for p in tree.files if p == path)


def main():
    if not 2 <= len(sys.argv) <= 3 or sys.argv[2:] not in ([], ["--table"], ["--placement"]):
        sys.exit(__doc__)
    tree = tidy.Tree(sys.argv[1])
    if sys.argv[2:] == ["--table"]:
        for cell, figure in table(tree):
            print(f"{figure:7}  {cell}")
        return
    if sys.argv[2:] == ["--placement"]:
        for path, number, line in placement(tree):
            print(f"{path}:{number}: {line}")
        return
    found = list(findings(tree))
    for finding in found:
        print(finding)
    print(f"{len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
