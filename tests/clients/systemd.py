#!/usr/bin/env python3
"""systemd.py TARND UNITS: what tarnd promises to systemd, without one that runs.

UNITS is the folder with tarnd.service and tarnd.socket. The sandbox is judged by systemd-analyze,
the socket comes from systemd-socket-activate, and messages go to a socket of this script.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from daemon import Daemon, READY_S, program_and_arguments, require, run_checks, skip

for needed in ("systemd-analyze", "systemd-socket-activate"):
    if shutil.which(needed) is None:
        skip(f"no {needed}")

PROGRAM, (UNITS, *ARGUMENTS) = program_and_arguments()


class NotifySocket:
    """The datagrams that a service sends to its manager."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "notify.sock")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.lines = []

    def wait_for(self, line, limit_s=READY_S):
        """Reads until a message has the line; returns the lines before it."""
        before, limit = [], time.monotonic() + limit_s
        while time.monotonic() < limit:
            self.socket.settimeout(max(limit - time.monotonic(), 0.01))
            try:
                lines = self.socket.recv(4096).decode().split("\n")
            except TimeoutError:
                break
            if line in lines:
                return before
            before += lines
        raise AssertionError(f"no {line} in {limit_s} s; {before}")


def exposure(dropin):
    """systemd-analyze's figure for the unit with a drop-in."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tarnd.service", "tarnd.socket"):
            shutil.copy(os.path.join(UNITS, name), folder)
        os.mkdir(os.path.join(folder, "tarnd.service.d"))
        with open(os.path.join(folder, "tarnd.service.d", "plan.conf"), "w",
                  encoding="utf-8") as file:
            file.write(dropin)
        verified = subprocess.run(["systemd-analyze", "verify", "./tarnd.service",
                                   "./tarnd.socket"], cwd=folder, capture_output=True, text=True,
                                  check=False)
        complaints = [line for line in verified.stderr.splitlines()
                      if "is not executable" not in line and "Cannot find unit" not in line]
        require(not complaints, f"{complaints}")
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                               "./tarnd.service"], cwd=folder, capture_output=True, text=True,
                              check=True)
        return float(done.stdout.split("Overall exposure level for tarnd.service: ")[1].split()[0])


def check_sandbox():
    """systemd-analyze: at most 0.5 for a CPU, at most 1.0 with a GPU's devices"""
    done = subprocess.run([PROGRAM, *ARGUMENTS, "-c", "4096", "--dropin"], capture_output=True,
                          text=True, check=True)
    keys = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    for key in ("MemoryMax", "LimitMEMLOCK"):
        require(keys[key].endswith("M") and int(keys[key][:-1]) > 16, f"{key}={keys.get(key)}")
    require(int(keys["LimitNOFILE"]) >= 64 + 100 and int(keys["TimeoutStopSec"]) > 15, f"{keys}")
    figure = exposure(done.stdout)
    require(figure <= 0.5, f"{figure}")
    gpu = exposure(done.stdout + "PrivateDevices=no\nMemoryDenyWriteExecute=no\n"
                   "DeviceAllow=char-nvidia* rw\nDeviceAllow=/dev/nvmap rw\n"
                   "SupplementaryGroups=video\n")
    require(gpu <= 1.0, f"{gpu}")
    print(f"exposure: CPU {figure}, GPU {gpu}")


