// The weights in memory, and the loader that streams them there. It reads directly in the file's
// order, and the worker pool tiles 16 rows at a time while the next reads are in flight. Nothing is
// held twice: only the staging region has the file's layout. A WeightSink takes tiles into memory
// that the CPU cannot address.
//
//   matrices   tiled layout (kernels/quant/tensor_type.h), 64-byte aligned
//   vectors    norms, biases, rope factors: f32, widened from f16 and bf16
//   thread     the thread that builds the engine, which is the pool's worker 0
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
  WeightMatrix token_embd;  // empty if it stays on disk
  MatrixOnDisk token_embd_on_disk;
  WeightMatrix output;  // token_embd if the output is tied
  const f32* output_norm = nullptr;
  const f32* rope_factors = nullptr;  // [n_rot / 2] or nullptr
  std::span<const LayerWeights> layers{};
  // Hash of the bytes of all tensors as they were read, if LoadArgs asked for it. It is not
  // cryptographic, and does not depend on the pieces and the order of the reads.
  std::array<u64, 2> content_hash{};
  bool embedding_on_disk() const { return token_embd_on_disk.row_checksums != nullptr; }
};

// Refuses factors that angles cannot be divided by: a zero or a NaN would reach the sine's range
// reduction.
Result<void> check_rope_factors(std::span<const f32> factors);

// Whether the tensor is the embedding table that is read from the file row by row.
bool stays_on_disk(const ModelDescription& model, const TensorRef& tensor);

// Bytes of the region: matrices, vectors, and the table of LayerWeights. An error if the sum
// exceeds 64 bits.
Result<u64> weights_region_bytes(const ModelDescription& model);
// The same in parts, for a device whose memory comes in slabs: calls on_piece for every tensor, in
// the order of the region. The rest is for the host: the table of LayerWeights, and the row
// checksums of a table that stays on disk.
void each_weight_piece(const ModelDescription& model,
                       void (*on_piece)(void* context, Checked bytes), void* context);
u64 weights_table_bytes(const ModelDescription& model);
u64 row_checksums_bytes(const ModelSpec& spec);  // 0 if no table stays on disk
// The host's bytes with a sink: both of these, and the rope factors, which it computes with.
u64 weights_host_bytes(const ModelSpec& spec);
// Bytes of the table of pieces and of reads in flight: 32 MiB, which keep a disk busy, or half of a
// small model's bytes. With a sink always 32 MiB, including the sink's ring.
u64 loader_staging_bytes(const ModelDescription& model, bool with_sink);

// Takes weights into memory that the CPU cannot address. Addresses are the device's: the loader
// passes them on and never reads through them.
class WeightSink {
 public:
  // Returns the next tensor's memory; called for every piece of each_weight_piece(), in its order.
  virtual std::byte* place(u64 n_bytes) = 0;
  // Returns host memory to fill, sink_piece_bytes(); the same until send().
  virtual Result<std::span<std::byte>> next() = 0;
  // Sends its first n_bytes; returns before they have arrived.
  virtual void send(std::byte* to, u64 n_bytes) = 0;
  // Waits until everything has arrived.
  virtual Result<void> finish() = 0;

 protected:
  ~WeightSink() = default;
};
// The sink's part of a staging region, and the bytes of a piece of it.
std::span<std::byte> sink_staging(std::span<std::byte> staging);
u64 sink_piece_bytes();
// Whether one tile, or the vector, of a tensor fits into a piece: tensors are sent in whole tiles
// and vectors.
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
  const Crc32c* hash_with = nullptr;  // nullptr: no content_hash
  // Called after every few MiB with the bytes read; false ends loading with Status::cancelled.
  bool (*on_progress)(void* context, u64 done_bytes, u64 total_bytes) = nullptr;
  void* progress_context = nullptr;
};
// When it returns, nothing is in flight. After an error the region's content is undefined.
Result<Weights> load_weights(const LoadArgs& args);

}  // namespace tarn::model
