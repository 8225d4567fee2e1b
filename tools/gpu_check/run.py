#!/usr/bin/env python3
"""gpu-check run: runs every GPU test and benchmark of Tarn on this machine's GPU.

A bundle (tools/gpu-check build) is this script beside the programs that it starts. Each case is one
program in a process of its own, as in ctest. A case that crashes, hangs or does not fit is written
down, and the next one runs. The most valuable cases run first, because time may end early.

The JSON is written after every case, the table goes to standard output at the end.
Exit codes: 0 all passed; 1 a case failed or a target was missed (a case that no target rests on may
run out of its time); 77 there is no GPU here, nothing was checked; 130 interrupted.

Python's standard library only, from 3.8 on (JetPack 5 and later).
"""
import argparse
import ctypes
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

MODEL_BYTES = 5_300_000_000  # the 8B of `tarn synth`, and the logits of N_IDS tokens
N_IDS = 64
PAGE_COLUMNS = 110
WORTHWHILE_S = 2             # a case with less time left does not start
BENCH_S = 90                 # of a bench without KV,
DEPTH_S = 45 / (32 * 1024)   # and for each token of it: twice what an AGX Orin takes (NAPKIN.md)
CLUSTER_S = 90               # 0.4 TFLOP of the host's: all layers' keys at SELECT_DEPTH
SELECT_DEPTH = 32768
PEER_RATIO, KERNEL_SHARE, BIG_WEIGHT_BYTES = 1.3, 0.85, 64 << 20
# Activations in 8 bits put the CPU's logits of this model at a KL of 7.7e-4 from those of an f32
# forward pass over the dequantised weights (0.039 rms a logit). The GPU rounds in other places, so
# both errors add up, and between independent ones of that size 3.1 of these 64 best tokens differ,
# 7 once in a thousand draws.
KL_MAX, TOP1_MIN = 2 * 7.7e-4, 57 / 64
# Share of the copy bandwidth by device name; the first that fits counts. An H100 or H200 is bound
# by launches and the gaps between them, boards by bandwidth.
BANDWIDTH_GOALS = (("H100", 0.40), ("H200", 0.33), ("", 0.90))
# What a target rests on, beside the tests: none of these may run out of its time.
ASKED_FOR = {"device", "kernels", "model", "decode d0 x1", "peer d0", "logits", "logits cpu",
             "memcheck", "racecheck"}
PLACES = [(d, n, kv) for d in (0, 4096, 32768)
          for n, kv in ((1, "f16"), (4, "f16"), (8, "f16"), (1, "q8_0"))
          if (d, kv) != (0, "q8_0")]
EXIT_USAGE, EXIT_IO, EXIT_ABSENT, EXIT_REFUSED, EXIT_INTERRUPTED = 64, 74, 77, 78, 130

# Prints the first libcublas that the loader finds, or else that of NVIDIA's wheels.
FIND_CUBLAS = """
import ctypes, glob
for name in 'libcublas.so.13', 'libcublas.so.12':
  try: ctypes.CDLL(name)
  except OSError: continue
  print(name); raise SystemExit
import nvidia
print(sorted(f for d in nvidia.__path__ for f in glob.glob(d + '/*/lib/libcublas.so.1[23]'))[0])
"""


def decode_name(depth, n_parallel, kv="f16"):
    return f"decode d{depth} x{n_parallel}" + ("" if kv == "f16" else f" {kv}")


def ascii_line(text):
    return "".join(c if " " <= c <= "~" else " " for c in text)[:300]


def last_line(text):
    return ascii_line(next((x for x in reversed(text.splitlines()) if x.strip()), ""))


def figures_in(text):
    """One JSON value, or the JSON lines of a log; None: neither."""
    try:
        return json.loads(text)
    except ValueError:
        try:
            return [json.loads(line) for line in text.splitlines() if line.startswith("{")] or None
        except ValueError:
            return None


def asked(program, *words):
    """The output of a program within ten seconds, or an empty text."""
    if shutil.which(program) is None:
        return ""
    try:
        done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, timeout=10,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


