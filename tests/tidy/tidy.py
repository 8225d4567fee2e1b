#!/usr/bin/env python3
"""tidy.py ROOT: the rules of this house that no compiler and no linter checks.

Prints one line a finding, `path:line: rule: what is wrong and what to do`, and fails if there is
one. Files are those that git tracks, or all but build folders where there is no git. tidy_test.py
feeds every rule a sample that it must refuse. Standard library only.
"""
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import layers  # noqa: E402
import prose  # noqa: E402

CORE = ("platform/", "kernels/", "runtime/")
LAB = "runtime/lab/"  # never in libtarn.a
SOURCES = (".h", ".cpp", ".c", ".cu")
LINES_MAX = 1000
LINES_THINK = 600
COLUMNS_MAX = 100
PROSE_COLUMNS_MAX = 120

TOP_LEVEL = {
    "runtime", "kernels", "platform", "configs", "tools", "tests", "toolchain", "CMakeLists.txt",
    "README.md", "CMakePresets.json", "LICENSE", ".clang-format", ".clang-tidy",
    ".gitignore", ".ci", "CONTRIBUTING.md", "CHANGELOG.md",
}

# The only files that are not text, and how many bytes each may have. Fixtures are made by a script
# that lies beside them; the model's script, seed and log: tools/builtin/README.md.
BINARIES = (
    (re.compile(r"tests/golden/[a-z0-9_/]+\.(bin|gguf)"), 64 * 1024),
    (re.compile(r"tools/builtin/logbook\.gguf"), 12 * 1024 * 1024),
)

# What the core does not call: (pattern, folders where it may stand, what to do instead).
BANNED_CALLS = [
    (r"\b(?:exit|_exit|_Exit|quick_exit|abort|terminate)\s*\(", (),
     "the library never ends its host: TARN_ASSERT for our bugs, Result for the world's"),
    (r"\bassert\s*\(", (), "TARN_ASSERT, which stays on in release and returns to no broken code"),
    (r"\b(?:signal|sigaction|raise|prctl|setlocale|mlockall|cudaDeviceReset)\s*\(", (),
     "it changes the host's process; that belongs to the executables"),
    (r"\b(?:v?f?printf|v?sprintf|puts|fputs|putchar|perror)\s*\(|\bstd::c(?:out|err|log)\b", (),
     "platform/log for messages, format_error for errors"),
    (r"\bv?snprintf\s*\(", ("platform/",),
     "format_error, or a writer of ours: libc's knows locales"),
    (r"\b(?:secure_)?getenv\s*\(", (), "runtime/config: the library reads no environment"),
    (r"(?<!\.)(?<!->)\b(?:malloc|calloc|realloc|aligned_alloc|posix_memalign|strdup|free)\s*\(", (),
     "the arena: memory is planned, then lent as a span or a Bump"),
    (r"(?<!operator )\bnew\b(?!\s*\()", (), "placement new into memory that the caller lends"),
    (r"(?<!= )(?<!operator )\bdelete\b(?!\s*;)", (),
     "owners are initialised in place and torn down by name"),
    (r"\bstd::(?:vector|string|map|set|unordered_map|unordered_set|deque|list|function|make_unique"
     r"|make_shared|unique_ptr|shared_ptr|ostringstream|stringstream)\b", (),
     "it allocates: std::span over a lent region, std::array, std::string_view"),
    (r"\bstd::w?regex\b", (), "a hand-written scanner: linear in time, constant in stack"),
    (r"\b(?:strto(?:u?ll?|f|d|ld|u?max)|ato(?:i|l|ll|f)|sscanf|sto(?:i|l|ul|ll|ull|f|d))\s*\(", (),
     "a parser for digits alone that refuses overflow; libc's depend on locale and take signs"),
    (r"\b(?:mmap|munmap|mremap|madvise|mlock|munlock|sbrk|brk)\s*\(", ("platform/",),
     "platform/mem, the one door to the system's memory"),
    (r"\bio_uring_\w+\s*\(", ("platform/",), "platform/io, the one door to the ring"),
    (r"\bstd::(?:exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|tanh|sinh|cosh|atan2?|erf"
     r"|fma)f?\s*\(|(?<![\w:.])(?:expf?|logf?|powf?|sinf?|cosf?|tanhf?)\s*\(", ("platform/",),
     "kernels/common's own: libm picks variants by CPU, and results must not depend on it"),
    (r"\b_mm\d*_(?:mask\w?_)?fn?m(?:add|sub)|\b__builtin_fma|\bvfm[as]q?_", ("kernels/",),
     "a multiplication and an addition: kernels alone fuse, where their contracts say so"),
    (r"\b(?:s?rand|rand_r|drand48|std::random_device|std::mt19937(?:_64)?)\s*[({;]", (),
     "a seeded generator of ours; a run must repeat"),
    (r"\bstd::chrono\b|\bclock_gettime\s*\(|\bgettimeofday\s*\(", ("platform/",), "platform/clock"),
]

