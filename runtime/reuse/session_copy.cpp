#include "runtime/reuse/session_copy.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "platform/io/private_folder.h"

namespace tarn::reuse {
namespace {

Unexpected too_long(std::string_view name) {
  return fail({.status = Status::invalid_request,
               .hint = "the session is longer than the context: raise -c (kv.context_tokens)",
               .detail = Detail(name)});
}

Unexpected unknown_kv() {
  return fail({.status = Status::unsupported,
               .hint = "this session's KV is of a type that this version of Tarn does not have: "
                       "take it up with the one that made it"});
}

// The session as this store's own.
Manifest with_keys(const Manifest& manifest, std::span<const store::Key> keys) {
  Manifest own = manifest;
  own.groups = keys.first(manifest.groups.size());
  own.tail = has_tail(manifest) ? keys[manifest.groups.size()] : store::Key{};
  return own;
}

// Of a manifest that lies in `bytes`: what its codebooks were called elsewhere is somebody else's.
void disown_codebooks(std::span<std::byte> bytes, const Manifest& manifest) {
  const std::span<const std::byte> codebooks = std::as_bytes(manifest.codebooks);
  if (codebooks.empty()) return;
  const u64 begin = static_cast<u64>(codebooks.data() - bytes.data());
  TARN_ASSERT(begin + codebooks.size() <= bytes.size());
  for (u64 i = 0; i < manifest.codebooks.size(); ++i) {
    const u64 key = begin + i * sizeof(ManifestCodebook) + offsetof(ManifestCodebook, key);
    std::memset(bytes.data() + key, 0, sizeof(store::Key));
  }
}

struct GroupPlace {
  u32 page = 0, layer = 0;
};
GroupPlace place_of(u64 group, u32 n_layers) {
  return {static_cast<u32>(group / n_layers), static_cast<u32>(group % n_layers)};
}

}  // namespace

Error why_not_begun(const store::Store& store, store::Begun begun) {
  if (begun == store::Begun::over_budget) {
    return {.status = Status::would_block,
            .hint =
                "the session cannot be written now, since the store's write budget is used up: "
                "wait, or raise store.daily_write_bytes"};
  }
  if (begun == store::Begun::no_room) {
    return {.status = Status::would_block,
            .hint =
                "the session cannot be written, since the store is full of what open sessions "
                "hold: raise store.quota_bytes, or end a session"};
  }
  if (store.why().status != Status::ok) return store.why();
  return {.status = Status::io_failed,
          .hint =
              "the session could not be written to the store: check the disk and open the "
              "store again"};
}

// ---- Operations and their buffers -------------------------------------------------------------

void SessionCopy::take(const store::Event& event) {
  TARN_ASSERT(n_open_ > 0);
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [&](const Slot& s) { return s.busy && s.tag == event.tag; });
  const bool has_buffer = slot != slots_.end();
  if (event.outcome == store::Outcome::written || event.outcome == store::Outcome::returned) {
    if (has_buffer) slot->busy = false;
    if (event.outcome == store::Outcome::returned) --n_open_, --n_lent_;
    return;
  }
  if (event.outcome != store::Outcome::ok) failed_ = true;
  if (has_buffer) {
    slot->outcome = event.outcome;
    slot->busy = event.lent;
    slot->lent = event.lent;
  }
  const bool is_new = event.op == store::Op::put && event.outcome == store::Outcome::ok && pins_;
  if (is_new && args_.store->index().is_current(event.ref)) {
    args_.store->pin(event.ref);
    ++n_new_;
  }
  if (event.lent) {
    ++n_lent_;
  } else {
    --n_open_;
  }
}

template <class Begin>
store::Begun SessionCopy::begin(Begin&& fn) {
  for (;;) {
    const store::Begun begun = fn(args_.first_tag + next_tag_);
    if (begun == store::Begun::begun) ++n_open_, ++next_tag_;
    if (begun != store::Begun::busy) return begun;
    args_.pump(args_.context);
  }
}

