// The C border of what can be done with the sessions of a store.
#include <optional>
#include <string_view>

#include "runtime/api/border.h"
#include "runtime/api/tarn_store.h"

using namespace tarn;
using namespace tarn::api;
using engine::Engine;

namespace {

constexpr Refusal kNoPath{"path", "path is NULL: name the file"};
constexpr Refusal kOneTenant{
    "tenant", "a session is named with its tenant: name one instead of TARN_ALL_TENANTS"};
constexpr const char* kBadStored =
    "rows_out[0].struct_size must be sizeof(tarn_stored), and is the size of each row";

// A tenant, as a call names it.
struct Whose {
  std::optional<std::string_view> name;  // none: all of them

  explicit Whose(const char* tenant) : name(tenant == nullptr ? "" : tenant) {
    if (name == TARN_ALL_TENANTS) name.reset();
  }
};

// The rows of a tenant's sessions, or of everybody's.
struct Listing {
  Rows<tarn_stored> rows;
  std::optional<store::Key> tenant;
  const reuse::Archive* archive;
};

void write_row(void* listing, const reuse::KeptSession& session) {
  const reuse::Manifest& manifest = session.manifest;
  auto& to = *static_cast<Listing*>(listing);
  if (to.tenant && !(manifest.identity.tenant == *to.tenant)) return;
  tarn_stored row{};
  std::memcpy(row.name, manifest.name.data(), std::min(manifest.name.size(), sizeof row.name - 1));
  row.n_tokens = manifest.token_ids.size();
  std::memcpy(row.tenant, manifest.tenant.data(),
              std::min(manifest.tenant.size(), sizeof row.tenant - 1));
  if (to.archive->is_own(manifest))
    row.n_kept = std::min<uint64_t>(uint64_t{session.n_pages_there} * manifest.identity.page_tokens,
                                    manifest.n_slots);
  row.bytes = session.record_bytes;
  row.saved_at_s = manifest.saved_at_s;
  to.rows.add(row);
}

int32_t list(const Way& way, tarn_engine* engine, const char* tenant, tarn_stored* rows_out,
             uint64_t rows_max, uint64_t* n_out) {
  if (n_out != nullptr) *n_out = 0;
  const Rows<tarn_stored> rows(rows_out, rows_max);
  Refusal why_not;
  if (!rows.is_valid()) why_not = {"struct_size", kBadStored};
  if (n_out == nullptr) why_not = {"n_out", "n_out is NULL"};
  const Whose whose(tenant);
  return on_engine(way, engine, why_not, [whose, rows, n_out](Engine& own) -> Result<void> {
    TARN_TRY(reuse::SessionCopy* const copy, own.archive().files());
    Listing out{rows, {}, &own.archive()};
    if (whose.name) out.tenant = copy->tenant_key(*whose.name);
    copy->list(write_row, &out);
    *n_out = out.rows.n();
    return {};
  });
}

int32_t remove(const Way& way, tarn_engine* engine, const char* tenant, const char* name) {
  const Whose whose(tenant);
  Refusal why_not = name == nullptr ? kNoName : Refusal();
  if (!whose.name) why_not = kOneTenant;
  return on_engine(way, engine, why_not,
                   [whose, name](Engine& own) { return own.archive().erase(*whose.name, name); });
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

int32_t pack(const Way& way, tarn_engine* engine, const char* tenant, const char* const* names,
             uint32_t n_names, const char* path) {
  const Whose whose(tenant);
  Refusal why_not = path == nullptr ? kNoPath : Refusal();
  if (names == nullptr && n_names > 0) why_not = kNoName;
  if (n_names > 0 && !whose.name) why_not = kOneTenant;
  for (uint32_t i = 0; !why_not && i < n_names; ++i) {
    if (names[i] == nullptr) why_not = kNoName;
  }
  return on_engine(way, engine, why_not,
                   [whose, names, n_names, path](Engine& own) -> Result<reuse::ExportDone> {
                     TARN_TRY(reuse::SessionCopy* const copy, own.archive().files());
                     const store::Key key = copy->tenant_key(whose.name.value_or(""));
                     return copy->pack({.path = path,
                                        .names = {names, n_names},
                                        .tenants = std::span(&key, whose.name ? 1 : 0)});
                   });
}

int32_t unpack(const Way& way, tarn_engine* engine, const char* tenant, const char* path,
               const char* name, tarn_unpacked* unpacked_out) {
  const Whose whose(tenant);
  if (unpacked_out != nullptr && !copy_out(tarn_unpacked{}, unpacked_out))
    return refuse({"struct_size", kBadStruct});
  return on_engine(way, engine, path == nullptr ? kNoPath : Refusal(),
                   [whose, path, name, unpacked_out](Engine& own) -> Result<void> {
                     TARN_TRY(
                         const reuse::ImportDone done,
                         own.archive().import_from(path, whose.name, name != nullptr ? name : ""));
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

int32_t tarn_store_pack(tarn_engine* engine, const char* tenant, const char* const* names,
                        uint32_t n_names, const char* path) {
  return pack(kWaits, engine, tenant, names, n_names, path);
}
int32_t tarn_submit_store_pack(tarn_engine* engine, const char* tenant, const char* const* names,
                               uint32_t n_names, const char* path, void* request) {
  return pack(later(request), engine, tenant, names, n_names, path);
}

int32_t tarn_store_unpack(tarn_engine* engine, const char* tenant, const char* path,
                          const char* name, tarn_unpacked* unpacked_out) {
  return unpack(kWaits, engine, tenant, path, name, unpacked_out);
}
int32_t tarn_submit_store_unpack(tarn_engine* engine, const char* tenant, const char* path,
                                 const char* name, tarn_unpacked* unpacked_out, void* request) {
  return unpack(later(request), engine, tenant, path, name, unpacked_out);
}

}  // extern "C"
