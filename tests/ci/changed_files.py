"""changed_files.py BASE: what lint must look at: the sources and headers that changed since the
commit BASE, and those that include a changed file, at any depth. One path a line.

All files where the rules of clang-tidy or this script changed, or where BASE is no commit here. Who
changes how toolchain/test lints runs `toolchain/test --lint` by hand. The work tree is compared, so
what is not committed counts too."""
import os
import re
import subprocess
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
ABOUT_ALL = (".clang-tidy", "tests/ci/changed_files.py")


def git(*args):
    command = ["git", "-c", "safe.directory=*", *args]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def reached(changed, includes):
    """Of `includes`, {file: what it includes}, the files that are or reach a changed one."""
    users = {}
    for file, included in includes.items():
        for header in included:
            users.setdefault(header, set()).add(file)
    found, queue = set(), list(changed)
    while queue:
        file = queue.pop()
        if file not in found:
            found.add(file)
            queue += users.get(file, ())
    return found & set(includes)


def main():
    files = [f for f in git("ls-files").stdout.splitlines()
             if f.endswith((".h", ".cpp", ".cu", ".inc")) and os.path.exists(f)]
    difference = git("diff", "--name-only", sys.argv[1], "--")
    changed = difference.stdout.splitlines()
    wanted = set(files)
    if difference.returncode == 0 and not set(changed) & set(ABOUT_ALL):
        includes = {}
        for name in files:
            with open(name, encoding="utf-8") as file:
                includes[name] = INCLUDE.findall(file.read())
        wanted = reached(changed, includes)
    print("".join(f"{f}\n" for f in sorted(wanted)), end="")


if __name__ == "__main__":
    main()
