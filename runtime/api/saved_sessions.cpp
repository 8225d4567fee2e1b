// The C border of sessions that are saved under a name.
#include "runtime/api/border.h"

using namespace tarn;
using namespace tarn::api;
using engine::Engine;
using engine::SessionIdx;

namespace {

constexpr const char* kNoName = "name is NULL: a kept session needs a name";

}  // namespace

extern "C" {

int32_t tarn_session_keep(tarn_session* session, const char* name) {
  return on_session(session, name == nullptr ? kNoName : nullptr,
                    [&](Engine& engine, SessionIdx idx) { return engine.autosave(idx, name); });
}

int32_t tarn_session_save(tarn_session* session, const char* name) {
  return on_session(session, name == nullptr ? kNoName : nullptr,
                    [&](Engine& engine, SessionIdx idx) { return engine.save(idx, name); });
}

int32_t tarn_session_restore(tarn_engine* engine, const tarn_session_options* options,
                             const char* name, tarn_session** session_out,
                             tarn_restored* restored_out) {
  const EngineCall call(engine);
  if (session_out == nullptr) return refuse("session_out is NULL");
  *session_out = nullptr;
  tarn_restored out{};
  if (restored_out != nullptr && !copy_out(out, restored_out)) return refuse(kBadStruct);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  std::string_view tenant;
  if (const char* why_not = tenant_of(options, &tenant)) return refuse(why_not);
  const Result<void> done = call.run([&](Engine& own) -> Result<void> {
    TARN_TRY(const auto restored, own.restore(name, tenant));
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

}  // extern "C"
