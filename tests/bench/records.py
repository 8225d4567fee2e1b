#!/usr/bin/env python3
"""Makes a page of each records/*.jsonl, which hold what was measured, and RECORDS.md, which lists
their titles; standard library only.

    tests/bench/records.py            writes the pages
    tests/bench/records.py --check    fails where one is not what this script makes
    tests/bench/records.py FILE...    prints what these files' pages would be

A line of a file is a record: `tarn-bench --record FILE` appends one. Those with source "page"
stood in a page before there were records; their commit is that at which the page got the figures.

    source, date, commit, command    what was run
    page, title, notes               of a page's: its path, what it shows, what else one must know
    machine                          an object: cpu, cores, memory_bytes, bandwidth_gb_per_s
    rows                             objects: tarn-bench's JSON rows, or a page's columns
"""
import json
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEAD = """# Records

What was measured, where, at which commit and by which command.
`tests/bench/records.py` makes this page, and the pages it names, of `tests/bench/records/*.jsonl`.
`tarn-bench --record FILE` appends to such a file. Do not edit these pages by hand.
"""
REQUIRED = ("source", "date", "commit", "command", "machine", "rows")
# What a page shows of tarn-bench's rows: the title, and how a cell is made.
COLUMNS = (
    ("model", lambda r: r["model_type"]),
    ("test", lambda r: test_name(r)),
    ("KV", lambda r: r["type_k"] + ("" if r["kv"] == "computed" else ", " + r["kv"])),
    ("select", lambda r: r["select"]),
    ("threads", lambda r: r["n_threads"]),
    ("t/s", lambda r: f"{r['avg_ts']:.2f} ± {r['stddev_ts']:.2f}"),
    ("MB/token", lambda r: number(r["bytes_per_token"], 1e-6, 1)),
    ("GB/s", lambda r: number(r["achieved_gb_per_s"], 1, 2)),
    ("share", lambda r: number(r["bandwidth_share"], 1, 2)),
    ("disk MB/token", lambda r: number(r["disk_bytes_per_token"] or None, 1e-6, 1)),
    ("hit rate", lambda r: number(r["hit_rate"], 1, 2)),
    ("recall", lambda r: number(r["recall"], 1, 3)),
)


def number(value, unit, digits):
    return "" if value is None else f"{value * unit:.{digits}f}"


def test_name(row):
    parts = [f"{name}{row[key]}" for name, key in (("pp", "n_prompt"), ("tg", "n_gen"))
             if row[key] > 0]
    return ("+".join(parts) + f" @ d{row['n_depth']}" * (row["n_depth"] > 0)
            + f" x{row['n_parallel']}" * (row["n_parallel"] > 1))


def cells_of(record):
    """Rows of the table as objects of texts, with the same keys in the same order."""
    if record["source"] != "tarn-bench":
        return record["rows"]
    rows = [{title: str(cell(row)) for title, cell in COLUMNS} for row in record["rows"]]
    empty = [key for key in rows[0] if all(row[key] == "" for row in rows)]
    return [{key: text for key, text in row.items() if key not in empty} for row in rows]


def machine_line(machine):
    parts = [machine.get("cpu") or "machine not named", machine.get("gpu") or ""]
    if machine.get("cores"):
        parts.append(f"{machine['cores']} core" + "s" * (machine["cores"] > 1))
    if machine.get("memory_bytes"):
        parts.append(f"{machine['memory_bytes'] / 2**30:.0f} GiB")
    if machine.get("bandwidth_gb_per_s"):
        parts.append(f"reads {machine['bandwidth_gb_per_s']:.1f} GB/s")
    return ", ".join(part for part in parts if part)


def title_of(record):
    return record.get("title") or "tarn-bench, " + ", ".join(
        dict.fromkeys(test_name(row) for row in record["rows"]))


def section(record):
    missing = [key for key in REQUIRED if key not in record]
    if missing:
        raise ValueError(f"a record without {', '.join(missing)}")
    keys, title = list(cells_of(record)[0]), title_of(record)
    commit = record["commit"] or "not known"
    where = f"{record['page']} at {commit}" if record["source"] == "page" else f"commit {commit}"
    lines = [f"## {title}", "", f"{record['date'][:10]}, {where}; "
             + machine_line(record["machine"]) + "."]
    if record.get("notes"):
        lines += ["", textwrap.fill(record["notes"], 118)]
    lines += ["", "```", record["command"], "```", ""] if record["command"] else [""]
    lines += ["| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
    for row in cells_of(record):
        if list(row) != keys:
            raise ValueError(f"{title}: rows differ in their columns")
        lines.append("| " + " | ".join(str(row[key]).replace("|", "\\|") for key in keys) + " |")
    return "\n".join(lines) + "\n"


def page(path):
    """The page of a file of records, and their titles."""
    out, titles = [f"# Records: {path.stem}\n"], []
    for n, line in enumerate(path.read_text().splitlines(), 1):
        try:
            record = json.loads(line)
            out.append(section(record))
            titles.append(title_of(record))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            sys.exit(f"{path.name}:{n}: {error!r}")
    return "\n".join(out), titles


def pages():
    """{path: text} of all pages."""
    out, index = {}, [HEAD]
    for path in sorted((HERE / "records").glob("*.jsonl")):
        out[path.with_suffix(".md")], titles = page(path)
        index.append(f"## [{path.stem}](records/{path.stem}.md)\n")
        index.append("".join(f"- {title}\n" for title in titles))
    return {HERE / "RECORDS.md": "\n".join(index), **out}


def main(arguments):
    if arguments and arguments != ["--check"]:
        for path in map(Path, arguments):
            print(page(path)[0])
        return
    made = pages()
    if arguments:
        there = {HERE / "RECORDS.md", *(HERE / "records").glob("*.md")}
        for path in sorted(there | set(made)):
            if not path.exists() or path.read_text() != made.get(path):
                sys.exit(f"{path} is not what records.py makes: run tests/bench/records.py")
    else:
        for path, text in made.items():
            path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
