#!/usr/bin/env python3
"""kills.py TARND: tarnd is stopped and killed under load, and started again; clients try again.

Each round ends with SIGTERM or SIGKILL at a random moment. Clients that try again get the answers
of an undisturbed run, and a document that was read before is found again, on disk.
TARN_TARND_KILLS: rounds (default 20); TARN_TEST_SEED: the seed.
"""
import http.client
import json
import os
import random
import signal
import sys
import threading
import time

from daemon import Daemon, program_and_arguments, require, run_checks

ROUNDS = int(os.environ.get("TARN_TARND_KILLS", "20"))
SEED = int(os.environ.get("TARN_TEST_SEED", "1"))
N_CLIENTS = 6

PROGRAM, ARGUMENTS = program_and_arguments()
daemon = Daemon(PROGRAM, [*ARGUMENTS, "-c", "16384", "--parallel", "12"], store=True)
DOCUMENT = "".join(f"The heat of mixer H{i} is {700 + i}. Rosa works in bay kilo.\n"
                   for i in range(60))
PROMPTS = [f"{DOCUMENT}Q: What is the heat of mixer H{i}?\nA:" for i in range(8)]
TRIES = 400  # at most 20 s


class Clients:
    """Threads that ask until they are told to stop."""

    def __init__(self, expected):
        self.expected, self.stops = expected, threading.Event()
        self.n_answers = self.n_retries = self.n_cached = 0
        self.errors = []
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(N_CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _run(self, index):
        draw = random.Random(f"{SEED} {index}")
        try:
            while not self.stops.is_set():
                self._ask(draw.choice(PROMPTS))
        except Exception as error:  # pylint: disable=broad-except
            self.errors.append(f"{type(error).__name__}: {error}")

    def _ask(self, prompt):
        for _ in range(TRIES):
            try:
                reply = daemon.post("/v1/completions", {"prompt": prompt, "temperature": 0,
                                                        "max_tokens": 16})
            except (OSError, http.client.HTTPException):
                reply = None
            if reply is not None and reply.status == 200:
                break
            if reply is not None:
                require(reply.status in (429, 503), f"{reply.status}: {reply.body[:200]!r}")
            self.n_retries += 1
            time.sleep(0.05)
        else:
            raise AssertionError(f"no answer after {TRIES} tries")
        answer = reply.json()
        text = answer["choices"][0]["text"]
        require(text == self.expected[prompt], f"another text: {text!r}")
        self.n_cached += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.n_answers += 1

    def join(self):
        self.stops.set()
        for thread in self.threads:
            thread.join()
        require(not self.errors, f"{len(self.errors)} clients failed: {self.errors[:3]}")


def keep_document():
    """Reads the document and saves it in the store."""
    reply = daemon.post("/v1/tarn/ingest", {"name": "book", "content": DOCUMENT})
    require(reply.status == 200, f"ingest: {reply.status} {reply.body[:200]!r}")


def check_kills():
    """answers after a kill are those before it, and the document is found on disk"""
    expected = {prompt: daemon.complete(prompt)["choices"][0]["text"] for prompt in PROMPTS}
    keep_document()
    draw = random.Random(SEED)
    clients = Clients(expected)
    stops_s, n_killed, from_disk = [], 0, 0
    try:
        for round_ in range(ROUNDS):
            time.sleep(draw.random() * 0.6)
            how = draw.choice([signal.SIGTERM, signal.SIGKILL])
            n_killed += how == signal.SIGKILL
            began = time.monotonic()
            code = daemon.stop(how)
            stops_s.append(time.monotonic() - began)
            require(code == (0 if how == signal.SIGTERM else -how), f"round {round_}: code {code}")
            daemon.start()
            answer = daemon.complete(PROMPTS[round_ % len(PROMPTS)])
            reused = answer["tarn"]["reused"]
            require(reused["tokens"] > 0, f"round {round_}: nothing of the document was found")
            from_disk += reused["from_disk"] > 0
    finally:
        clients.join()
    require(clients.n_answers > 0 and from_disk > 0)
    print(json.dumps({"rounds": ROUNDS, "killed": n_killed, "answers": clients.n_answers,
                      "retries": clients.n_retries, "rounds_from_disk": from_disk,
                      "stop_s_max": round(max(stops_s), 2), "cached_tokens": clients.n_cached}))


def check_stop_is_short():
    """SIGTERM without work ends at once, with 0; the socket is gone"""
    began = time.monotonic()
    require(daemon.stop() == 0)
    require(time.monotonic() - began < 5)
    require(not os.path.exists(daemon.socket_path), "the socket is still there")


if __name__ == "__main__":
    print(f"seed {SEED}, {ROUNDS} rounds")
    with daemon:
        code = run_checks([check_kills, check_stop_is_short])
        if code != 0:
            print(daemon.log()[-4000:])
    sys.exit(code)
