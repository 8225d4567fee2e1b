#include "runtime/model/embedding_file.h"

#include <algorithm>
#include <array>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/model/file_cursor.h"

namespace tarn::model {
namespace {

constexpr u32 kReadsMax = 32;  // in flight: a disk's queue
constexpr u64 kReapNs = 1'000'000'000;
constexpr u32 kNoRow = ~u32{0};
constexpr u64 kWindowsBytesMax = 4 * kMiB;  // with such wide rows a few reads keep the disk busy

u64 window_bytes(u64 row_bytes) { return align_up(row_bytes, kSectorBytes) + kSectorBytes; }

u32 n_windows_of(u64 row_bytes) {
  const u64 n_fit = std::max<u64>(1, kWindowsBytesMax / window_bytes(row_bytes));
  return static_cast<u32>(std::min<u64>(n_fit, kReadsMax));
}

}  // namespace

u64 EmbeddingFile::memory_bytes(const TensorRef& table) {
  const u64 row_bytes = kernels::row_bytes(table.type, table.k);
  return align_up(io_backend_bytes(), kSectorBytes) +
         n_windows_of(row_bytes) * window_bytes(row_bytes);
}

Result<void> EmbeddingFile::open(const Source& source) {
  TARN_ASSERT(!is_open() && source.table.row_checksums != nullptr);
  const u64 io_bytes = align_up(io_backend_bytes(), kSectorBytes);
  source_ = source;
  if (source_.io == nullptr) {
    TARN_TRY(const IoBackendHandle handle,
             io_backend_create({.kind = source.io_kind, .in_flight_max = kReadsMax},
                               source.memory.first(io_bytes)));
    source_.io = handle.backend;
    owns_io_ = true;
  }
  Result<IoFile> file = source_.io->open({.path = source.path});
  if (!file) {
    close();
    return fail(file.error());
  }
  file_ = *file;
  crc_ = &crc32c_ways()[0];
  row_bytes_ = kernels::row_bytes(source.table.type, source.table.k);
  window_bytes_ = window_bytes(row_bytes_);
  windows_ = source.memory.subspan(io_bytes);
  n_windows_ = std::min(n_windows_of(row_bytes_), source_.io->in_flight_max());
  TARN_ASSERT(n_windows_ * window_bytes_ <= windows_.size());
  return {};
}

void EmbeddingFile::close() {
  if (source_.io != nullptr && file_.index >= 0) source_.io->close(file_);
  if (owns_io_) io_backend_destroy(source_.io);
  owns_io_ = false;
  file_ = {};
  source_ = {};
}

bool EmbeddingFile::submit_row(u32 slot, u64 row) {
  const u64 begin = source_.table.file_offset + row * row_bytes_;
  const u64 read_begin = begin / kSectorBytes * kSectorBytes;
  const u64 read_bytes = align_up(begin + row_bytes_, kSectorBytes) - read_begin;
  return source_.io->submit({.op = IoOp::read,
                             .file = file_,
                             .offset = read_begin,
                             .buffer = windows_.subspan(slot * window_bytes_, read_bytes),
                             .tag = slot});
}

Result<void> EmbeddingFile::take(const IoCompletion& completion, u32 token, f32* out) const {
  const u64 begin = source_.table.file_offset + token * row_bytes_;
  const u64 lead_bytes = begin % kSectorBytes;
  if (completion.result < 0 || static_cast<u64>(completion.result) < lead_bytes + row_bytes_) {
    return fail(read_error(completion.result, begin - lead_bytes));
  }
  const std::byte* row = windows_.data() + completion.tag * window_bytes_ + lead_bytes;
  if (crc_->bytes(row, row_bytes_) != source_.table.row_checksums[token]) {
    return fail({.status = Status::io_failed,
                 .hint = "the model's file has changed since the engine was opened: put the model "
                         "back and open the engine again, or set model.embedding = \"memory\"",
                 .figures = {{{"offset", begin}, {"token", token}}}});
  }
  kernels::dequantize_row(source_.table.type, row, source_.table.k, out);
  return {};
}

// The rows of a step are few, so all are read again.
Result<void> EmbeddingFile::read(std::span<const u32> tokens, f32* out, u64 stride) {
  TARN_ASSERT(is_open());
  Result<void> result = read_once(tokens, out, stride);
  for (u32 n = 1; n < kReadsOfRow && !result; ++n) result = read_once(tokens, out, stride);
  return result;
}

// Keeps every window reading; after an error it only waits for reads in flight.
Result<void> EmbeddingFile::read_once(std::span<const u32> tokens, f32* out, u64 stride) {
  std::array<u32, kReadsMax> row_of{};  // by window; kNoRow: free
  row_of.fill(kNoRow);
  Result<void> result;
  u32 next = 0, n_busy = 0;
  const auto submit_next = [&](u32 slot) {
    if (!result || next == tokens.size()) return;
    const bool submitted = submit_row(slot, tokens[next]);
    TARN_ASSERT(submitted);  // at most the backend's limit, and no one else uses it
    row_of[slot] = next++;
    ++n_busy;
  };
  for (u32 slot = 0; slot < n_windows_; ++slot) submit_next(slot);
  while (n_busy > 0) {
    std::array<IoCompletion, kReadsMax> completions;
    const u32 n = source_.io->reap(completions, 1, kReapNs);
    for (const IoCompletion& completion : std::span(completions).first(n)) {
      const u32 slot = static_cast<u32>(completion.tag);
      const u32 row = row_of[slot];
      TARN_ASSERT(row != kNoRow);
      if (result) result = take(completion, tokens[row], out + row * stride);
      row_of[slot] = kNoRow;
      --n_busy;
      submit_next(slot);
    }
  }
  return result;
}

}  // namespace tarn::model
