#!/usr/bin/env python3
"""Files of the gguf package, and what its reader finds in them, for gguf_peer_test.

  make_golden.py                     rewrites peer.gguf and peer.txt beside this script
  make_golden.py --random N FOLDER   N random files for TARN_GGUF_PEER_FOLDER=FOLDER
  make_golden.py --dump FILE...      the dump of any file, beside it as .txt (vocabularies, models)

Needs the packages numpy and gguf (pip install gguf). Numbers are written as bits and contents as
FNV-1a sums, so that equality means equality.
"""
import pathlib
import random
import string
import sys

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

FNV_BASIS, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
INTEGERS = {GGUFValueType.UINT8: 'u8', GGUFValueType.INT8: 'i8', GGUFValueType.UINT16: 'u16',
            GGUFValueType.INT16: 'i16', GGUFValueType.UINT32: 'u32', GGUFValueType.INT32: 'i32',
            GGUFValueType.UINT64: 'u64', GGUFValueType.INT64: 'i64'}


def fnv(data, state=FNV_BASIS):
    for byte in data:
        state = (state ^ byte) * FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return state


def value_text(field):
    """The value as the test prints it."""
    kind = field.types[0]
    if kind == GGUFValueType.STRING:
        text = field.parts[field.data[0]]
        return f'string {len(text)} {fnv(bytes(text)):016x}'
    if kind == GGUFValueType.ARRAY:
        # The package forgets the element type of an empty array.
        count = len(field.data)
        if count == 0:
            return 'array 0'
        element = field.types[1]
        state = FNV_BASIS
        for i in field.data:
            part = field.parts[i]
            if element == GGUFValueType.STRING:
                state = fnv(len(part).to_bytes(8, 'little') + bytes(part), state)
            elif element in INTEGERS:
                state = fnv((int(part[0]) & 0xFFFFFFFF).to_bytes(4, 'little'), state)
            elif element == GGUFValueType.BOOL:
                continue  # no accessor: nothing reads them
            else:
                state = fnv(np.float32(part[0]).tobytes(), state)
        return f'array {count} {state:016x}'
    part = field.parts[field.data[0]]
    if kind in INTEGERS:
        return f'{INTEGERS[kind]} {int(part[0])}'
    if kind == GGUFValueType.BOOL:
        return f'bool {int(part[0])}'
    return f'float {np.float64(part[0]).view(np.uint64):016x}'


def dump(path):
    reader = GGUFReader(path)
    lines = [f'alignment {reader.alignment}']
    for name, field in reader.fields.items():
        if not name.startswith('GGUF.'):
            lines.append(f'key {name} {value_text(field)}')
    for tensor in reader.tensors:
        dims = ' '.join(str(int(d)) for d in tensor.shape)
        data = tensor.data.tobytes()
        lines.append(f'tensor {tensor.name} {int(tensor.tensor_type)} [{dims}] '
                     f'{tensor.data_offset} {len(data)} {fnv(data):016x}')
    pathlib.Path(path).with_suffix('.txt').write_text('\n'.join(lines) + '\n')


def random_file(path, rng):
    writer = GGUFWriter(path, rng.choice(['llama', 'qwen2', 'anything']))
    name = lambda n: ''.join(rng.choice(string.ascii_lowercase + '._') for _ in range(n))
    if rng.random() < 0.5:
        writer.add_custom_alignment(rng.choice([8, 16, 32, 64, 256, 4096]))
    numbers = [(writer.add_uint8, 0, 2**8), (writer.add_int8, -2**7, 2**7),
               (writer.add_uint16, 0, 2**16), (writer.add_int16, -2**15, 2**15),
               (writer.add_uint32, 0, 2**32), (writer.add_int32, -2**31, 2**31),
               (writer.add_uint64, 0, 2**64), (writer.add_int64, -2**63, 2**63)]
    for i in range(rng.randrange(30)):
        key = f'{name(rng.randrange(1, 60))}{i}'
        kind = rng.randrange(8)
        if kind == 0:
            writer.add_string(
                key, ''.join(chr(rng.randrange(32, 0x3000)) for _ in range(rng.randrange(1, 50))))
        elif kind == 1:
            writer.add_bool(key, rng.random() < 0.5)
        elif kind == 2:
            writer.add_float32(key, rng.gauss(0, 1))
        elif kind == 3:
            writer.add_float64(key, rng.gauss(0, 1))
        elif kind == 4:
            writer.add_array(
                key, [name(rng.randrange(1, 30)) for _ in range(rng.randrange(1, 300))])
        elif kind == 5:
            writer.add_array(
                key, [rng.randrange(-2**31, 2**31) for _ in range(rng.randrange(1, 300))])
        elif kind == 6:
            writer.add_array(key, [rng.gauss(0, 1) for _ in range(rng.randrange(1, 300))])
        else:
            add, low, high = rng.choice(numbers)
            add(key, rng.randrange(low, high))
    for i in range(rng.randrange(12)):
        dims = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 5))]
        dtype = rng.choice(
            [np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64])
        data = np.frombuffer(rng.randbytes(int(np.prod(dims)) * np.dtype(dtype).itemsize), dtype)
        writer.add_tensor(f't{i}.{name(rng.randrange(1, 40))}', data.reshape(dims))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    dump(path)


def main():
    if len(sys.argv) == 1:
        random_file(pathlib.Path(__file__).with_name('peer.gguf'), random.Random(20))
    elif sys.argv[1] == '--random':
        for i in range(int(sys.argv[2])):
            random_file(pathlib.Path(sys.argv[3]) / f'random{i}.gguf', random.Random(i))
    elif sys.argv[1] == '--dump':
        for path in sys.argv[2:]:
            dump(path)
    else:
        sys.exit(__doc__)


main()
