#!/usr/bin/env python3
"""log_lines.py TARND: what tarnd logs of a request: who asked, how much, how long, and no text."""
import re
import shlex
import socket
import sys
import time

from daemon import Daemon, program_and_arguments, require, run_checks

PROGRAM, ARGUMENTS = program_and_arguments()
daemon = Daemon(PROGRAM, [*ARGUMENTS, "-c", "8192"], store=True)
SECRET = "Zanzibar"
TEXT = f"Rosa of {SECRET} works in bay kilo.\n" * 20
WORK = ["prompt_tokens", "cached_tokens", "generated_tokens"]


def lines(server, event):
    """The pairs of each line of this event."""
    all_pairs = [dict(word.split("=", 1) for word in shlex.split(line))
                 for line in server.log().splitlines() if line.startswith("time=")]
    return [pairs for pairs in all_pairs if pairs["event"] == event]


def line_of(reply, event="request"):
    name = reply.headers["x-request-id"]
    return next(pairs for pairs in lines(daemon, event) if pairs["id"] == name)


def check_answers():
    """an answer: tokens as in its usage, the time to the first one and in all"""
    body = {"prompt": TEXT, "temperature": 0, "max_tokens": 6, "ignore_eos": True}
    for more in [{}, {}, {"n": 3, "temperature": 1},
                 {"stream": True, "stream_options": {"include_usage": True}}]:
        began = time.monotonic()
        reply = daemon.post("/v1/completions", {**body, **more})
        took_ms = 1000 * (time.monotonic() - began)
        whole = reply.events()[-2] if "stream" in more else reply.json()
        usage, pairs = whole["usage"], line_of(reply)
        want = [usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"],
                usage["completion_tokens"]]
        require([int(pairs[name]) for name in WORK] == want, f"{pairs}, usage {usage}")
        require(0 <= int(pairs["first_token_ms"]) <= int(pairs["ms"]) <= took_ms, f"{pairs}")
        require(pairs["path"] == "/v1/completions" and pairs["status"] == "200", f"{pairs}")
        require(pairs["tenant"].startswith("uid:"), f"{pairs}")
    require(int(pairs["cached_tokens"]) > 0)


def check_chunks():
    """chunks that are computed in full for want of a record: a line a second says so"""
    def said(**tarn):
        before = len(lines(daemon, "chunks_in_full"))
        daemon.post("/v1/completions", {"prompt": "Rosa", "max_tokens": 1, "tarn": tarn})
        return len(lines(daemon, "chunks_in_full")) - before

    require(said() == 0)
    require(said(chunks=[TEXT], recompute=0.5) == 0)
    require(said(chunks=[TEXT]) == 1)
    line = lines(daemon, "chunks_in_full")[-1]
    require(line["level"] == "warning" and "tarn verify --reuse" in line["text"], f"{line}")


def check_others():
    """a document: its tokens; what the engine had no part in: its time alone"""
    reply = daemon.post("/v1/tarn/ingest", {"name": "book", "content": TEXT})
    pairs = line_of(reply)
    require(int(pairs["prompt_tokens"]) == reply.json()["tokens"], f"{pairs}")
    require(int(pairs["cached_tokens"]) == reply.json()["reused"], f"{pairs}")
    for reply in [daemon.get("/health"), daemon.post("/v1/completions", {"prompt": 5}),
                  daemon.get(f"/{SECRET}")]:
        pairs = line_of(reply)
        require(pairs["status"] == str(reply.status) and int(pairs["ms"]) >= 0, f"{pairs}")
        require(not set(WORK) & set(pairs), f"{pairs}")


def check_gone():
    """a client that leaves in its answer: client_gone, with what was done for it"""
    data = f'{{"prompt": "{SECRET}", "max_tokens": 4000, "ignore_eos": true, "stream": true}}'
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(daemon.socket_path)
        peer.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                     f"Content-Length: {len(data)}\r\n\r\n{data}".encode())
        text = peer.recv(4000).decode()
        while text.count("data: ") < 5:
            text += peer.recv(4000).decode()
    daemon.wait_idle()
    name = re.search("X-Request-Id: (.*)\r\n", text).group(1)
    pairs = next(pairs for pairs in lines(daemon, "client_gone") if pairs["id"] == name)
    require(int(pairs["prompt_tokens"]) > 0 and int(pairs["generated_tokens"]) >= 4, f"{pairs}")
    require(name not in [pairs["id"] for pairs in lines(daemon, "request")])


def check_no_text():
    """no line has a word of a prompt, a path or an answer"""
    require(SECRET not in daemon.log())


def check_full():
    """connections_full at most once a second"""
    config = "[daemon]\nconnections_max = 2\n"
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048"], config=config) as full:
        began = time.monotonic()
        for _ in range(60):
            peers = [socket.socket(socket.AF_UNIX) for _ in range(3)]
            for peer in peers:
                peer.connect(full.socket_path)
                peer.sendall(b"G")  # it has a second to become a head
            time.sleep(0.02)
            for peer in peers:
                peer.close()
        seconds = time.monotonic() - began
        limit = time.monotonic() + 5
        while full.get("/health").status != 200:
            require(time.monotonic() < limit)
        n_lines = len(lines(full, "connections_full"))
        require(1 <= n_lines <= seconds + 1, f"{n_lines} lines in {seconds:.1f} s")


if __name__ == "__main__":
    with daemon:
        code = run_checks([check_answers, check_chunks, check_others, check_gone, check_no_text,
                           check_full])
        if code != 0:
            print(daemon.log()[-4000:])
    sys.exit(code)
