"""Runs the command blocks of README.md and of tarnd's page, as a reader would type them.

Each block is one script of bash in a folder with the files that it names, where `tarn` and `tarnd`
are the built ones, model.gguf is the built-in model and the home folder is empty. A block that the
table below does not know is a failure, so a new one gets its shapes with it.

  readme.py TARND TARN
"""

import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOCKET = "/tmp/tarn.sock"  # the one path in all blocks
BLOCK_S = 120

# What is not run as it stands: what it is instead, and why.
INSTEAD = [
    (r"^toolchain/run (?=-m smollm2 )", "run_smollm2 ", "it fetches a model"),
    (r"^toolchain/run\b", "tarn run", "it installs packages and builds"),
    (r"^toolchain/test\b.*", "true", "it installs packages and builds"),
    (r"^(tarnd .*)&$",
     r"\1& until curl -sf --unix-socket SOCKET http://localhost/health; do sleep 0.1; done",
     "a reader types more slowly than a model is opened"),
    (r"^(tarn verify --reuse .*)$",
     r"\1 --kl-max 10 --top1-min 0 --needles 0 --prompts 1 --percents 20",
     "the built-in model does not stand blending, and six percentages take long"),
    (r"^(tarnd --listen .*|tarnd -m [^&]*)$", r"timeout --preserve-status -s TERM 2 \1",
     "it serves until it is stopped"),
    (r"^(?=python3 - )", "openai_is_there && ", "its packages may not be installed"),
    (r"^(?=cc )", "archive_is_there && ", "libtarn.a is a target of its own"),
]

# The page, the first line of a block, and what its output has, in this order.
SHAPES = [
    ("README.md", "toolchain/run ",
     [r"^answer +\w+ +\| expected ", r"^(The capital of Japan is Tokyo|skipped: smollm2 )",
      r"\[\w+\] loaded in ", r"decode \d+ tokens", r"attention: full", r"memory: plan [\d.]+ \w+"]),
    ("README.md", "printf ", [r"^ ?724\.?$", r"^ ?bay kilo\.?$"]),
    ("README.md", "tarn ingest -m model.gguf --store ~/tarn book.txt",
     [r"book\.txt", r"manual\.txt",
      r"\d+ of them reused \(\d+ from memory, [1-9]\d* from the disk\)"]),
    ("README.md", "tarn verify --reuse", [r"%", r"manual\.txt", r"faq\.txt",
                                          r"of chunks \d+ taken from the store and \d+ computed"]),
    ("README.md", "tarnd -m model.gguf", [r"event=ready", r'"object": ?"chat\.completion"',
                                          r"event=request .*status=200", r"status=200"]),
    ("README.md", "cc host.c", []),
    ("tools/tarnd/README.md", "tarnd --listen",
     [r"event=ready", r"event=ready", r"kv_groups +host"]),
]


