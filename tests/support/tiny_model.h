// A complete GGUF model small enough for a unit test, as an image that a test may change before it
// is written. Weights are random; they only make tensors recognisable.
#pragma once

#include "tests/support/gguf_writer.h"

namespace tarn::test {

struct TinyModelArgs {
  const char* arch = "llama";  // llama, qwen2 (with biases), qwen3 (with QK norms)
  u32 n_layers = 2;
  u32 d_model = 32;
  u32 d_ff = 64;
  u32 n_heads = 4;
  u32 n_kv_heads = 2;
  u32 head_dim = 8;
  u32 n_vocab = 40;
  u32 n_ctx_train = 128;
  u32 type = 0;         // GGUF's id, of the matrices: f32, f16, bf16 or a quantized one
  u32 vector_type = 0;  // of norms, biases and factors: f32, f16, bf16
  bool tied = false;
  bool rope_factors = false;
  u64 seed = 1;
};

// The smallest shape whose rows are whole blocks of the type.
TinyModelArgs tiny_shape_of(u32 type);

// Floats are small and finite; a quantized matrix is random bytes with any scales.
GgufImage tiny_model(const TinyModelArgs& args);

}  // namespace tarn::test
