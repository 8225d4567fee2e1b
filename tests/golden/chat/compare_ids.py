#!/usr/bin/env python3
"""Compares the ids of whole conversations with those of transformers, and injects control tokens.

    ninja -C BUILD golden_chat
    compare_ids.py --driver BUILD/tests/golden/golden_chat VOCAB.gguf...

A tokenizer of the package tokenizers is made of each file that Tarn reads. Its
apply_chat_template(tokenize=True) is compared with Tarn's, for templates of Tarn,
templates that make tokens of roles, and the file's own. The conversations are those of
conversations.txt whose values hold no control token of the vocabulary.

    equal      the same ids
    BOS        the same behind the vocabulary's BOS, which this template leaves to Tarn
    refused    both refuse
    by name    Tarn alone refuses, with a sentence
    changed    the same as transformers' if the template sees the messages as they are: it drops
               keys that are null, copies reasoning_content to thinking and back, and refuses some
    spaces     Phi-3's: see WHITE_SPACE
    DIFFERENT  other ids, or ids where transformers refuses: fails

SPM vocabularies have a second row, which cannot fail: a space before the text alone, where Tarn
and Llama 2 put one behind each special token too.

Then all values of a conversation are every control token and marker of the vocabulary: the ids must
hold the control tokens of the same conversation with harmless values, and no other. Needs the
Python packages transformers and tokenizers.
"""

import argparse
import collections
import itertools
import sys
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

sys.dont_write_bytecode = True
import gguf_file  # noqa: E402
import peer  # noqa: E402
from compare_peer import tarn_renders  # noqa: E402
from make_golden import templates  # noqa: E402

# Behind a token of Phi-3 Tarn and llama.cpp take ASCII's white space away, tokenizers Unicode's.
WHITE_SPACE = ("unicode_Zl", "unicode_Zp", "unicode_Zs", "line_ends")
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
ROLES = {
    "roles-added": "{{ '<|' + m.role + '|>' }}",
    "roles-between": "<|{{ m.role }}|>",
}
REST = (
    "\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = (
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "mpt": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-bpe": CONTRACTIONS + WORDS % "{1,3}",
    "qwen2": CONTRACTIONS + WORDS % "",
}


