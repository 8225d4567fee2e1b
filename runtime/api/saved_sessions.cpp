// The C border of sessions that are saved under a name.
#include "runtime/api/border.h"
#include "runtime/api/call.h"

using tarn::Result;
using tarn::api::copy_out;
using tarn::api::EngineCall;
using tarn::api::kBadStruct;
using tarn::api::refuse;
using tarn::api::report;
using tarn::api::SessionCall;
using tarn::engine::Engine;
using tarn::engine::SessionIdx;

namespace {

constexpr const char* kNoName = "name is NULL: a kept session needs a name";
constexpr const char* kNoPath = "path is NULL: name the file of the exported session";

}  // namespace

extern "C" {

int32_t tarn_session_keep(tarn_session* session, const char* name) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  return report(
      call.run([&](Engine& engine, SessionIdx idx) { return engine.autosave(idx, name); }));
}

int32_t tarn_session_save(tarn_session* session, const char* name) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  return report(call.run([&](Engine& engine, SessionIdx idx) -> Result<void> {
    TARN_CHECK(engine.save(idx, name));
    return {};
  }));
}

int32_t tarn_session_restore(tarn_engine* engine, const char* name, tarn_session** session_out,
                             tarn_restored* restored_out) {
  const EngineCall call(engine);
  if (session_out == nullptr) return refuse("session_out is NULL");
  *session_out = nullptr;
  tarn_restored out{};
  if (restored_out != nullptr && !copy_out(out, restored_out)) return refuse(kBadStruct);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  const Result<void> done = call.run([&]() -> Result<void> {
    TARN_TRY(const auto restored, call.engine().restore(name));
    out.cut_off = restored.is_cut_off ? 1 : 0;
    out.n_tokens = restored.n_tokens;
    out.n_computed = restored.n_computed;
    out.turn_begin = restored.turn_begin;
    out.took_ns = restored.took_ns;
    *session_out = call.begin_session(restored.idx);
    return {};
  });
  if (done && restored_out != nullptr) copy_out(out, restored_out);
  return report(done);
}

int32_t tarn_session_export(tarn_engine* engine, const char* name, const char* path) {
  const EngineCall call(engine);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  if (path == nullptr) return refuse(kNoPath);
  return report(call.run([&]() -> Result<void> {
    TARN_CHECK(call.engine().archive().export_to(name, path));
    return {};
  }));
}

int32_t tarn_session_import(tarn_engine* engine, const char* path, const char* name) {
  const EngineCall call(engine);
  if (!call) return refuse(call.why_not());
  if (path == nullptr) return refuse(kNoPath);
  return report(call.run([&]() -> Result<void> {
    TARN_CHECK(call.engine().archive().import_from(path, name != nullptr ? name : ""));
    return {};
  }));
}

int32_t tarn_session_delete(tarn_engine* engine, const char* name) {
  const EngineCall call(engine);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  return report(call.run([&]() -> Result<void> {
    TARN_CHECK(call.engine().archive().erase(name));
    return {};
  }));
}

}  // extern "C"
