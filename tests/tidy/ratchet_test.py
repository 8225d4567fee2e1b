#!/usr/bin/env python3
"""Tests ratchet.py.

Goal    methods are counted as a reader would count them, also those of bases; what passes its limit
        is found, and so is a limit that is too high; a base that holds code or data is refused in
        another file.
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

# code, class, methods, data members, whether it is an interface
CLASSES = [
    ("class A { int f(); };", "A", 1, 0, False),
    ("struct B { u32 n = f(1); std::span<u8> s{}; u32 a{}, b{}; static constexpr u32 kC = 1; };",
     "B", 0, 4, False),
    ("class C final : public D<int> { public: C() = default; ~C() { close(); }"
     " C(const C&) = delete; bool operator==(const C&) const;"
     " private: void g(u32 a, u32 b = h(2)); int x_ = 0; };",
     "C", 5, 1, False),
    ("class E { struct In { int f(); }; using Fn = void (*)(int); friend bool g(E);"
     " static constexpr u64 bytes(u32 n) { return n; } template <class T> T get(T t); };",
     "E", 2, 0, False),
    ("struct F { void (*fn)(void* context) = nullptr; std::array<int, 2> two{}; };",
     "F", 0, 2, False),
    ("class G { public: virtual ~G() = default; virtual int f() = 0; virtual void on() {} };",
     "G", 3, 0, True),
    ("class H { public: virtual int f() = 0; protected: ~H() = default; };", "H", 2, 0, True),
    ("class I { public: virtual int f() = 0; int g(); };", "I", 2, 0, False),
    ("class J { public: virtual int f() = 0; int n_ = 0; };", "J", 1, 1, False),
    ("enum class K : u8 { a, b }; struct L { K k = K::a; };", "L", 0, 1, False),
]
# A file with a base, a file with a class over it, and how many methods that has; whether the base
# may stand in another file.
BASES = [
    ("class X { void f(); void g(); };", "class Y : public X { void h(); };", 3, False),
    ("class X { virtual void f() = 0; };", "class Y final : X { void f() override; };", 1, True),
    ("class X { virtual void f() = 0; int n_ = 0; };", "class Y : X { void f() override; };", 2,
     False),
    ("class W { void f(); }; class X : W { virtual void g() = 0; };",
     "class Y : public X { void g() override; };", 1, False),
    ("class X { void f(); };", "class Y : private std::X<Z<int, X>, int> { void g(); };", 2, False),
    ("class Z { void f(); };", "class Y : public tl::expected<Z, Z> { void g(); };", 1, True),
    ("class X { void f(); };", "class Y { X x_{}; void g(); };", 1, True),
]


def tree_of(folder, files):
    for name, text in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tidy.Tree(folder)


class RatchetTest(unittest.TestCase):
    def test_classes(self):
        for code, name, n_methods, n_data, is_interface in CLASSES:
            with self.subTest(name):
                c = next(c for c in ratchet.classes(code) if c.name == name)
                self.assertEqual((c.methods, c.data, c.is_interface),
                                 (n_methods, n_data, is_interface))

    def test_bases(self):
        for base, over, n_methods, is_allowed in BASES:
            files = {"runtime/kv/x.h": base, "tools/tarn/y.cpp": over}
            with self.subTest(over), tempfile.TemporaryDirectory() as folder:
                hierarchy = ratchet.Hierarchy(tree_of(folder, files))
                self.assertEqual(hierarchy.count("Y", "methods"), n_methods)
                self.assertEqual(not list(hierarchy.inherits()), is_allowed)

    def test_one_file(self):
        files = {"runtime/kv/x.h": "class X { void f(); }; class Y : X { void g(); };"}
        with tempfile.TemporaryDirectory() as folder:
            hierarchy = ratchet.Hierarchy(tree_of(folder, files))
            self.assertEqual(hierarchy.count("Y", "methods"), 2)
            self.assertEqual(list(hierarchy.inherits()), [])

    def test_limits(self):
        many = "class Big { " + "void f(); " * 31 + "};\n"
        files = {"runtime/engine/big.h": many, "tools/tarn/base.h": "class Base { int f(); };\n",
                 "tools/tarn/over.h": "class Over : Base {};\n",
                 "runtime/engine/a.cpp": "if (kv.has_tiers()) f();\n" * 2 + "bool on_gpu;\n",
                 "runtime/plan/a.cpp": "if (on_gpu) f();\n",
                 "runtime/kv/long.cpp": "\n" * 401, "runtime/kv/names.cpp": "PqIndex i;\n",
                 "runtime/method/pq/names.cpp": "PqIndex i;\n", "tests/long.cpp": "\n" * 500}
        big = "runtime/engine/big.h: Big"
        right = {"METHODS": {big: 31}, "LINES": {"runtime/kv/long.cpp": 401},
                 "PLACEMENT_LINES": 2, "METHOD_FILES": 1, "FOLDER_FILES": 2,
                 "INHERITS": {("Over", "Base")}}
        wrong = [{}, {"METHODS": {}}, {"METHODS": {big: 32}}, {"LINES": {}},
                 {"LINES": {"runtime/kv/long.cpp": 402}}, {"PLACEMENT_LINES": 1},
                 {"PLACEMENT_LINES": 3}, {"METHOD_FILES": 0}, {"FOLDER_FILES": 3},
                 {"INHERITS": set()}, {"INHERITS": {("Over", "Base"), ("Big", "Base")}}]
        with tempfile.TemporaryDirectory() as folder:
            tree = tree_of(folder, files)
            for change in wrong:
                with self.subTest(change), mock.patch.multiple(ratchet, **{**right, **change}):
                    self.assertEqual(len(list(ratchet.findings(tree))), 1 if change else 0)

    def test_table(self):
        files = {"runtime/engine/engine.h": "class A { void f(); };\nclass Engine : A { int n_; };",
                 "runtime/engine/sessions/session.h": "struct Session { int a, b; };\n",
                 "tests/a.cpp": "\n\n", "README.md": "\n\n\n"}
        with tempfile.TemporaryDirectory() as folder:
            figures = [figure for _, figure in ratchet.table(tree_of(folder, files))]
        self.assertEqual(figures, [1, 1, 2, 1, 0, 2, 2, 3, 0])


if __name__ == "__main__":
    unittest.main()