class Vocabulary:
    def __init__(self, path):
        keys = gguf_file.keys_of(path)
        key = lambda name, otherwise=None: keys.get("tokenizer.ggml." + name, otherwise)
        self.path = path
        self.tokens, self.kinds = key("tokens"), key("token_type")
        self.merges, self.scores, self.pre = key("merges"), key("scores"), key("pre")
        self.is_spm = key("model") == "llama"
        self.eats_spaces = "phi-3" in path.stem  # as Tarn and llama.cpp know it: by its name
        defaults = {"unknown": 0, "bos": 1, "eos": 2} if self.is_spm else {}
        self.ids = {
            role: key(role + "_token_id", defaults.get(role))
            for role in ("unknown", "bos", "eos", "padding")
        }
        self.template = keys.get("tokenizer.chat_template")

    def is_control(self, token):
        kind, text = self.kinds[token], self.tokens[token]
        ends = text[0] + text[-1] if len(text) > 2 else ""
        return kind in (UNKNOWN, CONTROL) or (kind == USER_DEFINED and ends in ("<>", "[]"))

    def controls(self):
        return [text for i, text in enumerate(self.tokens) if self.is_control(i)]

    def spm_merges(self):
        ids = {text: i for i, text in enumerate(self.tokens)}
        merges = []
        for i, text in enumerate(self.tokens):
            if self.kinds[i] != 1:
                continue
            for at in range(1, len(text)):
                left, right = ids.get(text[:at]), ids.get(text[at:])
                if left is not None and right is not None:
                    merges.append((-self.scores[i], i, left, right))
        return [(self.tokens[left], self.tokens[right]) for _, _, left, right in sorted(merges)]

    def oracle(self, prefix_first=False):
        """As transformers reads the vocabulary."""
        vocab = {text: i for i, text in enumerate(self.tokens)}
        if self.is_spm:
            model = models.BPE(
                vocab, self.spm_merges(), unk_token="<unk>", fuse_unk=True, byte_fallback=True
            )
            made = tokenizers.Tokenizer(model)
            if prefix_first:
                made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
            else:
                made.normalizer = normalizers.Sequence(
                    [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
                )
        else:
            merges = [tuple(merge.split(" ")) for merge in self.merges]
            made = tokenizers.Tokenizer(
                models.BPE(vocab, merges, ignore_merges=self.pre == "llama-bpe")
            )
            split = pre_tokenizers.Split(tokenizers.Regex(PATTERNS[self.pre]), "isolated")
            byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            made.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
            made.decoder = decoders.ByteLevel()
        made.add_special_tokens(self.added(lambda i: self.kinds[i] in (UNKNOWN, CONTROL)))
        made.add_tokens(self.added(lambda i: self.kinds[i] == USER_DEFINED))
        names = {"unknown": "unk", "padding": "pad"}
        own = {
            names.get(role, role) + "_token": self.tokens[i]
            for role, i in self.ids.items()
            if i is not None and i < len(self.tokens)
        }
        return PreTrainedTokenizerFast(tokenizer_object=made, **own)

    def added(self, wanted):
        keep = ("<unk>", "<s>", "<|endoftext|>")
        return [
            AddedToken(
                text, normalized=False, special=True, rstrip=self.eats_spaces and text not in keep
            )
            for i, text in enumerate(self.tokens)
            if wanted(i)
        ]


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings([*value, *value.values()])
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


def tarn_ids(driver, vocabulary, requests):
    """For each (source, conversation): (ids, None), or (None, the sentence that refuses)"""
    for text, why in tarn_renders([driver, vocabulary.path], requests):
        yield (text and [int(word) for word in text.split()]), why


def oracle_ids(oracle, source, conversation):
    messages, tools, arguments, prompt = conversation
    try:
        return oracle.apply_chat_template(
            messages,
            tools=tools,
            chat_template=source,
            add_generation_prompt=prompt,
            tokenize=True,
            return_dict=False,
            **(arguments or {}),
        )
    except Exception:  # whatever a template makes Python raise
        return None


def unchanged_ids(oracle, source, conversation):
    """Without what apply_chat_template changes before the template sees the messages."""
    text, _ = peer.render(source, conversation, oracle.special_tokens_map)
    return None if text is None else oracle(text, add_special_tokens=False)["input_ids"]


def verdict_of(ours, theirs, unchanged, bos):
    if ours is None:
        return "refused" if unchanged is None else "by name"
    without = ours[1:] if bos is not None and ours[:1] == [bos] else None
    for verdict, ids in (("", theirs), ("changed", unchanged)):
        if ids is not None and ours == ids:
            return verdict or "equal"
        if ids is not None and without == ids:
            return verdict or "BOS"
    return "DIFFERENT"


def show_difference(vocabulary, ours, theirs):
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), 0)
    for who, ids in (("tarn", ours), ("transformers", theirs)):
        pieces = [vocabulary.tokens[i] for i in ids[max(0, at - 3) : at + 5]]
        print(f"    {who:12} from id {at}: {pieces}")