def check_unit_limits():
    """the unit's TimeoutStopSec and LimitNOFILE are enough by default; the drop-in follows"""
    with open(os.path.join(UNITS, "tarnd.service"), encoding="utf-8") as file:
        unit = dict(line.strip().split("=", 1) for line in file if "=" in line and line[0] != "#")
    shown = subprocess.run([PROGRAM, *ARGUMENTS, "-c", "2048", "--listen", "unix:///x",
                            "--check-config"], capture_output=True, text=True, check=True).stdout
    drain_s = int(re.search(r"^drain_s = (\d+)$", shown, re.MULTILINE).group(1))
    after_s = 10 + 2  # saving what is kept, writing replies out
    require(drain_s + after_s < int(unit["TimeoutStopSec"]), f"{drain_s} {unit['TimeoutStopSec']}")
    require(int(unit["LimitNOFILE"]) == 4096 + 128, unit["LimitNOFILE"])
    daemon = Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048", "--dropin"],
                    config="[daemon]\ndrain_s = 100\nconnections_max = 500\n")
    done = subprocess.run(daemon.command, capture_output=True, text=True, check=True)
    require("\nTimeoutStopSec=115\n" in done.stdout and "\nLimitNOFILE=628\n" in done.stdout,
            done.stdout)
    shutil.rmtree(daemon.folder)


def check_journal():
    """a line has its priority where JOURNAL_STREAM names standard error, and else none"""
    for is_journal in (True, False):
        daemon = Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048"])
        with open(daemon.log_path, "ab") as log:
            facts = os.fstat(log.fileno())
        os.environ["JOURNAL_STREAM"] = f"{facts.st_dev}:{facts.st_ino + (0 if is_journal else 1)}"
        try:
            with daemon:
                daemon.get("/health")
                begins = {line.split("time=")[0] for line in daemon.log().splitlines()}
                require(begins == {"<6>" if is_journal else ""}, f"{begins}")
        finally:
            del os.environ["JOURNAL_STREAM"]


def group(name):
    """The system calls of one of systemd's groups, with those of groups in it."""
    listed = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", name],
                            capture_output=True, text=True, check=True).stdout.split("\n")
    names = {line.strip() for line in listed[1:] if line.startswith(" ") and "#" not in line}
    return names.union(*(group(inner) for inner in names if inner.startswith("@")))


def allowed_calls():
    """What the unit's lines SystemCallFilter= leave."""
    allowed = set()
    with open(os.path.join(UNITS, "tarnd.service"), encoding="utf-8") as unit:
        lines = [line.strip().split("=", 1)[1] for line in unit if line.startswith("SystemCallF")]
    for line in lines:
        words = line.lstrip("~").split()
        calls = set().union(*(group(word) if word[0] == "@" else {word} for word in words))
        allowed = allowed - calls if line[0] == "~" else allowed | calls
    return allowed


def check_calls():
    """the system calls that tarnd makes are those that the unit allows"""
    if shutil.which("strace") is None:
        return print("no strace: not checked")
    daemon = Daemon(PROGRAM, ARGUMENTS, store=True)
    trace = os.path.join(daemon.folder, "trace")
    # LeakSanitizer does not work in a process that is traced.
    daemon.command = ["strace", "-f", "-qq", "-E", "ASAN_OPTIONS=detect_leaks=0", "-o", trace,
                      *daemon.command]
    with daemon:
        daemon.complete("Rosa works in bay kilo. " * 40)
        daemon.complete("Ivo works", stream=False, n=3)
        daemon.post("/v1/tarn/ingest", {"name": "book", "content": "Rosa works. " * 40})
        with open(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children",
                  encoding="ascii") as children:
            os.kill(int(children.read().split()[0]), signal.SIGTERM)
        require(daemon.process.wait(30) == 0)
        with open(trace, encoding="utf-8", errors="replace") as file:
            calls = set(re.findall(r"^\d+ +(\w+)\(", file.read(), re.MULTILINE))
    require(len(calls) > 20, f"{calls}")
    require(calls <= allowed_calls(), f"not allowed: {sorted(calls - allowed_calls())}")


def check_notify():
    """READY when it answers, watchdog and stop are told"""
    with tempfile.TemporaryDirectory() as folder:
        notify = NotifySocket(folder)
        os.environ.update(NOTIFY_SOCKET=notify.path, WATCHDOG_USEC="400000")
        os.environ.pop("WATCHDOG_PID", None)
        try:
            with Daemon(PROGRAM, ARGUMENTS) as daemon:
                notify.wait_for("READY=1")
                require(daemon.get("/health").status == 200)
                for _ in range(5):
                    notify.wait_for("WATCHDOG=1", 0.4)
                daemon.process.send_signal(signal.SIGTERM)
                notify.wait_for("STOPPING=1", 5)
                require(daemon.process.wait(30) == 0)
        finally:
            del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]