# Headers of the core that only platform/ may include, by their beginning.
OS_HEADERS = ("sys/", "linux/", "unistd.h", "fcntl.h", "pthread.h", "sched.h", "poll.h", "signal.h",
              "csignal", "dlfcn.h", "liburing", "thread", "mutex", "condition_variable", "cuda",
              "fstream", "filesystem", "chrono", "cstdio", "stdio.h")
NO_HEADERS = ("iostream", "iomanip", "sstream", "regex", "random", "vector", "string", "map", "set",
              "unordered_map", "unordered_set", "deque", "list", "functional", "memory", "cassert",
              "assert.h", "locale")

# What a room does not know, comments included: (folder, pattern, why).
FOREIGN_WORDS = [
    ("runtime/store/", r"(?<![A-Za-z])(?:[Ss]essions?|[Tt]urns?)(?![a-z])|Sampler",
     "to the store a payload is bytes under a key; sessions belong to runtime/reuse"),
]

# (file, rule) pairs that are excused, each with its reason.
EXCUSED = {}

RULES = {}


def rule(name):
    def register(function):
        RULES[name] = function
        return function
    return register


class Tree:
    """The files of one checkout, each read once."""

    def __init__(self, root):
        self.root = Path(root)
        self.files = sorted(self._listed())
        self._text = {}
        self._code = {}

    def _listed(self):
        names = self._tracked()
        if names is None:
            names = [str(p.relative_to(self.root)) for p in self.root.rglob("*")]
            names = [n for n in names if not n.startswith((".git/", "build")) and ".pyc" not in n]
        return [n for n in names if n and (self.root / n).is_file()]

    def _tracked(self):
        """What git tracks; None where there is no git, or no repository with this root."""
        if not shutil.which("git"):
            return None
        git = ["git", "-c", "safe.directory=*", "-C", str(self.root)]
        listing = subprocess.run([*git, "ls-files", "-z"], capture_output=True, check=False)
        inside = subprocess.run([*git, "rev-parse", "--show-prefix"], capture_output=True,
                                text=True, check=False)
        if listing.returncode != 0 or not listing.stdout or inside.stdout.strip():
            return None
        return listing.stdout.decode().split("\0")

    def bytes(self, path):
        return (self.root / path).read_bytes()

    def text(self, path):
        """The file's text, or None if it is not text."""
        if path not in self._text:
            try:
                raw = self.bytes(path)
                self._text[path] = None if b"\0" in raw else raw.decode("utf-8")
            except UnicodeDecodeError:
                self._text[path] = None
        return self._text[path]

    def lines(self, path):
        return enumerate((self.text(path) or "").split("\n"), 1)

    def code(self, path):
        """The text of a C or C++ file without comments and without what its literals say."""
        if path not in self._code:
            self._code[path] = strip_comments_and_literals(self.text(path) or "")
        return self._code[path]

    def code_lines(self, path):
        return enumerate(self.code(path).split("\n"), 1)

    def sources(self, *prefixes):
        for path in self.files:
            if path.endswith(SOURCES) and (not prefixes or path.startswith(prefixes)):
                yield path

    def core(self):
        return (path for path in self.sources(*CORE) if not path.startswith(LAB))

    def includes(self, path):
        for number, line in self.lines(path):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if match:
                yield number, match.group(1), match.group(2)


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"'
                   r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.DOTALL)


def strip_comments_and_literals(text):
    def blank(match):
        token = match.group(0)
        if token.startswith("/"):
            return "\n" * token.count("\n") or " "
        return '""' + "\n" * token.count("\n")
    return TOKEN.sub(blank, text)


@rule("layer")
def check_layers(tree):
    for path in tree.sources():
        for number, quote, included in tree.includes(path):
            if quote == '"':
                reason = layers.why_not(path, included)
                if reason:
                    yield path, number, f"includes {included}: {reason}"


