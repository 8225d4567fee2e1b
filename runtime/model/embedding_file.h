// An embedding table that stays in the model's file. A step needs one row per token, and an 8B's
// table has 0.3 GB. Rows are read by direct I/O in whole sectors, verified, and widened to the same
// bits as from a table in memory.
//
//   checksums   CRC32C of every row, computed when the weights were loaded. If the file is
//               overwritten while the engine runs, a changed row is detected and never used
//   memory      lent: the I/O backend's, then a window of sectors for each read in flight
//   thread      the engine's
#pragma once

#include <span>

#include "platform/cpu/crc32c.h"
#include "platform/io/io_backend.h"
#include "runtime/model/weights.h"

namespace tarn::model {

class EmbeddingFile {
 public:
  struct Source {
    const char* path = "";
    IoKind io_kind = IoKind::automatic;
    IoBackend* io = nullptr;  // borrowed, with nothing in flight; nullptr: one of its own
    MatrixOnDisk table{};
    std::span<std::byte> memory{};  // memory_bytes(), 4 KiB aligned
  };

  // The bytes of `memory` for this table.
  static u64 memory_bytes(const TensorRef& table);

  EmbeddingFile() = default;
  EmbeddingFile(const EmbeddingFile&) = delete;
  EmbeddingFile& operator=(const EmbeddingFile&) = delete;
  ~EmbeddingFile() { close(); }

  Result<void> open(const Source& source);
  void close();
  bool is_open() const { return source_.io != nullptr; }

  // out[i] = row tokens[i], [k] f32 at out + i * stride. A read that fails is repeated. On an error
  // nothing is in flight and rows of `out` are undefined: io_failed with the remedy.
  Result<void> read(std::span<const u32> tokens, f32* out, u64 stride);

  static constexpr u32 kReadsOfRow = 3;  // until its error counts

 private:
  Result<void> read_once(std::span<const u32> tokens, f32* out, u64 stride);
  bool submit_row(u32 slot, u64 row);
  Result<void> take(const IoCompletion& completion, u32 token, f32* out) const;

  Source source_{};
  bool owns_io_ = false;
  IoFile file_{};
  const Crc32c* crc_ = nullptr;
  u64 row_bytes_ = 0;
  u64 window_bytes_ = 0;  // of one read
  u32 n_windows_ = 0;
  std::span<std::byte> windows_{};
};

// A model that is ready to compute: its description, its weights, and a reader of embedding rows if
// the table stays in the file.
struct LoadedModel {
  ModelSpec spec{};
  Weights weights{};
  EmbeddingFile embedding{};  // open if the table is not in memory

  // Call after loading the weights. `staging` is the memory that the loader no longer uses.
  Result<void> open_embedding(const char* path, IoKind io_kind, std::span<std::byte> staging) {
    if (!weights.embedding_on_disk()) return {};
    return embedding.open(
        {.path = path, .io_kind = io_kind, .table = weights.token_embd_on_disk, .memory = staging});
  }
};

}  // namespace tarn::model