def machine_state():
    """A Jetson's figures cannot be repeated without its power mode, a card's not without clocks."""
    def first_line(path):
        try:
            return Path(path).read_text(errors="replace").split("\n")[0]
        except OSError:
            return ""
    query = "driver_version,pstate,clocks.sm,clocks.mem,temperature.gpu,power.draw"
    state = {"nvidia_smi": asked("nvidia-smi", "--format=csv,noheader", "--query-gpu=" + query),
             "nvpmodel": asked("nvpmodel", "-q"), "l4t": first_line("/etc/nv_tegra_release")}
    for device in sorted(glob.glob("/sys/class/devfreq/*")):
        state["devfreq " + os.path.basename(device)] = first_line(device + "/cur_freq")
    return {key: ascii_line(text.replace("\n", ";")) for key, text in state.items() if text}


class Run:
    def __init__(self, options, bundle, work):
        self.options, self.bundle, self.work = options, bundle, work
        self.began = time.monotonic()
        self.is_interrupted, self.child = False, None
        self.model = options.model
        self.sanitizer, self.cublas = options.sanitizer, options.cublas
        if self.sanitizer == "auto":
            usual = "/usr/local/cuda/bin/compute-sanitizer"
            self.sanitizer = shutil.which("compute-sanitizer") or (
                usual if os.access(usual, os.X_OK) else "")
        if self.cublas == "auto":
            self.cublas = asked(sys.executable, "-c", FIND_CUBLAS)
        self.peer = Path(options.peer) if options.peer else bundle / "peer"
        self.tests = [x.split() for x in (bundle / "tests.list").read_text().splitlines() if x]
        packed = (bundle / "bundle.txt").read_text().strip()
        self.report = {"tool": "gpu-check",
                       "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                       "bundle": f"{packed}; cuBLAS: {self.cublas or 'absent'}",
                       "minutes": options.minutes, "state": "running", "targets": [], "cases": []}

    def interrupt(self, *_):
        self.is_interrupted = True
        self.kill()

    def kill(self):
        if self.child is not None:
            try:
                os.killpg(self.child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    # Under another name first: whoever is killed leaves valid JSON behind.
    def write(self):
        self.report["targets"] = targets(self.report)
        part = self.options.output + ".part"
        Path(part).write_text(json.dumps(self.report, indent=1) + "\n")
        os.replace(part, self.options.output)

    def add(self, name, status, why="", **more):
        case = {"name": name, "status": status, "seconds": 0.0, **more}
        if why:
            case["why"] = why
        self.report["cases"].append(case)
        print(f"{name:36} {status:9} {case['seconds']:6.1f} s  {why}", file=sys.stderr, flush=True)
        self.write()
        return status == "ok"

    def start(self, words, limit_s, out, err):
        """Runs a process group: (exit code, or None after its time limit; seconds)."""
        def cut():
            is_cut.append(True)
            self.kill()

        env = dict(os.environ)
        if "/" in self.cublas:
            env["LD_LIBRARY_PATH"] = ":".join(
                filter(None, (os.path.dirname(self.cublas), env.get("LD_LIBRARY_PATH"))))
        libc, pr_set_pdeathsig, is_cut = ctypes.CDLL(None), 1, []
        timer = threading.Timer(limit_s, cut)  # wait(limit_s) would look every 50 ms only
        began = time.monotonic()
        self.child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env,
            start_new_session=True, preexec_fn=lambda: libc.prctl(pr_set_pdeathsig, signal.SIGKILL))
        timer.start()
        if self.is_interrupted:  # while it was started
            self.kill()
        code = self.child.wait()
        timer.cancel()
        self.kill()  # what it left behind
        self.child = None
        return None if is_cut else code, time.monotonic() - began

    def case(self, name, words, limit_s, has_figures=True):
        """Runs a case and returns whether it passed. Its figures are its program's output."""
        words = [str(word) for word in words]
        left_s = self.options.minutes * 60 - (time.monotonic() - self.began)
        if self.is_interrupted or left_s < WORTHWHILE_S:
            return self.add(name, "no_time", "interrupted" if self.is_interrupted else
                            "the time given by --minutes was over")
        limit_s = min(limit_s, left_s, self.options.case_seconds)
        more = {"command": " ".join(words), "limit_s": limit_s}
        with tempfile.TemporaryFile() as out_file, tempfile.TemporaryFile() as err_file:
            try:
                code, more["seconds"] = self.start(words, limit_s, out_file, err_file)
            except OSError as error:
                return self.add(name, "failed", f"could not be started ({error.strerror}); "
                                "TMPDIR may name another folder", **more)
            for file in (out_file, err_file):
                file.seek(0)
            out, err = (f.read().decode(errors="replace") for f in (out_file, err_file))
        status, why = judged(code, limit_s, out, err)
        if self.is_interrupted:
            status, why = "no_time", "interrupted"
        if status == "ok" and has_figures:
            more["figures"] = figures_in(out)
            if more["figures"] is None:
                status, why = "failed", "what it printed is no JSON: " + last_line(out)
        return self.add(name, status, why, **more)

    def run(self):
        bench = self.bundle / "gpu-bench"
        if not self.case("device", [bench, "--facts"], 60):
            return
        self.add("machine before", "ok", figures=machine_state())
        self.test(self.tests[:1])
        self.case("kernels", [bench], 90)
        self.make_model()
        self.bench(0, 1)
        self.peer_bench(0)
        self.logits()
        self.test(self.tests[1:])
        self.sanitize("memcheck")
        for n_parallel in (4, 8):
            self.bench(0, n_parallel)
        self.peer_batch()
        for depth in (4096, 32768):
            self.bench(depth, 1)
            self.peer_bench(depth)
            if depth == SELECT_DEPTH:
                self.bench(depth, 1, select=True)
            self.bench(depth, 1, "q8_0")
            for n_parallel in (4, 8):
                self.bench(depth, n_parallel)
        self.sanitize("racecheck")
        self.add("machine after", "ok", figures=machine_state())

    def test(self, tests):
        for program, file in tests:
            self.case(f"test {program} {file}", [self.bundle / program, f"--source-file=*/{file}"],
                      120, has_figures=False)

    def make_model(self):
        if self.model:
            return
        disk = os.statvfs(self.work)
        free = disk.f_bavail * disk.f_frsize
        place = os.path.dirname(self.work)
        if asked("stat", "-f", "-c", "%T", self.work) == "tmpfs":
            self.add("model", "absent", f"{place} is memory, not a disk: name another with --dir")
        elif free < MODEL_BYTES:
            self.add("model", "absent", f"the 8B needs {MODEL_BYTES // 10**6} MB, and {place} has "
                                        f"{free // 10**6}: name another with --dir")
        elif self.case("model", [self.bundle / "tarn", "synth", "--arch", "llama-3.1-8b", "--quant",
                                 "q4_k_m", self.work + "/8b.gguf"], 240, has_figures=False):
            self.model = self.work + "/8b.gguf"

    def needs(self, name, *also):
        """Whether the case has all it needs: a model, and others as (is present, why not)."""
        for is_here, why in ((self.model, "there is no model"), *also):
            if not is_here:
                return self.add(name, "absent", why)
        return True

    # Above depth 0 KV is filled in: a real prefill of 32K takes minutes on a board.
    def bench(self, depth, n_parallel, kv="f16", select=False):
        name = decode_name(depth, n_parallel, kv) + (" pq" if select else "")
        if not self.needs(name):
            return
        words = [self.bundle / "tarn-bench", "-m", self.model, "-p", 0 if select else 512,
                 "-n", 128, "--np", n_parallel, "--ctk", kv, "-r", 3 if depth == 0 else 2,
                 "--device", "cuda", "--no-bandwidth", "-o", "json"]
        if depth > 0:
            words += ["--fill-kv", depth, "--kv-model", "recorded"]
        if select:
            words += ["--select", "pq"]
        self.case(name, words, BENCH_S + DEPTH_S * depth * n_parallel + CLUSTER_S * select)

    def has_peer(self, name, program):
        return self.needs(name,
                          (os.path.exists(self.peer / program), "no llama.cpp with CUDA here"),
                          (self.cublas, "llama.cpp needs libcublas, which is not here"))

    def peer_bench(self, depth):
        name = f"peer d{depth}"
        if self.has_peer(name, "llama-bench"):
            self.case(name, [self.peer / "llama-bench", "-m", self.model, "-p", 512, "-n", 128,
                             "-d", depth, "-r", 3 if depth == 0 else 2, "-ngl", 99, "-fa", 1,
                             "-o", "json"], BENCH_S + DEPTH_S * depth)

    def peer_batch(self):
        if self.has_peer("peer batch", "llama-batched-bench"):
            self.case("peer batch", [self.peer / "llama-batched-bench", "-m", self.model,
                                     "-c", 4096, "-npp", 16, "-ntg", 128, "-npl", "4,8",
                                     "-ngl", 99, "-fa", 1, "--output-format", "jsonl"], 90)

    def logits(self):
        if not self.needs("logits"):
            return
        ids, base, state = self.work + "/ids.txt", self.work + "/cpu.logits", 1
        with open(ids, "w") as file:
            for _ in range(N_IDS):
                state = (state * 1664525 + 1013904223) % 2**32
                file.write(f"{(state >> 8) % 30000}\n")
        words = [self.bundle / "tarn", "eval", "-m", self.model, "--ids", ids, "--json", "--device"]
        if self.case("logits cpu", words + ["cpu", "--logits-out", base], 120):
            self.case("logits", words + ["cuda", "--base", base], 60)
        else:
            self.add("logits", "absent", "the CPU gave none to compare with")

    # The kernels' tests and the engine's, under one of compute-sanitizer's tools. What our calls
    # answer is no error there: we ask events whether they are done, and look at every answer.
    def sanitize(self, tool):
        for tests, name in (("kernels", tool), ("engine", tool + " engine")):
            found = next((test for test in self.tests if tests in test[0]), None)
            if not self.sanitizer or found is None:
                self.add(name, "absent", f"no tests of the {tests} here" if self.sanitizer else
                         "no compute-sanitizer here")
                continue
            words = [self.sanitizer, "--tool", tool, "--error-exitcode", "99"]
            if tool == "memcheck":
                words += ["--report-api-errors", "no"]
            words.append(self.bundle / found[0])
            if tests == "engine":  # most of the engine's tests have the emulator alone
                words.append(f"--source-file=*/{found[1]}")
            self.case(name, words, 120, has_figures=False)


