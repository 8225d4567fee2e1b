"""The keys of a GGUF file; the package gguf takes a minute for a vocabulary."""

import struct

FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class _Reader:
    def __init__(self, path):
        self.bytes, self.at = path.read_bytes(), 24

    def numbers(self, form, n):
        form = f"<{n}{form}"
        self.at += struct.calcsize(form)
        return struct.unpack_from(form, self.bytes, self.at - struct.calcsize(form))

    def string(self):
        n = self.numbers("Q", 1)[0]
        self.at += n
        return self.bytes[self.at - n : self.at].decode(errors="replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.numbers(FORMS[kind], 1)[0]
        element, n = self.numbers("I", 1)[0], self.numbers("Q", 1)[0]
        if element in FORMS:
            return self.numbers(FORMS[element], n)
        return [self.value(element) for _ in range(n)]


def keys_of(path):
    """key -> str, int, float, bool, or a list of them"""
    reader = _Reader(path)
    keys = {}
    for _ in range(struct.unpack_from("<Q", reader.bytes, 16)[0]):
        key = reader.string()
        keys[key] = reader.value(reader.numbers("I", 1)[0])
    return keys