@rule("layer-cmake")
def check_layers_agree_with_cmake(tree):
    name = "CMakeLists.txt"
    if name not in tree.files:
        return
    text = re.sub(r"#[^\n]*", "", tree.text(name))
    found = {}
    for match in re.finditer(r"tarn_module\(([^)]*)\)", text):
        words = match.group(1).split()
        depends = []
        if "DEPENDS" in words:
            for word in words[words.index("DEPENDS") + 1:]:
                if word == "LINK":
                    break
                depends.append(word)
        found[words[0]] = sorted(set(depends) - {layers.BASE})
    for module, depends in found.items():
        want = sorted(layers.LAYERS.get(module, []))
        if module not in layers.LAYERS:
            yield name, 1, f"{module} has no row in tests/tidy/layers.py"
        elif depends != want:
            yield name, 1, (f"{module} depends on {' '.join(depends) or 'nothing'}, but "
                            f"tests/tidy/layers.py says {' '.join(want) or 'nothing'}")
    for module in set(layers.LAYERS) - set(found):
        yield name, 1, f"tests/tidy/layers.py has a row for {module}, which is not built here"
    order = list(layers.LAYERS)
    for module, may in layers.LAYERS.items():
        for other in may:
            if other not in order or order.index(other) >= order.index(module):
                yield "tests/tidy/layers.py", 1, f"{module} names {other}, which is not above it"


@rule("include-path")
def check_include_paths(tree):
    known = set(tree.files)
    for path in tree.sources():
        for number, quote, included in tree.includes(path):
            if quote == '"' and included not in known:
                yield path, number, f'"{included}" is not a path from the root of the tree'
            if quote == "<" and included in known:
                yield path, number, f'ours, so in quotes: "{included}"'


@rule("own-header-first")
def check_own_header_first(tree):
    known = set(tree.files)
    for path in tree.sources():
        own = re.sub(r"\.(cpp|c|cu)$", ".h", path)
        if own == path or own not in known:
            continue
        first = next(((n, i) for n, _, i in tree.includes(path)), (1, ""))
        if first[1] != own:
            yield path, first[0], f'include "{own}" first: that proves that it compiles alone'


@rule("os-header")
def check_os_headers(tree):
    for path in tree.core():
        for number, quote, included in tree.includes(path):
            if quote != "<":
                continue
            if included in NO_HEADERS:
                yield path, number, f"<{included}> has no place in the core"
            if not path.startswith("platform/") and included.startswith(OS_HEADERS):
                yield path, number, f"<{included}>: only platform/ speaks to the system"


@rule("os-ifdef")
def check_os_ifdefs(tree):
    for path in tree.core():
        if path.startswith("platform/"):
            continue
        for number, line in tree.lines(path):
            if re.match(r"\s*#.*\b(__linux__|__unix__|_WIN32|__APPLE__|_GNU_SOURCE)\b", line):
                yield path, number, "which system this is only platform/ may ask"


@rule("banned-call")
def check_banned_calls(tree):
    compiled = [(re.compile(p), where, instead) for p, where, instead in BANNED_CALLS]
    for path in tree.core():
        for number, line in tree.code_lines(path):
            if line.lstrip().startswith("#include"):
                continue
            for pattern, where, instead in compiled:
                match = pattern.search(line)
                if match and not path.startswith(where or ("//",)):
                    yield path, number, f"`{match.group(0).strip(' (')}`; use instead: {instead}"


@rule("foreign-word")
def check_foreign_words(tree):
    for folder, pattern, why in FOREIGN_WORDS:
        for path in tree.sources(folder):
            for number, line in tree.lines(path):
                found = re.search(pattern, line)
                if found:
                    yield path, number, f"`{found.group(0)}`: {why}"


@rule("pragma-once")
def check_pragma_once(tree):
    for path in tree.sources():
        text = tree.text(path)
        if path.endswith(".h") and "#pragma once" not in text and "#ifndef TARN_" not in text:
            yield path, 1, "a header starts with #pragma once"


@rule("contract")
def check_contracts(tree):
    for path in tree.sources():
        if not (tree.text(path) or "").startswith(("//", "/*")) and path.endswith(".h"):
            yield path, 1, "a header starts with its contract, as a comment"


@rule("file-name")
def check_file_names(tree):
    for path in tree.sources():
        if not re.fullmatch(r"[a-z0-9_]+\.[a-z]+", path.rsplit("/", 1)[-1]):
            yield path, 1, "file names are snake_case"


@rule("size")
def check_sizes(tree):
    for path in tree.files:
        n_lines = (tree.text(path) or "").count("\n")
        if n_lines > LINES_MAX:
            yield path, n_lines, f"{n_lines} lines; the hard stop is {LINES_MAX}: split it"