def compare(driver, vocabulary, sources, conversations):
    """The ids of all conversations; how many differ."""
    rows = [("", vocabulary.oracle())]
    if vocabulary.is_spm:
        rows.append((", a space first alone", vocabulary.oracle(prefix_first=True)))
    counts = [collections.Counter() for _ in rows]
    requests = {
        f"{source_name}, {name}": (source, conversation)
        for source_name, source in sources.items()
        for name, conversation in conversations.items()
    }
    answers = tarn_ids(driver, vocabulary, requests.values())
    for (name, request), (ours, why) in zip(requests.items(), answers):
        for (row, oracle), counter in zip(rows, counts):
            unchanged = unchanged_ids(oracle, *request)
            theirs = oracle_ids(oracle, *request)
            verdict = verdict_of(ours, theirs, unchanged, vocabulary.ids["bos"])
            is_known = vocabulary.eats_spaces and name.endswith(WHITE_SPACE)
            verdict = "spaces" if verdict == "DIFFERENT" and is_known else verdict
            counter[verdict] += 1
            if not row and verdict in ("DIFFERENT", "by name"):
                print(f"  {verdict}: {name}: {why or ''}")
            if not row and verdict == "DIFFERENT" and unchanged:
                show_difference(vocabulary, ours, unchanged)
    for (row, _), counter in zip(rows, counts):
        print(vocabulary.path.stem + row, dict(counter), flush=True)
    return counts[0]["DIFFERENT"]


def injected(text, role):
    def message(role, **more):
        return {"role": role, "content": text, "name": text, **more}

    call = {"type": "function", "function": {"name": text, "arguments": {text: text}}}
    return (
        [message("system"), message("user"), message("assistant", tool_calls=[call])]
        + [message("tool"), message("user"), message(role)],
        None,
        {"more": text},
        True,
    )


def inject(driver, vocabulary, sources):
    """Control tokens that come of values; printed with those that transformers would make."""
    controls = vocabulary.controls()
    oracle = vocabulary.oracle()
    requests = []  # harmless, and the same with control tokens
    for source, between in itertools.product(sources.values(), ("", " x ", "\n", ">")):
        text = between.join(controls)
        for roles in (("user", "user"), ("x", text)):
            requests += [(source, injected(*values)) for values in zip(("x", text), roles)]
    found = []
    for ids, _ in tarn_ids(driver, vocabulary, requests):
        found.append(ids and [i for i in ids if vocabulary.is_control(i)])
    n_texts = n_refused = n_wrong = n_of_oracle = 0
    for harmless, ours, request in zip(found[::2], found[1::2], requests[1::2]):
        if harmless is None or ours is None:
            n_refused += 1
            continue
        n_texts += 1
        n_wrong += ours != harmless
        theirs = unchanged_ids(oracle, *request) or []
        n_of_oracle += sum(map(vocabulary.is_control, theirs)) - len(harmless)
    print(
        f"{vocabulary.path.stem}: {len(controls)} control tokens in the values of {n_texts} "
        f"conversations ({n_refused} refused): {n_wrong} have other control ids for it; "
        f"transformers makes {n_of_oracle} of values",
        flush=True,
    )
    return n_wrong


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("vocabularies", nargs="+", metavar="VOCAB", type=Path)
    parser.add_argument("--driver", required=True, help="the program golden_chat")
    parser.add_argument("--conversation", default="", help="conversations with this in their names")
    options = parser.parse_args()
    sources = {name: text for name, text in templates() if name in ("chatml", "llama3", "zephyr")}
    for name, role in ROLES.items():
        sources[name] = "{% for m in messages %}" + role + REST
    all_conversations = peer.conversations()
    n_wrong = 0
    for path in options.vocabularies:
        vocabulary = Vocabulary(path)
        one = next(iter(all_conversations.values()))
        [(ids, why)] = tarn_ids(options.driver, vocabulary, [(sources["chatml"], one)])
        if ids is None:
            print(f"{path.stem}: not read: {why}")
            continue
        own = {"own": vocabulary.template} if vocabulary.template else {}
        controls = vocabulary.controls()
        chosen = {
            name: conversation
            for name, conversation in all_conversations.items()
            if options.conversation in name
            and not any(text in value for value in strings([*conversation]) for text in controls)
        }
        print(f"{path.stem}: {len(chosen)} of {len(all_conversations)} conversations")
        n_wrong += compare(options.driver, vocabulary, sources | own, chosen)
        n_wrong += inject(options.driver, vocabulary, sources | own)
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    main()
