// The C border: every function checks its arguments, passes the work to the engine's threads and
// converts a Result to a status and a sentence. Nothing here may throw: the core is built without
// exceptions.
#include "runtime/api/tarn.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "platform/power/power.h"
#include "runtime/api/border.h"
#include "runtime/service/text_desk.h"

namespace tarn::api {
namespace {

thread_local char t_error_text[512] = "";
thread_local tarn_error t_error{};

}  // namespace

const char* error_text() { return t_error_text; }
tarn_error latest_error() { return t_error; }

int32_t report(const Error& error) {
  format_error(error, t_error_text, sizeof t_error_text);
  t_error.status = static_cast<int32_t>(error.status);
  t_error.reason = static_cast<int32_t>(error.reason);
  t_error.key = error.key;
  copy_figures(error, t_error.figures);
  return t_error.status;
}

int32_t report(const Result<void>& result) { return result ? TARN_OK : report(result.error()); }

Error Refusal::error() const {
  return {.status = Status::invalid_request,
          .reason = field[0] == '\0' ? Reason::wrong_state : Reason::bad_field,
          .key = field,
          .hint = hint};
}

int32_t refuse(const Refusal& why) { return report(why.error()); }

void copy_figures(const Error& error, tarn_figure (&to)[4]) {
  std::ranges::transform(error.figures, to, [](const Figure& figure) {
    return tarn_figure{figure.name == nullptr ? "" : figure.name, figure.value};
  });
}

void describe_plan(const plan::Plan& plan, tarn_plan* out) {
  out->fits = plan.fits ? 1 : 0;
  out->total_bytes = plan.total_bytes;
  out->budget_bytes = plan.budget_bytes;
  out->context_tokens = plan.context_tokens;
  out->n_regions = 0;
  for (const Region& region : plan.regions) {
    tarn_region& to = out->regions[out->n_regions++];
    copy_text(to.name, region.name);
    copy_text(to.space, region_space_name(region.space));
    copy_text(to.kind, region_kind_name(region.kind));
    to.bytes = region.bytes;
    copy_text(to.formula, region.formula.data());
  }
}

}  // namespace tarn::api

using namespace tarn;
using namespace tarn::api;
using engine::Engine;

