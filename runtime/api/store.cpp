// The C border of what can be done with the sessions of a store.
#include "runtime/api/border.h"
#include "runtime/api/tarn_store.h"

using namespace tarn;
using namespace tarn::api;
using engine::Engine;

namespace {

constexpr Refusal kNoPath{"path", "path is NULL: name the file"};
constexpr const char* kBadStored =
    "rows_out[0].struct_size must be sizeof(tarn_stored), and is the size of each row";

// The rows of one tenant's sessions.
struct Listing {
  Rows<tarn_stored> rows;
  store::Key tenant;
};

void write_row(void* listing, const reuse::KeptSession& session) {
  const reuse::Manifest& manifest = session.manifest;
  auto& to = *static_cast<Listing*>(listing);
  if (!(manifest.identity.tenant == to.tenant)) return;
  tarn_stored row{};
  std::memcpy(row.name, manifest.name.data(), std::min(manifest.name.size(), sizeof row.name - 1));
  row.n_tokens = manifest.token_ids.size();
  row.n_kept = std::min<uint64_t>(uint64_t{session.n_pages_there} * manifest.identity.page_tokens,
                                  manifest.n_slots);
  row.bytes = session.record_bytes;
  row.saved_at_s = manifest.saved_at_s;
  to.rows.add(row);
}

std::string_view tenant_of(const char* tenant) {
  return tenant == nullptr ? std::string_view() : tenant;
}

int32_t list(const Way& way, tarn_engine* engine, const char* tenant, tarn_stored* rows_out,
             uint64_t rows_max, uint64_t* n_out) {
  if (n_out != nullptr) *n_out = 0;
  const Rows<tarn_stored> rows(rows_out, rows_max);
  Refusal why_not;
  if (!rows.is_valid()) why_not = {"struct_size", kBadStored};
  if (n_out == nullptr) why_not = {"n_out", "n_out is NULL"};
  return on_engine(way, engine, why_not, [tenant, rows, n_out](Engine& own) -> Result<void> {
    TARN_TRY(reuse::SessionCopy* const copy, own.archive().files());
    Listing out{rows, copy->tenant_key(tenant_of(tenant))};
    copy->list(write_row, &out);
    *n_out = out.rows.n();
    return {};
  });
}

int32_t remove(const Way& way, tarn_engine* engine, const char* tenant, const char* name) {
  return on_engine(way, engine, name == nullptr ? kNoName : nullptr, [tenant, name](Engine& own) {
    return own.archive().erase(tenant_of(tenant), name);
  });
}

int32_t check(const Way& way, tarn_engine* engine, int32_t removes,
              tarn_store_checked* checked_out) {
  if (!copy_out(tarn_store_checked{}, checked_out)) return refuse({"struct_size", kBadStruct});
  return on_engine(way, engine, nullptr, [removes, checked_out](Engine& own) -> Result<void> {
    TARN_TRY(reuse::SessionCopy* const copy, own.archive().files());
    TARN_TRY(const reuse::CheckDone done, copy->check({.removes = removes != 0}));
    tarn_store_checked out{};
    out.n_records = done.n_records;
    out.n_bytes = done.n_bytes;
    out.n_damaged = done.n_damaged;
    out.n_removed = done.n_removed;
    copy_out(out, checked_out);
    return {};
  });
}

int32_t pack(const Way& way, tarn_engine* engine, const char* const* names, uint32_t n_names,
             const char* path) {
  Refusal why_not = path == nullptr ? kNoPath : Refusal();
  if (names == nullptr && n_names > 0) why_not = kNoName;
  for (uint32_t i = 0; !why_not && i < n_names; ++i) {
    if (names[i] == nullptr) why_not = kNoName;
  }
  return on_engine(way, engine, why_not,
                   [names, n_names, path](Engine& own) -> Result<reuse::ExportDone> {
                     TARN_TRY(reuse::SessionCopy* const copy, own.archive().files());
                     return copy->pack({names, n_names}, path);
                   });
}

int32_t unpack(const Way& way, tarn_engine* engine, const char* path, const char* name,
               tarn_unpacked* unpacked_out) {
  if (unpacked_out != nullptr && !copy_out(tarn_unpacked{}, unpacked_out))
    return refuse({"struct_size", kBadStruct});
  return on_engine(way, engine, path == nullptr ? kNoPath : Refusal(),
                   [path, name, unpacked_out](Engine& own) -> Result<void> {
                     TARN_TRY(const reuse::ImportDone done,
                              own.archive().import_from(path, name != nullptr ? name : ""));
                     tarn_unpacked out{};
                     out.n_sessions = done.n_sessions;
                     out.n_there = done.n_there;
                     out.n_tokens = done.n_tokens;
                     out.n_kept = done.n_slots;
                     if (unpacked_out != nullptr) copy_out(out, unpacked_out);
                     return {};
                   });
}

}  // namespace

extern "C" {

int32_t tarn_store_list(tarn_engine* engine, const char* tenant, tarn_stored* rows_out,
                        uint64_t rows_max, uint64_t* n_out) {
  return list(kWaits, engine, tenant, rows_out, rows_max, n_out);
}
int32_t tarn_submit_store_list(tarn_engine* engine, const char* tenant, tarn_stored* rows_out,
                               uint64_t rows_max, uint64_t* n_out, void* request) {
  return list(later(request), engine, tenant, rows_out, rows_max, n_out);
}

int32_t tarn_store_remove(tarn_engine* engine, const char* tenant, const char* name) {
  return remove(kWaits, engine, tenant, name);
}
int32_t tarn_submit_store_remove(tarn_engine* engine, const char* tenant, const char* name,
                                 void* request) {
  return remove(later(request), engine, tenant, name);
}

int32_t tarn_store_check(tarn_engine* engine, int32_t removes, tarn_store_checked* checked_out) {
  return check(kWaits, engine, removes, checked_out);
}
int32_t tarn_submit_store_check(tarn_engine* engine, int32_t removes,
                                tarn_store_checked* checked_out, void* request) {
  return check(later(request), engine, removes, checked_out);
}

int32_t tarn_store_pack(tarn_engine* engine, const char* const* names, uint32_t n_names,
                        const char* path) {
  return pack(kWaits, engine, names, n_names, path);
}
int32_t tarn_submit_store_pack(tarn_engine* engine, const char* const* names, uint32_t n_names,
                               const char* path, void* request) {
  return pack(later(request), engine, names, n_names, path);
}

int32_t tarn_store_unpack(tarn_engine* engine, const char* path, const char* name,
                          tarn_unpacked* unpacked_out) {
  return unpack(kWaits, engine, path, name, unpacked_out);
}
int32_t tarn_submit_store_unpack(tarn_engine* engine, const char* path, const char* name,
                                 tarn_unpacked* unpacked_out, void* request) {
  return unpack(later(request), engine, path, name, unpacked_out);
}

int32_t tarn_session_export(tarn_engine* engine, const char* name, const char* path) {
  return on_engine(kWaits, engine,
                   name == nullptr   ? kNoName
                   : path == nullptr ? kNoPath
                                     : Refusal(),
                   [name, path](Engine& own) -> Result<reuse::ExportDone> {
                     TARN_TRY(reuse::SessionCopy* const copy, own.archive().files());
                     return copy->write(name, path);
                   });
}

int32_t tarn_session_import(tarn_engine* engine, const char* path, const char* name) {
  return tarn_store_unpack(engine, path, name, nullptr);
}

int32_t tarn_session_delete(tarn_engine* engine, const char* name) {
  return tarn_store_remove(engine, nullptr, name);
}

}  // extern "C"
