#!/usr/bin/env python3
"""Makes dequant.txt: blocks of every quantised type, and what ggml's reference makes of them.

    make_golden.py LIBGGML_BASE [OUT]      LIBGGML_BASE: path of libggml-base.so

The reference is ggml's own to_float, called through ctypes on the shared library, so nothing of it
is copied here. One line per block:

    TYPE  HEX OF THE BLOCK  FNV-1a-64 OF THE f32 BYTES  [HEX OF THE f32 VALUES]

The first block of a type also spells out its values, so that a difference can be looked at. Blocks
are chosen to meet every 6-bit scale and minimum (8 blocks hold 64 of each), every signed 8-bit
scale, f16 scales that are subnormal, largest, zero, negative zero and negative, and random codes.
"""
import ctypes
import random
import struct
import sys

TYPES = {"q8_0": (8, 32, 34), "q4_0": (2, 32, 18), "q4_k": (12, 256, 144),
         "q5_k": (13, 256, 176), "q6_k": (14, 256, 210), "q5_0": (6, 32, 22)}
F16_SCALES = [0x2E66, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x8001, 0xFBFF, 0x0000, 0x8000, 0x3C00,
              0xAE66, 0x1234]


class Traits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("block_elems", ctypes.c_int64),
                ("interleave", ctypes.c_int64), ("block_bytes", ctypes.c_size_t),
                ("is_quantized", ctypes.c_bool), ("to_float", ctypes.c_void_p),
                ("from_float", ctypes.c_void_p)]


def pack_scale_min(scales, minima):
    """The 12 bytes of q4_k and q5_k from eight 6-bit scales and eight 6-bit minima."""
    out = bytearray(12)
    for j in range(4):
        out[j] = scales[j] | (scales[j + 4] >> 4) << 6
        out[j + 4] = minima[j] | (minima[j + 4] >> 4) << 6
        out[j + 8] = (scales[j + 4] & 15) | (minima[j + 4] & 15) << 4
    return bytes(out)


def make_block(name, i, rng):
    d = struct.pack("<H", F16_SCALES[i % len(F16_SCALES)])
    dmin = struct.pack("<H", F16_SCALES[(i * 5 + 3) % len(F16_SCALES)])
    if name == "q8_0":
        codes = bytes((i * 32 + j) & 255 for j in range(32)) if i < 8 else rng.randbytes(32)
        return d + codes
    if name == "q4_0":
        return d + rng.randbytes(16)
    if name == "q5_0":
        return d + rng.randbytes(20)
    if name == "q6_k":
        scales = bytes((i * 16 + j) & 255 for j in range(16))
        return rng.randbytes(192) + scales + d
    scales = [(i * 8 + j) % 64 for j in range(8)]
    minima = [(i * 8 + 3 * j + 29) % 64 for j in range(8)]
    if i >= 8:
        rng.shuffle(minima)
    return d + dmin + pack_scale_min(scales, minima) + rng.randbytes(160 if name == "q5_k" else 128)


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    lib = ctypes.CDLL(sys.argv[1])
    lib.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    rng = random.Random(20240229)
    lines = []
    for name, (type_id, elems, n_bytes) in TYPES.items():
        traits = lib.ggml_get_type_traits(type_id).contents
        assert (traits.block_elems, traits.block_bytes) == (elems, n_bytes), name
        to_float = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)(
            traits.to_float)
        for i in range(24):
            block = make_block(name, i, rng)
            assert len(block) == n_bytes, name
            values = (ctypes.c_float * elems)()
            to_float(block, values, elems)
            data = bytes(values)
            fields = [name, block.hex(), f"{fnv1a(data):016x}"] + ([data.hex()] if i == 0 else [])
            lines.append(" ".join(fields))
    path = sys.argv[2] if len(sys.argv) > 2 else __file__.rsplit("/", 1)[0] + "/dequant.txt"
    with open(path, "w", encoding="ascii") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
