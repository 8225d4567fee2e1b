// Sessions from a file, a pack.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "platform/io/private_folder.h"
#include "runtime/reuse/session_copy.h"

namespace tarn::reuse {
namespace {

// The session as this store's own.
Manifest with_keys(const Manifest& manifest, std::span<const store::Key> keys) {
  Manifest own = manifest;
  own.groups = keys.first(manifest.groups.size());
  own.tail = has_tail(manifest) ? keys[manifest.groups.size()] : store::Key{};
  return own;
}

// Clears the key of the manifest's index in its `bytes`: it is another store's.
void disown_index(std::span<std::byte> bytes, const Manifest& manifest) {
  const std::span<const std::byte> index = std::as_bytes(manifest.index);
  if (index.empty()) return;
  const u64 begin = static_cast<u64>(index.data() - bytes.data());
  TARN_ASSERT(begin + index.size() <= bytes.size());
  std::memset(bytes.data() + begin + offsetof(ManifestIndex, key), 0, sizeof(store::Key));
}

// Whether two manifests are of the same tokens and the same KV, whenever they were saved.
bool have_same_content(const Manifest& one, const Manifest& other) {
  return first_difference(one.identity, other.identity) == nullptr &&
         one.n_slots == other.n_slots && one.first_approx_slot == other.first_approx_slot &&
         one.policy == other.policy && std::ranges::equal(one.token_ids, other.token_ids) &&
         one.turn_begin == other.turn_begin;
}

const char* hint_of_difference(std::string_view field) {
  if (field == "model") {
    return "this file was made with another model: use the model that made it (-m), or make the "
           "file again with this one";
  }
  if (field == "kv.type") {
    return "the KV of this file is not of the engine's type: set kv.type (--kv-type) to the "
           "file's, or unpack it without a model (tarn store unpack without -m)";
  }
  if (field == "numerics_id") {
    return "the KV of this file has other bits than this engine computes: use the device that made "
           "it (--device), or make the file again here";
  }
  return "this file was made with other settings: use the same ones, or make the file again";
}

}  // namespace

Result<void> SessionCopy::look_at(const char* path,
                                  void (*on_session)(void* context, const FileFacts& facts),
                                  void* context) {
  PackReader file(*args_.crc, args_.manifest, args_.keys.size());
  TARN_CHECK(file.open(path));
  for (u32 i = 0; i < file.n_sessions(); ++i) {
    TARN_CHECK(file.next());
    on_session(context, {file.head(), file.manifest()});
  }
  return {};
}

// The session as one of this store's tenant.
Manifest SessionCopy::of_own_tenant(const ImportArgs& args, const Manifest& manifest) const {
  Manifest own = manifest;
  own.tenant = args.tenant.value_or(manifest.tenant);
  own.identity.tenant = tenant_key(own.tenant);
  return own;
}

// Whether the store has this session already. Another one of this name is an error.
Result<bool> SessionCopy::is_here(const Manifest& manifest, std::string_view name) {
  const store::Key& tenant = manifest.identity.tenant;
  const auto found = args_.store->find(store::named_key(args_.store->secret(), tenant, name));
  if (!found) return false;
  const auto other = read_manifest(*found, args_.other_manifest);
  if (other && have_same_content(*other, manifest)) return true;
  return fail({.status = Status::invalid_request,
               .reason = Reason::name_in_use,
               .key = "name",
               .hint = "the store has another session of this name: delete it, or import this one "
                       "under another name (--as)",
               .detail = Detail(name)});
}

Result<void> SessionCopy::check_session(const ImportArgs& args, const PackReader& file) {
  const Manifest manifest = of_own_tenant(args, file.manifest());
  if (manifest.tenant.size() > kManifestNameBytesMax) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::bad_field,
                 .key = "tenant",
                 .hint = "the name of a tenant that keeps sessions has {0} bytes at most",
                 .figures = {{{"bytes_max", kManifestNameBytesMax}}}});
  }
  const KvIdentity identity = args.identity != nullptr
                                  ? of_tenant(*args.identity, manifest.identity.tenant)
                                  : manifest.identity;
  if (const char* field = first_difference(manifest.identity, identity)) {
    return fail(
        {.status = Status::invalid_request,
         .hint = hint_of_difference(field),
         .detail = difference_text(manifest.identity, manifest.model, identity, args.model_name)});
  }
  const bool has_groups = file.head().n_pages > 0;
  if (has_groups && args.group_bytes != 0 && file.head().group_bytes != args.group_bytes) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::saved_otherwise,
                 .hint = hint_of_difference(""),
                 .detail = Detail("group_bytes")});
  }
  const std::string_view name = args.name.empty() ? manifest.name : args.name;
  TARN_CHECK(check_name(name));
  TARN_TRY(const bool is_there, is_here(manifest, name));
  if (is_there || args.check_name == nullptr) return {};
  return args.check_name(args.context, manifest.identity.tenant, name);
}

