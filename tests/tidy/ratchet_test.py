#!/usr/bin/env python3
"""Tests ratchet.py.

Goal    methods are counted as a reader would count them; what passes its limit is found, and so is
        a limit that is too high.
Method  classes written as ours are, with the count beside them; a small tree under other limits.
"""
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import ratchet  # noqa: E402
import tidy  # noqa: E402

CLASSES = [
    ("class A { int f(); };", "A", 1),
    ("struct B { u32 n = f(1); std::span<u8> s{}; };", "B", 0),
    ("class C final : public D<int> { public: C() = default; ~C() { close(); }"
     " C(const C&) = delete; bool operator==(const C&) const;"
     " private: void g(u32 a, u32 b = h(2)); int x_ = 0; };",
     "C", 5),
    ("class E { struct In { int f(); }; using Fn = void (*)(int); friend bool g(E);"
     " static constexpr u64 bytes(u32 n) { return n; } template <class T> T get(T t); };", "E", 2),
]


def tree_of(folder, files):
    for name, text in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tidy.Tree(folder)


class RatchetTest(unittest.TestCase):
    def test_methods(self):
        for code, name, n in CLASSES:
            with self.subTest(name):
                self.assertEqual(dict(ratchet.methods(code))[name], n)

    def test_limits(self):
        many = "class Big { " + "void f(); " * 31 + "};\n"
        files = {"runtime/engine/big.h": many, "runtime/engine/a.cpp": "x.is_on();\n" * 2,
                 "runtime/kv/long.cpp": "\n" * 401, "runtime/kv/names.cpp": "PqIndex i;\n",
                 "runtime/method/names.cpp": "PqIndex i;\n", "tests/long.cpp": "\n" * 500}
        right = {"METHODS": {"Big": 31}, "LINES": {"runtime/kv/long.cpp": 401},
                 "PLACEMENT_TESTS": 2, "METHOD_FILES": 1, "ENGINE_FILES": 2}
        wrong = [{}, {"METHODS": {}}, {"METHODS": {"Big": 32}}, {"LINES": {}},
                 {"LINES": {"runtime/kv/long.cpp": 402}}, {"PLACEMENT_TESTS": 1},
                 {"PLACEMENT_TESTS": 3}, {"METHOD_FILES": 0}, {"ENGINE_FILES": 3}]
        with tempfile.TemporaryDirectory() as folder:
            tree = tree_of(folder, files)
            for change in wrong:
                with self.subTest(change), mock.patch.multiple(ratchet, **{**right, **change}):
                    self.assertEqual(len(list(ratchet.findings(tree))), 1 if change else 0)


if __name__ == "__main__":
    unittest.main()
