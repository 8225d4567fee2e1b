// Finds a saved session in the store and lends its pages to a sequence.
//
//   adopt     the pages stay on the disk, and the sequence names their records. The tail comes as
//             if it were full; a cut then makes it writable
//   memory    the manifest lies in ArchiveArgs::memory until the next call
//   thread    the engine's
#pragma once

#include "runtime/reuse/archive_args.h"
#include "runtime/reuse/manifest.h"
#include "runtime/reuse/store_ops.h"

namespace tarn::reuse {

// The manifest of this name, of this identity, whose keys are those of its tokens. Waits for the
// disk; nothing else uses the buffer.
Result<Manifest> find_session(const ArchiveArgs& args, StoreOps& ops, std::string_view name);
// Of a sequence with reserved slots: its first n_pages, all of which are there (n_pages_there()),
// are the manifest's. They are to be committed then, and the full ones named.
void adopt_pages(const ArchiveArgs& args, const kv::Sequence& sequence, const Manifest& manifest,
                 u32 n_pages);

}  // namespace tarn::reuse
