// Sessions to a file, and from one.
#include <algorithm>
#include <bit>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "platform/io/private_folder.h"
#include "runtime/reuse/session_copy.h"

namespace tarn::reuse {
namespace {

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

std::span<const u32> page_ids(const Manifest& manifest, u32 page) {
  const u64 begin = u64{page} * manifest.identity.page_tokens;
  const u64 end = std::min<u64>(begin + manifest.identity.page_tokens, manifest.n_slots);
  return manifest.token_ids.subspan(begin, end - begin);
}

u64 slots_of(const Manifest& manifest, u32 n_pages) {
  return std::min<u64>(u64{n_pages} * manifest.identity.page_tokens, manifest.n_slots);
}

Unexpected lost_while_exported() {
  return fail({.status = Status::io_failed,
               .hint = "a part of the session could not be read from the store: export it again, "
                       "which leaves out what is lost"});
}

// What stands before a group in the file.
SessionGroupHead group_head_of(const Crc32c& crc, const Manifest& manifest,
                               const SessionFileHead& head, u64 group,
                               std::span<const std::byte> payload) {
  const auto [page, layer] = place_of(group, head.n_layers);
  return sealed_group_head(crc,
                           {.chain = page_key(manifest, page),
                            .cache_layer = layer,
                            .page = page,
                            .manifest_crc = head.manifest_crc},
                           payload);
}

}  // namespace

// ---- To a file --------------------------------------------------------------------------------

Result<ExportDone> SessionCopy::write(std::string_view name, const char* path) {
  TARN_TRY(const Found found, find(name));
  const Result<ExportDone> done = write(found, path);
  args_.store->unpin(found.record);
  return done;
}

Result<ExportDone> SessionCopy::write(const Found& found, const char* path) {
  const Manifest& manifest = found.manifest;
  const u64 manifest_bytes = found.manifest_bytes;
  const auto bytes_of_group = group_bytes(manifest.identity);
  if (!bytes_of_group) return unknown_kv();
  SessionFileHead head{.manifest_bytes = manifest_bytes,
                       .group_bytes = *bytes_of_group,
                       .n_layers = manifest.identity.n_cache_layers,
                       .n_pages = n_pages_there(*args_.store, manifest),
                       .manifest_crc = args_.crc->bytes(args_.manifest.data(), manifest_bytes)};
  TARN_CHECK(ops_.begin_groups(head.group_bytes));
  FileWriter file;
  TARN_CHECK(file.create(path));
  alignas(8) std::array<std::byte, store::kSectorBytes> sector;
  encode_session_head(*args_.crc, head, sector);
  TARN_CHECK(file.write(sector));
  const u64 n_padded = align_up(manifest_bytes, store::kSectorBytes);
  std::memset(args_.manifest.data() + manifest_bytes, 0, n_padded - manifest_bytes);
  TARN_CHECK(file.write(args_.manifest.first(n_padded)));
  const Result<void> written = write_groups(file, manifest, head);
  ops_.wait_for_all();
  if (!written) return fail(written.error());
  TARN_CHECK(file.finish());
  return ExportDone{.n_tokens = manifest.token_ids.size(),
                    .n_slots = slots_of(manifest, head.n_pages),
                    .file_bytes = session_file_bytes(head)};
}

// Reads work ahead of the file by as many groups as there are buffers.
Result<void> SessionCopy::write_groups(FileWriter& file, const Manifest& manifest,
                                       const SessionFileHead& head) {
  const u64 n_groups = u64{head.n_pages} * head.n_layers;
  u64 n_begun = 0;
  for (u64 group = 0; group < n_groups; ++group) {
    for (; n_begun < n_groups && n_begun < group + ops_.n_slots(); ++n_begun) {
      TARN_CHECK(begin_read(manifest, n_begun, ops_.slot(n_begun)));
    }
    BlockingStore::Slot& slot = ops_.slot(group);
    ops_.wait_for(slot);
    if (slot.outcome != store::Outcome::ok) return lost_while_exported();
    const SessionGroupHead group_head =
        group_head_of(*args_.crc, manifest, head, group, ops_.buffer(slot));
    TARN_CHECK(file.write(std::as_bytes(std::span(&group_head, 1))));
    TARN_CHECK(file.write(ops_.buffer(slot)));
  }
  return {};
}

Result<void> SessionCopy::begin_read(const Manifest& manifest, u64 group,
                                     BlockingStore::Slot& slot) {
  const auto ref = group_record(*args_.store, manifest, group);
  if (!ref) return lost_while_exported();
  const u64 tag = ops_.next_tag();
  const store::Begun begun = ops_.begin([&](u64 new_tag) {
    return args_.store->read(
        {.ref = *ref,
         .token_ids = page_ids(manifest, place_of(group, manifest.identity.n_cache_layers).page),
         .payload = ops_.buffer(slot),
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
  if (!(found == group_head_of(*args_.crc, manifest, head, group, payload))) {
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
  TARN_CHECK(check_name(name));
  if (args_.store->find(store::named_key(args_.store->secret(), args_.tenant, name))) {
    return fail({.status = Status::invalid_request,
                 .hint = "the store has a session of this name: delete it, or import this one "
                         "under another name",
                 .detail = Detail(name)});
  }
  return {};
}

Result<ImportDone> SessionCopy::read(const ImportArgs& args) {
  TARN_CHECK(ops_.begin_groups(0));
  FileReader file;
  TARN_TRY(const SessionFileHead head, open(file, args.path));
  TARN_TRY(const Manifest manifest, read_file_manifest(file, head));
  const std::string_view name = args.name.empty() ? manifest.name : args.name;
  TARN_CHECK(check_import(args, head, manifest, name));
  TARN_CHECK(ops_.begin_groups(head.group_bytes));
  const u64 n_groups = u64{head.n_pages} * head.n_layers;
  for (u64 group = 0; group < n_groups; ++group) {
    TARN_CHECK(read_group(file, head, manifest, group, ops_.buffer(ops_.slot(0))));
  }
  std::array<u8, 8> random{};
  TARN_CHECK(fill_random(random));
  make_keys(args_.store->secret(), manifest, std::bit_cast<u64>(random), args_.keys);
  const Manifest own = with_keys(manifest, args_.keys);
  disown_codebooks(args_.manifest, own);
  first_generation_ = args_.store->next_generation();
  n_begun_ = 0;
  ops_.begin_holding();
  Result<void> done = file.rewind(session_groups_begin(head));
  if (done) done = put_groups(file, head, manifest, own);
  ops_.wait_for_all();
  const u64 n_new = ops_.end_holding();
  if (done && ops_.has_failed()) done = fail(why_not_begun(*args_.store, store::Begun::not_now));
  if (done) done = put_manifest(own, name);
  let_go(own, /*keeps=*/done.has_value());
  if (!done) return fail(done.error());
  return ImportDone{.n_tokens = manifest.token_ids.size(),
                    .n_slots = slots_of(manifest, head.n_pages),
                    .n_groups_new = n_new};
}

Result<void> SessionCopy::put_groups(FileReader& file, const SessionFileHead& head,
                                     const Manifest& manifest, const Manifest& own) {
  const u64 n_groups = u64{head.n_pages} * head.n_layers;
  for (u64 group = 0; group < n_groups; ++group) {
    BlockingStore::Slot& slot = ops_.slot(group);
    ops_.wait_for(slot);
    if (ops_.has_failed()) return fail(why_not_begun(*args_.store, store::Begun::not_now));
    TARN_CHECK(read_group(file, head, manifest, group, ops_.buffer(slot)));
    TARN_CHECK(put_group(own, group, slot));
  }
  return {};
}

Result<void> SessionCopy::put_group(const Manifest& own, u64 group, BlockingStore::Slot& slot) {
  const auto [page, layer] = place_of(group, own.identity.n_cache_layers);
  const store::Key key = store::layer_key(args_.store->secret(), page_key(own, page), layer);
  const std::span<const u32> ids = page_ids(own, page);  // clang 14 captures no binding
  for (;;) {
    // One of another size cannot be read as what its key says.
    const auto known = group_record(*args_.store, own, group) ? store::PutArgs::If::absent
                                                              : store::PutArgs::If::replace;
    const u64 tag = ops_.next_tag();
    const store::Begun begun = ops_.begin([&](u64 new_tag) {
      return args_.store->put({.kind = store::Kind::group,
                               .key = key,
                               .token_ids = ids,
                               .payload = ops_.buffer(slot),
                               .payload_bytes = ops_.buffer(slot).size(),
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
    if (const auto ref = group_record(*args_.store, own, group)) {
      args_.store->pin(*ref);
      n_begun_ = group + 1;
      return {};
    }
    ops_.pump();  // somebody else's, on its way
  }
}

Result<void> SessionCopy::put_manifest(const Manifest& own, std::string_view name) {
  for (u64 group = 0; group < n_begun_; ++group) {
    if (!group_record(*args_.store, own, group))
      return fail(why_not_begun(*args_.store, store::Begun::no_room));
  }
  Manifest named = own;
  named.name = name;
  const u64 n_bytes = manifest_bytes(named);
  const u64 n_padded = align_up(n_bytes, store::kSectorBytes);
  if (n_padded > args_.other_manifest.size()) return too_long(name);
  const auto payload = args_.other_manifest.first(n_padded);
  encode_manifest(*args_.crc, named, payload.first(n_bytes));
  std::memset(payload.data() + n_bytes, 0, n_padded - n_bytes);
  const store::Begun begun = ops_.begin([&](u64 tag) {
    return args_.store->put({.kind = store::Kind::manifest,
                             .key = store::named_key(args_.store->secret(), args_.tenant, name),
                             .payload = payload,
                             .payload_bytes = n_bytes,
                             .tag = tag});
  });
  if (begun != store::Begun::begun) return fail(why_not_begun(*args_.store, begun));
  ops_.wait_for_all();
  if (ops_.has_failed()) return fail(why_not_begun(*args_.store, store::Begun::not_now));
  return ops_.flush();
}

// Every group of the import that is there is held. What it wrote goes, unless it ended well.
void SessionCopy::let_go(const Manifest& own, bool keeps) {
  for (u64 group = 0; group < n_begun_; ++group) {
    const auto ref = group_record(*args_.store, own, group);
    if (!ref) continue;
    args_.store->unpin(*ref);
    if (!keeps && ref->generation >= first_generation_) ops_.erase(*ref);
  }
  ops_.wait_for_all();
}

}  // namespace tarn::reuse
