#!/usr/bin/env python3
"""Tests tidy.py: a small tree that keeps every rule is green, and each sample below turns it red.

Goal    every rule of tidy.py can fail, and does not fail on what it should allow.
Method  one temporary tree per sample, with one file added to a clean base; the rule named beside
        the sample must be found, and no other. A rule without a sample fails the test.
"""
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import layers  # noqa: E402
import prose  # noqa: E402
import tidy  # noqa: E402

HEADER = "// what it is for\n#pragma once\n"
CPP = "// what it is for\n"
TODO = "TO" + "DO"


def cmake_of(table):
    return "".join("\n  ".join([f"tarn_module({m} DEPENDS", "platform/base", *d, "LINK x)"]) + "\n"
                   for m, d in table.items())


BASE_TREE = {
    "CMakeLists.txt": cmake_of(layers.LAYERS),
    "platform/base/types.h": HEADER,
    "platform/mem/reserve.h": HEADER + '#include "platform/base/types.h"\n',
    "platform/mem/reserve.cpp": CPP + '#include "platform/mem/reserve.h"\n\n#include <sys/mman.h>\n'
                                      "void f() { mmap(nullptr, 0, 0, 0, 0, 0); }\n",
    "kernels/act/act.h": HEADER + '#include "platform/base/types.h"\n',
    "kernels/cpu_table.h": HEADER + '#include "kernels/act/act.h"\n',
    "runtime/engine/engine.h": HEADER,
    "runtime/engine/sessions/sampler.h": HEADER,
    "runtime/api/tarn.h": "/* the interface */\n#ifndef TARN_H\n#define TARN_H\n#endif\n",
    "tests/platform/mem_test.cpp": "// Goal    it works.\n// Method  try it.\n",
    # What the rules must not trip over: words in comments and literals, placement new, deleted
    # functions, members of a banned name.
    "runtime/engine/allowed.cpp":
        CPP + '// exit() and malloc() in a comment\n/* printf(\n abort() */\n'
        'const char* k = "getenv() //";\nstruct S { S(const S&) = delete; };\n'
        "void f(S* s, void* m) { s->free(1); s->pool.free(2); ::new (m) S(*s); }\n"
        "char quote = '\\''; int million = 1'000'000;\n",
}

