#!/usr/bin/env python3
"""Tests that gpu-check comes to its end and says what happened, whatever its cases do.

    run_test.py GPU_BENCH

Goal    cases that pass, miss a target, crash, hang, refuse, say nonsense, find no GPU or run out of
        time are told apart in JSON, table and exit code; whoever ends a run finds valid JSON, no
        process and no file left.
Method  the script and the bundle's own header over shell scripts, one of which misbehaves.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GPU_BENCH = Path(sys.argv.pop(1)).resolve()

PROGRAMS = {
    "gpu-bench": """case "$*" in
*--facts*) echo '{"name": "Fake H100", "sm": 90}' ;;
*) cat "${0%/*}/kernels.json" ;;
esac""",
    # 200 tokens a second move 1,000 GB/s.
    "tarn-bench": """case "$*" in
*"-p 0 -n 128"*"--fill-kv 32768 --kv-model recorded --select pq"*)
 echo '[{"n_prompt": 0, "n_gen": 128, "avg_ts": 250.0, "select": "pq"}]' ;;
*) echo '[{"n_prompt": 512, "n_gen": 0, "avg_ts": 9000.0, "achieved_gb_per_s": null},
{"n_prompt": 0, "n_gen": 128, "avg_ts": 200.0, "achieved_gb_per_s": 1000.0,
 "driver_bytes": 311000000, "driver_limit_bytes": 536870912}]' ;;
esac""",
    "tarn": """case "$1" in
synth) shift $(($# - 1)); echo model >"$1" ;;
eval) echo '{"kl_mean": 1.5e-7, "kl_p99": 1e-6, "top1_agreement": 1.0}' ;;
esac""",
    "test_kernels_gpu": "echo '[doctest] test cases: 3 | 3 passed | 0 failed'",
    "test_runtime_engine_gpu": "echo '[doctest] test cases: 5 | 5 passed | 0 failed'",
    "peer/llama-bench": """echo '[{"n_prompt": 512, "n_gen": 0, "avg_ts": 12000.0},
{"n_prompt": 0, "n_gen": 128, "avg_ts": 125.0}]'""",
    "peer/llama-batched-bench": """echo 'a line of its log'
echo '{"pl": 4, "speed_tg": 400.0}'
echo '{"pl": 8, "speed_tg": 700.0}'""",
    "compute-sanitizer": "echo '========= ERROR SUMMARY: 0 errors'",
}


def figure(group, name, ns, rows=1, depth=0, calls=0, n_bytes=0, weight_bytes=0, ops=0):
    return {"group": group, "name": name, "rows": rows, "depth": depth, "calls": calls,
            "launches": 1, "weight_bytes": weight_bytes, "bytes": n_bytes, "ops": ops, "ns": ns}


def weights(name, rows, n_bytes, share):
    return figure("kernel", name, n_bytes / 2000 / share, rows, n_bytes=n_bytes,
                  weight_bytes=n_bytes)


KERNELS = [
    figure("copy", "copy", 1000, n_bytes=2_000_000),
    figure("copy", "read", 1000, n_bytes=2_100_000),
    figure("launch", "graph", 1500), figure("launch", "stream", 4000),
    weights("matvec q4_k", 1, 75497472, 0.9), weights("matvec q6_k", 1, 75497472, 0.88),
    weights("matvec q6_k", 8, 75497472, 0.38), weights("small", 1, 1048576, 0.26),
    figure("prompt", "matmat q4_k", 200000, rows=512, ops=60_000_000_000),
    figure("step", "rms_norm", 10000, calls=300), figure("step", "rope", 1e6 / 56, calls=56),
    figure("select", "pq_lut 2x6", 1000, depth=8192, calls=96),
    figure("select", "pq_assign 2x6", 54000, depth=8192, calls=1),
    figure("select", "pq_lut 2x6", 2000, depth=32768, calls=97),
    figure("select", "top_k", 2000, depth=32768)]


