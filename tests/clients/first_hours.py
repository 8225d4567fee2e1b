#!/usr/bin/env python3
"""first_hours.py TARND TARN TARN_BENCH: the first hours of an appliance maker.

Walks through documents, the store, an upgrade, plans for other boxes, the benchmark, a drain and a
killed run, as a user would, with the built-in model. Prints each command and what it said, and
checks the lines that a user acts on.
"""
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

from daemon import Daemon, program_and_arguments, require, run_checks

TARND, (TARN, TARN_BENCH) = program_and_arguments()
MODEL = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../tools/builtin/logbook.gguf"))
SHARED = "[daemon]\nshared = true\n[store]\nsessions = true\n"
daemon = Daemon(TARND, ["-c", "4096"], store=True, config=SHARED)
BOOK = "Rosa works in bay kilo. Ivo works in bay golf. The heat of mixer H5 is 724.\n" * 12
MANUAL = "Mixer H5 is cleaned by Ivo. The key of valve V2 hangs in bay golf. Call Rosa.\n" * 12
LINES_SHOWN = 30


def path_of(name, text=None):
    path = os.path.join(daemon.folder, name)
    if text is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return path


def folder_of(name):
    path = path_of(name)
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def shown(text):
    lines = text.replace(daemon.folder, "~").splitlines()
    more = len(lines) - LINES_SHOWN
    return [line[:160] for line in lines[:LINES_SHOWN]] + ([f"... {more} more"] if more > 0 else [])


def do(*command, code=0, says="", text=None):
    """Runs a command and prints it as a terminal would. Returns its output and its messages."""
    done = subprocess.run([str(word) for word in command], input=text, capture_output=True,
                          text=True, check=False, timeout=120)
    words = [os.path.basename(command[0]), *(str(word) for word in command[1:])]
    print("$ " + shlex.join(words).replace(daemon.folder, "~"))
    for line in shown(done.stdout) + shown(done.stderr):
        print("  " + line)
    require(done.returncode == code, f"exit code {done.returncode}, not {code}")
    require(re.search(says, done.stdout + done.stderr), f"nothing says {says!r}")
    return done.stdout, done.stderr


def check_documents():
    """documents: read ahead, replaced, as chunks of a chat, and there for tarnd"""
    store, book, manual = daemon.store, path_of("book", BOOK), path_of("manual", MANUAL)
    do(TARN, "ingest", "-m", MODEL, "--store", store, book, manual)
    changed = path_of("book", BOOK.replace("724", "725"))
    do(TARN, "ingest", "-m", MODEL, "--store", store, changed, code=78, says="--replace")
    do(TARN, "ingest", "-m", MODEL, "--store", store, "--replace", changed)
    do(TARN, "ingest", "-m", MODEL, "--store", store, "--chunks", manual)
    asked = ["run", "-m", MODEL, "--store", store, "--chunk", manual, "-n", "8", "-p",
             "Who cleans mixer H5?"]
    do(TARN, *asked, says="--recompute|verify --reuse")
    do(TARN, *asked, "--chat", "--chat-template", "chatml", "--recompute", "0.2")
    do(TARN, *asked, "--recompute", "all")
    do(TARN, *asked, "--recompute", "off", code=64, says="all")
    daemon.start()
    found = daemon.complete(BOOK.replace("724", "725") + "Q: Where does Ivo work?")["tarn"]
    print("tarnd with daemon.shared = true:", found["reused"])
    require(found["reused"]["from_disk"] > 0, f"{found}")
    wrong = daemon.post("/v1/chat/completions", {"messages": [
        {"role": "user", "content": "x", "tarn": {"chunk": True}}]})
    print("a chunk in a wrong place:", wrong.status, wrong.body.decode()[:200])
    require(wrong.status == 400)