void SessionCopy::wait_for(const Slot& slot) {
  while (slot.busy && !slot.lent) args_.pump(args_.context);
}

void SessionCopy::wait_for_all() {
  while (n_open_ > n_lent_) args_.pump(args_.context);
}

std::span<std::byte> SessionCopy::buffer(const Slot& slot) const {
  const u64 idx = static_cast<u64>(&slot - slots_.data());
  return args_.groups.subspan(idx * group_bytes_, group_bytes_);
}

// How many groups of this size are on their way at one time.
Result<void> SessionCopy::begin_groups(u64 group_bytes) {
  if (!is_idle()) {
    return fail({.status = Status::io_failed,
                 .hint = "the disk does not answer: check it, and open the store again"});
  }
  failed_ = false;
  group_bytes_ = group_bytes;
  n_slots_ = static_cast<u32>(
      std::min<u64>(group_bytes > 0 ? args_.groups.size() / group_bytes : 0, kCopyBuffersMax));
  if (group_bytes == 0 || n_slots_ > 0) return {};
  return fail({.status = Status::invalid_request,
               .hint = "the session's groups of KV are larger than this model's: it is of another "
                       "one, or of other settings",
               .figures = {{{"group_bytes", group_bytes}, {"room", args_.groups.size()}}}});
}

Result<void> SessionCopy::flush() {
  const store::Begun begun = begin([&](u64 tag) { return args_.store->flush(tag); });
  if (begun != store::Begun::begun) return fail(why_not_begun(*args_.store, begun));
  wait_for_all();
  if (failed_) return fail(why_not_begun(*args_.store, store::Begun::not_now));
  return {};
}

// ---- What lies in the store -------------------------------------------------------------------

std::span<const u32> SessionCopy::page_ids(const Manifest& manifest, u32 page) const {
  const u64 begin = u64{page} * manifest.identity.page_tokens;
  const u64 end = std::min<u64>(begin + manifest.identity.page_tokens, manifest.n_slots);
  return manifest.token_ids.subspan(begin, end - begin);
}

std::optional<store::RecordRef> SessionCopy::group_record(const Manifest& manifest,
                                                          u64 group) const {
  const auto [page, layer] = place_of(group, manifest.identity.n_cache_layers);
  const auto found =
      args_.store->find(store::layer_key(args_.store->secret(), page_key(manifest, page), layer));
  if (!found) return std::nullopt;
  // Its key is right and it is whole, and yet it is none of this session's.
  if (args_.store->index().entry(*found).payload_bytes != group_bytes(manifest.identity)) {
    return std::nullopt;
  }
  return *found;
}

std::optional<Manifest> SessionCopy::read_manifest(store::RecordRef ref,
                                                   std::span<std::byte> buffer) {
  const u64 n_bytes = args_.store->index().entry(ref).payload_bytes;
  const u64 n_padded = align_up(n_bytes, store::kSectorBytes);
  if (n_padded > buffer.size() || !is_idle()) return std::nullopt;
  failed_ = false;
  const store::Begun begun = begin([&](u64 tag) {
    return args_.store->read({.ref = ref, .payload = buffer.first(n_padded), .tag = tag});
  });
  if (begun != store::Begun::begun) return std::nullopt;
  wait_for_all();
  if (failed_) return std::nullopt;
  const auto manifest = decode_manifest(*args_.crc, buffer.first(n_bytes));
  if (!manifest) return std::nullopt;
  const u32 n_layers = manifest->identity.n_cache_layers;
  if (n_layers == 0 || n_layers > kSessionLayersMax) return std::nullopt;
  if (keys_fault(args_.store->secret(), *manifest) != nullptr) return std::nullopt;
  return *manifest;
}

