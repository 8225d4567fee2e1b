"""A model as GGUF: write() and read(). The tensors' names are those of the model's parameters."""

import gguf
import numpy as np
import torch

import model as shape

NAME = "tarn-logbook"
FILE_TYPE_MOSTLY_F16 = 1
STEP_KEY = "training.step"
BASE_KEY = "llama.rope.freq_base"


def turned_rows(n_heads):
    """The order of a matrix's rows in GGUF: RoPE's halves become neighbouring pairs."""
    rows = np.arange(n_heads * shape.HEAD_DIM)
    return rows.reshape(n_heads, 2, shape.HEAD_DIM // 2).swapaxes(1, 2).reshape(-1)


def row_order(name):
    """How the rows of this tensor are reordered, or None."""
    if name.endswith("attn_q.weight"):
        return turned_rows(shape.HEADS)
    if name.endswith("attn_k.weight"):
        return turned_rows(shape.KV_HEADS)
    return None


def write_header(writer, tokenizer, step, rope_base):
    writer.add_name(NAME)
    writer.add_file_type(FILE_TYPE_MOSTLY_F16)
    writer.add_context_length(shape.CONTEXT)
    writer.add_embedding_length(shape.WIDTH)
    writer.add_block_count(shape.LAYERS)
    writer.add_feed_forward_length(shape.FFN)
    writer.add_head_count(shape.HEADS)
    writer.add_head_count_kv(shape.KV_HEADS)
    writer.add_key_length(shape.HEAD_DIM)
    writer.add_value_length(shape.HEAD_DIM)
    writer.add_rope_dimension_count(shape.HEAD_DIM)
    writer.add_rope_freq_base(rope_base)
    writer.add_layer_norm_rms_eps(shape.EPSILON)
    writer.add_vocab_size(len(tokenizer.tokens))
    writer.add_uint32(STEP_KEY, step)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    specials = (tokenizer.start, tokenizer.end)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types([control if i in specials else normal
                            for i in range(len(tokenizer.tokens))])
    writer.add_token_merges([f"{a} {b}" for a, b in tokenizer.merges])
    writer.add_bos_token_id(tokenizer.start)
    writer.add_eos_token_id(tokenizer.end)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)


def write(path, model, step, tokenizer):
    writer = gguf.GGUFWriter(path, "llama")
    write_header(writer, tokenizer, step, model.rope_base)
    for name, weight in model.state_dict().items():
        array = weight.float().numpy()
        order = row_order(name)
        if order is not None:
            array = array[order]
        writer.add_tensor(name, array.astype(np.float32 if array.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read(path):
    """The weights in this folder's order, the step, and RoPE's base."""
    reader, weights = gguf.GGUFReader(path), {}
    for tensor in reader.tensors:
        array, order = np.array(tensor.data), row_order(tensor.name)
        if order is not None:
            array = array[np.argsort(order)]
        weights[tensor.name] = torch.from_numpy(array)
    return (weights, int(reader.fields[STEP_KEY].contents()),
            float(reader.fields[BASE_KEY].contents()))