# (rule, path, content)
SAMPLES = [
    ("layer", "kernels/act/bad.h", HEADER + '#include "runtime/engine/engine.h"\n'),
    ("layer", "platform/base/bad.h", HEADER + '#include "platform/mem/reserve.h"\n'),
    ("layer", "kernels/norm/norm.h", HEADER + '#include "kernels/act/act.h"\n'),
    ("layer", "runtime/api/bad.cpp", CPP + '#include "kernels/cpu_table.h"\n'),
    ("layer", "tools/tarn/bad.cpp", CPP + '#include "runtime/engine/sessions/sampler.h"\n'),
    ("layer-cmake", "CMakeLists.txt",
     cmake_of({**layers.LAYERS, "runtime/kv": ["runtime/config", "runtime/arena", "kernels"]})),
    ("layer-cmake", "CMakeLists.txt", cmake_of({**layers.LAYERS, "runtime/new": []})),
    ("layer-cmake", "CMakeLists.txt", cmake_of(dict(list(layers.LAYERS.items())[:-1]))),
    ("foreign-word", "runtime/store/bad.cpp", CPP + "// A session's pages.\n"),
    ("foreign-word", "runtime/store/bad.cpp", CPP + "struct SamplerState;\n"),
    ("include-path", "runtime/kv/bad.cpp", CPP + '#include "types.h"\n'),
    ("include-path", "runtime/kv/bad.cpp", CPP + "#include <platform/base/types.h>\n"),
    ("own-header-first", "platform/mem/reserve.cpp",
     CPP + '#include <sys/mman.h>\n\n#include "platform/mem/reserve.h"\n'),
    ("os-header", "runtime/kv/bad.cpp", CPP + "#include <unistd.h>\n"),
    ("os-header", "runtime/kv/bad.cpp", CPP + "#include <thread>\n"),
    ("os-header", "platform/mem/bad.cpp", CPP + "#include <iostream>\n"),
    ("os-ifdef", "runtime/kv/bad.cpp", CPP + "#ifdef __linux__\n#endif\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "void f() { exit(1); }\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "void f() { std::abort(); }\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "void f() { assert(true); }\n"),
    ("banned-call", "platform/mem/bad.cpp", CPP + "void f() { signal(13, nullptr); }\n"),
    ("banned-call", "platform/mem/bad.cpp", CPP + 'void f() { printf("x"); }\n'),
    ("banned-call", "runtime/kv/bad.cpp", CPP + 'void f(char* b) { snprintf(b, 1, "x"); }\n'),
    ("banned-call", "runtime/kv/bad.cpp", CPP + 'auto f() { return getenv("X"); }\n'),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "auto f() { return malloc(1); }\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "auto f() { return new int; }\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "void f(int* p) { delete p; }\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "std::vector<int> v;\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + 'std::regex r("x");\n'),
    ("banned-call", "runtime/kv/bad.cpp", CPP + 'auto x = strtoul("1", nullptr, 0);\n'),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "void f() { mmap(nullptr, 0, 0, 0, 0, 0); }\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "void f() { io_uring_submit(nullptr); }\n"),
    ("banned-call", "kernels/act/bad.cpp", CPP + "float f(float x) { return std::exp(x); }\n"),
    ("banned-call", "kernels/act/bad.cpp", CPP + "float f(float x) { return expf(x); }\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "auto f(V x) { return _mm_fmadd_ps(x, x, x); }\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "int f() { return rand(); }\n"),
    ("banned-call", "runtime/kv/bad.cpp", CPP + "auto f() { return clock_gettime(1, nullptr); }\n"),
    ("pragma-once", "runtime/kv/bad.h", "// what it is for\n"),
    ("contract", "runtime/kv/bad.h", "#pragma once\n"),
    ("file-name", "runtime/kv/BadName.cpp", CPP),
    ("size", "runtime/kv/bad.cpp", CPP + "//\n" * 1000),
    ("columns", "runtime/kv/bad.cpp", "// " + "x" * 98 + "\n"),
    ("columns", "runtime/kv/bad.cpp",
     "// clang-format off\n// clang-format on\n// " + "x" * 98 + "\n"),
    ("columns", "configs/README.md", "word " * 24 + "x\n"),
    ("white-space", "runtime/kv/bad.cpp", "// x \n"),
    ("white-space", "runtime/kv/bad.cpp", "// x\r\n"),
    ("white-space", "runtime/kv/bad.cpp", "// x"),
    ("white-space", "runtime/kv/bad.cpp", "// x\n\n"),
    ("todo", "runtime/kv/bad.cpp", f"// {TODO}: later\n"),
    ("todo", "runtime/kv/bad.cpp", "// FIX" + "ME\n"),
    ("machine-path", "tests/bad.txt", "see /ho" + "me/somebody/file\n"),
    ("binary", "tests/bad.dat", "a\0b"),
    ("binary", "tests/golden/large.bin", "\0" * (64 * 1024 + 1)),
    ("binary", "tools/builtin/logbook.gguf", "\0" * (12 * 1024 * 1024 + 1)),
    ("binary", "tools/builtin/other.gguf", "\0"),
    ("top-level", "notes.txt", "x\n"),
    ("test-header", "tests/runtime/kv_test.cpp", "// Goal    only that.\n"),
    ("package", "tests/CMakeLists.txt", "tarn_require_header(x.h libx-dev)\n"),
    ("planted", "tests/planted_bugs.py",
     'BUGS = [("life", "a bug", "runtime/engine/engine.h", "no such line", "")]\n'),
    ("comment", "runtime/kv/bad.cpp", CPP + "\n// Of a group: its bytes.\nint n;\n"),
    ("comment", "runtime/kv/bad.cpp", CPP + "\n// What a group has.\nint n;\n"),
    ("comment", "runtime/kv/bad.cpp", CPP + "int n = 0;  // that nob" + "ody reads\n"),
    ("comment", "runtime/kv/bad.cpp", CPP + "\n// Counts, for wh" + "om it asks.\nint n();\n"),
    ("comment", "tests/tidy/offenders.txt", "tests/platform/mem_test.cpp comment 1\n"),
    ("comment", "tests/tidy/offenders.txt", "tests/gone.cpp comment 1\n"),
    ("comment-verb", "runtime/kv/bad.cpp", CPP + "\n// Whether it is there.\nbool is_there() {\n"),
    ("comment-verb", "runtime/kv/bad.cpp",
     CPP + "\n// The first group\n// of all.\ntemplate <class T>\nT C::first(u32 n) const;\n"),
    ("comment-verb", "runtime/kv/bad.h",
     HEADER + "class Pool {\n  // A pool of n.\n  explicit Pool(u32 n);\n"),
    ("changelog", "CHANGELOG.md", "# Changelog\n\n- A capability\n  of two lines.\n"),
    ("decisions", "runtime/DECISIONS.md", "## 2026-01-01: a\n\nb\n\n## 2026-01-02: a\n\nb\n"),
    ("decisions", "runtime/DECISIONS.md", "# D\n\n## the choice without a date\n\nb\n"),
    ("decisions", "runtime/DECISIONS.md", "# D\n\n## 2026-01-01: a\n\n" + "b\n" * 11),
]

