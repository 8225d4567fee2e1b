"""slowest.py DIR...: the 20 test files that used the most CPU time, and the 20 files that took
longest to compile.

DIR is a build folder, or one in which ctest ran. Only doctest programs say how much CPU time they
used. Compile times are Ninja's, on the wall."""
import os
import re
import sys

N_SHOWN = 20


def test_times(log):
    """[(CPU seconds, test)] of ctest's LastTest.log."""
    times, name = [], None
    for line in log.splitlines():
        if begin := re.match(r"\d+/\d+ Testing: (.*)", line):
            name = begin[1]
        elif (used := re.match(r"(\d+\.\d) s of CPU time$", line)) and name:
            times.append((float(used[1]), name))
            name = None
    return times


def compile_times(log):
    """[(seconds, object)] of a .ninja_log; an object's last compilation counts."""
    times = {}
    for line in log.splitlines():
        fields = line.split("\t")
        if len(fields) == 5 and fields[3].endswith((".o", ".gch", ".pch")):
            times[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return [(s, name) for name, s in times.items()]


def read(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def show(title, times):
    print(title)
    for seconds, name in sorted(times, reverse=True)[:N_SHOWN]:
        print(f"  {seconds:7.1f} s  {name}")


def main():
    tests, compiled = [], []
    for folder in sys.argv[1:]:
        label = os.path.basename(os.path.normpath(folder))
        tests += [(s, f"{label} {name}")
                  for s, name in test_times(read(folder, "Testing/Temporary/LastTest.log"))]
        compiled += [(s, f"{label} {name}")
                     for s, name in compile_times(read(folder, ".ninja_log"))]
    show("The slowest test files, in CPU time:", tests)
    show("The slowest files to compile:", compiled)


if __name__ == "__main__":
    main()
