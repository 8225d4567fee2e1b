#include "runtime/reuse/session_copy.h"

#include <algorithm>

#include "platform/base/checked.h"

namespace tarn::reuse {

Result<void> check_name(std::string_view name) {
  if (!name.empty() && name.size() <= kManifestNameBytesMax) return {};
  return fail({.status = Status::invalid_request,
               .hint = "a session's name has 1 to 128 bytes",
               .figures = {{{"bytes", name.size()}}}});
}

Unexpected too_long(std::string_view name) {
  return fail({.status = Status::invalid_request,
               .hint = "the session is longer than the context: raise -c (kv.context_tokens)",
               .detail = Detail(name)});
}

std::optional<store::RecordRef> group_record(const store::Store& store, const Manifest& manifest,
                                             u64 group) {
  const auto [page, layer] = place_of(group, manifest.identity.n_cache_layers);
  const auto found = store.find(store::layer_key(store.secret(), page_key(manifest, page), layer));
  if (!found) return std::nullopt;
  // Its key is right and it is whole, and yet it is none of this session's.
  const u64 n_bytes = store.index().entry(*found).payload_bytes;
  if (n_bytes != group_bytes(manifest.identity)) return std::nullopt;
  return *found;
}

u32 n_pages_there(const store::Store& store, const Manifest& manifest, u64* record_bytes) {
  const u32 n_layers = manifest.identity.n_cache_layers;
  const u64 n_groups = u64{pages_of(manifest)} * n_layers;
  u64 n = 0;
  for (; n < n_groups; ++n) {
    const auto ref = group_record(store, manifest, n);
    if (!ref) break;
    const store::IndexEntry& entry = store.index().entry(*ref);
    if (record_bytes == nullptr) continue;
    *record_bytes += store::RecordShape{entry.payload_bytes, entry.n_tokens}.record_bytes();
  }
  return n_layers > 0 ? static_cast<u32>(n / n_layers) : 0;
}

// ---- What lies in the store -------------------------------------------------------------------

template <class Fn>
void SessionCopy::each_record(Fn&& fn) const {
  const store::RecordIndex& index = args_.store->index();
  for (u32 frame = 0; frame < index.n_frames(); ++frame) {
    const store::IndexEntry& entry = index.frame(frame);
    if (entry.life == store::Life::published) fn(store::RecordRef{frame, entry.generation}, entry);
  }
}

std::optional<Manifest> SessionCopy::read_manifest(store::RecordRef ref,
                                                   std::span<std::byte> buffer) {
  const u64 n_bytes = args_.store->index().entry(ref).payload_bytes;
  const u64 n_padded = align_up(n_bytes, store::kSectorBytes);
  if (n_padded > buffer.size() || !ops_.is_idle()) return std::nullopt;
  if (!ops_.read(ref, buffer.first(n_padded))) return std::nullopt;
  const auto manifest = decode_manifest(*args_.crc, buffer.first(n_bytes));
  if (!manifest) return std::nullopt;
  const u32 n_layers = manifest->identity.n_cache_layers;
  if (n_layers == 0 || n_layers > kSessionLayersMax) return std::nullopt;
  if (keys_fault(args_.store->secret(), *manifest) != nullptr) return std::nullopt;
  return *manifest;
}

Result<store::RecordRef> SessionCopy::find_record(std::string_view name) {
  TARN_CHECK(ops_.begin_groups(0));
  const auto found = args_.store->find(store::named_key(args_.store->secret(), args_.tenant, name));
  if (!found) {
    return fail({.status = Status::not_found,
                 .hint = "the store has no session of this name: it was never saved here, or gave "
                         "way to others",
                 .detail = Detail(name)});
  }
  const u64 n_bytes = args_.store->index().entry(*found).payload_bytes;
  if (n_bytes > args_.manifest.size()) return too_long(name);
  return *found;
}

Result<SessionCopy::Found> SessionCopy::find(std::string_view name) {
  TARN_TRY(const store::RecordRef ref, find_record(name));
  const u64 manifest_bytes = args_.store->index().entry(ref).payload_bytes;
  args_.store->pin(ref);
  const auto manifest = read_manifest(ref, args_.manifest);
  if (!manifest || manifest->name != name) {
    args_.store->unpin(ref);
    return fail({.status = Status::io_failed,
                 .hint = "this session's manifest is damaged: nothing can be had of it any more",
                 .detail = Detail(name)});
  }
  return Found{ref, manifest_bytes, *manifest};
}

void SessionCopy::list(void (*on_session)(void* context, const KeptSession& session),
                       void* context) {
  each_record([&](store::RecordRef ref, const store::IndexEntry& entry) {
    if (entry.kind != store::Kind::manifest) return;
    KeptSession session{.record_bytes = store::RecordShape{entry.payload_bytes}.record_bytes(),
                        .generation = entry.generation};
    const auto manifest = read_manifest(ref, args_.manifest);
    if (!manifest) return;
    session.manifest = *manifest;
    session.n_pages = pages_of(*manifest);
    session.n_pages_there = n_pages_there(*args_.store, *manifest, &session.record_bytes);
    on_session(context, session);
  });
}

// ---- Away -------------------------------------------------------------------------------------

// How many pages of it, from the first one on, other sessions name: equal keys are equal prefixes.
u32 SessionCopy::n_pages_shared(const Manifest& manifest, store::RecordRef own) {
  u32 n_shared = 0;
  each_record([&](store::RecordRef ref, const store::IndexEntry& entry) {
    if (entry.kind != store::Kind::manifest || ref == own) return;
    if (entry.payload_bytes > args_.other_manifest.size()) n_shared = pages_of(manifest);
    const auto other = read_manifest(ref, args_.other_manifest);
    if (!other) return;
    const u32 n_both = std::min(pages_of(manifest), pages_of(*other));
    u32 n = 0;
    while (n < n_both && page_key(manifest, n) == page_key(*other, n)) ++n;
    n_shared = std::max(n_shared, n);
  });
  return n_shared;
}

// What was written of the session's indexes, at any time: records with its part of a key.
void SessionCopy::erase_codebooks(const Manifest& manifest, DeleteDone& done) {
  for (const ManifestCodebook& codebook : manifest.codebooks) {
    if (codebook.key == store::Key{}) continue;
    each_record([&](store::RecordRef ref, const store::IndexEntry& entry) {
      const bool is_such = entry.kind == store::Kind::codebook || entry.kind == store::Kind::extent;
      if (is_such && store::is_part_of(entry.key, codebook.key)) done.n_erased += ops_.erase(ref);
    });
  }
}

Result<DeleteDone> SessionCopy::erase(std::string_view name) {
  TARN_TRY(const Found found, find(name));
  const u32 n_layers = found.manifest.identity.n_cache_layers;
  const u64 n_kept = u64{n_pages_shared(found.manifest, found.record)} * n_layers;
  const u64 n_groups = u64{pages_of(found.manifest)} * n_layers;
  DeleteDone done{.n_shared = n_kept};
  ops_.forgive();
  for (u64 group = n_kept; group < n_groups; ++group) {
    const auto ref = group_record(*args_.store, found.manifest, group);
    if (!ref) continue;
    const bool is_erased = ops_.erase(*ref);
    ++(is_erased ? done.n_erased : done.n_shared);
  }
  erase_codebooks(found.manifest, done);
  ops_.wait_for_all();
  args_.store->unpin(found.record);
  const bool is_gone = ops_.erase(found.record);
  ops_.wait_for_all();
  if (!is_gone || ops_.has_failed())
    return fail(why_not_begun(*args_.store, store::Begun::not_now));
  ++done.n_erased;
  TARN_CHECK(ops_.flush());
  return done;
}

}  // namespace tarn::reuse
