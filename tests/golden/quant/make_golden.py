#!/usr/bin/env python3
"""Makes dequant.txt: blocks of every quantised type, and what ggml's reference makes of them.

    make_golden.py LIBGGML_BASE [OUT]      LIBGGML_BASE: path of libggml-base.so

The reference is ggml's own to_float, called through ctypes on the shared library, so nothing of it
is copied here. One line per block:

    TYPE  HEX OF THE BLOCK  FNV-1a-64 OF THE f32 BYTES  [HEX OF THE f32 VALUES]

The first block of a type also spells out its values, so that a difference can be looked at. Every
NaN counts as 0x7fc00000: its sign and payload depend on the processor. Blocks are chosen to meet
every scale and minimum of a few bits, every signed 8-bit scale, f16 scales that are subnormal,
largest, zero, negative zero, negative, infinite and NaN, all 256 bytes where a block has its
exponent in one, random codes, and blocks of one byte repeated.
"""
import ctypes
import random
import struct
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import llama_peer  # noqa: E402

# Our name: ggml's id, elements and bytes of a block, offsets of its f16 scales, and of the bytes
# that hold scales of a few bits.
TYPES = {"q8_0": (8, 32, 34, [0], range(0)), "q4_0": (2, 32, 18, [0], range(0)),
         "q4_k": (12, 256, 144, [0, 2], range(4, 16)),
         "q5_k": (13, 256, 176, [0, 2], range(4, 16)),
         "q6_k": (14, 256, 210, [208], range(192, 208)), "q5_0": (6, 32, 22, [0], range(0)),
         "q4_1": (3, 32, 20, [0, 2], range(0)), "q5_1": (7, 32, 24, [0, 2], range(0)),
         "q2_k": (10, 256, 84, [80, 82], range(16)),
         "q3_k": (11, 256, 110, [108], range(96, 108)),
         "iq4_nl": (20, 32, 18, [0], range(0)), "iq4_xs": (23, 256, 136, [0], range(2, 8)),
         "mxfp4": (39, 32, 17, [], range(1))}
F16_SCALES = [0x2E66, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x8001, 0xFBFF, 0x0000, 0x8000, 0x3C00,
              0xAE66, 0x1234]
F16_NOT_FINITE = [0x7C00, 0xFC00, 0x7E00]
EXPONENTS = [127, 0, 1, 2, 254, 255, 253, 120, 125, 130]
REPEATED = [0x00, 0xFF, 0x80, 0x7F, 0x55, 0xAA]


def pack_scale_min(scales, minima):
    """The 12 bytes of q4_k and q5_k from eight 6-bit scales and eight 6-bit minima."""
    out = bytearray(12)
    for j in range(4):
        out[j] = scales[j] | (scales[j + 4] >> 4) << 6
        out[j + 4] = minima[j] | (minima[j + 4] >> 4) << 6
        out[j + 8] = (scales[j + 4] & 15) | (minima[j + 4] & 15) << 4
    return bytes(out)


def small_scales(name, i, n_bytes, rng):
    """The bytes of a block's scales of a few bits: over the blocks each value of each field."""
    if name == "mxfp4":
        return bytes([EXPONENTS[i % len(EXPONENTS)]])
    if name in ("q4_k", "q5_k"):
        scales = [(i * 8 + j) % 64 for j in range(8)]
        minima = [(i * 8 + 3 * j + 29) % 64 for j in range(8)]
        if i >= 8:
            rng.shuffle(minima)
        return pack_scale_min(scales, minima)
    # A step that is odd meets all 256 bytes of each place, hence all values of its fields.
    return bytes((i * 37 + j * 16 + j) & 255 for j in range(n_bytes))


def make_block(name, i, rng):
    _, _, n_bytes, halves, small = TYPES[name]
    block = bytearray(rng.randbytes(n_bytes))
    if name == "q8_0" and i < 8:
        block[2:] = bytes((i * 32 + j) & 255 for j in range(32))
    for at, step in zip(halves, (1, 5)):
        scale = F16_SCALES[(i * step + (3 if step > 1 else 0)) % len(F16_SCALES)]
        block[at:at + 2] = struct.pack("<H", scale)
    if small:
        block[small.start:small.stop] = small_scales(name, i, len(small), rng)
    return bytes(block)


def make_blocks(name, rng):
    """Blocks of chosen scales, then of one byte repeated, then of scales that are not finite."""
    _, _, n_bytes, halves, _ = TYPES[name]
    yield from (make_block(name, i, rng) for i in range(24))
    yield from (bytes([byte]) * n_bytes for byte in REPEATED)
    for at in halves:
        for scale in F16_NOT_FINITE:
            block = bytearray(make_block(name, 0, rng))
            block[at:at + 2] = struct.pack("<H", scale)
            yield bytes(block)


def bytes_of(values):
    """The f32 values' bytes, with one NaN for all."""
    return b"".join(struct.pack("<f", v) if v == v else b"\0\0\xc0\x7f" for v in values)


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    lib = llama_peer.load_ggml(sys.argv[1])
    rng = random.Random(20240229)
    lines = []
    for name, (type_id, elems, n_bytes, _, _) in TYPES.items():
        traits = lib.ggml_get_type_traits(type_id).contents
        assert (traits.block_elems, traits.block_bytes) == (elems, n_bytes), name
        to_float = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)(
            traits.to_float)
        for i, block in enumerate(make_blocks(name, rng)):
            assert len(block) == n_bytes, name
            values = (ctypes.c_float * elems)()
            to_float(block, values, elems)
            data = bytes_of(values)
            fields = [name, block.hex(), f"{fnv1a(data):016x}"] + ([data.hex()] if i == 0 else [])
            lines.append(" ".join(fields))
    path = sys.argv[2] if len(sys.argv) > 2 else __file__.rsplit("/", 1)[0] + "/dequant.txt"
    with open(path, "w", encoding="ascii") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
