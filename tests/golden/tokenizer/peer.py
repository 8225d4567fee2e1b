"""Shared by the scripts beside it: llama.cpp as an oracle, texts to ask it, and golden files."""

import argparse
import random
import struct
import subprocess
import sys
import unicodedata
from pathlib import Path

HERE = Path(__file__).resolve().parent

sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent))
import llama_peer  # noqa: E402

ADD_SPECIAL, PARSE_SPECIAL = 1, 2
THREW = 0xFFFFFFFF

CURATED = """
Hello world|Hello, world!| Hello|  Hello|Hello |Hello  | |  |   |\\t|\\n|\\r\\n|\\n\\n|\\n \\n
  \\n  x|x\\r\\n\\r\\ny
a\\n  b|a \\n\\n  b|a\\t\\tb|\\t a|\\t\\ta| \\ta|a \\t b|x   y    z|trailing   \\n|...\\n\\n...
 !\\n|! \\n!|\\r|\\r\\r\\n|\\v\\f a
I'm you're he's we'll they'd I've can't|I'M YOU'RE HE'S WE'LL THEY'D I'VE CAN'T
's'S's 't'T 'Re 'rE 'vE 'lL 'Ll 'LL 'L 'r 'v
''''s|' s|'|''|a'|'a|don''t|O'Neil's|'ſ ' ſ|’s|it’s|'sa|'llama|'d'|x'd|9's|\\n's| 's| 'll|'m\\n
0|1|12|123|1234|12345|123456|1234567890|3.14159|1,000,000|1e-5|0x1F|١٢٣٤|１２３４|½⅓²³|ⅣⅫ
Ⅷ9a1b22c333d4444|v1.2.3|९८७६५
price: $5.00 (10%)|a_b-c*d/e+f=g|<html>&amp;</html>|{"key": [1, 2, null]}
if (x==y) { return -1; }|#include <stdio.h>\\n
https://example.org/a?b=c&d=%20#e|user@example.org|C:\\\\dir\\\\file|/usr/bin
~!@#$%^&*()_+`-=[]\\\\;',./{}|:"<>?|!!!???...
русский текст|Ελληνικά|עברית שלום|العربية نص|हिन्दी में|ภาษาไทย|日本語のテキスト|中文文本，标点。|한국어 텍스트
ქართული|አማርኛ
naïve café|naïve café|Å Å Å|ÀÉÎÕÜ|ßẞſﬃﬁ|İıIi|ǅǈ|ZWJ a‍b|nbsp a b|em sp a　b|bom ﻿x|a​b|a­b|᠎x
😀|😀😃|👍🏽|👨‍👩‍👧‍👦|🏳️‍🌈|🇩🇪🇫🇷|🇩|👩🏿‍🚀x|❤️|1️⃣#️⃣|☃|♥︎|a😀b| 😀 | 🇩🇪 x|🤷🏽‍♀️.|🧑‍💻's
▁|▁▁|▁a|a▁b| ▁|a ▁ b|<0x41>|<0x0A>|<s>|</s>|<unk>|<|endoftext|>|<|im_start|>user
[INST] x [/INST]|<|eot_id|>|<pad>
e\u0301|a\u0300\u0301\u0302|\u0301|\u0301a| \u0301|\u0644\u0627|\u0e33|\u1100\u1161\u11a8|\uac01
\ufdfa|\u2028|\u2029|\u0085|\u00a0\u00a0
"""

ILL_FORMED = [
    b"\x80",
    b"\xbf",
    b"\xc0",
    b"\xc0\x80",
    b"\xc1\x81",
    b"\xc2",
    b"\xc3\x28",
    b"\xe0\x80\x80",
    b"\xe0\xa0",
    b"\xe2\x82",
    b"\xe2\x28\xa1",
    b"\xed\xa0\x80",
    b"\xed\xb0\x80",
    b"\xef\xbf\xbd",
    b"\xf0\x9f\x98",
    b"\xf0\x9f",
    b"\xf0",
    b"\xf0\x80\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xff",
    b"\xfe\xff",
    b"a\xffb",
    b" \xff ",
    b"abc\xf0\x9f\x98 def",
    b"\xe4\xb8",
    b"x\xe4\xb8y",
    b"\xff" * 9,
    b"\xc3\xa9\xc3",
    b"\x00",
    b"a\x00b",
    b"\x7f",
    b"1\x802",
    b"'\xc0s",
    b"\n\xff\n",
    b"\xe2\x96",
    b"\xe2\x96\x81\xe2",
    b"\xed\xa0\xbd\xed\xb8\x80",
    b"\xc0\xa0x",
    b"\xf0\x82\x82\xac",
    b"\x80" * 5 + b"a",
]

