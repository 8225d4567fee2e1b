#!/usr/bin/env python3
"""isa_objects_test.py COMPILER NM: tests isa_objects.py.

Goal    each way in which an ISA object can give code to others is reported, and a sterile one is
        not.
Method  small sources, compiled and listed by the build's own tools, each with one fault.
"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import isa_objects  # noqa: E402

COMPILER, NM = sys.argv[1:3]
HEADER = "namespace tarn::kernels { void add_avx2(const int& a); void gone_avx2(int); }\n"
HELPER = "static int twice(int x) { return 2 * x; }\n"
KERNEL = "namespace tarn::kernels { void add_avx2(const int& a) { sink = twice(a); } }\n"
GOOD = HEADER + "extern int sink;\n" + HELPER + KERNEL


def listing(source):
    with tempfile.TemporaryDirectory() as folder:
        file, target = Path(folder, "add_avx2.cpp"), Path(folder, "add_avx2.cpp.o")
        file.write_text(source)
        subprocess.run([COMPILER, "-std=c++20", "-O0", "-c", str(file), "-o", str(target)],
                       check=True)
        return subprocess.run([NM, "-C", str(target)], check=True, capture_output=True,
                              text=True).stdout


class IsaObjectsTest(unittest.TestCase):
    def problems(self, source, isa="avx2"):
        declared = isa_objects.declared_names([HEADER])
        return list(isa_objects.problems(listing(source), isa, declared))

    def one_problem(self, source, word):
        found = self.problems(source)
        self.assertEqual(len(found), 1, found)
        self.assertIn(word, found[0])

    def test_a_sterile_object_has_no_problem(self):
        self.assertEqual(self.problems(GOOD), [])

    def test_an_anonymous_template_is_local(self):
        anonymous = "namespace { template <class T> T twice(T x) { return 2 * x; } }\n"
        self.assertEqual(self.problems(GOOD.replace(HELPER, anonymous)), [])

    def test_an_inline_function(self):
        self.one_problem(GOOD.replace("static", "inline"), "kind W")

    def test_a_template(self):
        self.one_problem(GOOD.replace("static", "template <class T> T half(T x) { return x; }\n"
                                                "static").replace("2 * x", "half(x)"), "kind W")

    def test_an_inline_variable(self):
        self.one_problem(GOOD.replace(HELPER, "inline int two = 2;\n" + HELPER)
                         .replace("2 * x", "two * x"), "two")

    def test_data(self):
        self.one_problem(GOOD.replace("extern int sink;", "int sink;"), "sink")

    def test_a_kernel_that_no_header_declares(self):
        self.one_problem(GOOD + "namespace tarn::kernels { void sub_avx2() {} }\n", "no header")

    def test_a_function_of_another_name(self):
        self.one_problem(GOOD + "namespace tarn::kernels { void add_generic() {} }\n",
                         "add_generic")

    def test_an_object_without_a_kernel(self):
        self.assertEqual(self.problems(HELPER), ["it defines no kernel at all"])

    def test_the_names_of_objects(self):
        match = isa_objects.OBJECT_NAME.search("CMakeFiles/m.dir/kernels/attn/attn_avx512.cpp.o")
        self.assertEqual(match.group(1, 2), ("kernels/attn", "avx512"))
        self.assertIsNone(isa_objects.OBJECT_NAME.search("kernels/attn/attn_generic.cpp.o"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
