// The SHA-256 of a whole file: of its header, its tensors, and the padding between them.
#pragma once

#include <span>

#include "platform/base/result.h"
#include "platform/cpu/sha256.h"
#include "platform/io/io_backend.h"

namespace tarn::model {

struct FileHashArgs {
  IoBackend* io = nullptr;  // with nothing in flight
  IoFile file{};
  u64 file_bytes = 0;
  std::span<std::byte> window{};  // sector-aligned, at least two sectors; borrowed for the call
  // As in LoadArgs.
  bool (*on_progress)(void* context, u64 done_bytes, u64 total_bytes) = nullptr;
  void* progress_context = nullptr;
};

// Reads the file once, from front to back. The next part is read while one is hashed.
Result<Sha256::Text> file_sha256(const FileHashArgs& args);

}  // namespace tarn::model