WORDS = """
the of and to in a is that for it was on as with he be at by I this had not are but from
or have an they which one you were her all she there would their we him been has when
who will no more if out so said what up its about than into them can only other time new
some could these two may first then do any like my now over such our man me even most
made after also did many off before must well back through years much where your way
tokenizer inference memory arena deterministic embedding überraschung información
naïveté programmation данные сервер мир 模型 推理 内存 東京 テスト 데이터 모델 δοκιμή נתונים بيانات
परीक्षा
""".split()


def curated():
    texts = []
    for line in CURATED.strip("\n").split("\n"):
        texts += [unescape(piece) for piece in [line] + line.split("|")]
    return [text.encode("utf-8", "surrogatepass") for text in texts if text] + ILL_FORMED


def unescape(text):
    out, at = [], 0
    simple = {"t": "\t", "n": "\n", "r": "\r", "v": "\v", "f": "\f", "\\": "\\"}
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            if text[at + 1] == "u":
                out.append(chr(int(text[at + 2 : at + 6], 16)))
                at += 6
                continue
            out.append(simple[text[at + 1]])
            at += 2
            continue
        out.append(text[at])
        at += 1
    return "".join(out)


def escape(text):
    """Printable ASCII as it is; all else, backslashes and a space at the end as \\xHH."""
    plain = {byte for byte in range(0x20, 0x7F)} - {0x5C}
    return "".join(
        chr(byte) if byte in plain and (byte != 0x20 or at + 1 < len(text)) else f"\\x{byte:02x}"
        for at, byte in enumerate(text)
    )


def by_category():
    categories = {}
    for point in range(0x110000):
        categories.setdefault(unicodedata.category(chr(point)), []).append(point)
    return categories


def utf8(point):
    return chr(point).encode("utf-8", "surrogatepass")


def random_texts(rng, n, specials):
    """Mixtures of words, spaces, signs, numbers, characters of every category, stray bytes."""
    categories = by_category()
    names = sorted(categories)
    spaces = [
        "",
        " ",
        " ",
        "  ",
        "   ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        " \n",
        "\n ",
        "\u00a0",
        "\u3000",
        "\u2003",
        "     ",
        "\u0085",
    ]
    signs = list(".,;:!?-_()[]{}<>/\\|@#$%^&*+=~`\"'") + [
        "...",
        "--",
        "'s",
        "'t",
        "'LL",
        "'Ve",
        "=>",
        "!=",
        "//",
        "**",
        "€",
        "«",
        "。",
        "、",
    ]
    texts = []
    for index in range(n):
        kind = rng.randrange(5)
        parts = []
        for _ in range(rng.randrange(1, 14)):
            choice = rng.randrange(10)
            if choice < 3:
                word = rng.choice(WORDS)
                parts.append(
                    rng.choice([word, word.upper(), word.capitalize(), " " + word]).encode()
                )
            elif choice == 3:
                parts.append(rng.choice(spaces).encode())
            elif choice == 4:
                parts.append(rng.choice(signs).encode())
            elif choice == 5:
                parts.append(str(rng.randrange(10 ** rng.randrange(1, 9))).encode())
            elif choice < 8 or (choice == 8 and kind != 0):
                category = names[(index + rng.randrange(len(names))) % len(names)]
                parts += [
                    utf8(rng.choice(categories[category])) for _ in range(rng.randrange(1, 4))
                ]
            elif choice == 8:
                parts.append(rng.choice(ILL_FORMED))
            elif specials:
                special = rng.choice(specials)
                parts.append(
                    special if rng.randrange(4) else special[: rng.randrange(len(special)) + 1]
                )
        texts.append(b"".join(parts))
    return texts


