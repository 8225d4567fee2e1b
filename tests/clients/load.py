#!/usr/bin/env python3
"""load.py TARND: 64 clients of which half vanish, slow readers, half-sent requests, and the like.

Half of the clients read their answers, and must get the text that the prompt has alone. Meanwhile
others vanish at a random moment, never read, send a byte a second, send too much, or connect and
shut. Afterwards nothing is left: no session, no descriptor, no memory. A table says what each tenth
of the time saw; in a run of ten minutes or more nothing grows in its second half. The last line is
JSON with p50 and p99 of the first token and between tokens. TARN_LOAD_SECONDS: how long (default
10); TARN_TEST_SEED: the seed.
"""
import json
import os
import random
import socket
import sys
import threading
import time

from daemon import Daemon, UnixConnection, program_and_arguments, require, run_checks
from descriptors import check_calm

SECONDS = float(os.environ.get("TARN_LOAD_SECONDS", "10"))
SEED = int(os.environ.get("TARN_TEST_SEED", "1"))
N_READERS = N_VANISHERS = 32
N_CONNECTIONS = 10000
LONG_S = 600
# RSS may grow by in the second half of a long run: the allocator's pools, and less than what the
# smallest object that each request could leave behind would take.
GROWTH_MAX, LEAK_BYTES = 256 << 10, 48
HEADER_S, STALLED_S = 3, 3  # shorter than the defaults, so that a short run sees them
CONFIG = f"""[daemon]
connections_max = 256
header_s = {HEADER_S}
body_s = {HEADER_S}
stalled_s = {STALLED_S}
"""

PROGRAM, ARGUMENTS = program_and_arguments()
daemon = Daemon(PROGRAM, [*ARGUMENTS, "-c", "65536", "--parallel", "80"], config=CONFIG)
PROMPTS = [f"The heat of mixer H{i} is 7{i}4. Rosa works in bay kilo.\n"
           f"Q: What is the heat of mixer H{i}?\nA:" for i in range(16)]
FIELDS = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


class Crowd:
    """Threads that repeat a function until the time is over, or until it raises."""

    def __init__(self):
        self.until = time.monotonic() + SECONDS
        self.threads, self.errors = [], []

    def add(self, count, function):
        for index in range(count):
            thread = threading.Thread(target=self._run, args=(function, random.Random(
                f"{SEED} {function.__name__} {index}")))
            self.threads.append(thread)

    def _run(self, function, draw):
        try:
            while time.monotonic() < self.until:
                function(draw)
        except Exception as error:  # pylint: disable=broad-except
            self.errors.append(f"{function.__name__}: {type(error).__name__}: {error}")

    def run(self):
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()


class Slice:
    """What a tenth of the time saw."""

    def __init__(self):
        self.first_s = []
        self.rss_bytes = self.n_descriptors = self.n_requests = None

    def end(self):
        self.rss_bytes, self.n_descriptors = daemon.rss_bytes(), daemon.n_descriptors()
        self.n_requests = counts["answers"] + counts["vanished"]


def sampler(_draw):
    """Ends a tenth of the time."""
    time.sleep(SECONDS / 10)
    slices[-1].end()
    slices.append(Slice())


expected = {}
slices = [Slice()]
first_s, between_s = [], []
counts = {"answers": 0, "busy": 0, "vanished": 0, "opened": 0, "refused heads": 0,
          "full backlog": 0}


def body_of(prompt, **more):
    return json.dumps({"prompt": prompt, "stream": True, **FIELDS, **more})


def reader(draw):
    """Reads a stream to its end."""
    prompt = draw.choice(PROMPTS)
    connection = UnixConnection(daemon.socket_path, 120)
    began = time.monotonic()
    until_accepted(connection.connect)
    connection.request("POST", "/v1/completions", body_of(prompt),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status == 429:
        counts["busy"] += 1
        require(response.getheader("Retry-After"), "429 without Retry-After")
        response.read()
        connection.close()
        time.sleep(0.2)
        return
    require(response.status == 200, f"status {response.status}")
    text, last, is_done = "", None, False
    for line in response:
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]\n":
            is_done = True
            continue
        event = json.loads(line[6:])
        require("error" not in event, f"{event}")
        piece = event["choices"][0]["text"] if event["choices"] else ""
        now = time.monotonic()
        if piece:
            (between_s if last else first_s).append(now - (last or began))
            if not last:
                slices[-1].first_s.append(now - began)
            last = now
        text += piece
    connection.close()
    require(is_done, f"{response.getheader('X-Request-Id')}: the stream ended before its end")
    require(text == expected[prompt], f"another text: {text!r}, alone {expected[prompt]!r}")
    counts["answers"] += 1


def until_accepted(connect):
    """A Unix socket whose backlog is full refuses a client with a timeout at once."""
    while True:
        try:
            return connect()
        except BlockingIOError:
            counts["full backlog"] += 1
            time.sleep(0.01)


def raw(bytes_):
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(60)
    until_accepted(lambda: peer.connect(daemon.socket_path))
    try:
        peer.sendall(bytes_)
    except OSError:  # refused before all of it was read
        pass
    return peer


