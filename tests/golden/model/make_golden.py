#!/usr/bin/env python3
"""Makes llama_cpp.txt: how far llama.cpp is from the f64 reference on every case of cases.h.

    make_golden.py --golden-model TOOL --llama-source DIR --llama-lib DIR [OUT]

    --golden-model   our tool: cmake --build BUILD --target golden_model, then
                     BUILD/tests/golden/golden_model
    --llama-source   llama.cpp's sources, for include/llama.h and ggml/include
    --llama-lib      the folder of its libllama.so, built Release for this machine

One line per case: ARCH TYPE SEED KL_MEAN RMS_ERROR, over 64 positions; KL(reference || llama.cpp)
in nats, the RMS error of its centred logits. The figures depend on llama.cpp's version and on the
CPU's instructions (its system_info stands in the first line), a little; ours are held against them
with a margin of 1.1. Takes some minutes.
"""
import argparse
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(HERE))
import llama_peer  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden-model", required=True)
    llama_peer.add_options(parser)
    parser.add_argument("out", nargs="?", default=os.path.join(HERE, "llama_cpp.txt"))
    arguments = parser.parse_args()

    def ours(*words):
        return subprocess.run([arguments.golden_model, *words], check=True, capture_output=True,
                              text=True).stdout

    lines = []
    with tempfile.TemporaryDirectory() as folder:
        model, ids, logits = (os.path.join(folder, name) for name in ("model", "ids", "logits"))
        program = llama_peer.build_driver(os.path.join(HERE, "peer", "llama_logits.cpp"), folder,
                                         arguments.llama_source, arguments.llama_lib)
        driver = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        cases = ours("list").splitlines()
        for done, case in enumerate(cases, 1):
            ours("write", *case.split(), model, ids)
            print(model, ids, logits, file=driver.stdin, flush=True)
            if driver.stdout.readline().strip() != "ok":
                sys.exit("llama.cpp failed on " + case)
            kl_mean, rms_error = ours("compare", model, ids, logits).split()[:2]
            lines.append(f"{case} {kl_mean} {rms_error}\n")
            if sys.stderr.isatty():
                print(f"\r{done} of {len(cases)}", end="", file=sys.stderr)
        system_info = driver.communicate()[1].strip()
    with open(arguments.out, "w", encoding="ascii") as out:
        out.write(f"# llama.cpp: {system_info}\n# arch type seed kl_mean rms_error\n")
        out.writelines(lines)


main()