def check_store():
    """the store: every tenant's rows, and verbs that act on what is shown"""
    do(TARN, "store", "--store", daemon.store, code=74, says="--socket")
    do(TARN, "store", "--socket", "unix://" + daemon.socket_path, says="book")
    daemon.stop()
    own = Daemon(TARND, ["-c", "2048"], store=True, config="[store]\nsessions = true\n")
    with own:
        own.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Who?"}],
                                          "max_tokens": 4, "tarn": {"session": "kitchen"}})
        own.stop()
        do(TARN, "run", "-m", MODEL, "--store", own.store, "--session", "mine", "-c", "2048", "-p",
           "Who?", "-n", "4")
        tenant = f"uid:{os.getuid()}"
        do(TARN, "store", "--store", own.store, says=tenant)
        do(TARN, "store", "pack", "-o", path_of("all.pack"), "--store", own.store)
        do(TARN, "store", "pack", "kitchen", "-o", path_of("one.pack"), "--tenant", tenant,
           "--store", own.store)
        other = folder_of("other")
        do(TARN, "store", "unpack", path_of("all.pack"), "--store", other, "-m", MODEL)
        do(TARN, "store", "--store", other, says=tenant)
        do(TARN, "store", "rm", "kitchen", "--tenant", tenant, "--store", own.store)


def check_upgrade():
    """an upgrade: a session of another KV type goes on, computed anew"""
    kept = ["run", "-m", MODEL, "--store", folder_of("kept"), "--session", "plant", "-c", "2048"]
    do(TARN, *kept, "-f", path_of("book"), "-n", "4")
    do(TARN, *kept, "--kv-type", "q8_0", "-p", "Who cleans mixer H5?", "-n", "4",
       says="kv.type = f16.*q8_0")


def check_bench():
    """tarn-bench: each test once, llama-bench's options taken"""
    text, _ = do(TARN_BENCH, "-m", MODEL, "-p", "32", "-n", "8", "-r", "2", "-ctk", "q8_0", "-ctv",
                 "q8_0", "-fa", "1", "-ngl", "99", "-o", "csv")
    require(len(text.splitlines()) == 3, "a heading and two tests")
    do(TARN_BENCH, "-m", MODEL, "-p", "32", "-n", "8", "-r", "2", "-ctk", "q8_0", says="q8_0")


def check_plan():
    """plans for boxes that are not here"""
    for name in ["orin-nano-8gb", "agx-orin-64gb", "rtx-8gb"]:
        do(TARN, "plan", "-m", MODEL, "-c", "4096", "--target", name, says="measured")
    do(TARN, "plan", "-m", MODEL, "--target", "toaster", code=64, says="orin-nano-8gb")
    do(TARN, "plan", "-m", MODEL, "-c", "131072", "--budget", "96MiB", code=78, says="--store")
    do(TARN, "plan", "-m", MODEL, "-c", "131072", "--budget", "96MiB", "--store", folder_of("kv"),
       says="from the disk for each token")
    with open(MODEL, "rb") as model, open(path_of("head.gguf"), "wb") as head:
        head.write(model.read(1 << 20))
    do(TARN, "plan", "-m", path_of("head.gguf"), "-c", "4096", says="missing")


def check_drain():
    """the end of tarnd: a running answer ends, a new request is told to come again"""
    daemon.start()
    before = daemon.get("/metrics").body.decode()
    require("_bucket{le=" in before and "store" in before, "histograms and the store")
    answers = []
    reader = threading.Thread(target=lambda: answers.append(
        daemon.complete("Who?", max_tokens=1200, ignore_eos=True)))
    reader.start()
    while daemon.n_busy() == 0:
        time.sleep(0.01)
    daemon.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    refused = daemon.post("/v1/completions", {"prompt": "x"})
    print("during the drain:", refused.status, refused.headers.get("retry-after"),
          refused.body.decode()[:120])
    require(refused.status == 503 and "retry-after" in refused.headers)
    reader.join(60)
    n_tokens = answers[0]["usage"]["completion_tokens"]
    print("the running answer:", n_tokens, "tokens;", "tarnd:", daemon.process.wait(60))
    require(n_tokens == 1200 and daemon.process.returncode == 0)


def check_kill():
    """a killed run: the same command gives the same answer"""
    command = [TARN, "run", "-m", MODEL, "--store", folder_of("drill"), "--session", "s", "-c",
               "2048", "-f", path_of("book"), "-n", "24"]
    want = do(*[*command[:5], folder_of("whole"), *command[6:]])[0]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    killed.stdout.read(1)
    killed.kill()
    killed.wait()
    killed.stdout.close()
    require(do(*command)[0] == want, "the same tokens")


if __name__ == "__main__":
    try:
        sys.exit(run_checks([check_documents, check_store, check_upgrade, check_bench, check_plan,
                             check_drain, check_kill]))
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.stop()
