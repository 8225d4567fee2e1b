#!/usr/bin/env python3
"""Compares our ids with llama.cpp's on real vocabularies. For a maintainer; not part of the build.

    compare_peer.py --llama SOURCE --library DIR --vocabs DIR --test PROGRAM
                    [--n 3000] [--seed S] [--short] [FAMILY ...]
    compare_peer.py ... --pre NAME [NAME ...]

SOURCE is a llama.cpp checkout (for its headers), --library the folder of libllama.so, --vocabs
that of ggml-vocab-FAMILY.gguf (its models/), PROGRAM our test_runtime_text. Needs a C++ compiler.
Each text is asked four times, with and without add_special and parse_special. --short leaves out
texts of 100,000 characters, on which llama.cpp's regex engine takes long or ends with its stack.

With --pre the vocabulary is gpt-2's, and says that its pre-tokenizer is NAME ("all": every name
that SOURCE has, but for those that we refuse); each text is asked with and without add_special.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import peer  # noqa: E402

FAMILIES = """
llama-spm phi-3 baichuan gpt-2 mpt llama-bpe qwen2 qwen35 command-r deepseek-coder deepseek-llm
falcon refact starcoder gemma-4 gpt-neox aquila
""".split()
# One name of each row of our table.
PRES = """
gpt-2 llama-bpe qwen2 bailingmoe smollm falcon default deepseek-llm deepseek-coder deepseek-v3
spark2_5 afmoe youtu tiny_aya qwen35 bloom viking tekken gpt-4o granite-embed-multi-97m kimi-k2
superbpe seed-coder ufakzeka exaone-moe laguna minicpm5 jais-2
""".split()
REFUSED = """
chameleon gemma4 granite-embed-multi-311m jina-v1-en jina-v2-code jina-v2-de jina-v2-es sarvam-moe
whitespace
""".split()
SPECIALS = [
    text.encode()
    for text in (
        "<s>",
        "</s>",
        "<unk>",
        "<0x0A>",
        "<|endoftext|>",
        "<|begin_of_text|>",
        "<|eot_id|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|reserved_special_token_7|>",
        "<|user|>",
        "<|end|>",
        "<|assistant|>",
        "<|box_start|>",
        "<|fim_prefix|>",
        "<|fim_pad|>",
        "<tool_call>",
        "</tool_call>",
        "<|padding|>",
        "    ",
        "<|eot_id|",
        "<|",
        "|>",
    )
]


def pres_of(source):
    """The names in llama.cpp's source that we know, too."""
    text = (Path(source) / "src/llama-vocab.cpp").read_text(encoding="utf-8")
    return sorted(set(re.findall(r'tokenizer_pre == "([^"]+)"', text)) - set(REFUSED))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--llama", "--library", "--vocabs", "--test"):
        parser.add_argument(name, required=True)
    parser.add_argument("--n", type=int, default=3000, help="random texts a family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--pre", nargs="+", default=[])
    parser.add_argument("families", nargs="*", default=FAMILIES)
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    rng = peer.new_random(args.seed)
    texts = (
        peer.curated()
        + SPECIALS
        + peer.each_category(40, rng)
        + peer.random_texts(rng, args.n, SPECIALS)
        + ([] if args.short or args.pre else peer.long_texts())
    )
    requests = [(flags, text) for text in texts for flags in range(2 if args.pre else 4)]
    with tempfile.TemporaryDirectory() as work:
        oracle = peer.Peer(args.llama, args.library, work)
        folder, families = args.vocabs, args.families
        if args.pre:
            folder, families = work, pres_of(args.llama) if args.pre == ["all"] else args.pre
            for pre in families:
                gpt2 = Path(args.vocabs) / "ggml-vocab-gpt-2.gguf"
                peer.write_with_pre(gpt2, pre, Path(work) / f"ggml-vocab-{pre}.gguf")
        for family in families:
            vocab = Path(folder) / f"ggml-vocab-{family}.gguf"
            # llama.cpp ends at a space that stays one in a text of Gemma 4's kind.
            asked = [(f, t) for f, t in requests if family != "gemma-4" or b"\xc0\xa0" not in t]
            oracle.ask(vocab, asked, Path(work) / f"{family}.cases")
            print(f"{family}: {len(texts)} texts, {len(asked)} requests", flush=True)
        environment = {**os.environ, "TARN_VOCAB_DIR": str(folder), "TARN_TEXT_CASES": work}
        sys.exit(
            subprocess.run(
                [args.test, "--source-file=*real_vocab_test.cpp"], env=environment, check=False
            ).returncode
        )


if __name__ == "__main__":
    main()
