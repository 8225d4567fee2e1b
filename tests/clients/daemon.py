"""What the scripts of this folder share: a tarnd of their own, HTTP without a package, checks.

Each script is called as `SCRIPT TARND [arguments of tarnd]`. It starts the program on sockets in a
folder of its own, and ends with 0, with 1 if a check failed, or with 77 if a Python package that it
needs is missing. Standard library only.
"""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True

READY_S = 60  # from start to READY; a sanitizer takes long
STOP_S = 30


class UnixConnection(http.client.HTTPConnection):
    """One HTTP connection over a Unix socket."""

    def __init__(self, path, timeout_s=60):
        super().__init__("localhost", timeout=timeout_s)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Reply:
    def __init__(self, response, body):
        self.status, self.body = response.status, body
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def json(self):
        return json.loads(self.body)

    def events(self):
        """The data of each event of a stream; [DONE] is the text "[DONE]"."""
        lines = self.body.decode().split("\n")
        data = [line[6:] for line in lines if line.startswith("data: ")]
        return [item if item == "[DONE]" else json.loads(item) for item in data]


class Daemon:
    """A running tarnd with the built-in model; use it as a context."""

    def __init__(self, program, arguments=(), *, listen_tcp=False, store=False, config=None):
        self.folder = tempfile.mkdtemp(prefix="tarnd-")
        self.socket_path = os.path.join(self.folder, "tarn.sock")
        self.log_path = os.path.join(self.folder, "log")
        self.command = [program, "--listen", "unix://" + self.socket_path]
        self.port = None
        self.key = "a-key-of-the-tests"
        if listen_tcp:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            keys = os.path.join(self.folder, "keys")
            with open(os.open(keys, os.O_CREAT | os.O_WRONLY, 0o600), "w",
                      encoding="ascii") as file:
                file.write(f"# LABEL KEY\ntests {self.key}\nothers another-key-of-the-tests\n")
            self.command += ["--listen", f"tcp://127.0.0.1:{self.port}", "--keys-file", keys]
        if store:
            self.store = os.path.join(self.folder, "store")
            os.mkdir(self.store, 0o700)
            self.command += ["--store", self.store]
        if config:
            path = os.path.join(self.folder, "tarnd.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(config)
            self.command += ["--config", path]
        self.command += list(arguments)
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        was_running = self.process.poll() is None
        code = self.stop()
        if was_running and code != 0 and kind is None:  # a sanitizer's findings, too
            sys.exit(f"tarnd ended with {code}:\n" + self.log()[-8000:])
        shutil.rmtree(self.folder)

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL)
        limit = time.monotonic() + READY_S
        while time.monotonic() < limit and self.process.poll() is None:
            try:
                if self.get("/health").status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        sys.exit(f"{' '.join(self.command)}: not ready, exit code {self.process.poll()}:\n"
                 + self.log()[-4000:])

    def stop(self, how=signal.SIGTERM):
        """Returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    # ---- Requests without a package ---------------------------------------------------------

    def request(self, method, path, body=None, headers=None, timeout_s=60):
        connection = UnixConnection(self.socket_path, timeout_s)
        try:
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, data,
                               {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return Reply(response, response.read())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def complete(self, prompt, **fields):
        """A greedy completion, checked for success."""
        reply = self.post("/v1/completions", {"prompt": prompt, "temperature": 0,
                                              "max_tokens": 16, **fields})
        require(reply.status == 200, f"{reply.status}: {reply.body[:300]!r}")
        return reply.json()

    def n_busy(self):
        slots = self.get("/slots").json()
        return sum(slot["is_processing"] for slot in slots)

    def wait_idle(self, limit_s=5):
        limit = time.monotonic() + limit_s
        while self.n_busy() > 0:
            require(time.monotonic() < limit, f"sessions are busy after {limit_s} s")
            time.sleep(0.02)

    def n_descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024


# ---- Checks -----------------------------------------------------------------------------------

class Failed(Exception):
    pass


def require(condition, message="a check failed"):
    if not condition:
        raise Failed(message)


def run_checks(checks):
    """Calls each function; returns the exit code. One that fails does not stop the others."""
    n_failed = 0
    for check in checks:
        began = time.monotonic()
        name = " ".join((check.__doc__ or check.__name__).split())
        try:
            check()
        except Exception:  # a client's own exceptions are findings too
            n_failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        else:
            print(f"ok      {name} ({time.monotonic() - began:.2f} s)", flush=True)
    print(f"{len(checks)} checks, {n_failed} failed")
    return 1 if n_failed else 0


def in_parallel(function, arguments):
    """Calls the function for each argument on a thread of its own; returns the results."""
    results = [None] * len(arguments)

    def call(index):
        try:
            results[index] = function(arguments[index])
        except Exception as error:  # pylint: disable=broad-except
            results[index] = error

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def program_and_arguments():
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} TARND [arguments of tarnd]")
    return sys.argv[1], sys.argv[2:]
