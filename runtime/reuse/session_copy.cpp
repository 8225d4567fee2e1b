#include "runtime/reuse/session_copy.h"

#include <algorithm>

#include "platform/base/checked.h"

namespace tarn::reuse {
namespace {

// Erases what was written of the session's index, at any time: records with its part of a key.
void erase_index(const store::Store& store, const Manifest& manifest, BlockingStore& ops,
                 DeleteDone& done) {
  if (manifest.index.empty() || manifest.index[0].key == store::Key{}) return;
  each_record(store, [&](store::RecordRef ref, const store::IndexEntry& entry) {
    const bool is_such = entry.kind == store::Kind::codebook || entry.kind == store::Kind::extent;
    if (is_such && store::is_part_of(entry.key, manifest.index[0].key))
      done.n_erased += ops.erase(ref);
  });
}

}  // namespace

Result<void> check_name(std::string_view name) {
  if (!name.empty() && name.size() <= kManifestNameBytesMax) return {};
  return fail({.status = Status::invalid_request,
               .reason = Reason::bad_field,
               .key = "name",
               .hint = "a session's name has 1 to 128 bytes",
               .figures = {{{"bytes", name.size()}}}});
}

std::span<const u32> page_ids(const Manifest& manifest, u32 page) {
  const u64 begin = u64{page} * manifest.identity.page_tokens;
  const u64 end = std::min<u64>(begin + manifest.identity.page_tokens, manifest.n_slots);
  return manifest.token_ids.subspan(begin, end - begin);
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

bool has_records(const store::Store& store, const Manifest& manifest, u32 page) {
  const u64 n_layers = manifest.identity.n_cache_layers;
  for (u64 group = page * n_layers; group < (page + 1) * n_layers; ++group) {
    if (!group_record(store, manifest, group)) return false;
  }
  return true;
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

Result<Manifest> SessionCopy::read_manifest(store::RecordRef ref, std::span<std::byte> buffer) {
  const u64 n_bytes = args_.store->index().entry(ref).payload_bytes;
  const u64 n_padded = align_up(n_bytes, store::kSectorBytes);
  if (n_padded > buffer.size() || !ops_.is_idle()) return too_long("");
  if (!ops_.read(ref, buffer.first(n_padded))) return damaged_manifest("checksum");
  TARN_TRY(const Manifest manifest, decode_manifest(*args_.crc, buffer.first(n_bytes)));
  const u32 n_layers = manifest.identity.n_cache_layers;
  if (n_layers == 0 || n_layers > kSessionLayersMax) return damaged_manifest("n_layers");
  const char* part = keys_fault(args_.store->secret(), manifest);
  if (part != nullptr) return damaged_manifest(part);
  return manifest;
}

Result<store::RecordRef> SessionCopy::find_record(std::string_view name, const store::Key& tenant) {
  TARN_CHECK(ops_.begin_groups(0));
  const auto found = args_.store->find(store::named_key(args_.store->secret(), tenant, name));
  if (!found) {
    return fail({.status = Status::not_found,
                 .reason = Reason::name_not_found,
                 .hint = "the store has no session of this name: it was never saved here, or gave "
                         "way to others",
                 .detail = Detail(name)});
  }
  const u64 n_bytes = args_.store->index().entry(*found).payload_bytes;
  if (n_bytes > args_.manifest.size()) return too_long(name);
  return *found;
}

Result<SessionCopy::Found> SessionCopy::find(std::string_view name, const store::Key& tenant) {
  TARN_TRY(const store::RecordRef ref, find_record(name, tenant));
  const auto found = find_at(ref);
  if (found && found->manifest.name == name) return found;
  if (found) args_.store->unpin(ref);
  return fail({.status = Status::io_failed,
               .reason = Reason::store_unreadable,
               .hint = "this session's manifest is damaged: nothing can be had of it any more",
               .detail = Detail(name)});
}

Result<SessionCopy::Found> SessionCopy::find_at(store::RecordRef ref) {
  args_.store->pin(ref);
  const u64 manifest_bytes = args_.store->index().entry(ref).payload_bytes;
  const auto manifest = read_manifest(ref, args_.manifest);
  if (manifest) return Found{ref, manifest_bytes, *manifest};
  args_.store->unpin(ref);
  return fail(manifest.error());
}

void SessionCopy::list(void (*on_session)(void* context, const KeptSession& session),
                       void* context) {
  each_record(*args_.store, [&](store::RecordRef ref, const store::IndexEntry& entry) {
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
  each_record(*args_.store, [&](store::RecordRef ref, const store::IndexEntry& entry) {
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

Result<DeleteDone> SessionCopy::erase(std::string_view name, const store::Key& tenant) {
  TARN_TRY(const Found found, find(name, tenant));
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
  erase_index(*args_.store, found.manifest, ops_, done);
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

// ---- Verified ---------------------------------------------------------------------------------

// Pieces of one record are in flight together; one damaged group is damage once, and then missing
// to its sessions.
Result<CheckDone> SessionCopy::check(const CheckArgs& args) {
  TARN_CHECK(ops_.begin_groups(0));
  RecordCheck check(*args_.store, ops_, args);
  TARN_CHECK(check.begin(args_.groups.size()));
  each_record(*args_.store,
              [&](store::RecordRef ref, const store::IndexEntry&) { check.read(ref); });
  check.finish();
  each_record(*args_.store, [&](store::RecordRef ref, const store::IndexEntry& entry) {
    if (entry.kind != store::Kind::manifest) return;
    args_.store->pin(ref);
    const auto manifest = read_manifest(ref, args_.manifest);
    // Longer than an engine's context, or of a later version: not for us to judge.
    if (!manifest && manifest.error().status == Status::io_failed) {
      check.note_damage(ref, manifest.error().detail.c_str());
    }
    const u64 n_groups =
        manifest ? u64{pages_of(*manifest)} * manifest->identity.n_cache_layers : 0;
    for (u64 group = 0; group < n_groups; ++group) {
      const auto record = group_record(*args_.store, *manifest, group);
      const u32 page = place_of(group, manifest->identity.n_cache_layers).page;
      if (record) check.read_tokens(*record, page_ids(*manifest, page));
    }
    check.finish();
    args_.store->unpin(ref);
  });
  ops_.wait_for_all();
  if (args_.store->mode() == store::Mode::off) return fail(args_.store->why());
  return check.done();
}

}  // namespace tarn::reuse
