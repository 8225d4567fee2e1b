#!/usr/bin/env python3
"""tarn_program.py TARND TARN: `tarn ask`, `top`, `ingest` and `store` against a running tarnd."""
import json
import os
import signal
import subprocess
import sys

from daemon import Daemon, program_and_arguments, require, run_checks

PROGRAM, (TARN, *ARGUMENTS) = program_and_arguments()
daemon = Daemon(PROGRAM, [*ARGUMENTS, "-c", "8192"], store=True)
QUESTION = "Where does Rosa work?"
BOOK = "Rosa works in bay kilo. Ivo works in bay golf. The heat of mixer H5 is 724.\n" * 8


def tarn(command, *arguments, text=None):
    return subprocess.run([TARN, *command.split(), "--socket", "unix://" + daemon.socket_path,
                           *arguments], input=text, capture_output=True, text=True, check=False)


def answer(question, **fields):
    reply = daemon.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": question}], "temperature": 0, **fields})
    return reply.json()["choices"][0]["message"]["content"]


def file_of(text, name):
    path = os.path.join(daemon.folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def check_ask():
    """ask: the same text from -p, -f and a pipe, and with --json the whole reply"""
    want = answer(QUESTION, max_tokens=24)
    greedy = ["--temp", "0", "-n", "24"]
    for done in [tarn("ask", "-p", QUESTION, *greedy), tarn("ask", *greedy, text=QUESTION),
                 tarn("ask", "-f", file_of(QUESTION, "question"), *greedy)]:
        require(done.returncode == 0, done.stderr)
        require(done.stdout.rstrip("\n") == want.rstrip("\n"), f"{done.stdout!r} and {want!r}")
    reply = json.loads(tarn("ask", "--json", "-p", QUESTION, *greedy).stdout)
    require(reply["choices"][0]["message"]["content"] == want and reply["usage"])
    system = tarn("ask", "-p", QUESTION, "--system", BOOK, *greedy)
    require(system.returncode == 0 and system.stdout != want + "\n", system.stderr)


def check_errors():
    """ask: 78 in tarnd's words, 74 where nobody listens, 64 for what is no address"""
    done = tarn("ask", "-p", QUESTION, "--stop", "x" * 200)
    require(done.returncode == 78 and "stop" in done.stderr, done.stderr)
    for address, code in [("unix:///no/such/socket", 74), ("/no/address", 64)]:
        done = subprocess.run([TARN, "ask", "--socket", address, "-p", "x"], capture_output=True,
                              text=True, check=False)
        require(done.returncode == code and address in done.stderr, f"{done}")


def check_interrupted():
    """ask: ^C ends the answer in tarnd too"""
    asking = subprocess.Popen([TARN, "ask", "--socket", "unix://" + daemon.socket_path, "-p",
                               QUESTION, "--stop", "\x01\x01"], stdout=subprocess.PIPE)
    require(asking.stdout.read(1) != b"", "nothing came")
    asking.send_signal(signal.SIGINT)
    require(asking.wait(10) == -signal.SIGINT, f"{asking.returncode}")
    asking.stdout.close()
    daemon.wait_idle()


def check_top():
    """top: once as text and as JSON, and again and again"""
    state = json.loads(tarn("top", "--once", "--json").stdout)
    require(state["props"]["model_alias"] == "built-in" and len(state["slots"]) > 0)
    require(state["answer_tok_s"] > 0 and 0 <= state["busy"] <= 2 and 0 <= state["kv_used"] <= 1)
    text = tarn("top", "--once").stdout
    require("built-in on cpu" in text and "sessions" in text and "tok/s" in text, text)
    looking = subprocess.Popen([TARN, "top", "--json", "--interval", "0.1", "--socket",
                                "unix://" + daemon.socket_path], stdout=subprocess.PIPE)
    looks = [json.loads(looking.stdout.readline()) for _ in range(3)]
    looking.terminate()
    looking.wait()
    looking.stdout.close()
    require(looks[2]["answer_tok_s"] == 0, "nothing was generated meanwhile")
    daemon.stop()
    require(tarn("top", "--once").returncode == 74)
    daemon.start()


def check_store():
    """ingest: a document is read once; store lists it and removes it"""
    book = file_of(BOOK, "book")
    first, second = tarn("ingest", book, "--json"), tarn("ingest", book, "--json")
    require(first.returncode == 0 and second.returncode == 0, first.stderr + second.stderr)
    read, again = (json.loads(done.stdout)["files"][0] for done in (first, second))
    require(read["name"] == "book" and read["tokens"] > 64 and read["bytes_written"] > 0)
    require(again["reused"] >= read["tokens"] - 64, f"{again}")
    daemon.stop()
    daemon.start()
    found = daemon.complete(BOOK + "Q: Where does Ivo work?")["tarn"]["reused"]
    require(found["from_disk"] > 0, f"{found}")
    rows = json.loads(tarn("store", "--json").stdout)["data"]
    require([row["name"] for row in rows] == ["book"], f"{rows}")
    require("book" in tarn("store").stdout)
    require(tarn("store rm", "book").returncode == 0)
    require(json.loads(tarn("store", "--json").stdout)["data"] == [])
    require(tarn("store rm", "book").returncode == 78)
    require(tarn("ingest", file_of("", "empty")).returncode == 78)
    odd = "a b/\u00e4%"
    require(tarn("ingest", book, "--as", odd).returncode == 0)
    require(tarn("store rm", odd).returncode == 0, "a name with other characters")


def check_replace():
    """ingest --replace: a document that has changed takes the place of the old one"""
    book = file_of(BOOK, "changing")
    require(tarn("ingest", book).returncode == 0)
    file_of("New: " + BOOK, "changing")
    refused, replaced = tarn("ingest", book), tarn("ingest", book, "--replace")
    require(refused.returncode == 78 and "--replace" in refused.stderr, refused.stderr)
    require(replaced.returncode == 0, replaced.stderr)
    require(tarn("store rm", "changing").returncode == 0)


def check_shared():
    """a document of the command line is there for tarnd with daemon.shared, and only then"""
    folder = os.path.join(daemon.folder, "shared")
    os.mkdir(folder, 0o700)
    sized = [*ARGUMENTS, "-c", "8192", "--store", folder]
    done = subprocess.run([TARN, "ingest", *sized, file_of(BOOK, "manual")], capture_output=True,
                          text=True, check=False)
    require(done.returncode == 0, done.stderr)
    for shared in ["false", "true"]:
        with Daemon(PROGRAM, sized, config=f"daemon.shared = {shared}\n") as other:
            reused = other.complete(BOOK + "Q: Where?")["tarn"]["reused"]
        require((reused["from_disk"] > 0) == (shared == "true"), f"{shared}: {reused}")


if __name__ == "__main__":
    with daemon:
        code = run_checks([check_ask, check_errors, check_interrupted, check_top, check_store,
                           check_replace, check_shared])
        if code != 0:
            print(daemon.log()[-4000:])
    sys.exit(code)
