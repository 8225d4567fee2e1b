#!/usr/bin/env python3
"""gap_bench's scenario on llama-server; standard library only.

    tests/bench/gap_peer.py URL [--answers N] [--tokens N]

The server is started by hand with its best settings and answers + 1 slots, for example

    llama-server -m MODEL -np 5 -c 40960 -t 2 --no-cache-prompt -cram 0 --port 8080

N answers stream without an end; then a prompt of --tokens random ids is sent. Prints the gaps
between the answers' tokens before the prompt and beside it, and how long the prompt takes, beside
the answers and alone.
"""
import argparse
import http.client
import json
import random
import threading
import time
import urllib.parse

N_VOCAB_USED = 30_000  # below the special ids of the shapes of `tarn synth`


def connect(url, body):
    """A stream of /completion, with prompts as ids."""
    at = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=3600)
    connection.request("POST", "/completion", json.dumps(body),
                       {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise SystemExit(f"{url}: {reply.status} {reply.read().decode()}")
    return connection, reply


def ids(seed, n):
    draw = random.Random(seed)
    return [draw.randrange(N_VOCAB_USED) for _ in range(n)]


def prompt_s(url, seed, n):
    begin = time.monotonic()
    connection, reply = connect(
        url, {"prompt": ids(seed, n), "n_predict": 1, "cache_prompt": False, "ignore_eos": True})
    reply.read()
    connection.close()
    return time.monotonic() - begin


class Answer(threading.Thread):
    """One stream; its tokens' times."""

    def __init__(self, url, seed):
        super().__init__(daemon=True)
        self.url, self.seed, self.at_s = url, seed, []

    def run(self):
        _, reply = connect(self.url, {
            "prompt": ids(self.seed, 32), "n_predict": -1, "stream": True, "ignore_eos": True,
            "temperature": 0, "cache_prompt": False})
        for line in reply:
            if line.startswith(b"data: "):
                self.at_s.append(time.monotonic())

    def gaps_s(self, begin, end):
        times = [t for t in self.at_s if begin <= t <= end]
        return [b - a for a, b in zip(times, times[1:])]


def print_row(name, gaps_s):
    """The percentiles of gap_bench: the nearest rank."""
    ordered = sorted(gaps_s)
    at = lambda percent: 1e3 * ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
    print(f"| {name} | {len(ordered)} | {at(50):.1f} | {at(99):.1f} | {at(100):.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--answers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=16_384)
    options = parser.parse_args()
    alone_s = prompt_s(options.url, 1, options.tokens)
    answers = [Answer(options.url, 10 + i) for i in range(options.answers)]
    for answer in answers:
        answer.start()
    while any(len(answer.at_s) < 8 for answer in answers):
        time.sleep(0.05)
    before_s = time.monotonic()
    while any(len(answer.at_s) < 58 for answer in answers):
        time.sleep(0.05)
    begin = time.monotonic()
    beside_s = prompt_s(options.url, 2, options.tokens)
    end = time.monotonic()
    print("| answers | gaps | p50, ms | p99, ms | max, ms |\n|---|---|---|---|---|")
    print_row("before the prompt", [g for a in answers for g in a.gaps_s(before_s, begin)])
    print_row("beside it", [g for a in answers for g in a.gaps_s(begin - 0.5, end)])
    print(f"\nprompt of {options.tokens} tokens: {beside_s:.1f} s beside {options.answers} "
          f"answers, {alone_s:.1f} s alone")


main()
