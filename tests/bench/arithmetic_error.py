#!/usr/bin/env python3
"""Measures what the products' own rounding costs: the KL of logits from f32 products with the same
weights, of tarn and of llama.cpp, for each tensor type; by hand. Needs numpy.

    arithmetic_error.py MODEL.gguf --text FILE --tarn PROGRAM --llama-source DIR --llama-lib DIR
                        [--tokens 1500] [--record tests/bench/records/accuracy.jsonl] [TYPE...]

    MODEL.gguf       best in f32, f16 or bf16: `tarn quantize` makes each type's file of it
    --text           the text that is read; its first tokens count
    --llama-source   llama.cpp's sources, for include/llama.h and ggml/include
    --llama-lib      the folder of its libllama.so, built Release for this machine

The f32 products are llama.cpp's, of the file that `tarn quantize FILE f32` makes of a type's, with
K and V in f32. The others have K and V in f16. TYPE `file` is MODEL.gguf itself. KL(f32 || other)
in nats and the RMS difference of centred logits over that of the logits. The temporary folder
needs 12 bytes for each token and entry of the vocabulary, and six times the model in f16.
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

sys.dont_write_bytecode = True
sys.path.insert(0, str(GOLDEN))
import llama_peer  # noqa: E402

DRIVER = GOLDEN / "model" / "peer" / "llama_logits.cpp"
TYPES = ["f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
         "iq4_nl", "iq4_xs", "mxfp4"]
PIECE_ROWS = 128
N_DRAWS = 2000


def peer_logits(driver, model, ids, out, *options):
    answer = subprocess.run([driver, *options], input=f"{model} {ids} {out}\n", check=True,
                            capture_output=True, text=True).stdout.strip()
    if answer != "ok":
        sys.exit(f"llama.cpp cannot read {model}")


def log_softmax(rows):
    rows = rows - rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def distance(base_path, other_path, n_rows):
    """KL in nats of each row, and the relative RMS error of centred logits."""
    base, other = (np.memmap(path, np.float32, "r").reshape(n_rows, -1)
                   for path in (base_path, other_path))
    kl, error, size = [], 0.0, 0.0
    for first in range(0, n_rows, PIECE_ROWS):
        p, q = (np.asarray(rows[first:first + PIECE_ROWS], np.float64) for rows in (base, other))
        log_p, log_q = log_softmax(p), log_softmax(q)
        kl.append((np.exp(log_p) * (log_p - log_q)).sum(axis=1))
        p -= p.mean(axis=1, keepdims=True)
        q -= q.mean(axis=1, keepdims=True)
        error += float(((p - q) ** 2).sum())
        size += float((p ** 2).sum())
    return np.concatenate(kl), (error / size) ** 0.5


def ratio_of_means(ours, theirs):
    """The ratio of the mean KLs with its 95 % interval, by a bootstrap over the tokens."""
    rows = np.random.default_rng(1).integers(len(ours), size=(N_DRAWS, len(ours)))
    low, high = np.quantile(ours[rows].mean(axis=1) / theirs[rows].mean(axis=1), [0.025, 0.975])
    return f"{ours.mean() / theirs.mean():.2f} ({low:.2f} to {high:.2f})"


class Bench:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.paths = {name: os.path.join(folder, name)
                      for name in ("typed.gguf", "wide.gguf", "ids", "base", "ours", "theirs")}
        self.driver = llama_peer.build_driver(DRIVER, folder, arguments.llama_source,
                                             arguments.llama_lib)
        output = self.tarn("tokenize", "-m", arguments.model, "-f", arguments.text, "--json")
        ids = [token["id"] for token in json.loads(output)["tokens"]][:arguments.tokens]
        self.n_rows = len(ids)
        with open(self.paths["ids"], "w", encoding="ascii") as file:
            file.write("\n".join(map(str, ids)) + "\n")

    def tarn(self, *words):
        return subprocess.run([self.arguments.tarn, *words], check=True, capture_output=True,
                              text=True).stdout

    def measure(self, name):
        paths = self.paths
        model = paths["typed.gguf"]
        if name == "file":
            model = self.arguments.model
        else:
            self.tarn("quantize", "--requantize", self.arguments.model, model, name)
        self.tarn("quantize", model, paths["wide.gguf"], "f32")
        peer_logits(self.driver, paths["wide.gguf"], paths["ids"], paths["base"], "f32")
        peer_logits(self.driver, model, paths["ids"], paths["theirs"])
        self.tarn("eval", "-m", model, "--ids", paths["ids"], "--logits-out", paths["ours"])
        ours, theirs = (distance(paths["base"], paths[who], self.n_rows)
                        for who in ("ours", "theirs"))
        return {"type": name, "tarn, KL in nats": f"{ours[0].mean():.2e}",
                "llama.cpp, KL in nats": f"{theirs[0].mean():.2e}",
                "ratio, 95 % interval": ratio_of_means(ours[0], theirs[0]),
                "tarn, relative RMS": f"{ours[1]:.2e}",
                "llama.cpp, relative RMS": f"{theirs[1]:.2e}"}


def record_of(arguments, rows, n_rows):
    cpu = next((line.split(": ", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                if line.startswith("model name")), "")
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    model = Path(arguments.model).name
    return {"source": "arithmetic_error.py", "page": "RECORDS.md",
            "title": f"KL from f32 products with the same weights, {model}",
            "date": datetime.date.today().isoformat(), "commit": commit,
            "machine": {"cpu": cpu, "gpu": "", "cores": os.cpu_count(),
                        "memory_bytes": None, "bandwidth_gb_per_s": None},
            "command": f"tests/bench/arithmetic_error.py {model} "
                       f"--text {Path(arguments.text).name} " + " ".join(arguments.types),
            "notes": f"{n_rows} tokens, weights quantised by tarn. K and V in f16, in f32 for the "
                     "f32 products. A type whose blocks the rows do not fill has its replacement "
                     "there. llama.cpp of llama-cpp-python's source package, without AMX.",
            "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--tarn", required=True)
    llama_peer.add_options(parser)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--record")
    parser.add_argument("types", nargs="*", metavar="TYPE", help=" ".join(["file", *TYPES]))
    arguments = parser.parse_intermixed_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, folder)
        for name in arguments.types or TYPES:
            rows.append(bench.measure(name))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if arguments.record:
        with open(arguments.record, "a", encoding="utf-8") as file:
            file.write(json.dumps(record_of(arguments, rows, bench.n_rows)) + "\n")


if __name__ == "__main__":
    main()