Result<SessionCopy::Found> SessionCopy::find(std::string_view name) {
  TARN_CHECK(begin_groups(0));
  const auto found = args_.store->find(store::named_key(args_.store->secret(), args_.tenant, name));
  if (!found) {
    return fail({.status = Status::not_found,
                 .hint = "the store has no session of this name: it was never saved here, or gave "
                         "way to others",
                 .detail = Detail(name)});
  }
  const u64 manifest_bytes = args_.store->index().entry(*found).payload_bytes;
  if (manifest_bytes > args_.manifest.size()) return too_long(name);
  Held record(*args_.store, *found);
  const auto manifest = read_manifest(*found, args_.manifest);
  if (!manifest || manifest->name != name) {
    return fail({.status = Status::io_failed,
                 .hint = "this session's manifest is damaged: nothing can be had of it any more",
                 .detail = Detail(name)});
  }
  return Found{std::move(record), manifest_bytes, *manifest};
}

u32 SessionCopy::n_pages_there(const Manifest& manifest, u64* record_bytes) const {
  const u32 n_layers = manifest.identity.n_cache_layers;
  const u64 n_groups = u64{pages_of(manifest)} * n_layers;
  u64 n = 0;
  for (; n < n_groups; ++n) {
    const auto ref = group_record(manifest, n);
    if (!ref) break;
    const store::IndexEntry& entry = args_.store->index().entry(*ref);
    *record_bytes += store::RecordShape{entry.payload_bytes, entry.n_tokens}.record_bytes();
  }
  return n_layers > 0 ? static_cast<u32>(n / n_layers) : 0;
}

void SessionCopy::list(void (*on_session)(void* context, const KeptSession& session),
                       void* context) {
  const store::RecordIndex& index = args_.store->index();
  for (u32 frame = 0; frame < index.n_frames(); ++frame) {
    const store::IndexEntry& entry = index.frame(frame);
    if (entry.life != store::Life::published || entry.kind != store::Kind::manifest) continue;
    KeptSession session{.record_bytes = store::RecordShape{entry.payload_bytes}.record_bytes(),
                        .generation = entry.generation};
    const auto manifest = read_manifest({frame, entry.generation}, args_.manifest);
    if (!manifest) continue;
    session.manifest = *manifest;
    session.n_pages = pages_of(*manifest);
    session.n_pages_there = n_pages_there(*manifest, &session.record_bytes);
    on_session(context, session);
  }
}

// ---- To a file --------------------------------------------------------------------------------

Result<ExportDone> SessionCopy::write(std::string_view name, const char* path) {
  TARN_TRY(const Found found, find(name));
  const Manifest& manifest = found.manifest;
  u64 record_bytes = 0;
  const u64 manifest_bytes = found.manifest_bytes;
  const auto bytes_of_group = group_bytes(manifest.identity);
  if (!bytes_of_group) return unknown_kv();
  SessionFileHead head{.manifest_bytes = manifest_bytes,
                       .group_bytes = *bytes_of_group,
                       .n_layers = manifest.identity.n_cache_layers,
                       .n_pages = n_pages_there(manifest, &record_bytes),
                       .manifest_crc = args_.crc->bytes(args_.manifest.data(), manifest_bytes)};
  TARN_CHECK(begin_groups(head.group_bytes));
  FileWriter file;
  TARN_CHECK(file.create(path));
  alignas(8) std::array<std::byte, store::kSectorBytes> sector;
  encode_session_head(*args_.crc, head, sector);
  TARN_CHECK(file.write(sector));
  const u64 n_padded = align_up(manifest_bytes, store::kSectorBytes);
  std::memset(args_.manifest.data() + manifest_bytes, 0, n_padded - manifest_bytes);
  TARN_CHECK(file.write(args_.manifest.first(n_padded)));
  const Result<void> written = write_groups(file, manifest, head);
  wait_for_all();
  if (!written) return fail(written.error());
  TARN_CHECK(file.finish());
  return ExportDone{
      .n_tokens = manifest.token_ids.size(),
      .n_slots = std::min<u64>(u64{head.n_pages} * manifest.identity.page_tokens, manifest.n_slots),
      .file_bytes = session_file_bytes(head)};
}

