#!/usr/bin/env python3
"""store_faults.py TARND: the store's disk refuses writes or loses its file while tarnd serves.

A disk is full for a process whose files may not be longer (RLIMIT_FSIZE); a lost file is a
truncated one. What needs the disk is answered 503 with the reason, /health says what is left of the
store, and everything else is answered as before.
"""
import os
import resource
import sys
import time

from daemon import Daemon, in_parallel, program_and_arguments, require, run_checks

PROGRAM, ARGUMENTS = program_and_arguments()
PATIENCE_S = 25  # with a disk that others keep busy
KEPT_FILE, KV_FILE = "sessions.tarn", "kv.tarn"
DOCUMENT = "".join(f"Bay kilo has mixer H{i}, whose heat is {700 + i}.\n" for i in range(40))
QUESTION = DOCUMENT + "Q: What is the heat of mixer H7?\nA:"


def fill_disk(daemon):
    _, most = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1 << 20, most))


def lose_file(daemon, name):
    os.truncate(os.path.join(daemon.store, name), 0)


def store_state(daemon):
    reply = daemon.get("/health")
    require(reply.status == 200, f"/health: {reply.status}")
    facts = reply.json()
    require((facts["status"] == "ok") == (facts["store"] in ("none", "on")), f"{facts}")
    return facts["store"]


def wait_for_state(daemon, states):
    """/health and /metrics say what their last looks saw; a busy disk refuses late, and again."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        state = store_state(daemon)
        metrics = daemon.get("/metrics").body.decode()
        if state in states and f'tarn_store{{state="{state}"}} 1' in metrics:
            return
        require(time.monotonic() < limit, f"/health: the store is {state}")
        time.sleep(0.05)


def require_refused(reply, words):
    require(reply.status == 503, f"{reply.status}: {reply.body[:300]!r}")
    error = reply.json()["error"]
    require(error["type"] == "unavailable_error" and "retry-after" in reply.headers, f"{error}")
    require(any(word in error["message"] for word in words), f"no reason: {error['message']}")


def require_ends_well(daemon):
    began = time.monotonic()
    code, seconds = daemon.stop(), time.monotonic() - began
    require(code == 0 and seconds < PATIENCE_S, f"code {code} after {seconds:.1f} s")


def check_full():
    """a full disk: ingest and kept sessions are 503, /health says read-only, answers go on"""
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "8192"], store=True) as daemon:
        text = daemon.complete(QUESTION)["choices"][0]["text"]
        book = {"name": "book", "content": DOCUMENT}
        require(daemon.post("/v1/tarn/ingest", book).status == 200)
        require(store_state(daemon) == "on")
        fill_disk(daemon)
        other = {"name": "other", "content": DOCUMENT[::-1]}
        require_refused(daemon.post("/v1/tarn/ingest", other), ["disk", "store"])
        wait_for_state(daemon, ["read-only"])
        require_refused(daemon.post("/v1/tarn/ingest", other), ["disk", "store"])
        kept = {"prompt": QUESTION, "tarn": {"session": "talk"}, "max_tokens": 4}
        require_refused(daemon.post("/v1/completions", kept), ["disk", "store"])
        events = daemon.post("/v1/completions", {**kept, "stream": True}).events()
        require("disk" in events[-1]["error"]["message"], f"{events[-1]}")
        errors = [row["text"] for row in daemon.get("/props").json()["tarn"]["errors"]]
        require(any("the store is read-only" in text for text in errors), f"{errors}")
        require(daemon.complete(QUESTION)["choices"][0]["text"] == text)
        rows = daemon.get("/v1/tarn/store").json()["data"]  # what it has can still be read
        require([row["name"] for row in rows] == ["book"], f"{rows}")
        require_ends_well(daemon)
        daemon.start()  # the disk has room again
        require(store_state(daemon) == "on")
        require(daemon.complete(QUESTION)["tarn"]["reused"]["from_disk"] > 0)
        require(daemon.post("/v1/tarn/ingest", other).status == 200)


def check_lost_file():
    """a store whose file is lost: nothing wrong is read from it, and no answer is another one"""
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "8192"], store=True) as daemon:
        text = daemon.complete(QUESTION)["choices"][0]["text"]
        require(daemon.post("/v1/tarn/ingest", {"name": "book", "content": DOCUMENT}).status == 200)
        daemon.stop()
        daemon.start()
        lose_file(daemon, KEPT_FILE)
        require(daemon.complete(QUESTION)["choices"][0]["text"] == text)
        reply = daemon.get("/v1/tarn/store")
        require(reply.status in (200, 503), f"{reply.status}")
        require(reply.status == 503 or reply.json()["data"] == [], f"{reply.body!r}")
        require(daemon.complete(QUESTION)["choices"][0]["text"] == text)
        print(f"the store is {store_state(daemon)} then")
        require_ends_well(daemon)


def check_beyond_memory():
    """KV beyond memory on a full disk: an answer has its text, or 503 with the disk's reason"""
    config = '[kv]\nmemory_bytes = "8MiB"\n[store]\nquota_bytes = "256MiB"\n'
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "16384"], store=True, config=config) as daemon:
        prompts = [f"{i}. {DOCUMENT * 4}Q: What is the heat of mixer H{i}?\nA:" for i in range(6)]
        fields = {"temperature": 0, "max_tokens": 16}
        expected = [daemon.complete(prompt, **fields)["choices"][0]["text"] for prompt in prompts]
        fill_disk(daemon)
        replies = in_parallel(lambda prompt: daemon.post(
            "/v1/completions", {"prompt": prompt, **fields}), prompts)
        n_refused = 0
        for prompt, text, reply in zip(prompts, expected, replies):
            if isinstance(reply, Exception):
                raise reply
            if reply.status == 200:
                require(reply.json()["choices"][0]["text"] == text, prompt[:20])
                continue
            n_refused += 1
            require_refused(reply, ["disk", "store"])
        print(f"{n_refused} of {len(prompts)} refused")
        wait_for_state(daemon, ["read-only", "off"])
        for prompt, text in zip(prompts, expected):  # one alone fits into memory
            require(daemon.complete(prompt, **fields)["choices"][0]["text"] == text, prompt[:20])
        require_ends_well(daemon)


if __name__ == "__main__":
    sys.exit(run_checks([check_full, check_lost_file, check_beyond_memory]))
