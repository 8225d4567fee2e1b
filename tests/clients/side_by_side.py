#!/usr/bin/env python3
"""side_by_side.py TARND: what others ask meanwhile changes no answer, and delays none for long.

100 requests one by one, and the same 100 at 16 at a time in random order, while other clients leave
in the middle: the same texts. Beside four streams a prompt of 400 KB is read: two tokens of a
stream stay within engine.token_gap_ms. The last line is JSON with the gaps.
TARN_SIDE_BY_SIDE_ROUNDS: how often (default 1); TARN_TEST_SEED: the seed.
"""
import json
import os
import random
import socket
import sys
import threading
import time

from daemon import Daemon, UnixConnection, in_parallel, program_and_arguments, require, run_checks

ROUNDS = int(os.environ.get("TARN_SIDE_BY_SIDE_ROUNDS", "1"))
SEED = int(os.environ.get("TARN_TEST_SEED", "1"))
N_REQUESTS, N_AT_A_TIME, LEAVING = 100, 16, 0.3
N_STREAMS, GAP_MS, PROMPT_BYTES = 4, 100, 400_000
BEFORE_S, DURING_S = 2, 4  # of the gaps

PROGRAM, ARGUMENTS = program_and_arguments()
figures = {}


# ---- The same texts ---------------------------------------------------------------------------

def prompt_of(draw, index):
    """Some share a long beginning, some a short one, some none."""
    count = draw.choice([0, 4, 40])
    facts = "".join(f"The heat of mixer H{i} is {700 + i}. Rosa works in bay kilo.\n"
                    for i in range(count))
    return f"{facts}Entry {index}.\nQ: What is the heat of mixer H{draw.randrange(40)}?\nA:"


def leave(daemon, body, draw):
    """Asks, and leaves in the middle of the request, of the wait or of the answer."""
    data = json.dumps({**body, "stream": True, "max_tokens": 200})
    request = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
               f"{data}").encode()
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(60)
    peer.connect(daemon.socket_path)
    where = draw.randrange(3)
    peer.sendall(request[:draw.randrange(len(request))] if where == 0 else request)
    if where == 2:
        peer.recv(draw.randrange(1, 4000))
    time.sleep(draw.random() * 0.02)
    peer.close()


class Workers:
    """Threads that take requests from one list until it is empty."""

    def __init__(self, daemon, bodies, expected):
        self.daemon, self.bodies, self.expected = daemon, bodies, expected
        self.lock = threading.Lock()
        self.n_left = self.n_answers = 0
        self.left = []

    def work(self, draw):
        while True:
            with self.lock:
                if not self.left:
                    return
                index = self.left.pop()
                leaves = draw.random() < LEAVING
                self.n_left += leaves
            if leaves:
                leave(self.daemon, draw.choice(self.bodies), draw)
            text = self.daemon.complete(**self.bodies[index])["choices"][0]["text"]
            require(text == self.expected[index],
                    f"request {index}: {text!r}, alone {self.expected[index]!r}")
            with self.lock:
                self.n_answers += 1

    def run(self, seed):
        draw = random.Random(seed)
        self.left = list(range(len(self.bodies)))
        draw.shuffle(self.left)
        results = in_parallel(self.work, [random.Random(f"{seed} {i}") for i in range(N_AT_A_TIME)])
        errors = [result for result in results if isinstance(result, Exception)]
        require(not errors, f"{len(errors)} workers failed: {errors[:3]}")


def check_same_texts():
    """100 requests one by one, and 16 at a time in random order with cancels: the same texts"""
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "65536", "--parallel", "40"]) as daemon:
        for round_ in range(ROUNDS):
            draw = random.Random(f"{SEED} {round_}")
            bodies = [{"prompt": prompt_of(draw, i), "max_tokens": draw.randrange(1, 33),
                       "ignore_eos": True} for i in range(N_REQUESTS)]
            expected = [daemon.complete(**body)["choices"][0]["text"] for body in bodies]
            workers = Workers(daemon, bodies, expected)
            workers.run(f"{SEED} {round_} at once")
            require(workers.n_answers == N_REQUESTS and workers.n_left > 0)
            daemon.wait_idle()
            figures["answers"] = figures.get("answers", 0) + workers.n_answers
            figures["cancelled"] = figures.get("cancelled", 0) + workers.n_left


