#!/usr/bin/env python3
"""Trains four small vocabularies and writes down llama.cpp's ids under each: the golden of
tests/runtime/text/golden_test.cpp, which needs neither this script nor llama.cpp.

    make_golden.py --llama SOURCE --library DIR [--update-golden]

SOURCE is a llama.cpp checkout (for its headers), DIR the folder of its libllama.so. Needs the
Python packages gguf and regex, and a C++ compiler. Without --update-golden the files are compared
with what they would become.

    texts.txt      one request a line: flags (1 add_special, 2 parse_special) | the text, escaped
    FAMILY.vocab   `merge LEFT RIGHT` (BPE, by rank) or `piece TEXT` (SPM, by falling score), then
                   `special KIND TEXT`; ids count up in the order build_vocab() below gives them
    FAMILY.ids     llama.cpp's ids, one line for each request
"""

import collections
import sys
import tempfile
from pathlib import Path

import gguf
import regex

sys.dont_write_bytecode = True
import peer  # noqa: E402

N_MERGES = 280
CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
LLAMA_REST = (
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)" r"|\s+"
)
PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-bpe": CONTRACTIONS + LLAMA_REST % "{1,3}",
    "qwen2": CONTRACTIONS + LLAMA_REST % "",
}
KINDS = {"normal": 1, "unknown": 2, "control": 3, "user_defined": 4, "byte": 6}
SPECIALS = [
    ("control", "<|begin|>"),
    ("control", "<|endoftext|>"),
    ("control", "<|eot_id|>"),
    ("user_defined", "<tool>"),
    ("user_defined", "<tool><tool>"),
    ("user_defined", "\n\n\n"),
]
CORPUS = (" ".join(peer.WORDS) + ". ") * 2 + (
    "It's what they've said, isn't it? I'll say you're right; WE'LL SEE. In 1999, 2024 or 123456: "
    "10%! "
    "if (x == 1) {\n    return x;\n}\n\n\n  - item 1\r\n  - item 2\r\n\t\tend ... the theatre, "
    "there, then, "
    "aaaa aaaaaaaa bbbb    b        b naïve café 中文 中文模型 모델 данные данных 😀😀 👍🏽 "
) * 3


def train(words, n_merges):
    """Byte-pair encoding (Sennrich et al. 2016): the most frequent pair first, ties by text."""
    merges = []
    for _ in range(n_merges):
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        joined = collections.Counter()
        for word, count in words.items():
            out, at = [], 0
            while at < len(word):
                pair = word[at : at + 2]
                out.append("".join(pair) if pair == best else word[at])
                at += 2 if pair == best else 1
            joined[tuple(out)] += count
        words = joined
    return merges


def train_bpe(pattern):
    chars = peer.byte_chars()
    words = collections.Counter(
        tuple(chars[byte] for byte in word.encode()) for word in regex.findall(pattern, CORPUS)
    )
    return train(words, N_MERGES)


def train_spm():
    words = collections.Counter(tuple("▁" + word) for word in CORPUS.split(" "))
    merges = train(words, N_MERGES)
    letters = collections.Counter(char for word in words for char in word)
    rare = sorted(letters, key=lambda char: (-letters[char], char))[60:]
    pieces = [left + right for left, right in merges] + sorted(set(letters) - set(rare))
    return [piece for piece in dict.fromkeys(pieces) if piece.isprintable()]


def build_vocab(family, lines):
    """The tokens of a .vocab file: (text, kind, score) in the order of ids, and the merges."""
    fields = [line.split(" ", 2) for line in lines]
    merges = [f"{left} {right}" for what, left, right in (f for f in fields if f[0] == "merge")]
    tokens = []
    if family == "llama":
        tokens += [("<unk>", "unknown", 0.0), ("<s>", "control", 0.0), ("</s>", "control", 0.0)]
        tokens += [(f"<0x{byte:02X}>", "byte", 0.0) for byte in range(256)]
        pieces = [f[1] for f in fields if f[0] == "piece"]
        # Every third score is its neighbour's: ties go to the left.
        tokens += [(piece, "normal", -float(i - i % 3)) for i, piece in enumerate(pieces)]
    else:
        chars = peer.byte_chars()
        tokens += [(chars[byte], "normal", 0.0) for byte in range(256)]
        joined = [merge.replace(" ", "") for merge in merges]
        tokens += [(text, "normal", 0.0) for text in dict.fromkeys(joined)]
    tokens += [(unescape(f[2]), f[1], 0.0) for f in fields if f[0] == "special"]
    return tokens, merges


def write_gguf(path, family, tokens, merges):
    writer = gguf.GGUFWriter(path, "llama")
    spm = family == "llama"
    writer.add_tokenizer_model("llama" if spm else "gpt2")
    if not spm:
        writer.add_tokenizer_pre(family)
    writer.add_token_list([text.encode() for text, _, _ in tokens])
    writer.add_token_scores([score for _, _, score in tokens])
    writer.add_token_types([KINDS[kind] for _, kind, _ in tokens])
    if not spm:
        writer.add_token_merges(merges)
        ids = {text: i for i, (text, _, _) in enumerate(tokens)}
        writer.add_bos_token_id(ids["<|begin|>"])
        writer.add_eos_token_id(ids["<|endoftext|>"])
        writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def unescape(text):
    return regex.sub(r"\\x(..)", lambda match: chr(int(match[1], 16)), text)


def requests():
    rng = peer.new_random(7)
    names = [text.encode() for _, text in SPECIALS] + [b"<s>", b"</s>"]
    texts = [text for text in peer.curated() if len(text) <= 18]
    texts += [text for text in peer.random_texts(rng, 400, names) if len(text) <= 24][:70]
    marked = [
        b"<|begin|>a<|eot_id|>",
        b"a<tool>b",
        b"<tool><tool>",
        b"<tool><tool><tool>x",
        b"<tool",
        b" <tool> a",
        b"<s>a</s>",
        b"</s>",
        b"<0x41>",
        b"a\n\n\nb",
        b"\n\n\n\n\n\n",
        b"<|begin|",
        b"",
        b"<tool><|eot_id|> b",
        b"x<|endoftext|>\n\n\n<tool>",
    ]
    return [(0, text) for text in texts if text] + [
        (flags, text) for text in marked for flags in range(4)
    ]


def main():
    args = peer.golden_arguments(__doc__)
    asked = requests()
    files = {"texts.txt": [f"{flags}|{peer.escape(text)}" for flags, text in asked]}
    with tempfile.TemporaryDirectory() as work:
        oracle = peer.Peer(args.llama, args.library, work)
        for family in ["llama", *PATTERNS]:
            if family == "llama":
                lines = [f"piece {piece}" for piece in train_spm()]
                specials = SPECIALS[3:]
            else:
                lines = [f"merge {left} {right}" for left, right in train_bpe(PATTERNS[family])]
                specials = SPECIALS
            lines += [f"special {kind} {peer.escape(text.encode())}" for kind, text in specials]
            files[f"{family}.vocab"] = lines
            vocab, answers = Path(work) / "vocab.gguf", Path(work) / "answers"
            write_gguf(vocab, family, *build_vocab(family, lines))
            oracle.ask(vocab, asked, answers)
            files[f"{family}.ids"] = [
                " ".join(map(str, ids)) for _, _, ids in peer.read_answers(answers)
            ]
    print(f"{len(asked)} requests")
    peer.finish_golden(files, args.update_golden)


if __name__ == "__main__":
    main()