@rule("columns")
def check_columns(tree):
    for path in tree.files:
        if not path.endswith(SOURCES + (".py", ".cmake", "CMakeLists.txt", ".sh")):
            continue
        formatted = True  # a table that switches clang-format off may be as wide as it must be
        for number, line in tree.lines(path):
            if "clang-format o" in line:
                formatted = "clang-format on" in line
            if formatted and len(line) > COLUMNS_MAX:
                yield path, number, f"{len(line)} columns, {COLUMNS_MAX} at most"
    for path in tree.files:
        if not path.endswith(".md"):
            continue
        is_code = False  # code, tables and what has no blank to break at may be wide
        for number, line in tree.lines(path):
            if line.lstrip().startswith("```"):
                is_code = not is_code
            has_blank = " " in line[:PROSE_COLUMNS_MAX].strip()
            is_prose = has_blank and not is_code and not line.startswith("|")
            if is_prose and len(line) > PROSE_COLUMNS_MAX:
                yield path, number, f"{len(line)} columns, {PROSE_COLUMNS_MAX} at most: wrap it"


@rule("white-space")
def check_white_space(tree):
    for path in tree.files:
        text = tree.text(path)
        if not text:
            continue
        if "\r" in text:
            yield path, 1, "carriage returns: lines end with LF alone"
            continue
        for number, line in tree.lines(path):
            if line != line.rstrip():
                yield path, number, "white space at the end of the line"
        if not text.endswith("\n") or text.endswith("\n\n"):
            yield path, text.count("\n") + 1, "a file ends with one newline"


@rule("todo")
def check_todos(tree):
    for path in tree.files:
        if path.startswith("tests/tidy/"):
            continue
        for number, line in tree.lines(path):
            if re.search(r"\b(FIXME|XXX)\b", line) or re.search(r"\bTODO\b(?!\(#\d+\))", line):
                yield path, number, "TODO(#issue), or do it now"


@rule("machine-path")
def check_machine_paths(tree):
    pattern = re.compile(r"(?<![\w.}])/(?:work|home|Users|root|opt/peer|tmp/b-)(?:/|\w*-)")
    for path in tree.files:
        for number, line in tree.lines(path):
            if pattern.search(line):
                yield path, number, "a path of one machine; take it as an argument"


@rule("binary")
def check_binaries(tree):
    for path in tree.files:
        if tree.text(path) is None:
            n_bytes = len(tree.bytes(path))
            bytes_max = next((n for pattern, n in BINARIES if pattern.fullmatch(path)), None)
            if bytes_max is None:
                yield path, 1, "not text, and not in tidy.py's list of binaries"
            elif n_bytes > bytes_max:
                yield path, 1, f"{n_bytes} bytes; {bytes_max} at most"


@rule("top-level")
def check_top_level(tree):
    for name in sorted({path.split("/")[0] for path in tree.files} - TOP_LEVEL):
        yield name, 1, "the top level of the tree is fixed (README.md has the map)"


@rule("test-header")
def check_test_headers(tree):
    for path in tree.sources("tests/"):
        if path.endswith("_test.cpp"):
            head = "\n".join((tree.text(path) or "").split("\n")[:30])
            if not all(re.search(rf"^// {word}\b", head, re.M) for word in ("Goal", "Method")):
                yield path, 1, "a test starts with `// Goal` and `// Method`"


@rule("package")
def check_packages(tree):
    """What CMake asks for is what toolchain/ can install, and it stands in THIRD_PARTY there."""
    listed = {name: tree.text(name) if name in tree.files else ""
              for name in ("toolchain/packages", "toolchain/THIRD_PARTY")}
    for path in tree.files:
        if not path.endswith(("CMakeLists.txt", ".cmake")):
            continue
        for number, line in tree.lines(path):
            for package in re.findall(r"(?<![\w-])[a-z0-9.+-]+-dev\b", line):
                for name, text in listed.items():
                    if not re.search(rf"\b{re.escape(package)}\b", text):
                        yield path, number, f"{package} is missing in {name}"


@rule("planted")
def check_planted(tree):
    """Each planted mistake finds its line."""
    name = "tests/planted_bugs.py"
    bugs = runpy.run_path(str(tree.root / name))["BUGS"] if name in tree.files else []
    for _, bug, path, right, _ in bugs:
        n = (tree.text(path) or "").count(right) if path in tree.files else 0
        if n != 1:
            yield name, 1, f"{bug}: its line stands {n} times in {path}"


RULES.update(prose.RULES)


def findings(tree):
    for name, check in RULES.items():
        for path, number, message in check(tree):
            if (path, name) not in EXCUSED:
                yield path, number, name, message


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tree = Tree(sys.argv[1])
    found = sorted(findings(tree))
    for path, number, name, message in found:
        print(f"{path}:{number}: {name}: {message}")
    for path in tree.sources():
        n_lines = (tree.text(path) or "").count("\n")
        if LINES_THINK < n_lines <= LINES_MAX:
            print(f"note: {path} has {n_lines} lines; think about it from {LINES_THINK} on")
    print(f"{len(tree.files)} files, {len(RULES)} rules, {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
