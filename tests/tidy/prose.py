"""The rules of prose that a machine can check: comments, commit subjects, the changelog, decisions.

tidy.py runs them with its own. offenders.txt lists the files whose comments still break a rule,
`path rule count` a line. A count above the list's is a finding, and so is one below it: the list
only shrinks. The rooms of DONE have no line there. `prose.py ROOT` prints the list as it would be.
"""
import re
import subprocess
import sys

LIST = "tests/tidy/offenders.txt"
DONE = ("runtime/engine/", "runtime/exec/", "runtime/kv/", "runtime/method/", "runtime/step/")
VERB_ROOMS = DONE  # here a comment above a function begins with a verb, too

NO_BEGINNING = re.compile(r"(?:Of|That|Those|Likewise|And|What|Whose)\b")
NO_WORD = re.compile(r"\b(?:what of|whom|whoever|nobody|somebody)\b", re.I)
# No verb begins with one of these. A function's comment says what it does, or what it returns.
NO_VERB = re.compile(
    r"(?:The|A|An|This|These|Whether|Where|How|Which|Who|Why|All|Every|Each|Any|One|Both|Some"
    r"|Several|No|Nothing|None|Not|Its|It|They|So|Or|As|True|False|Likewise)\b")
BEHIND_CODE = re.compile(r"[;,{}()\w] +(/[/*].*)")
# A line that declares or defines a function: a type and a name, or a constructor, then a bracket.
FUNCTION = re.compile(
    r"\s*(?:template <.*>\s*)?(?:\[\[\w+\]\]\s*)?"
    r"(?!(?:return|if|for|while|switch|else|using|case|delete|new|static_assert|throw|TARN_\w+)\b)"
    r"(?:[\w:][\w:<>,*& ]*[>&* ])?~?[A-Za-z_][\w:]*\(")
# A variable, a type, or a call of a function of another space.
NO_FUNCTION = re.compile(r"[^(]*=|\s*(?:struct|class|enum)\b|\s+(?:\w+::)+\w+\(")

FIRST_COMMIT = "22d7d1c9"  # subjects from here on
SUBJECT_MAX = 65
SUBJECT = re.compile(r"[a-z_/.+-]+(?:, [a-z_/.+-]+)*(?: [a-z]+)?: (\S+) ?.*")
NO_IMPERATIVE = re.compile(r"\w+(?:(?<!e)ed|(?<!br)(?<!str)ing|[^su]s)")
IMPERATIVES = {"embed", "shed", "ping"}


def comments(tree, path):
    """(line, words, the line of code below or "") of each comment; lines that touch are one."""
    lines = (tree.text(path) or "").split("\n")
    number = 0
    while number < len(lines):
        begin, line = number, lines[number]
        if line.lstrip().startswith("//"):
            while number < len(lines) and lines[number].lstrip().startswith("//"):
                number += 1
            words = " ".join(each.strip().lstrip("/").strip() for each in lines[begin:number])
            is_template = number < len(lines) and lines[number].lstrip().startswith("template <")
            yield begin + 1, words, "".join(lines[number + is_template:][:1])
            continue
        behind = BEHIND_CODE.search(line)
        if behind:
            yield number + 1, behind.group(1).strip("/* "), ""
        number += 1


def offences(tree, path):
    """(rule, line, what is wrong) of a file's comments."""
    for line, words, below in comments(tree, path):
        found = NO_BEGINNING.match(words)
        if found:
            yield "comment", line, f"begins with `{found.group(0)}`, not the subject or a verb"
        for word in NO_WORD.findall(words):
            yield "comment", line, f"`{word}`: name the thing"
        is_function = FUNCTION.match(below) and not NO_FUNCTION.match(below)
        found = NO_VERB.match(words) if path.startswith(VERB_ROOMS) and is_function else None
        if found:
            yield "comment-verb", line, (f"begins with `{found.group(0)}`; above a function it is "
                                         "a verb, or `Returns`")