// What stands before a group in the file.
SessionGroupHead SessionCopy::group_head_of(const Manifest& manifest, const SessionFileHead& head,
                                            u64 group, std::span<const std::byte> payload) const {
  const auto [page, layer] = place_of(group, head.n_layers);
  return sealed_group_head(*args_.crc,
                           {.chain = page_key(manifest, page),
                            .cache_layer = layer,
                            .page = page,
                            .manifest_crc = head.manifest_crc},
                           payload);
}

// Reads work ahead of the file by as many groups as there are buffers.
Result<void> SessionCopy::write_groups(FileWriter& file, const Manifest& manifest,
                                       const SessionFileHead& head) {
  const u64 n_groups = u64{head.n_pages} * head.n_layers;
  u64 n_begun = 0;
  for (u64 group = 0; group < n_groups; ++group) {
    for (; n_begun < n_groups && n_begun < group + n_slots_; ++n_begun) {
      TARN_CHECK(begin_read(manifest, n_begun, slots_[n_begun % n_slots_]));
    }
    Slot& slot = slots_[group % n_slots_];
    wait_for(slot);
    if (slot.outcome != store::Outcome::ok) return lost_while_exported();
    const SessionGroupHead group_head = group_head_of(manifest, head, group, buffer(slot));
    TARN_CHECK(file.write(std::as_bytes(std::span(&group_head, 1))));
    TARN_CHECK(file.write(buffer(slot)));
  }
  return {};
}

Unexpected SessionCopy::lost_while_exported() const {
  return fail({.status = Status::io_failed,
               .hint = "a part of the session could not be read from the store: export it again, "
                       "which leaves out what is lost"});
}

Result<void> SessionCopy::begin_read(const Manifest& manifest, u64 group, Slot& slot) {
  const auto ref = group_record(manifest, group);
  if (!ref) return lost_while_exported();
  const u64 tag = args_.first_tag + next_tag_;
  const store::Begun begun = begin([&](u64 new_tag) {
    return args_.store->read(
        {.ref = *ref,
         .token_ids = page_ids(manifest, place_of(group, manifest.identity.n_cache_layers).page),
         .payload = buffer(slot),
         .tag = new_tag});
  });
  if (begun != store::Begun::begun) return lost_while_exported();
  slot = {.busy = true, .tag = tag};
  return {};
}

// ---- From a file ------------------------------------------------------------------------------

Result<SessionFileHead> SessionCopy::open(FileReader& file, const char* path) {
  TARN_CHECK(file.open(path));
  alignas(8) std::array<std::byte, store::kSectorBytes> sector;
  if (file.size_bytes() < sector.size()) return damaged_session_file("length");
  TARN_CHECK(file.read(sector));
  return parse_session_head(*args_.crc, sector, file.size_bytes());
}

Result<Manifest> SessionCopy::read_file_manifest(FileReader& file, const SessionFileHead& head) {
  const u64 n_padded = align_up(head.manifest_bytes, store::kSectorBytes);
  if (n_padded > args_.manifest.size()) return too_long("");
  TARN_CHECK(file.read(args_.manifest.first(n_padded)));
  const auto bytes = args_.manifest.first(head.manifest_bytes);
  if (args_.crc->bytes(bytes.data(), bytes.size()) != head.manifest_crc) {
    return damaged_session_file("manifest");
  }
  const auto padding = args_.manifest.first(n_padded).subspan(head.manifest_bytes);
  const bool is_zero = std::all_of(padding.begin(), padding.end(),
                                   [](std::byte byte) { return byte == std::byte{0}; });
  if (!is_zero) return damaged_session_file("padding");
  const auto manifest = decode_manifest(*args_.crc, bytes);
  if (!manifest && manifest.error().status == Status::unsupported) return fail(manifest.error());
  if (!manifest) return damaged_session_file(manifest.error().detail.c_str());
  if (manifest->identity.n_cache_layers != head.n_layers) return damaged_session_file("n_layers");
  if (head.n_pages > pages_of(*manifest)) return damaged_session_file("n_pages");
  const auto bytes_of_group = group_bytes(manifest->identity);
  if (!bytes_of_group) return unknown_kv();
  if (head.n_pages > 0 && head.group_bytes != *bytes_of_group) {
    return damaged_session_file("group_bytes");
  }
  if (pages_of(*manifest) > args_.keys.size()) return too_long(manifest->name);
  return *manifest;
}

