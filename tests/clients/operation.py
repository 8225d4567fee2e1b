#!/usr/bin/env python3
"""operation.py TARND TARN: what whoever runs tarnd relies on.

Its end, its sockets, its files, /health when nothing is answered any more, /metrics, and requests
that queue.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from daemon import (Daemon, UnixConnection, in_parallel, program_and_arguments, require,
                    run_checks)

PROGRAM, (TARN, *ARGUMENTS) = program_and_arguments()


def stream(daemon, n_tokens):
    """A connection with a stream that has begun; returns it and the reply."""
    connection = UnixConnection(daemon.socket_path)
    connection.request("POST", "/v1/completions", json.dumps(
        {"prompt": "Log", "max_tokens": n_tokens, "ignore_eos": True, "stream": True}),
        {"Content-Type": "application/json"})
    reply = connection.getresponse()
    require(reply.status == 200 and reply.fp.peek(1))
    return connection, reply


def check_drain():
    """SIGTERM: a running answer ends, new requests get 503 with Retry-After, and it ends with 0"""
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "16384"]) as daemon:
        kept = UnixConnection(daemon.socket_path)
        kept.request("GET", "/health")
        require(kept.getresponse().read())
        half = UnixConnection(daemon.socket_path)  # its body comes later
        half.putrequest("POST", "/v1/completions")
        body = json.dumps({"prompt": "Log", "max_tokens": 4}).encode()
        half.putheader("Content-Length", str(len(body)))
        half.endheaders()
        connection, reply = stream(daemon, 1500)
        daemon.process.send_signal(signal.SIGTERM)
        while "event=stopping" not in daemon.log():
            time.sleep(0.01)
        for path in ("/health", "/v1/models"):
            refused = daemon.get(path)
            require(refused.status == 503 and refused.headers["connection"] == "close")
            require(int(refused.headers["retry-after"]) > 0, f"{refused.headers}")
        kept.request("POST", "/v1/completions", body)
        half.send(body)
        for late in (kept, half):
            answer = late.getresponse()
            require(answer.status == 503 and answer.getheader("Retry-After"), f"{answer.status}")
            require("stopping" in answer.read().decode())
        require(b"data: [DONE]" in reply.read(), "the running answer was cut off")
        connection.close()
        require(daemon.process.wait(30) == 0)
        require(not os.path.exists(daemon.socket_path))


def check_sockets():
    """the end of one tarnd leaves the socket of another one that has its path by now"""
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048"]) as first:
        second = Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048"])
        second.command[2] = "unix://" + first.socket_path
        second.socket_path = first.socket_path
        os.unlink(first.socket_path)
        with second:
            require(first.stop() == 0)
            require(second.get("/health").status == 200)
        require(not os.path.exists(first.socket_path))


def check_closed_descriptors():
    """descriptors 0 to 2 that the parent closed are /dev/null, and no event or file of its own"""
    daemon = Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048"])
    daemon.command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *daemon.command]
    with daemon:
        for fd in range(3):
            at = os.readlink(f"/proc/{daemon.process.pid}/fd/{fd}")
            require(at == "/dev/null", f"{fd}: {at}")


def check_files():
    """keys and configurations that are devices, pipes or folders are refused at once"""
    with tempfile.TemporaryDirectory() as folder:
        pipe, link = os.path.join(folder, "pipe"), os.path.join(folder, "link")
        os.mkfifo(pipe, 0o600)
        os.symlink("/dev/zero", link)
        for path in (pipe, link, folder, "/dev/zero", "/dev/null"):
            for option in ("--keys-file", "--config"):
                command = [PROGRAM, *ARGUMENTS, "--listen", f"unix://{folder}/s", option, path]
                done = subprocess.run(command, capture_output=True, text=True, check=False,
                                      timeout=10)
                require(done.returncode == 78, f"{option} {path}: {done.returncode} {done.stderr}")
                require("no plain file" in done.stderr and path in done.stderr, done.stderr)


def check_standard_input():
    """--config - is read once; SIGHUP says so; sessions are chosen unless the text has the key"""
    with tempfile.TemporaryDirectory() as folder:
        command = [PROGRAM, *ARGUMENTS, "-c", "2048", "--config", "-", "--check-config",
                   "--listen", f"unix://{folder}/s"]
        for text, wanted in [("[engine]\nsessions_max = 5\n", 5), ("[daemon]\nidle_s = 7\n", None),
                             ("[engine]\nrunning_max = 3\nwaiting_max = 4\n", 7)]:
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False,
                                  timeout=30)
            require(done.returncode == 0, f"{text}: {done.returncode} {done.stderr}")
            line = next(line for line in done.stdout.splitlines() if "open at a time" in line)
            require(wanted is None or line.split()[1] == str(wanted), f"{text}: {line}")
            require("idle_s" not in text or "idle_s = 7" in done.stdout, done.stdout)
        daemon = Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048"])
        with open(os.path.join(folder, "c"), "w", encoding="ascii") as file:
            file.write("[daemon]\nidle_s = 7\n")
        daemon.command = ["sh", "-c", 'exec "$@" < "$0"', file.name, *daemon.command, "--config",
                          "-"]
        with daemon:
            daemon.process.send_signal(signal.SIGHUP)
            until = time.monotonic() + 5
            while "event=reload_failed" not in daemon.log() and time.monotonic() < until:
                time.sleep(0.05)
            require("standard input was read once" in daemon.log(), daemon.log())


def check_health():
    """the model's file is overwritten under model.embedding = "disk": /health 503, and 70"""
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([TARN, "synth", model], check=True, capture_output=True)
        daemon = Daemon(PROGRAM, [*ARGUMENTS, "-m", model, "-c", "2048"],
                        config='[model]\nembedding = "disk"\n')
        daemon.start()
        body = {"prompt": "hello", "max_tokens": 3}
        require(daemon.post("/v1/completions", body).status == 200)
        size = os.path.getsize(model)
        with open(model, "r+b") as file:
            file.seek(size // 8)
            file.write(os.urandom(size - size // 8))
        require(daemon.post("/v1/completions", body).status == 503)
        began = time.monotonic()
        health = daemon.get("/health")
        require(health.status == 503 and "model" in health.json()["error"]["message"],
                f"{health.status} {health.body!r}")
        require(daemon.process.wait(10) == 70 and time.monotonic() - began < 5)
        require("event=engine_ended" in daemon.log())
        shutil.rmtree(daemon.folder)


SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-zA-Z_]\w*="[^"\\\n]*",?)*\})? (\S+)')


def metrics_of(daemon):
    """/metrics by Prometheus' rules: type and samples of each name."""
    reply = daemon.get("/metrics")
    require(reply.headers["content-type"].startswith("text/plain; version=0.0.4"))
    text = reply.body.decode()
    require(text.endswith("\n"))
    found = {}
    name = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            require(name not in found, f"{name} is there twice")
            found[name] = [None, {}]
        elif line.startswith("# TYPE "):
            words = line.split(" ")
            require(words[2] == name and words[3] in ("counter", "gauge", "histogram"), line)
            found[name][0] = words[3]
        else:
            parts = SAMPLE.fullmatch(line)
            require(parts, f"no sample: {line}")
            endings = ("_bucket", "_sum", "_count") if found[name][0] == "histogram" else ("",)
            require(parts[1] in [name + ending for ending in endings], line)
            found[name][1][parts[1] + (parts[2] or "")] = float(parts[4])
    return found


def check_metrics():
    """/metrics: types, histograms that add up, and the store's bytes"""
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "8192"], store=True) as daemon:
        for _ in range(3):
            daemon.complete("Rosa works in bay kilo. " * 20, max_tokens=8, ignore_eos=True)
        daemon.post("/v1/tarn/ingest", {"name": "book", "content": "Rosa works in bay kilo. " * 60})
        found = metrics_of(daemon)
    for name, least in [("tarn_first_token_seconds", 3), ("tarn_token_seconds", 3),
                        ("tarn_queue_seconds", 3), ("tarn_request_seconds", 4)]:
        kind, samples = found[name]
        buckets = [value for key, value in samples.items() if "_bucket" in key]
        require(kind == "histogram" and buckets == sorted(buckets), f"{name}: {buckets}")
        require(list(samples)[len(buckets) - 1].endswith('{le="+Inf"}'), f"{list(samples)}")
        require(buckets[-1] == samples[name + "_count"] >= least, f"{name}: {samples}")
        sum_s = samples[name + "_sum"]
        require(0 <= sum_s < 60 and (sum_s > 0 or name == "tarn_queue_seconds"), f"{sum_s}")
    value = {name: samples.get(name) for name, (_, samples) in found.items()}
    require(0 < value["tarn_store_bytes"] <= value["tarn_store_bytes_max"], f"{value}")
    require(value["tarn_store_written_bytes_total"] > 0, f"{value}")
    require(value["tarn_store_evictions_total"] == 0, f"{value}")
    require(all(name.endswith("_total") for name, (kind, _) in found.items()
                if kind == "counter" and name.startswith("tarn_")))