def request_bytes(body):
    return (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def vanisher(draw):
    """Leaves in the middle of its request, while it waits, or in the middle of its answer."""
    request = request_bytes(body_of(draw.choice(PROMPTS), max_tokens=400))
    where = draw.randrange(3)
    peer = raw(request[:draw.randrange(len(request))] if where == 0 else request)
    if where == 2:
        peer.recv(draw.randrange(1, 4000))
    time.sleep(draw.random() * 0.1)
    peer.close()
    counts["vanished"] += 1


def slow_reader(draw):
    """Asks for a long answer and reads nothing; tarnd drops it."""
    peer = raw(request_bytes(body_of(draw.choice(PROMPTS), max_tokens=600, n=4)))
    time.sleep(draw.random() * SECONDS)
    peer.close()


def slow_writer(_draw):
    """Sends a byte of its head now and again; tarnd closes in time."""
    peer = raw(b"G")
    began = time.monotonic()
    try:
        while time.monotonic() - began < HEADER_S + 5:
            peer.sendall(b"x")
            time.sleep(0.2)
    except OSError:
        require(time.monotonic() - began < HEADER_S + 3, "a slow head was read for too long")
        return
    finally:
        peer.close()
    raise AssertionError(f"a head is still read after {HEADER_S + 5} s")


def too_much(_draw):
    """A header of a MB is refused, and the connection closed."""
    peer = raw(b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * (1 << 20) + b"\r\n\r\n")
    status = peer.recv(4096).split(b" ")[1:2]
    require(status in ([b"431"], []), f"status {status}")
    peer.close()
    counts["refused heads"] += 1


def knocker(_draw):
    """Connects and shuts."""
    if counts["opened"] >= N_CONNECTIONS:
        time.sleep(0.05)
        return
    raw(b"").close()
    counts["opened"] += 1


def check_load():
    """64 clients and worse ones: each reader gets the text that its prompt has alone"""
    for prompt in PROMPTS:
        expected[prompt] = daemon.complete(prompt, **FIELDS)["choices"][0]["text"]
    descriptors, rss = daemon.n_descriptors(), daemon.rss_bytes()
    crowd = Crowd()
    crowd.add(N_READERS, reader)
    crowd.add(N_VANISHERS, vanisher)
    for count, function in [(8, slow_reader), (8, slow_writer), (1, too_much), (1, knocker),
                            (1, sampler)]:
        crowd.add(count, function)
    crowd.run()
    require(not crowd.errors, f"{len(crowd.errors)} clients failed: {crowd.errors[:5]}")
    require(counts["answers"] >= N_READERS, f"{counts}")
    daemon.wait_idle(30)
    limit = time.monotonic() + 10  # idle connections are closed by their clients
    while daemon.n_descriptors() > descriptors + 4 and time.monotonic() < limit:
        time.sleep(0.1)
    require(daemon.n_descriptors() <= descriptors + 4,
            f"{daemon.n_descriptors()} descriptors, {descriptors} before")
    print(f"RSS {rss >> 20} MiB before, {daemon.rss_bytes() >> 20} MiB after")


def check_growth():
    """a long run grows in nothing"""
    whole = [part for part in slices if part.rss_bytes is not None]
    print("| tenth | requests | first token p50, ms | p99 | RSS, KiB | descriptors |\n"
          "|---|---|---|---|---|---|")
    for index, part in enumerate(whole):
        p50, p99 = (1000 * (percentile(part.first_s, share) or 0) for share in (.5, .99))
        print(f"| {index + 1} | {part.n_requests} | {p50:.0f} | {p99:.0f} | {part.rss_bytes >> 10} "
              f"| {part.n_descriptors} |")
    if SECONDS < LONG_S:
        return
    half, end = whole[len(whole) // 2 - 1], whole[-1]
    most = GROWTH_MAX + LEAK_BYTES * (end.n_requests - half.n_requests)
    require(end.rss_bytes - half.rss_bytes <= most,
            f"{end.rss_bytes - half.rss_bytes} bytes more than at half time, {most} allowed")


def check_memory():
    """the network's memory was never above its part of the plan"""
    lines = daemon.get("/metrics").body.decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    peak, most = (float(values[f"tarn_network_bytes_{name}"]) for name in ("peak", "max"))
    require(0 < peak <= most, f"peak {peak}, max {most}")
    print(f"network memory: peak {peak / 2**20:.1f} MiB of {most / 2**20:.1f}")


def check_descriptors():
    """1,100 idle connections at a limit of 1,024: next to no CPU time, and a line a second"""
    check_calm(1100, 1024, 10.0, 0.1,
               "[daemon]\nconnections_max = 2000\nmemory_bytes = 134217728\n")


def check_after():
    """afterwards each prompt still has its text"""
    for prompt, text in expected.items():
        require(daemon.complete(prompt, **FIELDS)["choices"][0]["text"] == text)


if __name__ == "__main__":
    print(f"seed {SEED}, {SECONDS:g} s")
    with daemon:
        code = run_checks([check_load, check_growth, check_memory, check_after,
                           check_descriptors])
        if code != 0:
            print(daemon.log()[-4000:])
    print(json.dumps({**counts, "seconds": SECONDS, **{
        f"{name}_{mark}_ms": value and round(1000 * value, 2)
        for name, values in (("first_token", first_s), ("between_tokens", between_s))
        for mark, value in (("p50", percentile(values, .5)), ("p99", percentile(values, .99)))}}))
    sys.exit(code)