Result<SessionCopy::FileFacts> SessionCopy::look_at(const char* path) {
  FileReader file;
  TARN_TRY(const SessionFileHead head, open(file, path));
  TARN_TRY(const Manifest manifest, read_file_manifest(file, head));
  return FileFacts{head, manifest};
}

Result<void> SessionCopy::read_group(FileReader& file, const SessionFileHead& head,
                                     const Manifest& manifest, u64 group,
                                     std::span<std::byte> payload) {
  SessionGroupHead found;
  TARN_CHECK(file.read(std::as_writable_bytes(std::span(&found, 1))));
  TARN_CHECK(file.read(payload));
  if (!(found == group_head_of(manifest, head, group, payload))) {
    return damaged_session_file("group", group / head.n_layers);
  }
  return {};
}

Result<void> SessionCopy::check_import(const ImportArgs& args, const SessionFileHead& head,
                                       const Manifest& manifest, std::string_view name) const {
  const KvIdentity& identity = args.identity != nullptr ? *args.identity : manifest.identity;
  const char* field = first_difference(manifest.identity, identity);
  if (field == nullptr && !(manifest.identity.tenant == args_.tenant)) field = "tenant";
  const bool has_groups = head.n_pages > 0;
  if (field == nullptr && has_groups && args.group_bytes != 0 &&
      head.group_bytes != args.group_bytes) {
    field = "group_bytes";
  }
  if (field != nullptr) {
    return fail({.status = Status::invalid_request,
                 .hint = "this session was exported from another model or other settings, of which "
                         "this is the first: import it where the same ones are used",
                 .detail = Detail(field)});
  }
  if (name.empty() || name.size() > kManifestNameBytesMax) {
    return fail({.status = Status::invalid_request,
                 .hint = "a session's name has 1 to 128 bytes",
                 .figures = {{{"bytes", name.size()}}}});
  }
  if (args_.store->find(store::named_key(args_.store->secret(), args_.tenant, name))) {
    return fail({.status = Status::invalid_request,
                 .hint = "the store has a session of this name: delete it, or import this one "
                         "under another name",
                 .detail = Detail(name)});
  }
  return {};
}

Result<ImportDone> SessionCopy::read(const ImportArgs& args) {
  TARN_CHECK(begin_groups(0));
  FileReader file;
  TARN_TRY(const SessionFileHead head, open(file, args.path));
  TARN_TRY(const Manifest manifest, read_file_manifest(file, head));
  const std::string_view name = args.name.empty() ? manifest.name : args.name;
  TARN_CHECK(check_import(args, head, manifest, name));
  TARN_CHECK(begin_groups(head.group_bytes));
  const u64 n_groups = u64{head.n_pages} * head.n_layers;
  for (u64 group = 0; group < n_groups; ++group) {
    TARN_CHECK(read_group(file, head, manifest, group, buffer(slots_[0])));
  }
  std::array<u8, 8> random{};
  TARN_CHECK(fill_random(random));
  make_keys(args_.store->secret(), manifest, std::bit_cast<u64>(random), args_.keys);
  const Manifest own = with_keys(manifest, args_.keys);
  disown_codebooks(args_.manifest, own);
  first_generation_ = args_.store->next_generation();
  n_begun_ = 0;
  n_new_ = 0;
  pins_ = true;
  Result<void> done = file.rewind(session_groups_begin(head));
  if (done) done = put_groups(file, head, manifest, own);
  wait_for_all();
  pins_ = false;
  if (done && failed_) done = fail(why_not_begun(*args_.store, store::Begun::not_now));
  if (done) done = put_manifest(own, name);
  let_go(own, /*keeps=*/done.has_value());
  if (!done) return fail(done.error());
  return ImportDone{
      .n_tokens = manifest.token_ids.size(),
      .n_slots = std::min<u64>(u64{head.n_pages} * manifest.identity.page_tokens, manifest.n_slots),
      .n_groups_new = n_new_};
}

