#!/usr/bin/env python3
"""What reusing chunks of KV in another order costs in answers: CacheBlend and its neighbours.

    blend_table.py MODEL.gguf [--documents 40] [--tokens 1536] [--chunks 6] [--ratios 0.05 0.15]

A reference in numpy, f32, written for reading (METHODS 3.2; Yao et al. 2024, arXiv:2405.16444).
Held-out documents are cut at line borders into chunks, which come in random order behind the
document's first line. The KV of each chunk is computed alone behind BOS and its keys are turned to
the new place. Then rows are computed again:

    full            all of them: an ordinary prefill
    reuse           none of a chunk's
    legolink        the first ones of each chunk
    random          as many, anywhere
    one-shot        those whose V or KV deviates most at layer 1, for all layers (the authors' code)
    gradual         a shrinking set, chosen anew at each layer (the paper, section 4.3)
    engine          the engine's own, with --program (tests/bench/blend_answers.cpp)

An answer counts if greedy decoding would give exactly its tokens. Differences to `full` are paired,
over documents, with 95 % intervals. `crossing` are questions whose chain of copies leaves a chunk.
Packages numpy and gguf.
"""
import argparse
import subprocess
from collections import defaultdict

import gguf
import numpy as np

import bpe
import logbook
from draw import Draw

CHECK_LAYER = 1
SPREAD = 0.2  # e of METHODS 3.2: how far r_l strays from r
FIRST_SEED = logbook.HELD_OUT_FROM + 700_000


