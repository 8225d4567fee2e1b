#include "runtime/model/file_hash.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/model/file_cursor.h"

namespace tarn::model {

Result<Sha256::Text> file_sha256(const FileHashArgs& args) {
  IoBackend& io = *args.io;
  const u64 part_bytes = args.window.size() / 2 / kSectorBytes * kSectorBytes;
  TARN_ASSERT(part_bytes > 0);
  // The part at `offset`; parts lie in the window's halves by turns.
  const auto part_at = [&](u64 offset) {
    const u64 n_bytes = std::min(part_bytes, args.file_bytes - offset);
    return args.window.subspan(offset / part_bytes % 2 * part_bytes, n_bytes);
  };
  const auto submit = [&](u64 offset) {
    const std::span<std::byte> part = part_at(offset);
    const bool submitted =
        io.submit({.op = IoOp::read,
                   .file = args.file,
                   .offset = offset,
                   .buffer = {part.data(), align_up(part.size(), kSectorBytes)}});
    TARN_ASSERT(submitted);  // nothing else is in flight
  };
  Sha256 hash;
  if (args.file_bytes > 0) submit(0);
  for (u64 offset = 0; offset < args.file_bytes; offset += part_bytes) {
    const std::span<const std::byte> part = part_at(offset);
    IoCompletion read{};
    while (io.reap({&read, 1}, 1, ~u64{0}) == 0) {
    }
    if (read.result < 0 || static_cast<u64>(read.result) < part.size()) {
      return fail(read_error(read.result, offset));
    }
    // Before the next read, because a cancelled call leaves nothing in flight.
    if (args.on_progress != nullptr &&
        !args.on_progress(args.progress_context, offset + part.size(), args.file_bytes)) {
      return fail({.status = Status::cancelled, .hint = "checking the model was cancelled"});
    }
    if (part.size() < args.file_bytes - offset) submit(offset + part_bytes);
    hash.add(part);
  }
  return hash.finish();
}

}  // namespace tarn::model