def judged(code, limit_s, out, err):
    """(status, why) of an exit code; negative: a signal; None: its time limit."""
    said = last_line(err) or last_line(out)
    behind = ": " + said if said else ""
    if code is None:
        return "timed_out", f"cut after {int(limit_s)} s{behind}"
    if code < 0:
        return "failed", f"crashed: {signal.strsignal(-code)}{behind}"
    if code == EXIT_ABSENT and said:
        return "absent", said
    no_library = code == 127 and "shared libraries" in err  # the loader's words
    status = ("ok" if code == 0 else "absent" if code == EXIT_ABSENT or no_library else
              "refused" if code == EXIT_REFUSED else "failed")
    return status, f"exit code {code}{behind}" if code else ""


# ---- The table: verdicts on what is promised of a GPU, and the figures behind them ----

def figures(report, name):
    """The figures of a case that passed; else none."""
    for case in report["cases"]:
        if case["name"] == name and case["status"] == "ok":
            return case.get("figures") or []
    return []


def fixed(value, decimals=0):
    return "-" if value is None else f"{value:.{decimals}f}"


def ratio(a, b):
    return a / b if a is not None and b else None


def get(value, key):
    return value.get(key) if isinstance(value, dict) else None


def first(rows, **wanted):
    """The first row with these values; else an empty one."""
    rows = rows if isinstance(rows, list) else []
    return next((r for r in rows if all(get(r, k) == v for k, v in wanted.items())), {})


