// Goal    every tensor of the file is in memory afterwards, bit for bit, in its layout and at its
//         place, whatever the types, the row counts, the order of the completions and the depth of
//         the queue; nothing else of the region is touched, and a failed read leaves nothing in
//         flight.
// Method  tiny models through an in-memory backend that completes in random order; rows read back
//         from the tiled layout against the file's rows; each read failed in turn.
#include "runtime/model/weights.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/model/loaded_model.h"
#include "tests/support/tiny_model.h"

namespace tarn::model::weights_test {
namespace {

using test::GgufImage;
using test::TinyModelArgs;

using test::LoadedModel;

void check_matrix(const LoadedModel& loaded, const TensorRef& ref, const WeightMatrix& matrix) {
  CAPTURE(ref.name);
  REQUIRE(matrix.tiled != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(matrix.tiled) % 64 == 0);
  CHECK(matrix.type == ref.type);
  REQUIRE(matrix.n_out == ref.n_rows);
  REQUIRE(matrix.k == ref.k);
  const u64 row_bytes = kernels::row_bytes(ref.type, ref.k);
  std::vector<f32> want(ref.k);
  std::vector<f32> got(ref.k);
  bool equal = true;
  for (u64 row = 0; row < ref.n_rows; ++row) {
    kernels::dequantize_row(ref.type, loaded.bytes.data() + ref.file_offset + row * row_bytes,
                            ref.k, want.data());
    kernels::dequantize_tiled_row(ref.type, matrix.tiled, row, ref.k, got.data());
    equal &= std::memcmp(want.data(), got.data(), ref.k * sizeof(f32)) == 0;
  }
  CHECK(equal);
  // The rows that the last tile has too many.
  const f32 zero = 0.0f;
  for (u64 row = ref.n_rows; row % kernels::kTileRows != 0; ++row) {
    kernels::dequantize_tiled_row(ref.type, matrix.tiled, row, ref.k, got.data());
    for (const f32 value : got) equal &= value == zero;
  }
  CHECK(equal);
}

void check_vector(const LoadedModel& loaded, const TensorRef& ref, const f32* vector) {
  CAPTURE(ref.name);
  REQUIRE((vector != nullptr) == ref.present());
  if (!ref.present()) return;
  CHECK(reinterpret_cast<std::uintptr_t>(vector) % 64 == 0);
  std::vector<f32> want(ref.k);
  kernels::dequantize_row(ref.type, loaded.bytes.data() + ref.file_offset, ref.k, want.data());
  CHECK(std::memcmp(want.data(), vector, ref.k * sizeof(f32)) == 0);
}

void check_weights(LoadedModel& loaded, const Weights& weights) {
  const ModelTensors& tensors = loaded.model.tensors;
  check_matrix(loaded, tensors.of(ModelTensor::token_embd), weights.token_embd);
  const bool tied = loaded.model.spec.tied_output;
  check_matrix(loaded, tensors.of(tied ? ModelTensor::token_embd : ModelTensor::output),
               weights.output);
  CHECK((weights.output.tiled == weights.token_embd.tiled) == tied);
  check_vector(loaded, tensors.of(ModelTensor::output_norm), weights.output_norm);
  check_vector(loaded, tensors.of(ModelTensor::rope_freqs), weights.rope_factors);
  REQUIRE(weights.layers.size() == loaded.model.spec.n_layers);
  for (u32 i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    check_matrix(loaded, tensors.of(i, LayerTensor::attn_q), layer.attn_q);
    check_matrix(loaded, tensors.of(i, LayerTensor::attn_k), layer.attn_k);
    check_matrix(loaded, tensors.of(i, LayerTensor::attn_v), layer.attn_v);
    check_matrix(loaded, tensors.of(i, LayerTensor::attn_output), layer.attn_output);
    check_matrix(loaded, tensors.of(i, LayerTensor::ffn_gate), layer.ffn_gate);
    check_matrix(loaded, tensors.of(i, LayerTensor::ffn_up), layer.ffn_up);
    check_matrix(loaded, tensors.of(i, LayerTensor::ffn_down), layer.ffn_down);
    check_vector(loaded, tensors.of(i, LayerTensor::attn_norm), layer.attn_norm);
    check_vector(loaded, tensors.of(i, LayerTensor::ffn_norm), layer.ffn_norm);
    check_vector(loaded, tensors.of(i, LayerTensor::attn_q_bias), layer.attn_q_bias);
    check_vector(loaded, tensors.of(i, LayerTensor::attn_k_bias), layer.attn_k_bias);
    check_vector(loaded, tensors.of(i, LayerTensor::attn_v_bias), layer.attn_v_bias);
    check_vector(loaded, tensors.of(i, LayerTensor::attn_q_norm), layer.attn_q_norm);
    check_vector(loaded, tensors.of(i, LayerTensor::attn_k_norm), layer.attn_k_norm);
  }
  CHECK(loaded.guard_is_whole());
}

TEST_CASE("all types, architectures and shapes arrive bit for bit") {
  struct Case {
    const char* name;
    TinyModelArgs args;
  };
  std::vector<Case> cases = {
      {"llama f32", {.rope_factors = true}},
      {"qwen2 f16, f16 vectors", {.arch = "qwen2", .d_ff = 172, .type = 1, .vector_type = 1}},
      {"qwen3 bf16, bf16 vectors", {.arch = "qwen3", .type = 30, .vector_type = 30, .tied = true}},
      {"llama q8_0", {.d_ff = 96, .n_vocab = 33, .type = 8}},
      {"qwen2 q5_0", {.arch = "qwen2", .d_ff = 96, .n_vocab = 47, .type = 6}},
      {"qwen3 q5_k", {.arch = "qwen3", .d_model = 256, .d_ff = 512, .head_dim = 64, .type = 13}},
      {"llama q6_k, tied", {.d_model = 256, .d_ff = 256, .head_dim = 64, .type = 14, .tied = true}},
      {"one row of each", {.n_heads = 1, .n_kv_heads = 1, .n_vocab = 1}},
  };
  for (const auto& traits : kernels::kTypeTraits) {
    cases.push_back({traits.name, test::tiny_shape_of(static_cast<u32>(traits.type))});
  }
  for (const Case& c : cases) {
    CAPTURE(c.name);
    for (const u32 depth : {1u, 3u, 64u}) {
      CAPTURE(depth);
      LoadedModel loaded(test::tiny_model(c.args));
      loaded.io.script.order_seed = test::seed_from_environment() + depth;
      loaded.io.script.in_flight_max = depth;
      const auto weights = load_weights(loaded.args);
      REQUIRE_MESSAGE(weights.has_value(), weights.error().hint);
      check_weights(loaded, *weights);
    }
  }
}

TEST_CASE("tensors larger than a slot are read in pieces, several at a time") {
  const TinyModelArgs args{.n_layers = 1, .d_model = 96, .n_vocab = 70001, .type = 1};
  LoadedModel loaded(test::tiny_model(args));
  loaded.io.script.order_seed = test::seed_from_environment();
  loaded.io.script.in_flight_max = 64;
  const u64 n_reads_before = loaded.io.n_reads();
  const u64 bytes_before = loaded.io.bytes_read();
  struct Progress {
    u64 done = 0, calls = 0;
  } progress;
  loaded.args.progress_context = &progress;
  loaded.args.on_progress = [](void* context, u64 done_bytes, u64 total_bytes) {
    auto* p = static_cast<Progress*>(context);
    CHECK(done_bytes > p->done);
    CHECK(done_bytes <= total_bytes);
    p->done = done_bytes;
    p->calls += 1;
    return true;
  };
  const auto weights = load_weights(loaded.args);
  REQUIRE(weights.has_value());
  check_weights(loaded, *weights);
  CHECK(progress.done == loaded.model.spec.weights_file_bytes);
  CHECK(progress.calls == loaded.io.n_reads() - n_reads_before);
  CHECK(loaded.io.in_flight_high_water() >= 8);
  // Only the sectors at the ends of the pieces are read twice.
  const u64 read_bytes = loaded.io.bytes_read() - bytes_before;
  CHECK(read_bytes <= loaded.model.spec.weights_file_bytes + 8192 * progress.calls);
}

TEST_CASE("the hash of the tensors' bytes knows no pieces, and every byte") {
  const TinyModelArgs args{.n_layers = 1, .d_model = 96, .n_vocab = 30001, .type = 1};
  for (const bool on_disk : {false, true}) {
    CAPTURE(on_disk);
    LoadedModel loaded(test::tiny_model(args), on_disk);
    loaded.io.script.order_seed = test::seed_from_environment();
    loaded.io.script.in_flight_max = 64;
    loaded.args.hash_with = &crc32c_ways()[0];
    const auto hash = [&]() {
      const auto weights = load_weights(loaded.args);
      REQUIRE(weights.has_value());
      return weights->content_hash;
    };
    const auto want = hash();
    CHECK(want != std::array<u64, 2>{});
    // What a file's size says of the slots: 64 KiB, 400 KiB, 1.2 MiB, 2 MiB.
    u64 n_reads_before = 0;
    for (const u64 file_bytes : {u64{1}, 12'800 * kKiB, 38 * kMiB, kGiB}) {
      CAPTURE(file_bytes);
      loaded.model.spec.weights_file_bytes = file_bytes;
      const u64 n_before = loaded.io.n_reads();
      CHECK(hash() == want);
      CHECK(loaded.io.n_reads() - n_before != n_reads_before);  // other pieces indeed
      n_reads_before = loaded.io.n_reads() - n_before;
    }
    for (const u64 from_end : {u64{1}, u64{100'001}, 5 * kMiB}) {
      std::byte& byte = loaded.bytes[loaded.bytes.size() - from_end];
      byte ^= std::byte{1};
      CHECK(hash() != want);
      byte ^= std::byte{1};
    }
  }
}

TEST_CASE("the widest tile that the limits let through fits the staging") {
  const TinyModelArgs args{.n_layers = 1, .d_model = 16, .d_ff = 262144, .n_vocab = 3};
  LoadedModel loaded(test::tiny_model(args));
  const auto weights = load_weights(loaded.args);
  REQUIRE(weights.has_value());
  check_weights(loaded, *weights);
}

TEST_CASE("a read that fails or comes short ends the load, with nothing in flight") {
  const GgufImage image = test::tiny_model({});
  LoadedModel whole(image);
  const u64 n_before = whole.io.n_reads();
  REQUIRE(load_weights(whole.args).has_value());
  const u64 n_reads = whole.io.n_reads();
  REQUIRE(n_reads - n_before == image.tensors.size());
  for (u64 i = n_before; i < n_reads; ++i) {
    for (const bool shrinks : {false, true}) {
      CAPTURE(i);
      CAPTURE(shrinks);
      LoadedModel loaded(image);
      (shrinks ? loaded.io.script.shrink_at_read : loaded.io.script.fail_at_read) = i;
      loaded.io.script.shrink_to_bytes =
          loaded.model.tensors.of(ModelTensor::token_embd).file_offset;
      const auto weights = load_weights(loaded.args);
      REQUIRE_FALSE(weights.has_value());
      CHECK(weights.error().status == Status::io_failed);
      IoCompletion completion;
      CHECK(loaded.io.reap({&completion, 1}, 1, 0) == 0);
      CHECK(loaded.guard_is_whole());
    }
  }
}

TEST_CASE("the host can give up after any piece") {
  const GgufImage image = test::tiny_model({});
  for (u64 stop_at = 1; stop_at <= image.tensors.size(); ++stop_at) {
    CAPTURE(stop_at);
    LoadedModel loaded(image);
    u64 left = stop_at;
    loaded.args.progress_context = &left;
    loaded.args.on_progress = [](void* context, u64, u64) {
      return --*static_cast<u64*>(context) > 0;
    };
    const auto weights = load_weights(loaded.args);
    REQUIRE_FALSE(weights.has_value());
    CHECK(weights.error().status == Status::cancelled);
    CHECK(left == 0);
    IoCompletion completion;
    CHECK(loaded.io.reap({&completion, 1}, 1, 0) == 0);
  }
}

TEST_CASE("RoPE factors that no angle can be divided by are refused") {
  for (const f32 bad : {0.0f, -1.0f, 1e-5f, std::numeric_limits<f32>::infinity(),
                        std::numeric_limits<f32>::quiet_NaN()}) {
    CAPTURE(bad);
    GgufImage image = test::tiny_model({.rope_factors = true});
    std::memcpy(image.tensor("rope_freqs.weight").data.data() + 12, &bad, sizeof bad);
    LoadedModel loaded(image);
    const auto weights = load_weights(loaded.args);
    REQUIRE_FALSE(weights.has_value());
    CHECK(weights.error().status == Status::invalid_model);
    CHECK(weights.error().figures[0].value == 3);
  }
}

}  // namespace
}  // namespace tarn::model::weights_test
