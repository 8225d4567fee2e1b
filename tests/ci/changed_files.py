"""changed_files.py BASE: what lint must look at: the sources and headers that changed since the
commit BASE, and of each such header one source that includes it. One path a line.

All files where the rules of clang-tidy changed, or where BASE is no commit here. The work tree is
compared, so what is not committed counts too. `toolchain/test --lint` looks at all files."""
import os
import re
import subprocess
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
RULES = ".clang-tidy"


def git(*args):
    command = ["git", "-c", "safe.directory=*", *args]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def wanted_of(changed, includes):
    """Of `includes`, {file: what it includes}, the changed files, and for each header among them
    the nearest source that includes it: its own if it has one."""
    users = {}
    for file, included in includes.items():
        for header in included:
            users.setdefault(header, set()).add(file)
    found = set(changed) & set(includes)
    for header in [f for f in found if f.endswith((".h", ".inc"))]:
        seen, level, sources = {header}, {header}, []
        while level and not sources:
            level = set().union(*(users.get(file, ()) for file in level)) - seen
            seen |= level
            sources = [f for f in level if f.endswith((".cpp", ".cu"))]
        own = header.rsplit(".", 1)[0]
        found |= set(sorted(sources, key=lambda f: (f.rsplit(".", 1)[0] != own, f))[:1])
    return found


def main():
    files = [f for f in git("ls-files").stdout.splitlines()
             if f.endswith((".h", ".cpp", ".cu", ".inc")) and os.path.exists(f)]
    difference = git("diff", "--name-only", sys.argv[1], "--")
    changed = difference.stdout.splitlines()
    wanted = set(files)
    if difference.returncode == 0 and RULES not in changed:
        includes = {}
        for name in files:
            with open(name, encoding="utf-8") as file:
                includes[name] = INCLUDE.findall(file.read())
        wanted = wanted_of(changed, includes)
    print("".join(f"{f}\n" for f in sorted(wanted)), end="")


if __name__ == "__main__":
    main()
