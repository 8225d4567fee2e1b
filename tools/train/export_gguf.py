#!/usr/bin/env python3
"""Writes a checkpoint as GGUF, for Tarn and every other engine that knows the llama architecture.

    export_gguf.py CHECKPOINT|MODEL.gguf OUT.gguf [--rope-base B]

Matrices are f16, norms f32; the output matrix is the embedding. --rope-base says another base than
the weights were trained with, for experiments.
"""

import argparse
import os
import sys

import bpe
import checkpoint
import gguf_file
from model import Model

BYTES_MAX = 12 << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("output")
    parser.add_argument("--rope-base", type=float, help="base in place of the checkpoint's")
    options = parser.parse_args()
    tokenizer = bpe.load()
    model = Model(len(tokenizer.tokens))
    step = checkpoint.load(options.checkpoint, model)
    model.rope_base = options.rope_base or model.rope_base
    gguf_file.write(options.output, model, step, tokenizer)
    n_bytes = os.path.getsize(options.output)
    print(f"{options.output}: {n_bytes} bytes, step {step}")
    if n_bytes > BYTES_MAX:
        sys.exit(f"more than {BYTES_MAX} bytes: too large for the tree")


if __name__ == "__main__":
    main()