Result<void> SessionCopy::put_groups(FileReader& file, const SessionFileHead& head,
                                     const Manifest& manifest, const Manifest& own) {
  const u64 n_groups = u64{head.n_pages} * head.n_layers;
  for (u64 group = 0; group < n_groups; ++group) {
    Slot& slot = slots_[group % n_slots_];
    wait_for(slot);
    if (failed_) return fail(why_not_begun(*args_.store, store::Begun::not_now));
    TARN_CHECK(read_group(file, head, manifest, group, buffer(slot)));
    TARN_CHECK(put_group(own, group, slot));
  }
  return {};
}

Result<void> SessionCopy::put_group(const Manifest& own, u64 group, Slot& slot) {
  const auto [page, layer] = place_of(group, own.identity.n_cache_layers);
  const store::Key key = store::layer_key(args_.store->secret(), page_key(own, page), layer);
  const std::span<const u32> ids = page_ids(own, page);  // clang 14 captures no binding
  for (;;) {
    // One of another size cannot be read as what its key says.
    const auto known =
        group_record(own, group) ? store::PutArgs::If::absent : store::PutArgs::If::replace;
    const u64 tag = args_.first_tag + next_tag_;
    const store::Begun begun = begin([&](u64 new_tag) {
      return args_.store->put({.kind = store::Kind::group,
                               .key = key,
                               .token_ids = ids,
                               .payload = buffer(slot),
                               .payload_bytes = group_bytes_,
                               .known = known,
                               .kept = store::PutArgs::Payload::until_written,
                               .tag = new_tag});
    });
    if (begun == store::Begun::begun) {
      slot = {.busy = true, .tag = tag};
      n_begun_ = group + 1;
      return {};
    }
    if (begun != store::Begun::known) return fail(why_not_begun(*args_.store, begun));
    if (const auto ref = group_record(own, group)) {
      args_.store->pin(*ref);
      n_begun_ = group + 1;
      return {};
    }
    args_.pump(args_.context);  // somebody else's, on its way
  }
}

Result<void> SessionCopy::put_manifest(const Manifest& own, std::string_view name) {
  for (u64 group = 0; group < n_begun_; ++group) {
    if (!group_record(own, group)) return fail(why_not_begun(*args_.store, store::Begun::no_room));
  }
  Manifest named = own;
  named.name = name;
  const u64 n_bytes = manifest_bytes(named);
  const u64 n_padded = align_up(n_bytes, store::kSectorBytes);
  if (n_padded > args_.other_manifest.size()) return too_long(name);
  const auto payload = args_.other_manifest.first(n_padded);
  encode_manifest(*args_.crc, named, payload.first(n_bytes));
  std::memset(payload.data() + n_bytes, 0, n_padded - n_bytes);
  const store::Begun begun = begin([&](u64 tag) {
    return args_.store->put({.kind = store::Kind::manifest,
                             .key = store::named_key(args_.store->secret(), args_.tenant, name),
                             .payload = payload,
                             .payload_bytes = n_bytes,
                             .tag = tag});
  });
  if (begun != store::Begun::begun) return fail(why_not_begun(*args_.store, begun));
  wait_for_all();
  if (failed_) return fail(why_not_begun(*args_.store, store::Begun::not_now));
  return flush();
}