// Every byte of the file, before anything of it is written, and whether it will fit.
Result<void> SessionCopy::check_file(const ImportArgs& args, PackReader& file) {
  if (file.n_sessions() > 1 && !args.name.empty()) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::bad_field,
                 .key = "name",
                 .hint = "another name is for one session, and this pack has several: leave it out",
                 .figures = {{{"sessions", file.n_sessions()}}}});
  }
  const u64 frame_bytes = args_.store->stats().frame_bytes;
  u64 n_frames = 0;
  for (u32 i = 0; i < file.n_sessions(); ++i) {
    TARN_CHECK(file.next());
    TARN_CHECK(check_session(args, file));
    const SessionFileHead& head = file.head();
    TARN_CHECK(ops_.begin_groups(head.group_bytes));
    const Manifest named = of_own_tenant(args, file.manifest());
    make_keys(args_.store->secret(), named, 0, args_.keys);
    const Manifest own = with_keys(named, args_.keys);
    const store::RecordShape manifest{head.manifest_bytes};
    const store::RecordShape shape{head.group_bytes, own.identity.page_tokens};
    n_frames += manifest.frames(frame_bytes);
    const u64 end = u64{file.end_page()} * head.n_layers;
    for (u64 group = u64{head.first_page} * head.n_layers; group < end; ++group) {
      TARN_CHECK(file.read_group(group, ops_.buffer(ops_.slot(0))));
      const auto ref = group_record(*args_.store, own, group);
      const bool is_held = ref && args_.store->index().entry(*ref).holds > 0;
      n_frames += is_held ? 0 : shape.frames(frame_bytes);
    }
  }
  u64 n_there = args_.store->index().n_free();
  each_record(*args_.store, [&](store::RecordRef, const store::IndexEntry& entry) {
    if (entry.holds == 0) n_there += entry.n_frames;
  });
  if (n_frames <= n_there) return {};
  return fail({.status = Status::would_block,
               .reason = Reason::store_full,
               .hint = "the file needs more room than the store has beside what open sessions "
                       "hold: raise store.quota_bytes, or end a session",
               .figures = {{{"bytes", n_frames * frame_bytes}, {"room", n_there * frame_bytes}}}});
}

Result<ImportDone> SessionCopy::read(const ImportArgs& args) {
  TARN_CHECK(ops_.begin_groups(0));
  if (args_.store->mode() != store::Mode::on) {
    return fail(why_not_begun(*args_.store, store::Begun::not_now));
  }
  PackReader file(*args_.crc, args_.manifest, args_.keys.size());
  TARN_CHECK(file.open(args.path));
  TARN_CHECK(check_file(args, file));
  std::array<u8, 8> random{};
  TARN_CHECK(fill_random(random));
  file.restart();
  ImportDone done{.n_sessions = file.n_sessions()};
  for (u32 i = 0; i < file.n_sessions(); ++i)
    TARN_CHECK(put_session(args, file, std::bit_cast<u64>(random), done));
  return done;
}

// Puts a session. Of one that the store has already, missing pages are written again; private ones
// are not, since another computation may have made those beside them.
Result<void> SessionCopy::put_session(const ImportArgs& args, PackReader& file, u64 nonce,
                                      ImportDone& done) {
  TARN_CHECK(file.next());
  const Manifest manifest = of_own_tenant(args, file.manifest());
  const std::string_view name = args.name.empty() ? manifest.name : args.name;
  TARN_TRY(const bool is_there, is_here(manifest, name));
  const u32 n_pages =
      is_there ? std::min(file.end_page(), first_private_page(manifest)) : file.end_page();
  make_keys(args_.store->secret(), manifest, nonce, args_.keys);
  const Manifest own = with_keys(manifest, args_.keys);
  disown_index(args_.manifest, own);
  TARN_CHECK(ops_.begin_groups(file.head().group_bytes));
  n_begun_ = 0;
  ops_.begin_holding();
  Result<void> put = put_groups(file, own, n_pages);
  ops_.wait_for_all();
  const u64 n_new = ops_.end_holding();
  if (put && ops_.has_failed()) put = fail(why_not_begun(*args_.store, store::Begun::not_now));
  if (put && !is_there) put = put_manifest(own, name);
  let_go(own);
  if (!put) return put;
  const u64 n_slots = std::min<u64>(u64{n_pages} * own.identity.page_tokens, own.n_slots);
  done.n_there += is_there;
  done.n_tokens += own.token_ids.size();
  done.n_slots += n_slots;
  done.n_groups_new += n_new;
  if (args.on_session != nullptr) {
    args.on_session(args.context, {.name = name,
                                   .tenant = own.tenant,
                                   .n_tokens = own.token_ids.size(),
                                   .n_slots = n_slots,
                                   .n_groups_new = n_new,
                                   .was_there = is_there});
  }
  return {};
}

Result<void> SessionCopy::put_groups(PackReader& file, const Manifest& own, u32 n_pages) {
  const u64 n_groups = u64{n_pages} * own.identity.n_cache_layers;
  for (u64 group = 0; group < n_groups; ++group) {
    if (const auto ref = group_record(*args_.store, own, group)) {
      args_.store->pin(*ref);
      n_begun_ = group + 1;
      continue;
    }
    // The session before had it, and has lost it since.
    if (place_of(group, own.identity.n_cache_layers).page < file.head().first_page) {
      return fail(why_not_begun(*args_.store, store::Begun::no_room));
    }
    BlockingStore::Slot& slot = ops_.slot(group);
    ops_.wait_for(slot);
    if (ops_.has_failed()) return fail(why_not_begun(*args_.store, store::Begun::not_now));
    TARN_CHECK(file.read_group(group, ops_.buffer(slot)));
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
    ops_.pump();  // another caller's, on its way
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
    return args_.store->put(
        {.kind = store::Kind::manifest,
         .key = store::named_key(args_.store->secret(), own.identity.tenant, name),
         .payload = payload,
         .payload_bytes = n_bytes,
         .tag = tag});
  });
  if (begun != store::Begun::begun) return fail(why_not_begun(*args_.store, begun));
  ops_.wait_for_all();
  if (ops_.has_failed()) return fail(why_not_begun(*args_.store, store::Begun::not_now));
  return ops_.flush();
}

// Every group of the session that is there is held.
void SessionCopy::let_go(const Manifest& own) {
  for (u64 group = 0; group < n_begun_; ++group) {
    if (const auto ref = group_record(*args_.store, own, group)) args_.store->unpin(*ref);
  }
}

}  // namespace tarn::reuse
