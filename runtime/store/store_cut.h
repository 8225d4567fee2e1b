// The layout of a store's file, read before it is opened.
#pragma once

#include "platform/base/result.h"
#include "platform/io/io_backend.h"
#include "runtime/store/record.h"

namespace tarn::store {

// Reads the layout of the file at `path`, up to its end. 0 frames if there is no file, or none of a
// store of this version; an error if that cannot be known. `sectors`: kFramesBegin bytes, aligned
// to a sector. Nothing else may be in flight on `io`.
struct Cut {
  u64 frame_bytes = 0;
  u32 n_frames = 0;
};
Result<Cut> read_cut(IoBackend& io, const Crc32c& crc, const char* path,
                     std::span<std::byte> sectors);

// The label's frames that the file has room for: fewer after a power loss that left it short, or
// with a wrong label.
u32 frames_there(const Label& label, u64 file_bytes);

// Whether an error of read_cut(), open() or making the folder is the disk's (a failed call, no
// room, no folder any more, no answer). Otherwise the cause is the configuration, or another
// process that has the store.
bool is_disk_failure(const Error& error);

}  // namespace tarn::store