def each_category(per_category, rng):
    texts = []
    for category, points in sorted(by_category().items()):
        for point in rng.sample(points, min(per_category, len(points))):
            texts.append(
                rng.choice([b"", b"a", b" ", b"1", b".", b"  ", b"\n"])
                + utf8(point)
                + rng.choice([b"", b"a", b" ", b"7", b"'s", b"\n"])
            )
    return texts


def long_texts():
    n = 100_000
    texts = [byte * n for byte in (b"a", b" ", b"\n", b"0", b"'", b".", b"\t", b"\xff", b"Z")]
    texts += [
        b"ab" * (n // 2),
        b" a" * (n // 2),
        b"'s" * (n // 2),
        " 中".encode() * (n // 4),
        "é".encode() * (n // 2),
        "\u2581".encode() * (n // 3),
        "😀".encode() * (n // 4),
        b"\r\n" * (n // 2),
        b" \n" * (n // 2),
        b" " * n + b"x",
        b"\n" + b" " * n + b"x",
    ]
    return texts


class Peer:
    """Compiles peer_ids.cpp once and asks it."""

    def __init__(self, source, library, work):
        driver = Path(__file__).with_name("peer_ids.cpp")
        self.program = llama_peer.build_driver(driver, work, source, library)
        self.work = Path(work)

    def ask(self, vocab, requests, answers):
        path = self.work / "requests"
        with open(path, "wb") as out:
            out.write(struct.pack("<I", len(requests)))
            for flags, text in requests:
                out.write(struct.pack("<II", flags, len(text)) + text)
        subprocess.run([str(self.program), str(vocab), str(path), str(answers)], check=True)


def read_answers(path):
    data, at = Path(path).read_bytes(), 4
    answers = []
    for _ in range(struct.unpack_from("<I", data, 0)[0]):
        flags, n_bytes = struct.unpack_from("<II", data, at)
        text = data[at + 8 : at + 8 + n_bytes]
        at += 8 + n_bytes
        (n_ids,) = struct.unpack_from("<I", data, at)
        at += 4
        ids = None
        if n_ids != THREW:
            ids = struct.unpack_from(f"<{n_ids}I", data, at)
            at += 4 * n_ids
        answers.append((flags, text, ids))
    return answers


def byte_chars():
    """GPT-2's characters for bytes."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {
        **{byte: chr(byte) for byte in own},
        **{byte: chr(256 + i) for i, byte in enumerate(others)},
    }


def text_value(text):
    return struct.pack("<Q", len(text)) + text


def write_bpe(path, pre, tokens, merges):
    """A vocabulary file of byte-level BPE, without special tokens."""

    def key(name, kind, value):
        return text_value(name.encode()) + struct.pack("<I", kind) + value

    def texts(values):
        return struct.pack("<IQ", 8, len(values)) + b"".join(map(text_value, values))

    keys = [
        key("general.architecture", 8, text_value(b"llama")),
        key("tokenizer.ggml.model", 8, text_value(b"gpt2")),
        key("tokenizer.ggml.pre", 8, text_value(pre.encode())),
        key("tokenizer.ggml.tokens", 9, texts(tokens)),
        key("tokenizer.ggml.merges", 9, texts(merges)),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys))
    Path(path).write_bytes(head + b"".join(keys))


def write_with_pre(vocab, pre, path):
    """A vocabulary file without tensors, with another pre-tokenizer."""
    data = Path(vocab).read_bytes()
    key = text_value(b"tokenizer.ggml.pre") + struct.pack("<I", 8)
    begin = data.index(key) + len(key)
    (n_bytes,) = struct.unpack_from("<Q", data, begin)
    Path(path).write_bytes(data[:begin] + text_value(pre.encode()) + data[begin + 8 + n_bytes :])


def new_random(seed):
    return random.Random(seed)


def golden_arguments(description):
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llama", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--update-golden", action="store_true")
    return parser.parse_args()


def finish_golden(files, update):
    """Writes {name: lines} beside this file, or compares only. Ends the process; 1: they differ."""
    stale = []
    for name, lines in files.items():
        text, path = "\n".join(lines) + "\n", HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
        if update:
            path.write_text(text, encoding="utf-8")
    print(f"{'written' if update else 'differ'}: {' '.join(stale) or 'none'}")
    sys.exit(1 if stale and not update else 0)