# ---- The gaps ---------------------------------------------------------------------------------

class Stream:
    """Reads a long answer and notes when each of its tokens came."""

    def __init__(self, daemon, index):
        self.connection = UnixConnection(daemon.socket_path, 60)
        self.connection.request("POST", "/v1/completions", json.dumps({
            "prompt": f"Log book {index}.", "temperature": 0, "max_tokens": 100_000,
            "ignore_eos": True, "stream": True}))
        self.response = self.connection.getresponse()
        self.times = []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        try:
            for line in self.response:
                if line.startswith(b"data: "):
                    self.times.append(time.monotonic())
        except (OSError, ValueError, AttributeError):  # closed by close()
            pass

    def close(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.connection.close()

    def gaps_ms(self, begin, end):
        """Of all tokens in that time, and of the wait that goes on at its end."""
        times = [at for at in list(self.times) if begin <= at <= end] + [end]
        return [1000 * (b - a) for a, b in zip(times, times[1:])]


class Stalls:
    """When the machine gave this process no time: that is nobody's gap."""

    def __init__(self):
        self.all, self.stops = [], False
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self):
        last = time.monotonic()
        while not self.stops:
            time.sleep(0.005)
            now = time.monotonic()
            self.all.append(1000 * (now - last) - 5)
            last = now

    def longest_ms(self):
        self.stops = True
        self.thread.join()
        return max(self.all)


def summary(gaps):
    ordered = sorted(gaps)
    return {"n": len(ordered), **{
        name: round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 1)
        for name, share in (("p50", .5), ("p99", .99), ("max", 1))}}


def check_gaps():
    """a prompt of 400 KB delays no stream's token beyond engine.token_gap_ms"""
    config = f"[engine]\ntoken_gap_ms = {GAP_MS}\n"
    line = "The heat of mixer H{} is {}. Rosa works in bay kilo.\n"
    prompt = "".join(line.format(i, i % 977) for i in range(PROMPT_BYTES // 50))
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "300000"], config=config) as daemon:
        streams = [Stream(daemon, i) for i in range(N_STREAMS)]
        time.sleep(0.5)  # all of them have begun
        stalls = Stalls()
        begin = time.monotonic()
        time.sleep(BEFORE_S)
        asked = time.monotonic()
        long = UnixConnection(daemon.socket_path, 60)
        long.request("POST", "/v1/completions", json.dumps({
            "prompt": prompt, "temperature": 0, "max_tokens": 1, "stream": True}))
        time.sleep(DURING_S)
        end = time.monotonic()
        read = max((slot["n_tokens"], slot["n_computed"]) for slot in daemon.get("/slots").json())
        long.close()
        for stream in streams:
            stream.close()
        stall_ms = stalls.longest_ms()
        before = summary([gap for s in streams for gap in s.gaps_ms(begin, asked)])
        during = summary([gap for s in streams for gap in s.gaps_ms(asked, end)])
        figures.update({"token_gap_ms": GAP_MS, "before": before, "during": during,
                        "stall_ms": round(stall_ms, 1), "prompt_tokens": read[0],
                        "prompt_tokens_read": read[1]})
        daemon.wait_idle(30)
    require(read[0] > PROMPT_BYTES // 8 and 0 < read[1] < read[0], f"the prompt was read: {read}")
    # The bound is kept by the times of earlier steps: a machine that others use too is later now
    # and again. Without the bound gaps are 3.7 times as long, and 7 on a busy machine.
    noise_ms = before["max"] + stall_ms
    require(during["p99"] <= 2 * GAP_MS + noise_ms, f"{figures}")
    require(during["max"] <= 3 * GAP_MS + noise_ms, f"{figures}")


if __name__ == "__main__":
    print(f"seed {SEED}, {ROUNDS} rounds")
    code = run_checks([check_same_texts, check_gaps])
    print(json.dumps(figures))
    sys.exit(code)
