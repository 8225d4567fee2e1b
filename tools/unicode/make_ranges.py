#!/usr/bin/env python3
"""Writes runtime/text/unicode_ranges.h: the class of each code point.

    tools/unicode/make_ranges.py /usr/share/unicode/UnicodeData.txt > runtime/text/unicode_ranges.h

The input is UnicodeData.txt of Unicode 15.0 (Debian 12: package unicode-data 15.0.0-1). What
Unicode 15.1 added is put in by name below, because tokenizers in use are built on 15.1. The output
is committed, so that the ids of a text do not depend on the machine that built the program.
"""

import sys
import textwrap

# Unicode 15.1: CJK Unified Ideographs Extension I, category Lo; ideographic description characters,
# category So.
LETTERS_OF_15_1 = range(0x2EBF0, 0x2EE5D + 1)
SYMBOLS_OF_15_1 = [0x2FFC, 0x2FFD, 0x2FFE, 0x2FFF, 0x31EF]

OTHER, LETTER, NUMBER, SPACE, PUNCTUATION, SYMBOL, MARK = range(7)
CLASSES = {"L": LETTER, "N": NUMBER, "Z": SPACE, "P": PUNCTUATION, "S": SYMBOL, "M": MARK}
CONTROL_SPACES = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85}  # White_Space outside category Z
COLUMNS = 100

HEADER = """\
// Letters (category L), numbers (N), punctuation (P), symbols (S), marks (M) and white space
// (property White_Space, which is \\s) of Unicode 15.1, as runs of code points of one class. Made
// by tools/unicode/make_ranges.py; do not edit.
//
// The table is part of the source on purpose: ids depend on the ends of pre-tokens, and must not
// change with the Unicode data of the compiling machine.
#pragma once

#include "platform/base/types.h"

namespace tarn::text {

// Code points << 3 | class: 0 other, 1 letter, 2 number, 3 white space, 4 punctuation, 5 symbol,
// 6 mark. The runs are in order, from U+0000 to U+10FFFF.
// clang-format off
inline constexpr u32 kClassRuns[] = {
"""
FOOTER = """\
};
// clang-format on

}  // namespace tarn::text
"""


def classes(path):
    result = [OTHER] * 0x110000
    first = None
    with open(path, encoding="ascii") as lines:
        for line in lines:
            fields = line.split(";")
            code, name, category = int(fields[0], 16), fields[1], fields[2]
            if name.endswith(", First>"):
                first = code
                continue
            last_of_range = name.endswith(", Last>")
            for point in range(first if last_of_range else code, code + 1):
                is_space = point in CONTROL_SPACES
                result[point] = SPACE if is_space else CLASSES.get(category[0], OTHER)
    for points, added in ((LETTERS_OF_15_1, LETTER), (SYMBOLS_OF_15_1, SYMBOL)):
        for point in points:
            result[point] = added
    return result


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    of = classes(sys.argv[1])
    starts = [point for point in range(len(of)) if point == 0 or of[point] != of[point - 1]]
    runs = [
        (end - start) << 3 | of[start] for start, end in zip(starts, starts[1:] + [len(of)])
    ]
    sys.stdout.write(HEADER)
    text = " ".join(f"{run}," for run in runs)
    for line in textwrap.wrap(text, COLUMNS, initial_indent="    ", subsequent_indent="    "):
        sys.stdout.write(line + "\n")
    sys.stdout.write(FOOTER)


if __name__ == "__main__":
    main()
