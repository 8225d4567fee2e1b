// runtime/model/weights.h
//
// The weights in memory, and the loader that streams them there: direct reads in the file's order,
// tiled 16 rows at a time on the worker pool while the next reads are in flight. Nothing is held
// twice: only the staging region holds the file's own layout. Into memory that the CPU cannot
// address, tiles go through a WeightSink.
//
//   matrices   tiled layout (kernels/quant/tensor_type.h), 64-byte aligned
//   vectors    norms, biases, rope factors: f32, widened from f16 and bf16
//   thread     the thread that builds the engine; it is the pool's worker 0
#pragma once

#include <array>
#include <span>

#include "kernels/quant/dequant.h"
#include "platform/base/checked.h"
#include "platform/cpu/crc32c.h"
#include "platform/cpu/worker_pool.h"
#include "platform/io/io_backend.h"
#include "runtime/model/model_spec.h"

namespace tarn::model {

struct WeightMatrix {
  kernels::TensorType type = kernels::TensorType::f32;
  const void* tiled = nullptr;
  u64 n_out = 0;
  u32 k = 0;
  u64 bytes() const { return kernels::tiled_bytes(type, n_out, k); }
};

struct LayerWeights {
  WeightMatrix attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down;
  const f32* attn_norm = nullptr;    // [d_model]
  const f32* ffn_norm = nullptr;     // [d_model]
  const f32* attn_q_bias = nullptr;  // [n_heads * head_dim] or nullptr
  const f32* attn_k_bias = nullptr;  // [n_kv_heads * head_dim] or nullptr
  const f32* attn_v_bias = nullptr;
  const f32* attn_q_norm = nullptr;  // [head_dim] or nullptr
  const f32* attn_k_norm = nullptr;
};

// A matrix whose rows stay in the file (embedding_file.h).
struct MatrixOnDisk {
  kernels::TensorType type = kernels::TensorType::f32;
  u32 k = 0;
  u64 file_offset = 0;
  const u32* row_checksums = nullptr;  // CRC32C of each
};

struct Weights {
  WeightMatrix token_embd;  // empty where it stays on disk
  MatrixOnDisk token_embd_on_disk;
  WeightMatrix output;  // token_embd where the output is tied
  const f32* output_norm = nullptr;
  const f32* rope_factors = nullptr;  // [n_rot / 2] or nullptr
  std::span<const LayerWeights> layers{};
  // Of the bytes of all tensors as they were read, where LoadArgs asked for it: not cryptographic,
  // and the same whatever pieces the reads came in and in whatever order.
  std::array<u64, 2> content_hash{};
  bool embedding_on_disk() const { return token_embd_on_disk.row_checksums != nullptr; }
};

// Whether it is the description's own embedding table, and is read from the file row by row.
bool stays_on_disk(const ModelDescription& model, const TensorRef& tensor);

// What the region must hold: matrices, vectors, and the table of LayerWeights. An error where the
// sizes do not add up within 64 bits.
Result<u64> weights_region_bytes(const ModelDescription& model);
// The same in parts, for a device whose memory comes in slabs: calls on_piece for every tensor, in
// the order of the region. What is left of it the host reads: the table of LayerWeights, and the
// checksums of the rows of a table that stays on disk.
void each_weight_piece(const ModelDescription& model,
                       void (*on_piece)(void* context, Checked bytes), void* context);
u64 weights_table_bytes(const ModelDescription& model);
u64 row_checksums_bytes(const ModelSpec& spec);  // 0 where no table stays on disk
// With a sink, what the host keeps: both, and the rope factors, which it computes with.
u64 weights_host_bytes(const ModelSpec& spec);
// The table of pieces, and reads in flight: for a large model as many as keep a disk busy, 32 MiB;
// for a small one half of its bytes. With a sink always the former, the sink's ring in it.
u64 loader_staging_bytes(const ModelDescription& model, bool with_sink);
u64 loader_staging_bytes_max();

// Where weights go that the CPU cannot address. Addresses are the device's: the loader passes them
// on and reads through none of them.
class WeightSink {
 public:
  // The next tensor's memory; called for every piece of each_weight_piece(), in its order.
  virtual std::byte* place(u64 n_bytes) = 0;
  // Host memory to be filled, sink_piece_bytes(); the same until send().
  virtual Result<std::span<std::byte>> next() = 0;
  // Sends its first n_bytes; returns before they have arrived.
  virtual void send(std::byte* to, u64 n_bytes) = 0;
  // Until everything has arrived.
  virtual Result<void> finish() = 0;

 protected:
  ~WeightSink() = default;
};
// The part of a staging region with a sink that the loader leaves to it, and a piece of it.
std::span<std::byte> sink_staging(std::span<std::byte> staging);
u64 sink_piece_bytes();
// Tensors go in whole tiles and whole vectors: whether one of them fits a piece.
bool fits_sink(const TensorRef& tensor);

struct LoadArgs {
  IoBackend* io = nullptr;  // nothing else may be in flight on it
  IoFile file{};
  const ModelDescription* model = nullptr;
  // weights_region_bytes, or weights_host_bytes with a sink; 64-byte aligned, zeroed
  std::span<std::byte> region{};
  WeightSink* sink = nullptr;      // nullptr: everything goes into the region
  std::span<std::byte> staging{};  // loader_staging_bytes, 4 KiB aligned; free again afterwards
  kernels::TileFn tile_rows = nullptr;
  WorkerPool* workers = nullptr;
  const Crc32c* hash_with = nullptr;  // nullptr: content_hash is not wanted
  // Called after every few MiB with bytes of the file; false gives up with Status::cancelled.
  bool (*on_progress)(void* context, u64 done_bytes, u64 total_bytes) = nullptr;
  void* progress_context = nullptr;
};
// When it returns, nothing is in flight, also after an error; the region then holds rubbish.
Result<Weights> load_weights(const LoadArgs& args);

}  // namespace tarn::model
