// runtime/model/embedding_file.h
//
// The embedding table where it stays in the model's file: of its rows a step wants one a token, and
// an 8B's table is 0.3 GB. Rows are read directly, each with the sectors that it lies in, verified,
// and widened as a table in memory would be: the same bits.
//
//   checksums   CRC32C of every row, made when the weights were loaded. A file that is written over
//               while the engine runs is found, row by row, and never believed
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
  struct Args {
    const char* path = "";
    IoKind io_kind = IoKind::automatic;
    IoBackend* io = nullptr;  // borrowed, with nothing in flight; nullptr: one of its own
    MatrixOnDisk table{};
    std::span<std::byte> memory{};  // memory_bytes(), 4 KiB aligned
  };

  // For the table of this tensor.
  static u64 memory_bytes(const TensorRef& table);

  EmbeddingFile() = default;
  EmbeddingFile(const EmbeddingFile&) = delete;
  EmbeddingFile& operator=(const EmbeddingFile&) = delete;
  ~EmbeddingFile() { close(); }

  Result<void> open(const Args& args);
  void close();
  bool is_open() const { return args_.io != nullptr; }

  // out[i] = row tokens[i], [k] f32 at out + i * stride. On an error nothing is in flight, and rows
  // of `out` hold rubbish: io_failed with what to do.
  Result<void> read(std::span<const u32> tokens, f32* out, u64 stride);

 private:
  bool submit_row(u32 slot, u64 row);
  Result<void> take(const IoCompletion& completion, u32 token, f32* out) const;

  Args args_{};
  bool owns_io_ = false;
  IoFile file_{};
  const Crc32c* crc_ = nullptr;
  u64 row_bytes_ = 0;
  u64 window_bytes_ = 0;  // of one read
  u32 n_windows_ = 0;
  std::span<std::byte> windows_{};
};

}  // namespace tarn::model