def decode_row(report, name):
    return first(figures(report, name), n_prompt=0, n_gen=128)


def prompt_speed(report, name):
    return get(first(figures(report, name), n_prompt=512, n_gen=0), "avg_ts")


def decode_speed(report, name):
    return get(decode_row(report, name), "avg_ts")


def peer_decode(report, depth, n_parallel):
    if n_parallel == 1:
        return decode_speed(report, f"peer d{depth}")
    rows = figures(report, "peer batch") if depth == 0 else []
    return get(first(rows, pl=n_parallel), "speed_tg")


def rate(row, of="bytes"):
    """The rate of a kernel's figure, per second."""
    return ratio(get(row, of), get(row, "ns")) and row[of] * 1e9 / row["ns"]


def copy_rate(report):
    return rate(first(figures(report, "kernels"), group="copy", name="copy"))


def kernel_rows(report, *groups):
    rows = figures(report, "kernels")
    return [r for r in rows if get(r, "group") in groups] if isinstance(rows, list) else []


def per_token(rows):
    """A token's kernels: (their number, their ns)."""
    return (sum(r["calls"] * r["launches"] for r in rows), sum(r["calls"] * r["ns"] for r in rows))


def device_name(report):
    return get(figures(report, "device"), "name") or ""


def targets(report):
    out = []

    def target(name, wanted, seen=None, is_met=None):
        verdict = "absent" if is_met is None else "met" if is_met else "missed"
        out.append({"name": name, "wanted": wanted, "seen": seen or "-", "verdict": verdict})

    def all_pass(name, prefix):
        states = [c["status"] for c in report["cases"] if c["name"].startswith(prefix)]
        n_ok, n_bad = states.count("ok"), states.count("failed") + states.count("timed_out")
        is_met = True if states and n_ok == len(states) else False if n_bad else None
        target(name, "all pass", f"{n_ok} of {len(states)}" if n_ok + n_bad else None, is_met)

    def sanitizer(tool):
        cases = [c for c in report["cases"] if c["name"] in (tool, tool + " engine")]
        bad = [f"{c['name']}: {c['why']}" for c in cases if c["status"] == "failed"]
        is_ok = [c["status"] for c in cases] == ["ok", "ok"]
        target(f"compute-sanitizer {tool}, kernels' and engine's tests", "0 errors",
               bad[0] if bad else "0 errors" if is_ok else None,
               False if bad else is_ok or None)

    def at_least(name, least, seen, words, unit=""):
        target(name, f">= {least}{unit}", words, None if seen is None else seen >= float(least))

    all_pass("GPU tests, for real", "test ")
    all_pass("of these the engine's, determinism among them", "test test_runtime_engine_gpu")
    kl, top1 = (get(figures(report, "logits"), k) for k in ("kl_mean", "top1_agreement"))
    has_logits = kl is not None and top1 is not None
    target("logits of the 8B beside the CPU's: mean KL, same best token",
           f"<= {KL_MAX:.2g}, >= {TOP1_MIN:.3f}", f"{kl:.2g}, {top1:.3f}" if has_logits else None,
           kl <= KL_MAX and top1 >= TOP1_MIN if has_logits else None)
    sanitizer("memcheck")
    sanitizer("racecheck")
    decode = decode_row(report, decode_name(0, 1))
    gain = ratio(get(decode, "avg_ts"), peer_decode(report, 0, 1))
    at_least("tg128 beside llama.cpp's", f"{PEER_RATIO:.1f}", gain, f"{fixed(gain, 2)}x"
             if gain is not None else None, "x")
    copy = copy_rate(report)
    goal = next(share for name, share in BANDWIDTH_GOALS if name in device_name(report))
    bytes_s = get(decode, "achieved_gb_per_s")
    share = ratio(bytes_s and bytes_s * 1e9, copy)
    at_least("tg128, share of the copy bandwidth", f"{goal:.2f}", share, fixed(share, 2))
    big = [(rate(r) / copy, r["name"]) for r in kernel_rows(report, "kernel")
           if copy and r["rows"] == 1 and r["weight_bytes"] >= BIG_WEIGHT_BYTES]
    least, name = min(big, default=(None, ""))
    at_least("slowest kernel with >= 64 MiB of weights, one row, share of copying",
             f"{KERNEL_SHARE:.2f}", least, f"{fixed(least, 2)} ({name})" if big else None)
    return out