class Model:
    """Weights of a llama GGUF in f32, and its layers' parts. Rows are tokens."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        value = lambda key: reader.fields["llama." + key].contents()
        self.w = {t.name: np.array(t.data, np.float32) for t in reader.tensors}
        self.n_layers, self.n_heads = value("block_count"), value("attention.head_count")
        self.n_kv, self.dim = value("attention.head_count_kv"), value("attention.key_length")
        self.eps = value("attention.layer_norm_rms_epsilon")
        pair = np.arange(0, self.dim, 2)
        self.frequencies = value("rope.freq_base") ** (-pair / self.dim)

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name + ".weight"]

    def times(self, x, name):
        return x @ self.w[name + ".weight"].T

    def turn(self, x, positions):
        """RoPE of [n, heads, dim]; positions [n], or one for all."""
        angles = np.multiply.outer(np.atleast_1d(positions), self.frequencies)[:, None]
        cos, sin = np.cos(angles), np.sin(angles)
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape) \
            .astype(np.float32)

    def heads(self, h, layer, what, n):
        return self.times(h, f"blk.{layer}.attn_{what}").reshape(len(h), n, self.dim)

    def kv(self, h, layer, positions):
        return (self.turn(self.heads(h, layer, "k", self.n_kv), positions),
                self.heads(h, layer, "v", self.n_kv))

    def rest_of_layer(self, x, h, layer, positions, k, v, mask):
        """x after attention over k and v [m, kv heads, dim] and the feed-forward part."""
        q = self.turn(self.heads(h, layer, "q", self.n_heads), positions)
        out = np.empty_like(q)
        group = self.n_heads // self.n_kv
        for head in range(self.n_heads):
            scores = q[:, head] @ k[:, head // group].T * self.dim ** -0.5
            scores[~mask] = -np.inf
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = scores @ v[:, head // group] / scores.sum(-1, keepdims=True)
        x = x + self.times(out.reshape(len(x), -1), f"blk.{layer}.attn_output")
        h = self.norm(x, f"blk.{layer}.ffn_norm")
        gate = self.times(h, f"blk.{layer}.ffn_gate")
        up = self.times(h, f"blk.{layer}.ffn_up")
        return x + self.times(gate / (1 + np.exp(-gate)) * up, f"blk.{layer}.ffn_down")

    def embed(self, ids):
        return self.w["token_embd.weight"][ids]

    def logits(self, x):
        return self.times(self.norm(x, "output_norm"), "token_embd")


class Chunks:
    """A prompt: ids, and which tokens have stored KV, turned to their place."""

    def __init__(self, model, ids, spans):
        self.model, self.ids, self.spans = model, np.array(ids), spans
        n, shape = len(ids), (model.n_layers, len(ids), model.n_kv, model.dim)
        self.stored = np.zeros(n, bool)
        self.k, self.v = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        for begin, end in spans:
            alone = [ids[0], *ids[begin:end]]
            k, v = compute(model, np.array(alone))
            for layer in range(model.n_layers):
                self.k[layer, begin:end] = model.turn(k[layer, 1:], begin - 1)
                self.v[layer, begin:end] = v[layer, 1:]
            self.stored[begin:end] = True


def compute(model, ids):
    """K and V of all layers, [layers, n, kv heads, dim] each."""
    positions, x, k, v = np.arange(len(ids)), model.embed(ids), [], []
    mask = positions[:, None] >= positions
    for layer in range(model.n_layers):
        h = model.norm(x, f"blk.{layer}.attn_norm")
        fresh_k, fresh_v = model.kv(h, layer, positions)
        k.append(fresh_k)
        v.append(fresh_v)
        x = model.rest_of_layer(x, h, layer, positions, fresh_k, fresh_v, mask)
    return np.stack(k), np.stack(v)


def ratio(r, layer, n_layers):
    """r_l: from r(1 + e) at the check layer to r(1 - e) at the last."""
    spread = min(SPREAD, (1 - r) / r)
    return r * (1 + spread * (1 - 2 * (layer - CHECK_LAYER) / (n_layers - 1 - CHECK_LAYER)))


def best(rows, deviation, n):
    """The n rows that deviate most, ascending."""
    return np.sort(rows[np.argsort(-deviation, kind="stable")[:n]])


def blend(chunks, r, choose):
    """K and V after blending, and the rows of each layer from the check layer on.

    choose(layer, rows, deviation of k [rows], of v) gives the chosen ones of the stored rows.
    """
    model, n = chunks.model, len(chunks.ids)
    k, v = chunks.k.copy(), chunks.v.copy()
    positions, rows, x = np.arange(n), np.arange(n), model.embed(chunks.ids)
    own = np.flatnonzero(~chunks.stored)
    sets = []
    for layer in range(model.n_layers):
        h = model.norm(x, f"blk.{layer}.attn_norm")
        fresh_k, fresh_v = model.kv(h, layer, rows)
        if layer >= CHECK_LAYER:
            there = chunks.stored[rows]
            apart = [((fresh - old[layer, rows]) ** 2).sum((1, 2))[there]
                     for fresh, old in ((fresh_k, k), (fresh_v, v))]
            chosen = np.union1d(choose(layer, rows[there], *apart), own)
            keep = np.isin(rows, chosen)
        else:
            keep = np.ones(len(rows), bool)
        k[layer, rows], v[layer, rows] = fresh_k, fresh_v
        rows, x, h = rows[keep], x[keep], h[keep]
        if layer >= CHECK_LAYER:
            sets.append(rows)
        x = model.rest_of_layer(x, h, layer, rows, k[layer], v[layer],
                                rows[:, None] >= positions)
    return k, v, sets


def reuse(chunks):
    """Nothing of a chunk is computed: the check layers are skipped."""
    model, own = chunks.model, np.flatnonzero(~chunks.stored)
    k, v, positions = chunks.k.copy(), chunks.v.copy(), np.arange(len(chunks.ids))
    x = model.embed(chunks.ids[own])
    for layer in range(model.n_layers):
        h = model.norm(x, f"blk.{layer}.attn_norm")
        k[layer, own], v[layer, own] = model.kv(h, layer, own)
        x = model.rest_of_layer(x, h, layer, own, k[layer], v[layer], own[:, None] >= positions)
    return k, v


def chooser(kind, chunks, r, draw):
    """The function that blend() calls."""
    n_stored, kept = int(chunks.stored.sum()), []
    n_layers = chunks.model.n_layers

    def one_shot(pick):
        def choose(layer, rows, dk, dv):
            if layer == CHECK_LAYER:
                kept.append(pick(rows, dk, dv, round(r * n_stored)))
            return kept[0]
        return choose

    def first_ones(_rows, _dk, _dv, n):
        each, more = divmod(n, len(chunks.spans))
        return np.concatenate([np.arange(begin, min(end, begin + each + (i < more)))
                               for i, (begin, end) in enumerate(chunks.spans)])

    def gradual(layer, rows, dk, dv):
        return best(rows, dk + dv, round(ratio(r, layer, n_layers) * n_stored))

    return {"one-shot V": one_shot(lambda rows, dk, dv, n: best(rows, dv, n)),
            "one-shot KV": one_shot(lambda rows, dk, dv, n: best(rows, dk + dv, n)),
            "legolink": one_shot(first_ones),
            "random": one_shot(lambda rows, dk, dv, n: np.sort(draw.permutation(rows)[:n])),
            "gradual": gradual}[kind]


def answer(model, k, v, questions, answers):
    """The logits of each answer's tokens, [their number, vocabulary] each."""
    n, ids, owner, positions, places = k.shape[1], [], [], [], []
    for i, (asked, said) in enumerate(zip(questions, answers)):
        positions += range(n, n + len(asked) + len(said))
        places.append(range(len(ids) + len(asked) - 1, len(ids) + len(asked) + len(said) - 1))
        ids += asked + said
        owner += [i] * (len(asked) + len(said))
    owner, positions = np.array(owner), np.array(positions)
    mask = np.hstack([np.ones((len(ids), n), bool),
                      (owner[:, None] == owner) & (positions[:, None] >= positions)])
    x = model.embed(np.array(ids))
    for layer in range(model.n_layers):
        h = model.norm(x, f"blk.{layer}.attn_norm")
        fresh_k, fresh_v = model.kv(h, layer, positions)
        x = model.rest_of_layer(x, h, layer, positions, np.concatenate([k[layer], fresh_k]),
                                np.concatenate([v[layer], fresh_v]), mask)
    return [model.logits(x[list(place)]) for place in places]


