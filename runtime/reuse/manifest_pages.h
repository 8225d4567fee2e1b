// The pages that a manifest names, as an engine finds them: those whose KV follows from their
// tokens in memory or in the store, the others in the store.
#pragma once

#include "runtime/kv/kv_cache.h"
#include "runtime/reuse/manifest.h"

namespace tarn::reuse {

// From the first one on.
u32 n_pages_there(const kv::KvCache& kv, const Manifest& manifest);
// The sequence, which ends before this page, takes it as it lies in the store; a tail comes as if
// it were full. False where it is not there. would_block: the pool has no groups for it.
Result<bool> take_records(kv::KvCache& kv, kv::Sequence& sequence, const Manifest& manifest,
                          u32 page);
// Idle pages of it that nothing else follows leave memory, and so does all that follows the last.
void drop_idle(kv::KvCache& kv, const Manifest& manifest);

}  // namespace tarn::reuse