def table_of(head, rows):
    lines = ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]


def speeds(report):
    rows = []
    for depth, n_parallel, kv in PLACES:
        name = decode_name(depth, n_parallel, kv)
        status = next((c["status"] for c in report["cases"] if c["name"] == name), "absent")
        cells = [status] + [""] * 5
        if status == "ok":
            is_f16 = kv == "f16"
            prompt, decode = prompt_speed(report, name), decode_speed(report, name)
            peer_prompt = (prompt_speed(report, f"peer d{depth}") if is_f16 and n_parallel == 1
                           else None)
            peer = peer_decode(report, depth, n_parallel) if is_f16 else None
            cells = [fixed(prompt, 1), fixed(peer_prompt, 1), fixed(ratio(prompt, peer_prompt), 2),
                     fixed(decode, 1), fixed(peer, 1), fixed(ratio(decode, peer), 2)]
        rows.append([depth, n_parallel, kv] + cells)
    return table_of(["depth", "batch", "KV", "pp512 t/s", "llama.cpp", "ratio", "tg128 t/s",
                     "llama.cpp", "ratio"], rows) + [
        "", "Tarn's depths are filled in (`tarn-bench --fill-kv`), llama.cpp's are prefilled."]


def gaps(report):
    """A token's time beside its kernels."""
    step = kernel_rows(report, "step")
    if not step:
        return []
    launches, busy_ns = per_token(step)
    text = (f"One token of the 8B: {launches} kernels, {busy_ns / 1e3:.0f} us in them when each is "
            "run by itself")
    speed = decode_speed(report, decode_name(0, 1))
    if speed:
        gap_ns = 1e9 / speed - busy_ns
        text += f"; the token takes {1e6 / speed:.0f} us"
        text += (f", so {gap_ns / 1e3:.0f} us are gaps and the host's part, "
                 f"{gap_ns / launches:.0f} ns a kernel" if gap_ns > 0 else
                 ": it reads less KV, and a kernel begins while the one before it ends")
    rows = kernel_rows(report, "launch")
    text += (". A kernel that does nothing takes "
             f"{fixed(get(first(rows, name='graph'), 'ns'))} ns in a graph, "
             f"{fixed(get(first(rows, name='stream'), 'ns'))} ns without.")
    return ["", textwrap.fill(text, PAGE_COLUMNS)]