class Book:
    """One held-out document in chunks: its prompt, questions, and which of them cross chunks."""

    def __init__(self, seed, tokens, n_chunks, rounds, tokenizer):
        document = logbook.make_document(seed, tokens, tokenizer.encode, rounds=rounds)
        first, lines = document.body[0], [[]]
        for piece in document.body[1:]:
            lines[-1].append(piece)
            if piece.text.endswith("\n"):
                lines.append([])
        lines = [line for line in lines if line]
        cuts = self._cut([logbook.n_tokens(line) for line in lines], n_chunks)
        parts = [sum(lines[a:b], []) for a, b in zip(cuts, cuts[1:])]
        parts = Draw(seed).shuffled(parts)
        self.ids, self.spans, self.n_touched = [tokenizer.start] + first.ids, [], 0
        chunk_of, source = {}, {}
        for i, part in enumerate(parts):
            begin = len(self.ids)
            for piece in part:
                self.ids += piece.ids
                if piece.home is not None:
                    chunk_of[piece.home] = i
                    source[piece.home] = piece.looks
            self.spans.append((begin, len(self.ids)))
        for part in parts:
            for piece in part:
                if any(chunk_of[look] != chunk_of[piece.home] for look in piece.looks):
                    self.n_touched += len(piece.ids)
        self.questions, self.answers, self.kinds, self.crosses = [], [], [], []
        for question in document.questions:
            if question.kind in ("cmp", "order", "count"):  # which need no document, or luck
                continue
            self.questions.append(sum((piece.ids for piece in question.asked), []))
            self.answers.append(question.answer.ids)
            self.kinds.append(question.kind)
            chain, looks = set(), list(question.answer.looks)
            while looks:
                look = looks.pop()
                chain.add(chunk_of[look])
                looks += source[look]
            self.crosses.append(len(chain) > 1)

    @staticmethod
    def _cut(lengths, n):
        """Line numbers that cut the lines into n parts of about as many tokens."""
        ends = np.cumsum(lengths)
        return [0, *(int(np.searchsorted(ends, ends[-1] * i / n)) for i in range(1, n)),
                len(lengths)]


