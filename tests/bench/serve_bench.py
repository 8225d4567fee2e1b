#!/usr/bin/env python3
"""Clients with a prefix in common on several servers, in turns; standard library only.

    tests/bench/serve_bench.py NAME=URL [NAME=URL...] [--clients 1,4,16] [--rounds N] [...]

The servers are started by hand with their best settings, for example

    tarnd -m MODEL -c 2560 --parallel 16 --listen tcp://127.0.0.1:8081 --keys-file KEYS
    llama-server -m MODEL -np 16 -kvu -c 40960 -t 2 -tb 2 --port 8080

In a round each server in turn gets the same requests: N clients, each of which sends its next
request when its answer has ended. A prompt is a prefix of --prefix ids that all clients of the
round have in common and --question ids of its own. Prints requests/s and times of the first token
and between tokens, as medians of the rounds, and the ratio of the first server to each other one.
"""
import argparse
import http.client
import json
import random
import statistics
import threading
import time
import urllib.parse


class Server:
    def __init__(self, said, key):
        self.name, url = said.split("=", 1)
        self.at = urllib.parse.urlsplit(url)
        self.headers = {"Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        self.results = {}  # by the number of clients: a Round each

    def stream(self, prompt, n_tokens):
        """The times of an answer's pieces, the first of which is when it was asked."""
        times = [time.monotonic()]
        connection = http.client.HTTPConnection(self.at.hostname, self.at.port, timeout=3600)
        connection.request("POST", "/v1/completions", json.dumps({
            "prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}}), self.headers)
        reply = connection.getresponse()
        if reply.status != 200:
            raise SystemExit(f"{self.name}: {reply.status} {reply.read().decode()}")
        n_said = None
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if any(choice["text"] for choice in event.get("choices", [])):
                times.append(time.monotonic())
            n_said = (event.get("usage") or {}).get("completion_tokens", n_said)
        connection.close()
        if n_said != n_tokens:
            raise SystemExit(f"{self.name}: {n_said} tokens, not {n_tokens}")
        return times


class Round:
    """What one server did with one round's requests."""

    def __init__(self, server, prompts, n_clients, n_tokens):
        self.answers = [None] * len(prompts)
        left, lock = iter(range(len(prompts))), threading.Lock()

        def client():
            while True:
                with lock:
                    at = next(left, None)
                if at is None:
                    return
                self.answers[at] = server.stream(prompts[at], n_tokens)

        threads = [threading.Thread(target=client) for _ in range(n_clients)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.wall_s = time.monotonic() - begin
        if None in self.answers:
            raise SystemExit(f"{server.name}: a request failed")

    def requests_per_s(self):
        return len(self.answers) / self.wall_s

    def first_s(self):
        return [times[1] - times[0] for times in self.answers]

    def gaps_s(self):
        return [b - a for times in self.answers for a, b in zip(times[1:], times[2:])]


def at(values, percent):
    """The nearest rank, in ms."""
    ordered = sorted(values)
    return 1e3 * ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def prompts_of(seed, n, options):
    draw = random.Random(seed)
    ids = lambda count: [draw.randrange(options.vocab) for _ in range(count)]
    prefix = ids(options.prefix)
    return [prefix + ids(options.question) for _ in range(n)]


def print_table(servers, n_clients):
    first = [statistics.median(r.requests_per_s() for r in s.results[n_clients]) for s in servers]
    for server, rate in zip(servers, first):
        rounds = server.results[n_clients]
        times = [[at(values(r), p) for r in rounds]
                 for values in (Round.first_s, Round.gaps_s) for p in (50, 99)]
        shown = " | ".join(f"{statistics.median(t):.1f}" for t in times)
        print(f"| {n_clients} | {server.name} | {rate:.3f} | {first[0] / rate:.2f} | {shown} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("servers", nargs="+", metavar="NAME=URL")
    parser.add_argument("--clients", default="1,4,16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=4, help="for each client and round")
    parser.add_argument("--prefix", type=int, default=2048)
    parser.add_argument("--question", type=int, default=32)
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=30_000, help="ids that prompts are drawn from")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--key", help="a key that all servers are sent")
    options = parser.parse_args()
    servers = [Server(said, options.key) for said in options.servers]
    print(f"prefix {options.prefix}, question {options.question}, answer {options.answer} tokens; "
          f"{options.rounds} rounds of {options.requests} requests a client; seed {options.seed}\n")
    print("| clients | server | requests/s | first server's / its | first token p50, ms | p99 "
          "| between tokens p50, ms | p99 |\n|---|---|---|---|---|---|---|---|")
    for n_clients in map(int, options.clients.split(",")):
        for index in range(options.rounds):
            prompts = prompts_of(f"{options.seed} {n_clients} {index}",
                                 n_clients * options.requests, options)
            for server in servers if index % 2 == 0 else reversed(servers):
                server.results.setdefault(n_clients, []).append(
                    Round(server, prompts, n_clients, options.answer))
        print_table(servers, n_clients)


main()
