#include "runtime/reuse/manifest_pages.h"

#include <algorithm>

#include "runtime/reuse/session_copy.h"

namespace tarn::reuse {
namespace {

u32 n_exact_pages(const Manifest& manifest) {
  return std::min(manifest.n_slots / manifest.identity.page_tokens, first_private_page(manifest));
}

}  // namespace

u32 n_pages_there(const kv::KvCache& kv, const Manifest& manifest) {
  const u32 n_exact = n_exact_pages(manifest), n_pages = pages_of(manifest);
  u32 page = 0;
  while (page < n_exact && kv.prefixes().has(manifest.groups[page], page_ids(manifest, page))) {
    ++page;
  }
  const store::Store& store = kv.tiers().store.store();
  while (page >= n_exact && page < n_pages && has_records(store, manifest, page)) ++page;
  return page;
}

Result<bool> take_records(kv::KvCache& kv, kv::Sequence& sequence, const Manifest& manifest,
                          u32 page) {
  const u32 page_tokens = manifest.identity.page_tokens;
  const u32 n_layers = manifest.identity.n_cache_layers;
  const store::Store& store = kv.tiers().store.store();
  if (!sequence.reserve(page_tokens)) {
    return fail({.status = Status::would_block,
                 .reason = Reason::busy_kv,
                 .hint = "other sessions hold the KV now: end or truncate one, or raise -c "
                         "(kv.context_tokens)"});
  }
  return kv.prefixes().adopt_records(sequence, [&](u32 layer) {
    return group_record(store, manifest, u64{page} * n_layers + layer);
  });
}

void drop_idle(kv::KvCache& kv, const Manifest& manifest) {
  for (u32 page = n_exact_pages(manifest); page-- > 0;) {
    const bool is_last = page + 1 == n_exact_pages(manifest);
    kv.prefixes().drop_idle(manifest.groups[page], page_ids(manifest, page), is_last);
  }
}

}  // namespace tarn::reuse
