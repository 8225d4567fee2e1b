#!/usr/bin/env python3
"""descriptors.py TARND: what tarnd does where it may not open as many descriptors as it would.

It raises its limit at the start or is refused; where it runs out later it waits, and says so once a
second. load.py repeats check_calm with 1,100 connections.
"""
import os
import resource
import socket
import subprocess
import sys
import time

from daemon import Daemon, program_and_arguments, require, run_checks

PROGRAM, ARGUMENTS = program_and_arguments()


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        words = file.read().rsplit(") ", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def opened(daemon, count):
    """So many connections that say nothing."""
    peers = []
    for _ in range(count):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(0.2)
        try:
            peer.connect(daemon.socket_path)
        except OSError:  # the backlog is full
            peer.close()
            break
        peers.append(peer)
    return peers


def with_limit(daemon, soft, hard):
    daemon.command = ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh",
                      *daemon.command]
    return daemon


def check_calm(count=40, limit=None, seconds=2.0, most_cpu_s=0.1, config=""):
    """out of descriptors: next to no CPU time, a line a second, and room when clients close"""
    daemon = Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048"], config=config or "[daemon]\n")
    with daemon:
        pid = daemon.process.pid
        limit = limit or daemon.n_descriptors() + 12
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
        own, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, count + 100), most))
        began, before = time.monotonic(), cpu_s(pid)
        peers = opened(daemon, count)
        time.sleep(seconds)
        took, spent = time.monotonic() - began, cpu_s(pid) - before
        lines = daemon.log().splitlines()
        failed = [line for line in lines if "event=accept_failed" in line]
        require(spent < most_cpu_s, f"{spent} s of CPU time in {took:.1f} s")
        require(1 <= len(failed) <= took + 1, f"{len(failed)} lines in {took:.1f} s")
        require(all(line.startswith("time=") for line in lines), "a line that is not of the log")
        for peer in peers:
            peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (own, most))
        require(daemon.complete("Rosa works")["choices"][0]["text"])
        print(f"{len(peers)} connections at {limit} descriptors: {spent:.2f} s of CPU time in "
              f"{took:.1f} s, {len(failed)} lines")


def check_room():
    """silent connections at the most: a client that asks gets in, for the longest of them"""
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048"],
                config="[daemon]\nconnections_max = 4\n") as daemon:
        silent = opened(daemon, 2)
        half = opened(daemon, 2)
        for peer in half:
            peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost:")
        began = time.monotonic()
        require(daemon.get("/health").status == 200)
        require(time.monotonic() - began < 5, "it waited for daemon.header_s")
        for peer in silent + half:
            peer.close()


def check_raised():
    """a soft limit that is too low is raised: as many connections as configured are served"""
    with with_limit(Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048"]), 30, 4096) as daemon:
        peers = opened(daemon, 60)
        require(daemon.get("/health").status == 200)
        require("accept_failed" not in daemon.log())
        for peer in peers:
            peer.close()


def check_refused():
    """a hard limit that is too low: 78, with the figure and the remedy"""
    for hard, config, figure in [(30, "", "192"), (191, "", "192"),
                                 (1024, "[daemon]\nconnections_max = 2000\n"
                                  "memory_bytes = 134217728\n", "2128")]:
        daemon = with_limit(Daemon(PROGRAM, ARGUMENTS, config=config or None), 30, hard)
        done = subprocess.run(daemon.command, capture_output=True, text=True, check=False,
                              timeout=20)
        require(done.returncode == 78, f"{done.returncode} {done.stderr}")
        require(figure in done.stderr and "ulimit -n" in done.stderr, done.stderr)
        require(not os.path.exists(daemon.socket_path), "it made a socket")


if __name__ == "__main__":
    sys.exit(run_checks([check_calm, check_room, check_raised, check_refused]))
