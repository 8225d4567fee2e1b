"""The model: llama architecture, small. Its parameters carry their GGUF names.

RoPE turns halves here (as in most Python models); export_gguf.py reorders the rows of queries and
keys for the pairs that GGUF means. Matrix products run in bfloat16, the rest in float32.
"""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 256
LAYERS = 6
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 64
FFN = 640
ROPE_BASE = 500_000.0
CONTEXT = 16_384  # the farthest position that training shows
EPSILON = 1e-5
# Layers whose first head is shown where to look (Piece.looks in logbook.py).
SHOWN_LAYERS = range(2, 5)


class Norm(nn.Module):
    """RMS norm."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * self.weight


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


def times(matrix, x):
    """The product with a weight matrix, in bfloat16."""
    return F.linear(x.bfloat16(), matrix.weight.bfloat16())


def rope_angles(positions, base):
    """cos and sin for these positions (any shape), one angle per pair of dimensions."""
    pair = torch.arange(0, HEAD_DIM, 2, device=positions.device)
    angles = positions[..., None].float() / base ** (pair / HEAD_DIM)
    return angles.cos(), angles.sin()


def rope(x, cos, sin):
    low, high = x.float().chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1).bfloat16()


class Layer(nn.Module):
    """Attention and a gated feed-forward part."""

    def __init__(self):
        super().__init__()
        self.attn_norm, self.ffn_norm = Norm(), Norm()
        self.attn_q = linear(WIDTH, HEADS * HEAD_DIM)
        self.attn_k = linear(WIDTH, KV_HEADS * HEAD_DIM)
        self.attn_v = linear(WIDTH, KV_HEADS * HEAD_DIM)
        self.attn_output = linear(HEADS * HEAD_DIM, WIDTH)
        self.ffn_gate, self.ffn_up = linear(WIDTH, FFN), linear(WIDTH, FFN)
        self.ffn_down = linear(FFN, WIDTH)

    def forward(self, x, turn, mask=None, pairs=None, change_keys=None):
        """x after this layer, and, if pairs are given, the log share of attention they get."""
        rows, tokens, _ = x.shape
        h = self.attn_norm(x)

        def heads(matrix, n):
            return times(matrix, h).view(rows, tokens, n, HEAD_DIM).transpose(1, 2)

        query, key = rope(heads(self.attn_q, HEADS), *turn), rope(heads(self.attn_k, KV_HEADS),
                                                                  *turn)
        value = heads(self.attn_v, KV_HEADS)
        if change_keys:
            key = change_keys(key)
        shown = None if pairs is None else log_attention(query[:, 0], key[:, 0], pairs)
        group = HEADS // KV_HEADS
        attended = F.scaled_dot_product_attention(
            query, key.repeat_interleave(group, 1), value.repeat_interleave(group, 1),
            attn_mask=mask, is_causal=mask is None)
        attended = attended.transpose(1, 2).reshape(rows, tokens, HEADS * HEAD_DIM)
        x = x + times(self.attn_output, attended).float()
        h = self.ffn_norm(x).bfloat16()
        gated = F.silu(times(self.ffn_gate, h)) * times(self.ffn_up, h)
        return x + times(self.ffn_down, gated).float(), shown


def log_attention(query, key, pairs):
    """One head's log attention between the tokens of `pairs`, a list of index pairs per row."""
    found = []
    for row, looks in enumerate(pairs):
        if not looks:
            continue
        come, go = torch.tensor(looks, device=key.device).T
        scores = (query[row, come] @ key[row].T).float() * HEAD_DIM ** -0.5
        future = torch.arange(key.shape[1], device=key.device) > come[:, None]
        logs = scores.masked_fill(future, -1e9).log_softmax(-1)
        found.append(logs.gather(1, go[:, None]).squeeze(1))
    return torch.cat(found)


class Model(nn.Module):
    """Ids to logits. `rope_base` may be changed at any time; files of weights carry it."""

    def __init__(self, n_tokens, rope_base=ROPE_BASE):
        super().__init__()
        self.rope_base = rope_base
        self.token_embd = nn.Embedding(n_tokens, WIDTH)
        self.blk = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.output_norm = Norm()

    def forward(self, ids, positions=None, mask=None, pairs=None, change_keys=None):
        """Logits, and the log attention of each shown layer (where pairs are given).

        mask: True where a token may look; causal without it. change_keys: applied to every layer's
        keys, for experiments on what attention can do without.
        """
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)
        turn, shown = rope_angles(positions, self.rope_base), []
        x = self.token_embd(ids)
        for i, layer in enumerate(self.blk):
            x, seen = layer(x, turn, mask, pairs if i in SHOWN_LAYERS else None, change_keys)
            if seen is not None:
                shown.append(seen)
        logits = F.linear(self.output_norm(x).bfloat16(), self.token_embd.weight.bfloat16())
        return logits.float(), shown
