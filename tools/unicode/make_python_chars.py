#!/usr/bin/env python3
"""Writes runtime/text/python_char_ranges.h: what Python's str methods know of each code point.

    tools/unicode/make_python_chars.py > runtime/text/python_char_ranges.h
    tools/unicode/make_python_chars.py --hash     what the test of all code points compares

Python 3.11 itself is the source: str.isprintable, upper and lower, by Unicode 14.0. The output is
committed, so that a text does not depend on the machine that built the program.
"""

import hashlib
import sys
import textwrap
import unicodedata

CODE_POINTS = range(0x110000)
COLUMNS = 100
SIGMA, FINAL = 0x3A3, "\u03c2"  # its lower case depends on its neighbours

HEADER = """\
// Which code points Python prints as they are, and their upper and lower cases: Python 3.11,
// Unicode 14.0. Made by tools/unicode/make_python_chars.py; do not edit.
#pragma once

#include "platform/base/types.h"

namespace tarn::text {

struct CaseRun {
  u32 first;
  u16 count;
  u16 stride;
  i32 delta;
};
struct SpecialCase {
  u32 code_point;
  u32 upper[3];  // 0 behind the last
};

// Runs of code points in turn not printable and printable, from U+0000 to U+10FFFF.
// clang-format off
inline constexpr u16 kPrintableRuns[] = {
"""
CASES = """\
}};

// The {0} case of first, first + stride, ... is as far from it as `delta` says.
inline constexpr CaseRun k{1}Runs[] = {{
"""
CASED = """\
};

// Runs of code points: their number << 2 | 1 for cased ones, 2 for those that a word's case ignores
// (Case_Ignorable, cased or not), 0 for others.
inline constexpr u32 kCasedRuns[] = {
"""
SPECIAL = """\
};

// Upper cases of several code points.
inline constexpr SpecialCase kSpecialUppers[] = {
"""
FOOTER = """\
};
// clang-format on

}  // namespace tarn::text
"""


def print_list(items):
    text = " ".join(f"{item}," for item in items)
    for line in textwrap.wrap(text, COLUMNS, initial_indent="    ", subsequent_indent="    "):
        print(line)


def printable_runs():
    """Long runs are cut by empty ones, so that each length fits 16 bits."""
    lengths, printable = [0], False
    for point in CODE_POINTS:
        if chr(point).isprintable() != printable:
            printable = not printable
            lengths.append(0)
        if lengths[-1] == 0xFFFF:
            lengths += [0, 0]
        lengths[-1] += 1
    return lengths


def case_runs(case):
    """{first, count, stride, delta}, in order and apart from each other."""
    mapped = {
        point: ord(case(chr(point))) - point
        for point in CODE_POINTS
        if len(case(chr(point))) == 1 and case(chr(point)) != chr(point)
    }
    runs = []
    for point, delta in mapped.items():
        if runs:
            first, count, stride, of_run = runs[-1]
            step = point - (first + (count - 1) * stride)
            if of_run == delta and (step == stride or (count == 1 and step == 2)):
                runs[-1] = [first, count + 1, step, delta]
                continue
        runs.append([point, 1, 1, delta])
    return ["{" + ",".join(map(str, run)) + "}" for run in runs]


def cased_runs():
    """Read off the capital sigma: final behind a cased character, however many ignored follow."""
    runs, last = [], None
    for point in CODE_POINTS:
        is_cased = (chr(point) + chr(SIGMA)).lower().endswith(FINAL)
        is_ignored = ("A" + chr(point) + chr(SIGMA)).lower().endswith(FINAL) and not is_cased
        kind = 1 if is_cased else 2 if is_ignored else 0
        if kind != last:
            runs.append([0, kind])
            last = kind
        runs[-1][0] += 1
    return [n << 2 | kind for n, kind in runs]


def special_uppers():
    for point in CODE_POINTS:
        upper = chr(point).upper()
        if len(upper) > 1:
            yield f"{{{point},{{{','.join(str(ord(c)) for c in upper)}}}}}"


def hash_of_all():
    digest = hashlib.sha256()
    for point in CODE_POINTS:
        char = chr(point)
        cases = [list(map(ord, char.upper())), list(map(ord, char.lower()))]
        if point == SIGMA:
            cases[1] = []
        texts = [" ".join(map(str, case)) for case in cases]
        finals = [(text + chr(SIGMA) + after).lower()[-1 - len(after)] == FINAL for text, after in
                  ((char, ""), ("A" + char, ""), ("A", char), ("A", char + "a"))]
        kinds = "".join(str(int(kind)) for kind in (char.isprintable(), char.isspace(), *finals))
        digest.update(f"{point} {kinds} {texts[0]}, {texts[1]}\n".encode())
    return digest.hexdigest()


def main():
    if unicodedata.unidata_version != "14.0.0" or sys.argv[1:] not in ([], ["--hash"]):
        sys.exit(__doc__)
    if sys.argv[1:]:
        print(hash_of_all())
        return
    print(HEADER, end="")
    print_list(printable_runs())
    for name, case in (("Upper", str.upper), ("Lower", str.lower)):
        print(CASES.format(name.lower(), name), end="")
        print_list(case_runs(case))
    print(CASED, end="")
    print_list(cased_runs())
    print(SPECIAL, end="")
    print_list(special_uppers())
    print(FOOTER, end="")


if __name__ == "__main__":
    main()