def measure(model, book, ratios, draw):
    """For each method: rights [questions], the logits' distance to full, rows of all layers."""
    chunks, found = Chunks(model, book.ids, book.spans), {}
    full = compute(model, chunks.ids)
    said = answer(model, *full, book.questions, book.answers)

    def add(name, k, v, sets):
        logits = said if name == "full" else answer(model, k, v, book.questions, book.answers)
        right = [bool((one.argmax(-1) == ids).all()) for one, ids in zip(logits, book.answers)]
        apart = np.mean([np.sqrt(((a - b) ** 2).sum(-1)).mean() for a, b in zip(logits, said)])
        found[name] = np.array(right), apart, np.mean([len(s) for s in sets]) if sets else 0

    add("full", *full, [chunks.ids])
    add("reuse", *reuse(chunks), None)
    for r in ratios:
        for kind in ("legolink", "random", "one-shot V", "one-shot KV", "gradual"):
            add(f"{kind} {r:.2f}", *blend(chunks, r, chooser(kind, chunks, r, draw)))
    return found


def ask_engine(program, path, books, shares):
    """The same of the engine: for each share the rights of each book."""
    def listed(ids):
        return f"{len(ids)} " + " ".join(map(str, ids)) + "\n"
    text = ""
    for book in books:
        text += listed(book.ids) + f"{len(book.spans)}\n"
        text += "".join(f"{begin} {end}\n" for begin, end in book.spans)
        text += f"{len(book.questions)}\n"
        for asked, said in zip(book.questions, book.answers):
            text += listed(asked) + listed(said)
    lines = subprocess.run([program, path, *map(str, shares)], input=text, text=True, check=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    found = defaultdict(list)
    for line in lines:
        share, *rights = line.split()
        found[f"engine {share}"].append((np.array(rights) == "1", np.nan, np.nan))
    return found


def interval(differences):
    """The mean and half of its 95 % interval."""
    return np.mean(differences), 1.96 * np.std(differences, ddof=1) / np.sqrt(len(differences))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=1536)
    parser.add_argument("--chunks", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=4, help="of questions about a document")
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.05, 0.1, 0.15, 0.3])
    parser.add_argument("--program", help="blend_answers: ask the engine too")
    parser.add_argument("--engine-alone", action="store_true", help="and the reference not")
    parser.add_argument("--first", type=int, default=0, help="the first document")
    options = parser.parse_args()
    model, tokenizer, draw = Model(options.model), bpe.load(), np.random.default_rng(1)
    results, books = defaultdict(list), []
    for i in range(options.first, options.first + options.documents):
        book = Book(FIRST_SEED + i, options.tokens, options.chunks, options.rounds, tokenizer)
        books.append(book)
        if options.engine_alone:
            continue
        for name, each in measure(model, book, options.ratios, draw).items():
            results[name].append(each)
    if options.program:
        results |= ask_engine(options.program, options.model, books,
                              ["full", 0, *options.ratios])
    n_tokens = sum(len(book.ids) for book in books)
    crosses = [np.array(book.crosses) for book in books]
    touched = sum(book.n_touched for book in books) / n_tokens
    print(f"{len(books)} documents, {n_tokens / len(books):.0f} tokens each, {options.chunks} "
          f"chunks; copies across chunks touch {touched:.1%} of the tokens\n"
          f"{sum(map(len, crosses))} questions, {sum(c.sum() for c in crosses)} crossing\n")
    print("| method | rows a layer | right, % | to full, points | crossing, % | to full, points "
          "| logits' L2 to full |\n|---|---|---|---|---|---|---|")
    full = results["engine full" if options.engine_alone else "full"]
    for name, each in results.items():
        cells = [f"{name}", f"{np.mean([rows for _, _, rows in each]):.0f}".replace("nan", "")]
        for of in (lambda c: np.ones_like(c), lambda c: c):
            pairs = [(100 * right[of(c)].mean(), 100 * whole[of(c)].mean())
                     for (right, *_), (whole, *_), c in zip(each, full, crosses) if of(c).any()]
            mean, half = interval([a - b for a, b in pairs])
            cells += [f"{np.mean([a for a, _ in pairs]):.1f}", f"{mean:+.1f} ± {half:.1f}"]
        print("| " + " | ".join(cells) + f" | {np.mean([apart for _, apart, _ in each]):.2f} |")


if __name__ == "__main__":
    main()
