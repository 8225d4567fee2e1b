#include "runtime/reuse/session_reader.h"

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/reuse/session_copy.h"

namespace tarn::reuse {
namespace {

Unexpected damaged(std::string_view part) {
  return fail({.status = Status::io_failed,
               .hint = "a saved session is damaged and cannot be taken up: begin a new one",
               .detail = Detail(part)});
}

Result<void> check(const ArchiveArgs& args, const Manifest& manifest, std::string_view name) {
  if (manifest.name != name) return damaged("name");
  const char* field = first_difference(manifest.identity, args.identity);
  if (field != nullptr && std::string_view(field) == "numerics_id") {
    return fail({.status = Status::invalid_request,
                 .hint =
                     "this session's KV was computed on another kind of device, or by a version "
                     "whose results differ: choose that device (--device cpu, or cuda), or "
                     "begin a session of another name",
                 .detail = Detail("device.kind")});
  }
  if (field != nullptr) {
    return fail({.status = Status::invalid_request,
                 .hint = "this session was saved by another model or with other settings, of which "
                         "this is the first: use the same ones, or begin a session of another name",
                 .detail = Detail(field)});
  }
  if (const char* part = keys_fault(args.store().secret(), manifest)) return damaged(part);
  return {};
}

}  // namespace

Result<Manifest> find_session(const ArchiveArgs& args, StoreOps& ops, std::string_view name) {
  TARN_CHECK(ops.begin_groups(0));
  const store::Store& store = args.store();
  const auto found = store.find(store::named_key(store.secret(), args.identity.tenant, name));
  if (!found) return no_session(name);
  const u64 n_bytes = store.index().entry(*found).payload_bytes;
  const u64 n_padded = align_up(n_bytes, store::kSectorBytes);
  if (n_padded > args.memory.manifest.size()) return too_long(name);
  if (!ops.read(*found, args.memory.manifest.first(n_padded))) return damaged(name);
  TARN_TRY(const Manifest manifest,
           decode_manifest(*args.crc, args.memory.manifest.first(n_bytes)));
  TARN_CHECK(check(args, manifest, name));
  return manifest;
}

void adopt_pages(const ArchiveArgs& args, const kv::Sequence& sequence, const Manifest& manifest,
                 u32 n_pages) {
  const u32 n_layers = args.identity.n_cache_layers;
  for (u32 i = 0; i < n_pages * n_layers; ++i) {
    const auto ref = group_record(args.store(), manifest, i);
    TARN_ASSERT(ref.has_value());
    args.tiers().residency.adopt(sequence.group(i % n_layers, i / n_layers).idx, *ref);
  }
}

}  // namespace tarn::reuse