namespace {

void describe_power(tarn_engine_status* out) {
  const PowerState power = power_state();
  copy_text(out->power_mode, power.mode.data());
  out->cpu_mhz = power.cpu_mhz;
  out->cpu_mhz_max = power.cpu_mhz_max;
  out->gpu_mhz = power.gpu_mhz;
  out->gpu_mhz_max = power.gpu_mhz_max;
  out->hottest_millidegrees = power.hottest_millidegrees;
  copy_text(out->hottest_zone, power.hottest_zone.data());
  out->n_throttling = power.n_throttling;
}

void describe_status(const Engine& engine, tarn_engine_status* out) {
  describe_power(out);
  const engine::EngineStatus status = engine.status();
  const engine::EngineCounters& counters = status.counters;
  copy_text(out->device, status.device);
  copy_text(out->isa, status.isa);
  copy_text(out->io, status.io);
  copy_text(out->arch, model::arch_name(engine.spec().arch));
  out->memory_locked = status.memory_locked ? 1 : 0;
  out->n_workers = engine.plan().n_workers;
  out->n_sessions = status.n_sessions;
  out->n_running = status.n_running;
  out->n_waiting = status.n_waiting;
  out->sessions_max = engine.plan().sessions_max;
  out->n_vocab = engine.spec().n_vocab;
  out->context_tokens = engine.plan().context_tokens;
  out->kv_groups_free = status.groups_free;
  out->kv_groups_max = engine.plan().groups_max;
  out->n_params = engine.spec().n_params;
  out->weights_bytes = engine.spec().weights_file_bytes;
  out->load_ns = counters.load_ns;
  out->n_steps = counters.n_steps;
  out->n_prefill_rows = counters.n_prefill_rows;
  out->n_decode_rows = counters.n_decode_rows;
  out->prefill_ns = counters.prefill_ns;
  out->decode_ns = counters.decode_ns;
  out->weight_bytes_read = counters.weight_bytes;
  out->kv_bytes_read = counters.kv_bytes;
  copy_text(out->select, status.select);
  out->verified = status.select_verified ? 1 : 0;
  out->recompute = status.blend_share;
  out->model_lost = status.model_lost ? 1 : 0;
  out->store_bytes = status.store.bytes;
  out->store_bytes_max = status.store.bytes_max;
  out->store_bytes_read = status.kv.store.bytes_read;
  out->store_bytes_written = status.kv.store.bytes_written;
  out->store_evictions = status.store.n_evictions;
  copy_text(out->store, status.store_mode);
  out->select_steps = counters.kv_reads.n_select_steps;
  out->kv_read_ratio = counters.kv_reads.ratio();
  out->model_verified = status.model_verified ? 1 : 0;
  out->sessions_may_be_lost = status.sessions_may_be_lost ? 1 : 0;
  const MemoryProbe& probe = status.memory_probe;
  out->gpu_bytes_per_s = probe.device_bytes_per_s;
  out->gpu_shared_bytes_per_s = probe.shared_bytes_per_s;
  out->gpu_promotes_without_copy = probe.promotes_without_copy() ? 1 : 0;
}

int32_t status_get(const Way& way, tarn_engine* handle, tarn_engine_status* status_out) {
  const EngineCall call(handle);
  tarn_engine_status out{};
  if (!copy_out(out, status_out)) return refuse({"struct_size", kBadStruct});
  if (!call) return refuse(call.why_not());
  const int32_t status = call.serve(way, [status_out](const Engine& engine) -> Result<void> {
    tarn_engine_status own{};
    describe_status(engine, &own);
    copy_out(own, status_out);
    return {};
  });
  if (status == TARN_OK) return status;
  out.dead = 1;
  copy_out(out, status_out);
  return status;
}

int32_t tokenize(const Way& way, tarn_engine* engine, const char* text, uint64_t text_bytes,
                 uint32_t flags, uint32_t* ids_out, uint64_t ids_max, uint64_t* n_out) {
  const EngineCall call(engine);
  if (n_out == nullptr) return refuse({"n_out", "n_out is NULL"});
  *n_out = 0;
  if (!call) return refuse(call.why_not());
  if (const Refusal why_not = bad_text(text, text_bytes, flags)) return refuse(why_not);
  if (ids_out == nullptr && ids_max > 0)
    return refuse({"ids_out", "ids_out is NULL and ids_max is not 0"});
  return call.serve_text(way, [=](service::TextDesk& desk) -> Result<void> {
    TARN_TRY(*n_out, desk.encode({text, text_bytes}, encode_options(flags), {ids_out, ids_max}));
    if (*n_out <= ids_max) return {};
    return fail({.status = Status::invalid_request,
                 .reason = Reason::bad_field,
                 .key = "ids_max",
                 .hint = "ids_max is too small for the ids of this text: n_out has the count"});
  });
}

}  // namespace