def driver(report):
    # An integrated GPU counts its context and the graphs there, beside the plan's slabs.
    row = decode_row(report, decode_name(0, 1))
    taken, limit = get(row, "driver_bytes"), get(row, "driver_limit_bytes")
    if not taken or not limit:
        return []
    return ["", f"The driver took {taken / 1e6:.0f} MB of at most {limit / 1e6:.0f} MB "
            "(`device.driver_limit_bytes`)."]


def selection(report):
    """The cost of selection for a token, and its result."""
    rows = []
    by_token = [r for r in kernel_rows(report, "select") if r["calls"] > 0]
    for depth in sorted({r["depth"] for r in by_token}):
        launches, ns = per_token([r for r in by_token if r["depth"] == depth])
        every = decode_name(depth, 1)
        chosen, read = decode_speed(report, every + " pq"), decode_speed(report, every)
        rows.append([depth, launches, fixed(ns / 1e3), fixed(chosen, 1), fixed(read, 1),
                     fixed(ratio(chosen, read), 2)])
    return table_of(["depth, by selection", "kernels more a token", "us in them", "tg128 t/s",
                     "all read", "ratio"], rows) if rows else []


def kernels(report):
    if not figures(report, "kernels"):
        return []
    copy = copy_rate(report)
    read = rate(first(kernel_rows(report, "copy"), name="read"))
    out = ["", f"Copying: {fixed(ratio(copy, 1e9))} GB/s read and written; reading: "
           f"{fixed(ratio(read, 1e9))} GB/s."]
    out += table_of(["kernel", "rows", "MB", "us", "GB/s", "share of copying"], [
        [r["name"] + (f" d{r['depth']}" if r.get("depth") else ""), r["rows"],
         fixed(r["bytes"] / 1e6, 1), fixed(r["ns"] / 1e3, 1), fixed(rate(r) / 1e9),
         fixed(ratio(rate(r), copy), 2)] for r in kernel_rows(report, "kernel", "select")])
    prompt = kernel_rows(report, "prompt")
    rows = [[r["name"], r["rows"], fixed(r["ns"] / 1e3, 1), fixed(rate(r, "ops") / 1e12, 1)]
            for r in prompt]
    if not any(r["name"].startswith("cuBLAS") for r in prompt):
        rows.append(["cuBLAS", "absent", "", ""])
    return out + table_of(["a prompt's product", "rows", "us", "TOPS"], rows) + ["", (
        "The engine computes quantised weights with matmat, and f16 ones with matvec f16, 8 rows "
        "at a time.\nmatmul and cuBLAS dequantise the weights to f16, narrow the rows to f16, and "
        "multiply both.")]