// Every group of the import that is there is held. What it wrote goes, unless it ended well.
void SessionCopy::let_go(const Manifest& own, bool keeps) {
  for (u64 group = 0; group < n_begun_; ++group) {
    const auto ref = group_record(own, group);
    if (!ref) continue;
    args_.store->unpin(*ref);
    if (!keeps && ref->generation >= first_generation_) erase_record(*ref);
  }
  wait_for_all();
}

// ---- Away -------------------------------------------------------------------------------------

// False where somebody holds it, or it is gone.
bool SessionCopy::erase_record(store::RecordRef ref) {
  if (!args_.store->index().is_current(ref)) return false;
  if (args_.store->index().entry(ref).holds > 0) return false;
  const store::Begun begun = begin([&](u64 tag) { return args_.store->erase(ref, tag); });
  return begun == store::Begun::begun;
}

// How many pages of it, from the first one on, other sessions name: equal keys are equal prefixes.
u32 SessionCopy::n_pages_shared(const Manifest& manifest, store::RecordRef own) {
  const store::RecordIndex& index = args_.store->index();
  u32 n_shared = 0;
  for (u32 frame = 0; frame < index.n_frames(); ++frame) {
    const store::IndexEntry& entry = index.frame(frame);
    if (entry.life != store::Life::published || entry.kind != store::Kind::manifest) continue;
    const store::RecordRef ref{frame, entry.generation};
    if (ref == own) continue;
    if (entry.payload_bytes > args_.other_manifest.size()) return pages_of(manifest);
    const auto other = read_manifest(ref, args_.other_manifest);
    if (!other) continue;
    const u32 n_both = std::min(pages_of(manifest), pages_of(*other));
    u32 n = 0;
    while (n < n_both && page_key(manifest, n) == page_key(*other, n)) ++n;
    n_shared = std::max(n_shared, n);
  }
  return n_shared;
}

// What was written of the session's indexes, at any time: records with its part of a key.
void SessionCopy::erase_codebooks(const Manifest& manifest, DeleteDone& done) {
  const store::RecordIndex& index = args_.store->index();
  for (const ManifestCodebook& codebook : manifest.codebooks) {
    if (codebook.key == store::Key{}) continue;
    for (u32 frame = 0; frame < index.n_frames(); ++frame) {
      const store::IndexEntry& entry = index.frame(frame);
      const bool is_such = entry.kind == store::Kind::codebook || entry.kind == store::Kind::extent;
      if (entry.life != store::Life::published || !is_such) continue;
      if (!store::is_part_of(entry.key, codebook.key)) continue;
      done.n_erased += erase_record({frame, entry.generation});
    }
  }
}

Result<DeleteDone> SessionCopy::erase(std::string_view name) {
  TARN_TRY(Found found, find(name));
  const u32 n_layers = found.manifest.identity.n_cache_layers;
  const u64 n_kept = u64{n_pages_shared(found.manifest, found.record.ref())} * n_layers;
  const u64 n_groups = u64{pages_of(found.manifest)} * n_layers;
  DeleteDone done{.n_shared = n_kept};
  failed_ = false;
  for (u64 group = n_kept; group < n_groups; ++group) {
    const auto ref = group_record(found.manifest, group);
    if (!ref) continue;
    const bool is_erased = erase_record(*ref);
    ++(is_erased ? done.n_erased : done.n_shared);
  }
  erase_codebooks(found.manifest, done);
  wait_for_all();
  found.record.let_go();
  const bool is_gone = erase_record(found.record.ref());
  wait_for_all();
  if (!is_gone || failed_) return fail(why_not_begun(*args_.store, store::Begun::not_now));
  ++done.n_erased;
  TARN_CHECK(flush());
  return done;
}

}  // namespace tarn::reuse