def blocks_of(page):
    """The code blocks that are for a shell, all of a page's."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [block for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
            if kind == ""]


def script_of(block, socket):
    lines = []
    for line in block.splitlines():
        line = re.sub(r"\s+# .*$", "", line)
        for pattern, words, _ in INSTEAD:
            line, n = re.subn(pattern, words, line, count=1)
            if n > 0:
                break
        lines.append(line.replace(SOCKET, socket).replace("SOCKET", socket))
    return "set -e -o pipefail\n" + "\n".join(lines) + "\n"


def write_chat_model(path):
    """Writes the built-in model with a chat template, which its own file lacks."""
    model = (ROOT / "tools/builtin/logbook.gguf").read_bytes()
    template = b"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    key = b"tokenizer.chat_template"
    # As long as a number of alignments, so nothing behind it moves against them.
    template += b" " * (-(8 + len(key) + 4 + 8 + len(template)) % 32)
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(template)) + template
    version, n_tensors, n_keys = struct.unpack_from("<IQQ", model, 4)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys + 1) + entry +
                     model[24:])


def write_files(folder, programs):
    draw = random.Random(1)
    machines, values = ["pump", "valve", "boiler", "fan"], ["heat", "speed", "load", "level"]

    def log(n):
        return "".join(f"The {draw.choice(values)} of {draw.choice(machines)} "
                       f"{draw.choice('ABCDEFGH')}{draw.randint(1, 9)} is "
                       f"{draw.randint(100, 999)}.\n"
                       for _ in range(n))

    book = log(120)
    for name, text in {"book.txt": book, "manual.txt": log(400), "faq.txt": log(60),
                       "book-and-question.txt": book + "The heat of fan A1 is",
                       "tarnd.toml": f'[daemon]\nlisten = ["unix://{folder}/tarn.sock"]\n'}.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_chat_model(folder / "model.gguf")
    shutil.copy(ROOT / "tools/example/generate.c", folder / "host.c")
    for program in programs:
        (folder / "bin" / program.name).symlink_to(program)
    archive = programs[0].parent / "libtarn.a"
    has_openai = subprocess.run([sys.executable, "-c", "import httpx2, openai"], check=False,
                                stderr=subprocess.DEVNULL).returncode == 0
    # `false && x` ends no script of set -e, and its block ends well.
    smollm2 = programs[0].parent.parent / "models/smollm2.gguf"
    run_smollm2 = ('tarn run "$@"' if smollm2.exists() else
                   'echo "skipped: smollm2 has not been fetched by toolchain/model"')
    for name, does in {"openai_is_there": "true" if has_openai else "false",
                       "run_smollm2": run_smollm2,
                       "archive_is_there": "true" if archive.exists() else "false",
                       "python3": f'exec {sys.executable} "$@"'}.items():
        script = folder / "bin" / name
        script.write_text(f"#!/bin/sh\n{does}\n")
        script.chmod(0o755)
    if archive.exists():
        (folder / "libtarn.a").symlink_to(archive)


def run_block(block, folder):
    """Returns what the block printed, and why it failed or ""."""
    socket = str(folder / "tarn.sock")
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(folder / "home"), "PATH": path,
                   "C_INCLUDE_PATH": str(ROOT), "PYTHONHOME": ""}
    del environment["PYTHONHOME"]
    process = subprocess.Popen(["bash", "-c", script_of(block, socket) + "true\n"], cwd=folder,
                               env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        # A daemon in the background keeps the pipe: it is stopped when the script has ended.
        process.wait(timeout=BLOCK_S)
        why = "" if process.returncode == 0 else f"exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        why = f"not done after {BLOCK_S} s"
    try:
        os.killpg(process.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    try:
        printed, _ = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
    return printed, why


def missing_shape(printed, shapes):
    at = 0
    for shape in shapes:
        found = re.compile(shape, re.M).search(printed, at)
        if not found:
            return shape
        at = found.end()
    return ""


def check(programs):
    faults, used = [], set()
    for page in dict.fromkeys(row[0] for row in SHAPES):
        for block in blocks_of(page):
            rows = [row for row in SHAPES if row[0] == page and block.startswith(row[1])]
            if not rows:
                faults.append(f"{page}: no shapes for the block that begins with "
                              f"{block.splitlines()[0]!r}")
                continue
            used.add(rows[0][:2])
            for path in re.findall(r"(?<!/)/(?!/)[\w/]*\.sock\b", block.replace("unix://", "")):
                if path != SOCKET:
                    faults.append(f"{page}: {path}, where other blocks say {SOCKET}")
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                for below in ("bin", "home"):
                    (folder / below).mkdir()
                write_files(folder, programs)
                printed, why = run_block(block, folder)
            shape = missing_shape(printed, rows[0][2])
            why = why or (f"nothing printed fits {shape!r}" if shape else "")
            print(f"{page}: {block.splitlines()[0][:60]}: {why or 'ok'}")
            if why:
                faults.append(f"{page}: {why}:\n{block}printed:\n{printed}")
    faults += [f"{page}: no block begins with {begin!r}" for page, begin, _ in SHAPES
               if (page, begin) not in used]
    return faults


if __name__ == "__main__":
    found = check([pathlib.Path(argument).resolve() for argument in sys.argv[1:]])
    print("\n".join(found))
    sys.exit(1 if found else 0)
