"""A checkpoint: weights in half precision, the step and RoPE's base, in a small file.

Optimizer state is not kept: a resumed training warms up for some steps. load() takes a
checkpoint or an exported GGUF; warm_start() takes the weights of a model with another vocabulary.
"""

import os
import pickle

import torch

import bpe
import gguf_file
from model import ROPE_BASE

# Names in checkpoints that were written before tensors carried their GGUF names.
OLD_LAYER = {"n1.w": "attn_norm.weight", "n2.w": "ffn_norm.weight", "q": "attn_q", "k": "attn_k",
             "v": "attn_v", "o": "attn_output", "g": "ffn_gate", "u": "ffn_up", "d": "ffn_down"}
OLD_EMBEDDING = "e.weight"


def save(path, model, step):
    """Writes another file first, so that a crash leaves the old or the new one."""
    weights = {name: p.half().cpu() for name, p in model.state_dict().items()}
    torch.save({"weights": weights, "step": step, "rope_base": model.rope_base}, f"{path}.new")
    os.replace(f"{path}.new", path)


def load(path, model):
    """Fills the model and sets its RoPE base; returns the checkpoint's step."""
    if str(path).endswith(".gguf"):
        weights, step, model.rope_base = gguf_file.read(path)
    else:
        saved = torch.load(path, weights_only=True)
        weights, step = saved["weights"], saved["step"]
        model.rope_base = saved.get("rope_base", ROPE_BASE)
    model.load_state_dict({name: torch.as_tensor(w).float() for name, w in weights.items()})
    return step


def new_name(old):
    """The GGUF name of a tensor of an old checkpoint."""
    if old == "n.w":
        return "output_norm.weight"
    _, layer, rest = old.split(".", 2)
    if rest in OLD_LAYER:
        return f"blk.{layer}.{OLD_LAYER[rest]}"
    return f"blk.{layer}.{OLD_LAYER[rest.removesuffix('.weight')]}.weight"


def warm_start(model, tokenizer, weights_path, merges_path):
    """Takes over an old checkpoint ({'m': weights}) and its tokenizer (a pickled list of merges).

    A token that the old vocabulary spells alike keeps its embedding; another one gets the mean of
    the old tokens that spell it.
    """
    old = {name: w.float() for name, w in torch.load(weights_path, weights_only=True)["m"].items()}
    with open(merges_path, "rb") as file:
        merges = pickle.load(file)[len(bpe.number_merges()):]
    old_tokenizer = bpe.Tokenizer(merges)
    swapped = {bpe.START: old_tokenizer.end, bpe.END: old_tokenizer.start}  # they stood otherwise
    embedding, rows, n_same = old.pop(OLD_EMBEDDING), [], 0
    for token in tokenizer.tokens:
        if token in swapped:
            ids = [swapped[token]]
        elif token in old_tokenizer.id_of:
            ids = [old_tokenizer.id_of[token]]
        else:
            text = bytes(bpe.BYTE_OF[char] for char in token)
            ids = old_tokenizer.encode(text.decode("latin-1"))
        n_same += len(ids) == 1
        rows.append(embedding[ids].mean(0))
    weights = {new_name(name): w for name, w in old.items()}
    model.load_state_dict(weights | {"token_embd.weight": torch.stack(rows)})
    return n_same
