// The buffers of saved sessions: the manifest that is read or written, and what goes through them
// on the way to a file and back.
#pragma once

#include <algorithm>

#include "runtime/arena/carver.h"
#include "runtime/reuse/manifest.h"
#include "runtime/store/record.h"

namespace tarn::reuse {

struct SaveSizes {
  u32 context_tokens = 0;
  u32 page_tokens = 0;
  u64 group_bytes = 0;
  u32 n_cache_layers = 0;
};

struct SaveMemory {
  static constexpr u32 kCopiedGroups = 4;      // of a pack, on their way
  static constexpr u32 kPageTokensLeast = 16;  // kv.page_tokens' least value

  std::span<std::byte> manifest, other_manifest;  // [manifest_bytes], whole sectors
  std::span<std::byte> groups;                    // of a copy; a session's tail in all layers
  std::span<store::Key> keys;                     // of the pages of one session, and its tail

  static u64 manifest_bytes(const SaveSizes& sizes) {
    return manifest_bytes_max(std::min(sizes.context_tokens, kManifestTokensMax),
                              sizes.page_tokens);
  }
  // Sessions that were saved with pages of any size have room: their tokens are computed anew.
  static SaveMemory carve(Carver& carver, const SaveSizes& sizes) {
    using store::kSectorBytes;
    SaveSizes most = sizes;
    most.page_tokens = kPageTokensLeast;
    const u64 n_bytes = align_up(manifest_bytes(most), kSectorBytes);
    const u64 n_groups = std::max(kCopiedGroups, sizes.n_cache_layers);
    return {.manifest = carver.take<std::byte>("manifest", n_bytes, kSectorBytes),
            .other_manifest = carver.take<std::byte>("another", n_bytes, kSectorBytes),
            .groups = carver.take<std::byte>("copies", n_groups * sizes.group_bytes, kSectorBytes),
            .keys = carver.take<store::Key>("keys", sizes.context_tokens / kPageTokensLeast + 1)};
  }
};

}  // namespace tarn::reuse
