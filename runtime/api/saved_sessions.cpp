// The C border of sessions that are saved under a name.
#include <algorithm>
#include <span>
#include <string_view>

#include "runtime/api/border.h"
#include "runtime/api/tarn_store.h"

using namespace tarn;
using namespace tarn::api;
using engine::Engine;
using engine::SessionIdx;

namespace {

uint64_t bytes_written(const Engine& engine) { return engine.status().kv.store.bytes_written; }

// Whether all of the text is saved under the name, and its KV is there. Refuses a session that is
// not a beginning of the text: it may be a conversation.
Result<bool> is_ingested(Engine& engine, const tarn_ingest_options& options, const char* name,
                         std::span<const u32> ids) {
  if (ids.size() > engine.plan().context_tokens) return false;  // feeding refuses it, unread
  const auto tenant = options.tenant == nullptr ? std::string_view() : options.tenant;
  const auto found = engine.archive().find(tenant, name);
  const Status status = found ? Status::ok : found.error().status;
  if (status == Status::not_found || status == Status::io_failed) return false;
  TARN_CHECK(found);
  const reuse::Manifest& manifest = found->manifest;
  const std::span<const u32> saved = manifest.token_ids;
  if (saved.size() > ids.size() || !std::equal(saved.begin(), saved.end(), ids.begin())) {
    if (options.replaces != 0) return false;
    return fail({.status = Status::invalid_request,
                 .reason = Reason::name_in_use,
                 .key = "name",
                 .hint = "a saved session of this name has another text: choose another name "
                         "(--as), or replace that text (--replace)",
                 .detail = Detail(name)});
  }
  return saved.size() == ids.size() && found->is_whole() &&
         manifest.n_slots + 1 >= manifest.token_ids.size() && !manifest.is_cut_off;
}

// Waits until the text is computed.
int32_t read_all(tarn_session* session, const tarn_ingest_options& options) {
  constexpr int32_t kLookMs = 100;
  for (;;) {
    const int32_t status = tarn_session_wait(session, options.progress == nullptr ? -1 : kLookMs);
    if (status != TARN_WOULD_BLOCK) return status;
    tarn_session_info info = TARN_INIT(tarn_session_info);
    if (const int32_t told = tarn_session_info_get(session, &info); told != TARN_OK) return told;
    if (options.progress(options.progress_context, &info) == 0) continue;
    return report(Error{.status = Status::cancelled,
                        .hint = "the progress function ended it: call again to read the rest"});
  }
}

int32_t keep(const Way& way, tarn_session* session, const char* name) {
  return on_session(
      way, session, name == nullptr ? kNoName : Refusal(),
      [name](Engine& engine, SessionIdx idx) { return engine.sessions().autosave(idx, name); });
}

int32_t save(const Way& way, tarn_session* session, const char* name) {
  return on_session(
      way, session, name == nullptr ? kNoName : Refusal(),
      [name](Engine& engine, SessionIdx idx) { return engine.sessions().save(idx, name); });
}

int32_t restore(const Way& way, tarn_engine* engine, const tarn_session_options* options,
                const char* name, tarn_session** session_out, tarn_restored* restored_out) {
  const EngineCall call(engine);
  if (session_out == nullptr) return refuse({"session_out", "session_out is NULL"});
  *session_out = nullptr;
  if (restored_out != nullptr && !copy_out(tarn_restored{}, restored_out))
    return refuse({"struct_size", kBadStruct});
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  NewSession begins;
  if (const Refusal why_not = read_options(options, &begins)) return refuse(why_not);
  const auto take_up = [name, session_out, restored_out, args = begins.args,
                        &on = call.instance()](Engine& own) -> Result<void> {
    TARN_TRY(const auto restored, own.sessions().restore(name, args));
    tarn_restored out{};
    out.cut_off = restored.is_cut_off ? 1 : 0;
    out.n_tokens = restored.n_tokens;
    out.n_computed = restored.n_computed;
    out.turn_begin = restored.turn_begin;
    out.took_ns = restored.took_ns;
    if (restored_out != nullptr) copy_out(out, restored_out);
    *session_out = on.begin_session(restored.idx);
    return {};
  };
  return call.serve(way, take_up, begins.user);
}

}  // namespace

extern "C" {

int32_t tarn_session_keep(tarn_session* session, const char* name) {
  return keep(kWaits, session, name);
}
int32_t tarn_submit_keep(tarn_session* session, const char* name, void* request) {
  return keep(later(request), session, name);
}

int32_t tarn_session_save(tarn_session* session, const char* name) {
  return save(kWaits, session, name);
}
int32_t tarn_submit_save(tarn_session* session, const char* name, void* request) {
  return save(later(request), session, name);
}

int32_t tarn_session_restore(tarn_engine* engine, const tarn_session_options* options,
                             const char* name, tarn_session** session_out,
                             tarn_restored* restored_out) {
  return restore(kWaits, engine, options, name, session_out, restored_out);
}
int32_t tarn_submit_restore(tarn_engine* engine, const tarn_session_options* options,
                            const char* name, tarn_session** session_out,
                            tarn_restored* restored_out, void* request) {
  return restore(later(request), engine, options, name, session_out, restored_out);
}

int32_t tarn_ingest(tarn_engine* engine, const tarn_ingest_options* options, const char* name,
                    const uint32_t* ids, uint64_t n_ids, tarn_ingested* ingested_out) {
  const EngineCall call(engine);
  tarn_ingested out{};
  if (ingested_out != nullptr && !copy_out(out, ingested_out))
    return refuse({"struct_size", kBadStruct});
  if (!call) return refuse(call.why_not());
  tarn_ingest_options own{};
  const Refusal why_not = options == nullptr ? Refusal() : copy_in(options, &own);
  if (why_not) return refuse(why_not);
  if (own.replaces != 0 && own.replaces != 1)
    return refuse({"replaces", "replaces must be 0 or 1"});
  if (name == nullptr) return refuse(kNoName);
  if (ids == nullptr || n_ids == 0)
    return refuse({"ids", "there are no ids: give the text's tokens"});
  bool is_there = false;
  uint64_t n_before = 0;
  Engine& on = call.engine();
  const Result<void> looked = call.service().call([&]() -> Result<void> {
    n_before = bytes_written(on);
    TARN_TRY(is_there, is_ingested(on, own, name, {ids, n_ids}));
    return {};
  });
  if (!looked) return report(looked);
  out.n_reused = is_there ? n_ids : 0;
  int32_t status = TARN_OK;
  if (!is_there) {
    tarn_session_options whose = TARN_INIT(tarn_session_options);
    whose.tenant = own.tenant;
    tarn_session* session = nullptr;
    tarn_session_info info = TARN_INIT(tarn_session_info);
    status = tarn_session_create(engine, &whose, &session);
    if (status == TARN_OK) status = tarn_session_feed(session, ids, n_ids);
    if (status == TARN_OK) status = tarn_session_keep(session, name);
    if (status == TARN_OK) status = read_all(session, own);
    if (status == TARN_OK) status = tarn_session_info_get(session, &info);
    if (status == TARN_OK) status = tarn_session_save(session, name);
    if (session != nullptr) tarn_session_destroy(session);
    out.n_reused = info.reused_from_memory + info.reused_from_disk;
  }
  if (status != TARN_OK) return status;
  const Result<void> counted = call.service().call([&]() -> Result<void> {
    out.bytes_written = bytes_written(on) - n_before;
    return {};
  });
  if (counted && ingested_out != nullptr) copy_out(out, ingested_out);
  return report(counted);
}

}  // extern "C"