extern "C" {

const char* tarn_error_text(void) { return error_text(); }

int32_t tarn_error_get(tarn_error* error_out) {
  tarn_error own = latest_error();
  if (own.key == nullptr) own.key = "";
  return copy_out(own, error_out) ? TARN_OK : refuse({"struct_size", kBadStruct});
}

const char* tarn_status_name(int32_t status) { return status_name(static_cast<Status>(status)); }

const char* tarn_finish_name(int32_t finish) {
  return engine::finish_name(static_cast<engine::Finish>(finish));
}

int32_t tarn_open(const tarn_options* options, tarn_engine** engine_out) {
  if (engine_out == nullptr) return refuse({"engine_out", "engine_out is NULL"});
  *engine_out = nullptr;
  tarn_options own;
  if (const Refusal why_not = copy_in(options, &own)) return refuse(why_not);
  Result<Instance*> instance = Instance::open(own);
  if (!instance) return report(instance.error());
  *engine_out = reinterpret_cast<tarn_engine*>(*instance);
  return TARN_OK;
}

void tarn_close(tarn_engine* engine) {
  if (engine != nullptr) Instance::close(reinterpret_cast<Instance*>(engine));
}

int32_t tarn_plan_memory(const tarn_options* options, tarn_plan* plan_out) {
  tarn_options own;
  tarn_plan out{};
  if (!copy_out(out, plan_out)) return refuse({"struct_size", kBadStruct});
  if (const Refusal why_not = copy_in(options, &own)) return refuse(why_not);
  Result<engine::PlanReport> report_or = Instance::plan(own);
  if (!report_or) return report(report_or.error());
  describe_plan(report_or->plan, &out);
  copy_out(out, plan_out);
  if (!report_or->plan.fits) report(report_or->why_not);
  return TARN_OK;
}

int32_t tarn_engine_plan(tarn_engine* engine, tarn_plan* plan_out) {
  const EngineCall call(engine);
  tarn_plan out{};
  if (!copy_out(out, plan_out)) return refuse({"struct_size", kBadStruct});
  if (!call) return refuse(call.why_not());
  describe_plan(call.engine().plan(), &out);
  copy_out(out, plan_out);
  return TARN_OK;
}

int32_t tarn_engine_status_get(tarn_engine* engine, tarn_engine_status* status_out) {
  return status_get(kWaits, engine, status_out);
}
int32_t tarn_submit_engine_status_get(tarn_engine* engine, tarn_engine_status* status_out,
                                      void* request) {
  return status_get(later(request), engine, status_out);
}

int32_t tarn_tokenize(tarn_engine* engine, const char* text, uint64_t text_bytes, uint32_t flags,
                      uint32_t* ids_out, uint64_t ids_max, uint64_t* n_out) {
  return tokenize(kWaits, engine, text, text_bytes, flags, ids_out, ids_max, n_out);
}
int32_t tarn_submit_tokenize(tarn_engine* engine, const char* text, uint64_t text_bytes,
                             uint32_t flags, uint32_t* ids_out, uint64_t ids_max, uint64_t* n_out,
                             void* request) {
  return tokenize(later(request), engine, text, text_bytes, flags, ids_out, ids_max, n_out);
}

int32_t tarn_piece(tarn_engine* engine, uint32_t token, char* bytes_out, uint64_t bytes_max,
                   uint64_t* n_out) {
  const EngineCall call(engine);
  if (n_out == nullptr) return refuse({"n_out", "n_out is NULL"});
  *n_out = 0;
  if (!call) return refuse(call.why_not());
  if (bytes_out == nullptr && bytes_max > 0)
    return refuse({"bytes_out", "bytes_out is NULL and bytes_max is not 0"});
  if (token >= call.engine().text().tokenizer().n_vocab()) {
    return refuse({"token", "the token is not in the vocabulary"});
  }
  std::array<char, plan::kPieceBytesMax> piece;
  const u64 n = call.engine().text().tokenizer().piece(token, /*special=*/true, piece);
  if (n <= bytes_max) std::copy_n(piece.begin(), n, bytes_out);
  *n_out = n;
  return n <= bytes_max ? TARN_OK
                        : refuse({"bytes_max", "bytes_max is too small: n_out has the length"});
}

int32_t tarn_is_end(tarn_engine* engine, uint32_t token) {
  const EngineCall call(engine);
  if (!call) return 0;
  const auto& tokenizer = call.engine().text().tokenizer();
  return token < tokenizer.n_vocab() && tokenizer.is_end(token) ? 1 : 0;
}

}  // extern "C"
