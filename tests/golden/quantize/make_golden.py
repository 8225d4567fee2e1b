#!/usr/bin/env python3
"""Makes types.txt and rmse.txt: which types llama.cpp gives to a model's tensors, and how far its
own rounding is from the weights.

    make_golden.py --golden-quantize TOOL --llama-quantize PROGRAM --ggml-base LIBRARY

    --golden-quantize   our tool: cmake --build BUILD --target golden_quantize, then
                        BUILD/tests/golden/golden_quantize
    --llama-quantize    llama.cpp's program of that name
    --ggml-base         path of its libggml-base.so

types.txt has a line MODEL TYPE for each file that was made, and behind it one for all matrices of
a name that got another type than that (than q4_k in the mix): MODEL TYPE NAME ITS-TYPE LAYERS,
where - is for those that belong to no layer. Vectors, which stay f32, are left out.
rmse.txt: KIND TYPE RMSE, the root mean square of what ggml_quantize_chunk without an importance
matrix loses of the rows. Wants the package gguf.
"""
import argparse
import array
import ctypes
import math
import os
import re
import subprocess
import sys
import tempfile

import gguf

HERE = os.path.dirname(os.path.abspath(__file__))

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(HERE))
import llama_peer  # noqa: E402

# Our name: llama-quantize's, ggml's id.
TYPES = {"q4_k_m": ("Q4_K_M", None), "q8_0": ("Q8_0", 8), "q4_0": ("Q4_0", 2),
         "q4_1": ("Q4_1", 3), "q5_0": ("Q5_0", 6), "q5_1": ("Q5_1", 7), "q2_k": ("Q2_K", 10),
         "q3_k": ("Q3_K_S", 11), "q4_k": ("Q4_K_S", 12), "q5_k": ("Q5_K_S", 13),
         "q6_k": ("Q6_K", 14), "iq4_nl": ("IQ4_NL", 20), "iq4_xs": ("IQ4_XS", 23),
         "mxfp4": ("MXFP4_MOE", 39)}
ROW_ELEMS = 1024


def types_of(path):
    """{tensor: type} of the matrices of a file."""
    return {tensor.name: tensor.tensor_type.name.lower()
            for tensor in gguf.GGUFReader(path).tensors if len(tensor.shape) > 1}


def type_lines(ours, quantize, models, folder):
    source, target = os.path.join(folder, "source.gguf"), os.path.join(folder, "target.gguf")
    for model in models:
        ours("model", model, source)
        for name, (llama_name, ggml_id) in TYPES.items():
            pure = [] if ggml_id is None else ["--pure"]
            subprocess.run([quantize, *pure, source, target, llama_name, "2"], check=True,
                           capture_output=True)
            asked = "q4_k" if ggml_id is None else name
            odd = {}
            for tensor, its_type in types_of(target).items():
                if its_type != asked:
                    layer, short = re.fullmatch(r"(?:blk\.(\d+)\.)?(.+)", tensor).groups()
                    odd.setdefault(f"{short} {its_type}", []).append(layer or "-")
            yield f"{model} {name}\n"
            for rest, layers in odd.items():
                yield f"{model} {name} {rest} {' '.join(layers)}\n"


def rmse_of(lib, ggml_id, rows):
    traits = lib.ggml_get_type_traits(ggml_id).contents
    n = len(rows)
    source = (ctypes.c_float * n).from_buffer(rows)
    blocks = ctypes.create_string_buffer(n // traits.block_elems * traits.block_bytes)
    lib.ggml_quantize_chunk(ggml_id, source, blocks, 0, n // ROW_ELEMS, ROW_ELEMS, None)
    back = (ctypes.c_float * n)()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(traits.to_float)(
        ctypes.addressof(blocks), ctypes.addressof(back), n)
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(rows, back)) / n)


def rmse_lines(ours, library, kinds, folder):
    lib = llama_peer.load_ggml(library)
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                        ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
                                        ctypes.c_void_p]
    for kind in kinds:
        path = os.path.join(folder, "rows")
        ours("rows", kind, path)
        rows = array.array("f")
        with open(path, "rb") as file:
            rows.frombytes(file.read())
        for name, (_, ggml_id) in TYPES.items():
            if ggml_id is not None:
                yield f"{kind} {name} {rmse_of(lib, ggml_id, rows):.6e}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden-quantize", required=True)
    parser.add_argument("--llama-quantize", required=True)
    parser.add_argument("--ggml-base", required=True)
    arguments = parser.parse_args()

    def ours(*words):
        return subprocess.run([arguments.golden_quantize, *words], check=True, capture_output=True,
                              text=True).stdout

    lists = {"model": [], "type": [], "rows": []}
    for line in ours("list").splitlines():
        what, name = line.split()
        lists[what].append(name)
    assert lists["type"] == list(TYPES), lists["type"]
    with tempfile.TemporaryDirectory() as folder:
        types = list(type_lines(ours, arguments.llama_quantize, lists["model"], folder))
        errors = list(rmse_lines(ours, arguments.ggml_base, lists["rows"], folder))
    for name, lines in (("types.txt", types), ("rmse.txt", errors)):
        with open(os.path.join(HERE, name), "w", encoding="ascii") as out:
            out.writelines(lines)


main()