class Bundle:
    def __init__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="tarn_bundle_"))
        for name in ("peer", "work"):
            (self.dir / name).mkdir()
        shutil.copy(ROOT / "tools/gpu_check/run.py", self.dir / "run.py")
        for name, lines in PROGRAMS.items():
            self.set_program(name, lines)
        (self.dir / "kernels.json").write_text(json.dumps(KERNELS))
        (self.dir / "tests.list").write_text(
            "test_kernels_gpu real_gpu_test.cpp\ntest_kernels_gpu matvec_test.cpp\n"
            "test_runtime_engine_gpu batch_test.cpp\n")
        (self.dir / "bundle.txt").write_text("scripts of a test\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir)

    def set_program(self, name, lines):
        (self.dir / name).write_text(f"#!/bin/sh\n{lines}\n")
        (self.dir / name).chmod(0o700)

    def options(self, *more):
        given = {"--dir": self.dir / "work", "--sanitizer": self.dir / "compute-sanitizer",
                 "--cublas": "a library of a test", "-m": self.dir / "tarn",
                 "-o": self.dir / "out.json", "--table": self.dir / "out.md"}
        given.update(zip(more[::2], more[1::2]))
        return [str(word) for pair in given.items() for word in pair]

    def run(self, *more, **env):
        done = subprocess.run([sys.executable, "run.py", *self.options(*more)], cwd=self.dir,
                              stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, timeout=100,
                              env={**os.environ, **env})
        self.err = done.stderr.decode()
        return done.returncode

    def json(self):
        return json.loads((self.dir / "out.json").read_text())

    def table(self):
        return (self.dir / "out.md").read_text()

    def case(self, name):
        return next((c for c in self.json()["cases"] if c["name"] == name), {})

    def verdict(self, begin):
        return next(t["verdict"] for t in self.json()["targets"] if t["name"].startswith(begin))


# what, its program, the program's lines, case, status, why, exit code
MISBEHAVIOURS = [
    ("a crash", "tarn-bench", "kill -SEGV $$", "decode d0 x1", "failed", "Segmentation fault", 1),
    ("a failed test", "test_runtime_engine_gpu", "echo 'row 3 differs' >&2; exit 1",
     "test test_runtime_engine_gpu batch_test.cpp", "failed", "row 3 differs", 1),
    ("a hang", "test_runtime_engine_gpu", "sleep 100",
     "test test_runtime_engine_gpu batch_test.cpp", "timed_out", "cut after 2 s", 1),
    ("a hang behind a shell", "peer/llama-bench",
     """case "$*" in *"-d 0 "*) (sleep 100) & wait ;; *) echo '[]' ;; esac""", "peer d0",
     "timed_out", "cut after 2 s", 1),
    ("a hang that no target rests on", "peer/llama-batched-bench", "sleep 100", "peer batch",
     "timed_out", "cut after 2 s", 0),
    ("a child left behind", "peer/llama-batched-bench", "(sleep 100) & echo '{}'", "peer batch",
     "ok", "", 0),
    ("a model that does not fit", "tarn-bench", "echo 'over the budget' >&2; exit 78",
     "decode d32768 x8", "refused", "over the budget", 0),
    ("a peer whose library is missing", "peer/llama-bench",
     "echo 'error while loading shared libraries: libcublas.so.13' >&2; exit 127", "peer d0",
     "absent", "libcublas.so.13", 0),
    ("nonsense for JSON", "gpu-bench",
     """case "$*" in *--facts*) echo '{"name": "x"}' ;; *) echo nan ;; esac""", "kernels", "failed",
     "no JSON", 1),
    ("a GPU that cannot be opened", "gpu-bench", "echo 'it is lost' >&2; exit 75", "device",
     "failed", "it is lost", 1),
    ("an error of the sanitizer", "compute-sanitizer", "echo '= ERROR SUMMARY: 4 errors'; exit 99",
     "memcheck", "failed", "4 errors", 1),
    ("an error of the sanitizer in the engine", "compute-sanitizer",
     r"""case "$*" in *test_runtime_engine_gpu\ --source-file=*batch_test.cpp*)
     echo '= ERROR SUMMARY: 2 errors'; exit 99 ;; esac""",
     "memcheck engine", "failed", "2 errors", 1),
]


class RunTest(unittest.TestCase):
    def test_a_bundle_in_which_all_is_well_meets_every_target(self):
        with Bundle() as bundle:
            self.assertEqual(bundle.run(), 0, bundle.err)
            report = bundle.json()
            self.assertEqual(report["state"], "finished")
            self.assertEqual({c["status"] for c in report["cases"]}, {"ok"})
            self.assertEqual({t["verdict"] for t in report["targets"]}, {"met"})
            for line in (
                    "# Fake H100, 20",
                    "| tg128 beside llama.cpp's | >= 1.3x | 1.60x | met |",
                    "| tg128, share of the copy bandwidth | >= 0.40 | 0.50 | met |",
                    ">= 0.85 | 0.88 (matvec q6_k) | met |",
                    "| 0 | 1 | f16 | 9000.0 | 12000.0 | 0.75 | 200.0 | 125.0 | 1.60 |",
                    "| 0 | 8 | f16 | 9000.0 | - | - | 200.0 | 700.0 | 0.29 |",
                    "| 32768 | 1 | q8_0 | 9000.0 | - |",
                    "| matmat q4_k | 512 | 200.0 | 300.0 |\n| cuBLAS | absent |",
                    "The driver took 311 MB of at most 537 MB",
                    # A token of 5,000 us, 4,000 of them in 356 kernels.
                    "so 1000\nus are gaps and the host's part, 2809 ns a kernel",
                    "takes 1500 ns in a graph, 4000\nns without",
                    "| 8192 | 97 | 150 | - | - | - |",
                    "| 32768 | 97 | 194 | 250.0 | 200.0 | 1.25 |",
                    "| top_k d32768 | 1 | 0.0 | 2.0 | 0 | 0.00 |"):
                self.assertIn(line, bundle.table())
            self.assertEqual(list((bundle.dir / "work").iterdir()), [])

    def test_a_case_that_misbehaves_is_written_down_and_the_rest_goes_on(self):
        bundles = [Bundle() for _ in MISBEHAVIOURS]

        def run(bundle, row):
            _, program, lines, _, status, _, _ = row
            bundle.set_program(program, lines)
            return bundle.run("--case-seconds", "2" if status == "timed_out" else "60")

        with ThreadPoolExecutor(len(bundles)) as pool:  # some wait for a limit
            codes = list(pool.map(run, bundles, MISBEHAVIOURS))
        for row, bundle, code_seen in zip(MISBEHAVIOURS, bundles, codes):
            what, program, _, case, status, why, code = row
            with self.subTest(what), bundle:
                self.assertEqual(code_seen, code, bundle.err)
                self.assertEqual(bundle.json()["state"], "finished")
                self.assertEqual(bundle.case(case)["status"], status)
                self.assertIn(why, bundle.case(case).get("why", ""))
                self.assertIn(why, bundle.table())
                if case == "device":
                    continue  # the rest needs it
                self.assertEqual(len(bundle.json()["cases"]), 29)
                is_last = program == "compute-sanitizer"
                self.assertEqual(bundle.case("racecheck engine")["status"],
                                 "failed" if is_last else "ok")
                self.assertEqual(bundle.verdict("compute-sanitizer memcheck"),
                                 "missed" if is_last else "met")

    def test_without_a_gpu_every_case_is_absent(self):
        with Bundle() as bundle:
            bundle.set_program("gpu-bench", "echo 'no NVIDIA driver' >&2; exit 77")
            self.assertEqual(bundle.run(), 77)
            self.assertEqual({c["status"] for c in bundle.json()["cases"]}, {"absent"})
            self.assertEqual({c["why"] for c in bundle.json()["cases"]}, {"no NVIDIA driver"})
            self.assertEqual({t["verdict"] for t in bundle.json()["targets"]}, {"absent"})
            self.assertIn("# no GPU, 20", bundle.table())

    def test_this_builds_own_bench_finds_the_gpu_or_says_why_there_is_none(self):
        with Bundle() as bundle:
            bundle.set_program("gpu-bench", f"exec '{GPU_BENCH}' --facts")
            code = bundle.run()
            self.assertEqual(bundle.case("device")["status"], "absent" if code == 77 else "ok")
            if code == 77:
                self.assertTrue(bundle.case("device")["why"].startswith("gpu-bench: this "))

    def test_depths_are_filled_in_and_have_time_by_what_they_hold(self):
        with Bundle() as bundle:
            self.assertEqual(bundle.run("--minutes", "60"), 0)
            limits = {c["name"]: c.get("limit_s") for c in bundle.json()["cases"]}
            self.assertEqual(limits["decode d0 x8"], 90)
            self.assertEqual(limits["decode d4096 x8"], limits["decode d32768 x1"])
            self.assertEqual(limits["decode d32768 x8"], 90 + 8 * 45)
            names = list(limits)
            at = names.index("decode d32768 x1 pq")  # behind what it is compared with
            self.assertEqual(names[at - 2:at + 2:3], ["decode d32768 x1", "decode d32768 x1 q8_0"])
            for name in ("decode d0 x1", "decode d4096 x1 q8_0", "decode d32768 x4"):
                self.assertEqual("--fill-kv" in bundle.case(name)["command"], " d0 " not in name)
            self.assertEqual(bundle.run("--minutes", "1"), 0)
            self.assertLessEqual(bundle.case("decode d32768 x8")["limit_s"], 60)

    def test_targets_that_are_missed_are_called_so(self):
        with Bundle() as bundle:
            bundle.set_program("tarn-bench", """echo '[
{"n_prompt": 0, "n_gen": 128, "avg_ts": 125.0, "achieved_gb_per_s": 600.0}]'""")
            bundle.set_program("tarn", """echo '{"kl_mean": 0.01, "top1_agreement": 1.0}'""")
            self.assertEqual(bundle.run(), 1)
            for name in ("tg128 beside", "tg128, share", "logits"):
                self.assertEqual(bundle.verdict(name), "missed")
            self.assertEqual(bundle.verdict("slowest kernel"), "met")

    def test_a_board_is_asked_for_more_and_the_table_has_its_state(self):
        for device, wanted in (("NVIDIA H200", ">= 0.33"), ("Orin", ">= 0.90")):
            with self.subTest(device), Bundle() as bundle:
                bundle.set_program("gpu-bench", f"""echo '{{"name": "{device}"}}'""")
                bundle.set_program("nvpmodel", "echo 'NV Power Mode: MAXN_SUPER'")
                bundle.run(PATH=f"{bundle.dir}:{os.environ['PATH']}")
                self.assertIn(f"share of the copy bandwidth | {wanted}", bundle.table())
                self.assertIn("nvpmodel NV Power Mode: MAXN_SUPER.", bundle.table())

    def test_what_is_not_here_is_absent_and_the_rest_runs(self):
        with Bundle() as bundle:
            self.assertEqual(bundle.run("--cublas", ""), 0)
            self.assertEqual(bundle.case("peer d0")["status"], "absent")
            self.assertEqual(bundle.case("decode d0 x1")["status"], "ok")
            self.assertEqual(bundle.verdict("tg128 beside"), "absent")
            self.assertIn("cuBLAS: absent", bundle.table())
        if not os.path.isdir("/dev/shm"):
            return
        with Bundle() as bundle:
            self.assertEqual(bundle.run("-m", "", "--dir", "/dev/shm"), 0)
            self.assertIn("--dir", bundle.case("model")["why"])
            self.assertEqual(bundle.case("decode d0 x1")["why"], "there is no model")
            self.assertEqual(bundle.case("memcheck")["status"], "ok")

    def test_when_the_minutes_are_over_what_is_left_is_called_so(self):
        with Bundle() as bundle:
            bundle.set_program("tarn-bench", "sleep 100")
            self.assertEqual(bundle.run("--minutes", "0.1"), 1)
            self.assertEqual(bundle.case("kernels")["status"], "ok")
            self.assertEqual(bundle.case("decode d0 x1")["status"], "timed_out")
            self.assertEqual(bundle.case("racecheck")["status"], "no_time")

    def test_whoever_ends_it_finds_what_was_seen_and_nothing_that_runs(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(number), Bundle() as bundle:
                pid_file = bundle.dir / "pid"
                bundle.set_program("tarn-bench", f"echo $$ >'{pid_file}'; exec sleep 100")
                run = subprocess.Popen([sys.executable, bundle.dir / "run.py", *bundle.options()],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.wait_for(lambda: pid_file.exists() and pid_file.read_text().strip())
                pid = pid_file.read_text().strip()
                run.send_signal(number)
                self.assertEqual(run.wait(20), -9 if number == signal.SIGKILL else 130)
                self.wait_for(lambda: not is_running(pid))
                self.assertEqual(bundle.case("kernels")["status"], "ok")
                if number == signal.SIGTERM:
                    self.assertEqual(bundle.json()["state"], "interrupted")
                    self.assertEqual(bundle.case("decode d0 x1")["status"], "no_time")
                    self.assertEqual(list((bundle.dir / "work").iterdir()), [])

    def wait_for(self, condition):
        for _ in range(500):
            if condition():
                return
            time.sleep(0.02)
        self.fail("not within ten seconds")

    def test_a_wrong_command_line_and_a_folder_that_cannot_be_written(self):
        with Bundle() as bundle:
            self.assertEqual(bundle.run("--minutes", "soon"), 64)
            self.assertEqual(bundle.run("--dir", "/nowhere/at/all"), 74)
            self.assertEqual(bundle.run("-o", "/nowhere/at/all.json"), 74)

    def test_the_one_file_unpacks_itself_and_runs(self):
        with Bundle() as bundle:
            file = bundle.dir.with_suffix(".bundle")
            pack = f". '{ROOT}/toolchain/bundle.sh'; write_self_extracting '{bundle.dir}' '{file}'"
            subprocess.run(["bash", "-c", pack], check=True)
            try:
                done = subprocess.run(["sh", file, *bundle.options()], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(b"# Fake H100, 20", done.stdout)
                (bundle.dir / "bin").mkdir()
                for name in ("mktemp", "tail", "gzip", "tar", "rm", "dirname"):
                    (bundle.dir / "bin" / name).symlink_to(shutil.which(name))
                done = subprocess.run([shutil.which("sh"), file], stderr=subprocess.PIPE,
                                      env={"PATH": str(bundle.dir / "bin")})
                self.assertEqual(done.returncode, 69)
                self.assertIn(b"python3", done.stderr)
            finally:
                file.unlink()


def is_running(pid):
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