# (a commit's subject, whether it is allowed)
SUBJECTS = [
    ("kv: cut a group behind the tail", True),
    ("tests/bench: give the ratio its interval", True),
    ("runtime, tests: bring a page", True),
    ("kv: cuts a group", False),
    ("kv: cutting a group", False),
    ("kv: added a group", False),
    ("kv: the group is cut", False),
    ("Cut a group", False),
    ("KV: cut a group", False),
    ("kv: " + "cut " * 16, False),
]

ALLOWED = [
    ("columns", "runtime/kv/good.cpp",
     "// clang-format off\n// " + "x" * 98 + "\n// clang-format on\n"),
    ("columns", "configs/README.md", "| " + "x " * 80 + "|\n```\n" + "x " * 80 + "x\n```\n"),
    ("todo", "runtime/kv/good.cpp", f"// {TODO}(#12): later\n"),
    ("binary", "tests/golden/small.bin", "\0" * 100),
    ("binary", "tools/builtin/logbook.gguf", "\0" * 100_000),
    ("layer", "tools/tarn/good.cpp", CPP + '#include "runtime/engine/engine.h"\n'),
    ("comment", "runtime/kv/good.cpp",
     CPP + "\n// Returns it.\nint f(int n);\n// The table.\nint n = f(1);  // so many\n"),
    ("changelog", "CHANGELOG.md", "# Changelog\n\nModels\n- A capability.\n"),
    ("decisions", "runtime/DECISIONS.md", "## 2026-01-02: a\n\nb\n\n## 2026-01-01: a\n\nb\n"),
    ("machine-path", "tests/good.txt", "a temporary file in /tmp/x, see https://x.org/home/y\n"),
]


def rules_broken(*samples):
    with tempfile.TemporaryDirectory() as folder:
        for path, content in [*BASE_TREE.items(), *samples]:
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode())
        return sorted({name for _, _, name, _ in tidy.findings(tidy.Tree(folder))})


class TidyTest(unittest.TestCase):
    def test_a_clean_tree_is_clean(self):
        self.assertEqual(rules_broken(), [])

    def test_every_sample_breaks_its_rule_alone(self):
        for rule, path, content in SAMPLES:
            with self.subTest(rule=rule, path=path, content=content[:120]):
                self.assertEqual(rules_broken((path, content)), [rule])

    def test_what_is_allowed_stays_allowed(self):
        for rule, path, content in ALLOWED:
            with self.subTest(rule=rule, path=path):
                self.assertEqual(rules_broken((path, content)), [])

    def test_every_rule_and_every_banned_call_has_a_sample(self):
        has_no_file = {"commit-subject"}  # test_subjects_of_commits
        self.assertEqual(set(tidy.RULES) - {rule for rule, _, _ in SAMPLES}, has_no_file)
        calls = "\n".join(c for rule, _, c in SAMPLES if rule == "banned-call")
        for pattern, _, _ in tidy.BANNED_CALLS:
            self.assertRegex(calls, pattern)

    def test_the_list_of_offenders_allows_its_count_alone(self):
        bad = ("tests/bad.cpp", "// Of a group: its bytes.\nint n;\n\n// What it has.\nint m;\n")
        for count, expected in ((1, ["comment"]), (2, []), (3, ["comment"])):
            with self.subTest(count=count):
                offenders = ("tests/tidy/offenders.txt", f"tests/bad.cpp comment {count}\n")
                self.assertEqual(rules_broken(bad, offenders), expected)

    def test_subjects_of_commits(self):
        for subject, is_allowed in SUBJECTS:
            with self.subTest(subject=subject):
                self.assertEqual(prose.subject_error(subject) is None, is_allowed)

    def test_a_row_of_the_table_names_only_rows_above_it(self):
        seen = set()
        for module, may in layers.LAYERS.items():
            self.assertLessEqual(set(may), seen)
            seen.add(module)


if __name__ == "__main__":
    unittest.main()