def table(report):
    device = device_name(report)
    out = [f"# {device or 'no GPU'}, {report['date']}", "", report["bundle"]]
    out += table_of(["target", "wanted", "seen", "verdict"],
                    [[t[k] for k in ("name", "wanted", "seen", "verdict")]
                     for t in report["targets"]])
    for when in ("machine before", "machine after"):
        state = figures(report, when)
        if state:
            text = " ".join(f"{k} {v}." for k, v in state.items())
            out += ["", textwrap.fill(f"{when}: {text}", PAGE_COLUMNS)]
    if device:
        out += speeds(report) + gaps(report) + driver(report) + selection(report)
    out += kernels(report)
    rest = [[c["name"], c["status"], c["why"]] for c in report["cases"] if c["status"] != "ok"]
    if rest:
        out += table_of(["case", "how it ended", "why"], rest)
    return "\n".join(out) + "\n"


def exit_code(report):
    if report["state"] == "interrupted":
        return EXIT_INTERRUPTED
    device = report["cases"][0]["status"]
    if device != "ok":
        return EXIT_ABSENT if device == "absent" else 1
    bad = any(c["status"] == "failed" or c["status"] == "timed_out" and
              (c["name"] in ASKED_FOR or c["name"].startswith("test ")) for c in report["cases"])
    return int(bad or any(t["verdict"] == "missed" for t in report["targets"]))


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(EXIT_USAGE, f"gpu-check: {message}\n")


def options_of(arguments):
    parser = Parser(prog="gpu-check run", description=__doc__, add_help=True,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8, help="limit for all cases together (8)")
    parser.add_argument("-o", "--output", default="gpu-check.json", help="JSON file to write")
    parser.add_argument("--table", help="also write the table to this file")
    parser.add_argument("--dir", default="/var/tmp",
                        help="a disk with 5.3 GB for the 8B; emptied afterwards (/var/tmp)")
    parser.add_argument("-m", "--model", help="a model instead of the 8B that `tarn synth` makes")
    parser.add_argument("--peer", help="a folder with llama-bench, built with CUDA")
    parser.add_argument("--sanitizer", default="auto", help="compute-sanitizer (default: searched)")
    parser.add_argument("--cublas", default="auto",
                        help="path of libcublas (default: searched); empty: none")
    parser.add_argument("--case-seconds", type=float, default=1e9,
                        help="limit for one case")
    return parser.parse_args(arguments)


def main(arguments):
    options = options_of(arguments)
    work = tempfile.mkdtemp(prefix="gpu-check-", dir=options.dir)
    try:
        run = Run(options, Path(__file__).resolve().parent, work)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, run.interrupt)
        run.write()
        run.run()
        run.report["state"] = "interrupted" if run.is_interrupted else "finished"
        run.write()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    text = table(run.report)
    sys.stdout.write(text)
    if options.table:
        Path(options.table).write_text(text)
    code = exit_code(run.report)
    if code == EXIT_ABSENT:
        print("gpu-check: nothing was checked: " + run.report["cases"][0]["why"], file=sys.stderr)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        sys.exit(EXIT_IO)