def counted(tree):
    """{(path, rule): [(line, what is wrong), ...]} of the tree."""
    found = {}
    for path in tree.sources():
        for rule, line, what in offences(tree, path):
            found.setdefault((path, rule), []).append((line, what))
    return found


def listed(tree):
    """{(path, rule): count} of the list."""
    rows = (tree.text(LIST) or "").splitlines() if LIST in tree.files else []
    rows = [row.split() for row in rows if not row.startswith("#")]
    return {(path, rule): int(count) for path, rule, count in rows}


def of_comments(tree, rule):
    found, allowed = counted(tree), listed(tree)
    for path, name in sorted(set(found) | set(allowed)):
        here, n = found.get((path, name), []), allowed.get((path, name), 0)
        if name != rule:
            continue
        if len(here) > n:
            for line, what in here:
                yield path, line, what
        elif len(here) < n:
            yield LIST, 1, f"{path} has {len(here)} now, and {n} here: the list only shrinks"
        elif n and path.startswith(DONE):
            yield LIST, 1, f"{path} is of a room that is done"


def check_comments(tree):
    yield from of_comments(tree, "comment")


def check_function_comments(tree):
    yield from of_comments(tree, "comment-verb")


def subject_error(subject):
    """What is wrong with a commit's subject, or None."""
    found = SUBJECT.fullmatch(subject)
    if not found:
        return "is not `area: imperative`"
    if len(subject) > SUBJECT_MAX:
        return f"has {len(subject)} characters, {SUBJECT_MAX} at most"
    verb = found.group(1)
    if verb not in IMPERATIVES and (NO_IMPERATIVE.fullmatch(verb) or verb in ("the", "a", "an")):
        return f"begins with `{verb}`, which is no imperative"
    return None


def check_subjects(tree):
    """Skips a tree whose history is not at hand: an archive, or a shallow clone."""
    git = ["git", "-c", "safe.directory=*", "-C", str(tree.root)]
    if not (tree.root / ".git").exists():
        return
    log = subprocess.run([*git, "log", "--no-merges", "--format=%h %s", f"{FIRST_COMMIT}..HEAD"],
                         capture_output=True, text=True, check=False)
    for row in log.stdout.splitlines() if log.returncode == 0 else []:
        commit, subject = row.split(" ", 1)
        wrong = subject_error(subject)
        if wrong:
            yield "git", 1, f"the subject of {commit} {wrong}: {subject}"


def check_changelog(tree):
    """An entry is one line; everything else is a heading, or the name of a section."""
    name = "CHANGELOG.md"
    for number, line in tree.lines(name) if name in tree.files else []:
        if line.startswith((" ", "\t")):
            yield name, number, "an entry is one line: say it shorter"


def check_decisions(tree):
    """Newest first, ten lines an entry."""
    name = "runtime/DECISIONS.md"
    before, head, n_lines = "9999", 0, 0
    for number, line in tree.lines(name) if name in tree.files else []:
        if line.startswith("## "):
            found = re.fullmatch(r"## (\d{4}-\d\d-\d\d): .+", line)
            date = found.group(1) if found else ""
            if not date:
                yield name, number, "an entry's heading is `## date: the choice`"
            elif date > before:
                yield name, number, f"{date} stands below {before}: newest first"
            before, head, n_lines = date or before, number, 0
        elif head and line:
            n_lines += 1
            if n_lines == 11:
                yield name, head, "an entry has ten lines at most"


RULES = {
    "comment": check_comments,
    "comment-verb": check_function_comments,
    "commit-subject": check_subjects,
    "changelog": check_changelog,
    "decisions": check_decisions,
}


def main():
    import tidy
    print("# Files whose comments break a rule of prose.py: path, rule, count. Only to shrink.")
    for (path, rule), found in sorted(counted(tidy.Tree(sys.argv[1])).items()):
        print(path, rule, len(found))


if __name__ == "__main__":
    main()
