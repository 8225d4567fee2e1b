#!/usr/bin/env python3
"""Writes down where llama.cpp cuts texts under each pre-tokenizer: the golden of
tests/runtime/text/splits_test.cpp, which needs neither this script nor llama.cpp.

    make_splits.py --llama SOURCE --library DIR [--update-golden]

SOURCE is a llama.cpp checkout (for its headers), DIR the folder of its libllama.so. Needs a C++
compiler. Without --update-golden the file is compared with what it would become.

The vocabulary has a token for each stretch of each text, and all merges that lead there. So each
piece becomes one token, whose length tells where the piece ends.

    splits.txt   `text ESCAPED`, then `NAME LENGTHS ...`: of the pieces of each text, with dots
                 between, in bytes of the text after lenient decoding
"""

import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import peer  # noqa: E402
from compare_peer import PRES  # noqa: E402

TEXT_BYTES_MAX = 28
OWN = """
I'm we'LL 'Re|don't'S x'vE 'd|'ſa 'l|HELLOworld aBcDEf|ABÉÀéaÀB|ǅabc ʹA 日本a|e\u0301A\u0301b \u0301
a  12 3\n|1234567 12|x1234 12345|٣٤1234½|12²345 6789|3.14159 1e10|9 99\n99| 1a 22b
a \n \n  b|\r\n\r\n x\n|\t\ta  \t|a   \n|        x|a\u3000\u3000b\u2028|\u00a0x \u0085
foo/bar//\n/x|!?...\n\n/x| #!a[b]_c|a=b+`c`|$9 <=> ~^|«x» …。，|!中 文, カナ漢字|한국 ㄱㄴ字|ㄅㄆ—“x”
中文mixed日本 かな|ไทย ລາວ ខ្មែរ|देवि नागरी|שלום عَرَبِي|Ꭰꭰ Ⴀა|ﬁ ª º µ|豈\ufa0e 々〇|😀👍🏽 x
hello big world  x|a b  c d. e|\u0000x\u0001 \u007f|\ue000\ue001a|a_b-c (d) [e]
"""


def texts():
    rng = peer.new_random(11)
    own = [peer.unescape(text) for line in OWN.strip("\n").split("\n") for text in line.split("|")]
    own = [text.encode() for text in own]
    own += [b"a\xffb \x80\x80", b"\xe4\xb8 x\xc0\xa7s", b"1\xc0\xb12 \xc1\x81b"]
    drawn = [text for text in peer.random_texts(rng, 400, []) if 0 < len(text) <= TEXT_BYTES_MAX]
    return [text for text in own if text and len(decoded(text)) <= 36] + drawn[:24]


def decoded(text):
    """The text as llama.cpp reads it: overlong forms are characters, stray bytes are U+FFFD."""
    out, at = b"", 0
    while at < len(text):
        lead = text[at]
        n = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        rest = text[at + 1 : at + n]
        if lead < 0x80:
            out += text[at : at + 1]
        elif n > 1 and lead < 0xF8 and len(rest) == n - 1 and all(b & 0xC0 == 0x80 for b in rest):
            point = lead & (0xFF >> (n + 1))
            for byte in rest:
                point = point << 6 | byte & 0x3F
            out += chr(point).encode("utf-8", "surrogatepass")
        else:
            out, n = out + b"\xef\xbf\xbd", 1
        at += n
    return out


def vocabulary(asked):
    """Tokens and merges for each stretch of each text."""
    chars = peer.byte_chars()
    tokens = [chars[byte].encode() for byte in range(256)]
    merges = []
    stretches = set()
    for text in map(decoded, asked):
        for begin in range(len(text)):
            stretches.update(text[begin:end] for end in range(begin + 2, len(text) + 1))
    spell = "".join
    for stretch in sorted(stretches, key=lambda s: (len(s), s)):
        spelled = [chars[byte] for byte in stretch]
        tokens.append(spell(spelled).encode())
        merges += [
            f"{spell(spelled[:at])} {spell(spelled[at:])}".encode() for at in range(1, len(spelled))
        ]
    return tokens, merges


def main():
    args = peer.golden_arguments(__doc__)
    asked = texts()
    tokens, merges = vocabulary(asked)
    lines = [f"text {peer.escape(text)}" for text in asked]
    with tempfile.TemporaryDirectory() as work:
        oracle = peer.Peer(args.llama, args.library, work)
        vocab, answers = Path(work) / "vocab.gguf", Path(work) / "answers"
        for pre in PRES:
            peer.write_bpe(vocab, pre, tokens, merges)
            oracle.ask(vocab, [(0, text) for text in asked], answers)
            cuts = []
            for _, text, ids in peer.read_answers(answers):
                lengths = [len(tokens[i].decode()) for i in ids]
                assert sum(lengths) == len(decoded(text)), (pre, text)
                cuts.append(".".join(map(str, lengths)))
            lines.append(f"{pre} {' '.join(cuts)}")
    print(f"{len(asked)} texts, {len(merges)} merges")
    peer.finish_golden({"splits.txt": lines}, args.update_golden)


if __name__ == "__main__":
    main()
