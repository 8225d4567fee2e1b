"""Goal    what changed_files.py names, what slowest.py reads from logs, when pairs.py says red.
Method  small graphs, logs and ratios with the answers beside them."""
import sys
import unittest
from pathlib import Path

import changed_files
import slowest

sys.path.append(str(Path(__file__).parent.parent / "bench"))
import pairs  # noqa: E402

INCLUDES = {
    "a.h": [], "b.h": ["a.h"], "c.h": ["b.h", "c.h"],  # c.h includes itself
    "a.cpp": ["a.h"], "also.cpp": ["a.h"], "c.cpp": ["c.h"], "c_too.cpp": ["c.h"],
    "alone.cpp": ["string.h"], "nobodys.h": [],
}
CASES = [
    ("nothing", [], []),
    ("a source", ["alone.cpp"], ["alone.cpp"]),
    ("a header and its own source", ["a.h"], ["a.cpp", "a.h"]),
    ("the nearest source where it has none", ["b.h"], ["b.h", "c.cpp"]),
    ("both of them", ["a.h", "c.h"], ["a.cpp", "a.h", "c.cpp", "c.h"]),
    ("a header that nobody includes", ["nobodys.h"], ["nobodys.h"]),
    ("a file that is gone", ["gone.h"], []),
    ("no source", ["README.md"], []),
]


class ChangedFiles(unittest.TestCase):
    def test_cases(self):
        for name, changed, expected in CASES:
            with self.subTest(name):
                self.assertEqual(sorted(changed_files.wanted_of(changed, INCLUDES)), expected)


class Slowest(unittest.TestCase):
    def test_tests(self):
        log = ("1/2 Testing: kernels/a\nOutput:\n12.5 s of CPU time\n"
               "2/2 Testing: tidy/b\nok\n3/3 Testing: c\n0.1 s of CPU time\n")
        self.assertEqual(slowest.test_times(log), [(12.5, "kernels/a"), (0.1, "c")])

    def test_compilation(self):
        log = "# ninja log v5\n0\t500\t1\ta.cpp.o\tf\n0\t2500\t1\ta.cpp.o\tf\n0\t9\t1\tlib.a\tf\n"
        self.assertEqual(slowest.compile_times(log), [(2.5, "a.cpp.o")])


class Pairs(unittest.TestCase):
    def test_is_red(self):
        for ratios, expected in [([0.97] * 7 + [1.1] * 2, True), ([0.97] * 6 + [1.1] * 3, False),
                                 ([0.985] * 9, False), ([0.9] * 4 + [1.1] * 5, False)]:
            with self.subTest(ratios):
                self.assertEqual(pairs.is_red(ratios), expected)


if __name__ == "__main__":
    unittest.main()