def check_queue():
    """defaults: of 20 and of 50 requests at once none is refused; n choices are sessions, too"""
    with Daemon(PROGRAM, ARGUMENTS) as daemon:
        def ask(index):
            limit = time.monotonic() + 60
            while True:
                try:
                    return daemon.post("/v1/completions", {
                        "prompt": f"{index}. Rosa works in bay kilo.", "max_tokens": 8}).status
                except BlockingIOError:  # the backlog is full
                    require(time.monotonic() < limit)
                    time.sleep(0.01)
        for count in (20, 50):
            statuses = in_parallel(ask, list(range(count)))
            require(statuses == [200] * count, f"{statuses}")
        reply = daemon.post("/v1/completions", {"prompt": "Rosa", "max_tokens": 2, "n": 8})
        require(reply.status == 200 and len(reply.json()["choices"]) == 8)
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "8192", "--parallel", "2"]) as few:
        connection, _ = stream(few, 4000)
        refused = few.post("/v1/completions", {"prompt": "Rosa", "max_tokens": 2, "n": 2})
        require(refused.status == 429 and int(refused.headers["retry-after"]) > 0,
                f"{refused.status} {refused.body!r}")
        words = refused.json()["error"]["message"]
        require("destroy" not in words and "engine.sessions_max" in words, words)
        connection.close()


if __name__ == "__main__":
    sys.exit(run_checks([check_drain, check_sockets, check_closed_descriptors, check_files,
                         check_standard_input,
                         check_health, check_metrics, check_queue]))
