#!/usr/bin/env python3
"""Makes smollm2.txt: what a real model answers in each tensor type, by llama.cpp's library.

    make_golden.py MODEL.gguf --tarn PROGRAM --llama-source DIR --llama-lib DIR [TYPE...]

    MODEL.gguf       SmolLM2-135M-Instruct in Q4_1, as toolchain/model downloads it
    --tarn           our program, which makes the file of each type (tarn quantize)
    --llama-source   llama.cpp's sources, for include/llama.h and ggml/include
    --llama-lib      the folder of its libllama.so, built Release for this machine
    TYPE...          these alone are made anew; the others keep their lines

llama.cpp reads each type's weights in f32, so that its products quantise no activations. A line
`type NAME` begins a type (file: the model as it is); the others are those of
peer/llama_answers.cpp. Prompts have the same ids in each type. `own_perplexity N_IDS VALUE` is that
of llama.cpp's own products with the type's file. Takes some minutes and 1.2 GB of the temporary
folder.
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

OUT = os.path.join(HERE, "smollm2.txt")
TYPES = ["file", "f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k",
         "q6_k", "iq4_nl", "iq4_xs", "mxfp4"]
N_ANSWER = 10


def lines_of(arguments, driver, name, folder):
    typed, wide = os.path.join(folder, "typed.gguf"), os.path.join(folder, "wide.gguf")

    def quantize(source, target, to):
        subprocess.run([arguments.tarn, "quantize", "--requantize", source, target, to],
                       check=True, capture_output=True)

    source = arguments.model
    if name != "file":
        quantize(source, typed, name)
        source = typed
    quantize(source, wide, "f32")

    def answers_of(model, n_answer):
        return subprocess.run([driver, model, os.path.join(HERE, "prompts.txt"),
                               os.path.join(HERE, "text.txt"), str(n_answer)],
                              check=True, capture_output=True, text=True).stdout.splitlines()

    return answers_of(wide, N_ANSWER) + ["own_" + answers_of(source, 0)[-1]]


def read_golden():
    """{type: lines} of the file as it is; under "" the prompts."""
    sections, name = {}, ""
    if os.path.exists(OUT):
        with open(OUT, encoding="ascii") as file:
            for line in file.read().splitlines():
                if line.startswith("type "):
                    name = line.split()[1]
                sections.setdefault(name, []).append(line)
    return sections


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tarn", required=True)
    llama_peer.add_options(parser)
    parser.add_argument("types", nargs="*", metavar="TYPE", help=" ".join(TYPES))
    arguments = parser.parse_intermixed_args()
    sections = read_golden()
    with tempfile.TemporaryDirectory() as folder:
        driver = llama_peer.build_driver(os.path.join(HERE, "peer", "llama_answers.cpp"), folder,
                                         arguments.llama_source, arguments.llama_lib)
        for name in arguments.types or TYPES:
            lines = lines_of(arguments, driver, name, folder)
            sections[""] = [line for line in lines if line.startswith("prompt ")]
            sections[name] = [f"type {name}"] + [line for line in lines
                                                 if not line.startswith("prompt ")]
            print(name, lines[-1], flush=True)
    with open(OUT, "w", encoding="ascii") as out:
        for name in ["", *TYPES]:
            out.writelines(line + "\n" for line in sections.get(name, []))


main()
