// runtime/store/store_cut.h
//
// How a store's file is cut, for those who ask before they open it.
#pragma once

#include "platform/base/result.h"
#include "platform/io/io_backend.h"
#include "runtime/store/record.h"

namespace tarn::store {

// How the file at `path` is cut, as far as it reaches; 0 frames where there is none, or it is no
// store's of this version, and an error where that cannot be known. `sectors`: kFramesBegin bytes,
// aligned to a sector. Nothing else may be in flight on `io`.
struct Cut {
  u64 frame_bytes = 0;
  u32 n_frames = 0;
};
Result<Cut> read_cut(IoBackend& io, const Crc32c& crc, const char* path,
                     std::span<std::byte> sectors);

// Frames of the label that the file has room for: fewer where a power loss left it short, or where
// somebody wrote a label for more.
u32 frames_there(const Label& label, u64 file_bytes);

// Whether this error of read_cut(), open() or the folder's making is the disk's (a failed call, no
// room, no folder any more, no answer) rather than a matter of how the store was set up, or of
// another process that has it.
bool is_disk_failure(const Error& error);

}  // namespace tarn::store
