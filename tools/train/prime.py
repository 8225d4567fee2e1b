"""Random weights that start where training would arrive after a long plateau.

Heads of the first layer begin by attending one to four tokens back, and in later layers every
second head begins by attending to what is like itself and repeating it: together the makings of an
induction circuit, which a small model otherwise finds late or never. Numbers begin in their order
along one direction, so that comparing them can be learned. Everything stays trainable.
"""

import torch

from model import HEAD_DIM, HEADS, KV_HEADS, LAYERS, ROPE_BASE, WIDTH

EMBEDDING_SCALE = 0.02
PEAK = 14.0  # the score of the token that a first-layer head looks at
CONSTANT = 4.0  # residual dimension 0, the same for every token, in units of the embeddings' scale
TURNING_PAIRS = 16  # how many of RoPE's faster pairs say the offset
NUMBERS = range(100, 1000)


@torch.no_grad()
def prime(model, tokenizer, generator):
    """Sets all weights of a new model."""
    for name, p in model.named_parameters():
        if p.dim() > 1:
            scale = EMBEDDING_SCALE if name.startswith("token_embd") else p.shape[1] ** -0.5
            p.normal_(0, scale, generator=generator)
    for layer in model.blk:
        layer.attn_output.weight *= (2 * LAYERS) ** -0.5
        layer.ffn_down.weight *= (2 * LAYERS) ** -0.5
    model.token_embd.weight[:, 0] = EMBEDDING_SCALE * CONSTANT
    prime_first(model.blk[0])
    for layer in model.blk[1:]:
        prime_likeness(layer)
    order_numbers(model, tokenizer, generator)


def prime_first(layer):
    """Head h looks h + 1 tokens back; all together add the last four tokens to the residual."""
    constant = CONSTANT / (1 + CONSTANT**2 / WIDTH) ** 0.5  # after the norm
    pairs, half = TURNING_PAIRS, HEAD_DIM // 2
    frequency = 1 / ROPE_BASE ** (torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)[:pairs]
    size = (PEAK * HEAD_DIM**0.5 / (pairs * constant**2)) ** 0.5
    query = layer.attn_q.weight.view(HEADS, HEAD_DIM, WIDTH)
    key = layer.attn_k.weight.view(KV_HEADS, HEAD_DIM, WIDTH)
    for matrix in (query, key):
        matrix *= 0.3
        matrix[:, :, 0] = 0
    key[:, :pairs, 0] = size
    for head in range(HEADS):
        angle = frequency * (head + 1)
        query[head, :pairs, 0] = size * angle.cos()
        query[head, half:half + pairs, 0] = -size * angle.sin()
    value = layer.attn_v.weight.view(KV_HEADS, HEAD_DIM, WIDTH)
    value[1:] = value[:1].clone()
    value[:, :, 0] = 0
    layer.attn_output.weight.view(WIDTH, HEADS, HEAD_DIM).copy_(value[0].T[:, None])


def prime_likeness(layer):
    """The first head of each group has equal queries and keys, and copies what it attends to."""
    group = HEADS // KV_HEADS
    query = layer.attn_q.weight.view(KV_HEADS, group, HEAD_DIM, WIDTH)
    key = layer.attn_k.weight.view(KV_HEADS, HEAD_DIM, WIDTH)
    value = layer.attn_v.weight.view(KV_HEADS, HEAD_DIM, WIDTH)
    key[:, :, 0] = 0
    value[:, :, 0] = 0
    query[:, 0] = key
    output = layer.attn_output.weight.view(WIDTH, KV_HEADS, group, HEAD_DIM)
    output[:, :, 0].copy_(value.permute(2, 0, 1))


@torch.no_grad()
def order_numbers(model, tokenizer, generator):
    """Adds a direction along which numbers lie in their order."""
    ids = torch.tensor([tokenizer.id_of[str(n)] for n in NUMBERS])
    weight = model.token_embd.weight
    direction = torch.randn(WIDTH, generator=generator)
    direction[0] = 0
    direction *= weight[ids].norm(dim=1).mean() / direction.norm()
    place = torch.linspace(-1, 1, len(NUMBERS))
    weight[ids] += place[:, None] * direction