def check_reload():
    """SIGHUP reads the log's level and the limits again; a wrong file changes nothing"""
    with Daemon(PROGRAM, ARGUMENTS, config="[daemon]\nbody_bytes_max = 2048\n") as daemon:
        def reload(text, event):
            with open(os.path.join(daemon.folder, "tarnd.toml"), "w", encoding="utf-8") as file:
                file.write(text)
            daemon.process.send_signal(signal.SIGHUP)
            limit = time.monotonic() + 5
            while f"event={event}" not in daemon.log():
                require(time.monotonic() < limit, f"no event={event} in the log")
                time.sleep(0.02)

        def status():
            return daemon.post("/tokenize", {"content": "x" * 4000}).status

        require(status() == 413)
        reload("[daemon]\nbody_bytes_max = 'x'\n", "reload_failed")
        require(status() == 413)
        reload("[daemon]\nbody_bytes_max = 8192\n", "reloaded")
        require(status() == 200)


def check_activation():
    """a socket that is passed is served, and stays when tarnd ends"""
    daemon = Daemon(PROGRAM)
    daemon.command = ["systemd-socket-activate", "-l", daemon.socket_path, PROGRAM, *ARGUMENTS]
    with daemon:  # its first request starts the program
        require(daemon.complete("Rosa works")["choices"][0]["text"])
        require(daemon.stop() == 0)
        require(os.path.exists(daemon.socket_path), "the manager's socket was removed")


def check_config():
    """--check-config says what would be done, or what is wrong, and listens nowhere"""
    daemon = Daemon(PROGRAM, [*ARGUMENTS, "--check-config"])
    done = subprocess.run(daemon.command, capture_output=True, text=True, check=False)
    require(done.returncode == 0 and "[daemon]" in done.stdout, done.stderr)
    for text, word in [("[daemon]\nno_such_key = 1\n", "no_such_key"),
                       ("[daemon]\ndrain_s = -1\n", "drain_s"),
                       ("[daemon]\nlisten = ['tcp://127.0.0.1:1']\n", "keys_file"),
                       ("[daemon]\nlisten = 5\n", "listen"), ("[daemon\n", "tarnd.toml:1")]:
        wrong = Daemon(PROGRAM, [*ARGUMENTS, "--check-config"], config=text)
        began = time.monotonic()
        ended = subprocess.run([word for word in wrong.command if not word.startswith("unix://")
                                and word != "--listen"], capture_output=True, text=True,
                               check=False)
        require(ended.returncode == 78, f"{text!r}: {ended.returncode} {ended.stderr}")
        require(word in ended.stderr, f"{text!r}: {ended.stderr}")
        require(time.monotonic() - began < 2)
        shutil.rmtree(wrong.folder)
    require(not os.path.exists(daemon.socket_path))
    shutil.rmtree(daemon.folder)


def check_exits():
    """a socket of a live tarnd is not taken, that of a dead one is"""
    with Daemon(PROGRAM, ARGUMENTS) as daemon:
        second = subprocess.run(daemon.command, capture_output=True, text=True, check=False)
        require(second.returncode in (74, 78), f"{second.returncode} {second.stderr}")
        require(daemon.get("/health").status == 200)
        daemon.stop(signal.SIGKILL)
        require(os.path.exists(daemon.socket_path))
        daemon.start()
        require(daemon.get("/health").status == 200)


if __name__ == "__main__":
    sys.exit(run_checks([check_sandbox, check_unit_limits, check_journal, check_calls,
                         check_config, check_notify, check_reload, check_activation,
                         check_exits]))
