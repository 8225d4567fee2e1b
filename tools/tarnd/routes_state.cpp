// Answers about the daemon itself: health, metrics, properties, slots.
#include <algorithm>
#include <ctime>

#include "tools/support/explanation.h"
#include "tools/support/json.h"
#include "tools/tarnd/log.h"
#include "tools/tarnd/network_memory.h"
#include "tools/tarnd/routes.h"

namespace tarn::daemon {
namespace {

using tools::JsonLine;

void reply_json(const std::shared_ptr<Exchange>& exchange, const JsonLine& json) {
  exchange->reply({.body = json.str()});
}

void write_model(const Model& model, JsonLine& json) {
  json.begin_object().key("id").text(model.name).key("object").text("model");
  json.key("created").number(model.created_s).key("owned_by").text("tarn");
  json.key("meta").begin_object().key("n_vocab").number(model.status.n_vocab);
  json.key("n_ctx").number(model.status.context_tokens);
  json.key("n_params").number(model.status.n_params);
  json.key("size").number(model.status.weights_bytes).end_object().end_object();
}

const char* session_state(int32_t state) {
  constexpr const char* kNames[] = {"idle", "computing", "generating"};
  return kNames[std::clamp(state, 0, 2)];
}

void write_slot(u64 id, const tarn_session_row* row, const Model& model, JsonLine& json) {
  json.begin_object().key("id").number(id).key("n_ctx").number(model.status.context_tokens);
  json.key("is_processing").boolean(row != nullptr && row->state != TARN_SESSION_IDLE);
  json.key("state").text(row == nullptr ? "free" : session_state(row->state));
  json.key("n_tokens").number(row == nullptr ? 0 : row->n_tokens);
  json.key("n_computed").number(row == nullptr ? 0 : row->n_computed);
  json.key("background").boolean(row != nullptr && row->priority == TARN_BACKGROUND).end_object();
}

void write_engine(const Service& service, JsonLine& json) {
  const tarn_engine_status& s = service.model.status;
  const u64 now_s = static_cast<u64>(std::time(nullptr));
  json.begin_object().key("sessions").number(s.n_sessions).key("running").number(s.n_running);
  json.key("waiting").number(s.n_waiting).key("kv_groups_free").number(s.kv_groups_free);
  json.key("kv_groups_max").number(s.kv_groups_max).key("prompt_tokens").number(s.n_prefill_rows);
  json.key("answer_tokens").number(s.n_decode_rows);
  json.key("prompt_seconds").real(tools::seconds_of(s.prefill_ns));
  json.key("answer_seconds").real(tools::seconds_of(s.decode_ns));
  json.key("plan_bytes").number(service.model.plan_bytes + NetworkMemory::limit_bytes());
  json.key("uptime_seconds").real(static_cast<f64>(now_s - service.model.created_s));
  json.key("power").begin_object().key("mode").text(s.power_mode);
  json.key("cpu_mhz").number(s.cpu_mhz).key("cpu_mhz_max").number(s.cpu_mhz_max);
  json.key("gpu_mhz").number(s.gpu_mhz).key("gpu_mhz_max").number(s.gpu_mhz_max);
  json.key("hottest_zone").text(s.hottest_zone);
  json.key("hottest_celsius").real(s.hottest_millidegrees * 1e-3);
  json.key("throttling").number(s.n_throttling).end_object();
  json.key("control").begin_object();
  tools::write_explanation(service.answers.totals().explanation, json);
  json.end_object();
  json.key("errors").begin_array();
  for (const LogRecord& record : last_errors()) {
    json.begin_object().key("at").number(record.at_s).key("text").text(record.text).end_object();
  }
  json.end_array().end_object();
}

}  // namespace

void answer_root(Service& service, const std::shared_ptr<Exchange>& exchange) {
  JsonLine json;
  json.begin_object().key("name").text("tarnd").key("version").text(TARN_VERSION);
  json.key("model").text(service.model.name).end_object();
  reply_json(exchange, json);
}

void answer_health(Service& service, const std::shared_ptr<Exchange>& exchange) {
  if (auto error = service.why_not()) return exchange->reply(*error);
  if (service.suspects()) {
    return service.with_status(exchange,
                               [&service, exchange] { answer_health(service, exchange); });
  }
  JsonLine json;
  // Requests that need the store fail where it is off or read-only; all others are answered.
  const std::string_view store = service.model.status.store;
  const bool is_degraded = store == "off" || store == "read-only";
  json.begin_object().key("status").text(is_degraded ? "degraded" : "ok");
  json.key("store").text(store).end_object();
  reply_json(exchange, json);
  // For the next one: a step may take seconds, and this reply does not wait for it.
  service.with_status(exchange, [] {});
}

void answer_models(Service& service, const std::shared_ptr<Exchange>& exchange) {
  JsonLine json;
  json.begin_object().key("object").text("list").key("data").begin_array();
  write_model(service.model, json);
  json.end_array().end_object();
  reply_json(exchange, json);
}

void answer_model(Service& service, const std::shared_ptr<Exchange>& exchange) {
  constexpr std::string_view kPrefix = "/v1/models/";
  if (exchange->request.path.substr(kPrefix.size()) != service.model.name) {
    return exchange->reply({.status = 404,
                            .type = "not_found_error",
                            .message = "the model here is " + service.model.name,
                            .code = "model_not_found"});
  }
  JsonLine json;
  write_model(service.model, json);
  reply_json(exchange, json);
}

void answer_metrics(Service& service, const std::shared_ptr<Exchange>& exchange) {
  service.with_status(exchange, [&service, exchange] {
    const std::string text =
        metrics_text({.counts = service.counts(),
                      .totals = service.answers.totals(),
                      .status = service.model.status,
                      .n_requests = service.answers.n_running(),
                      .n_connections = service.n_connections ? service.n_connections() : 0});
    exchange->reply({.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = text});
  });
}

void answer_props(Service& service, const std::shared_ptr<Exchange>& exchange) {
  service.with_status(exchange, [&service, exchange] {
    const tarn_engine_status& s = service.model.status;
    const Body body;
    JsonLine json;
    json.begin_object().key("default_generation_settings").begin_object();
    json.key("n_ctx").number(s.context_tokens).key("params").begin_object();
    json.key("temperature").real(body.temperature).key("top_p").real(body.top_p);
    json.key("min_p").real(body.min_p).key("top_k").number(static_cast<u64>(body.top_k));
    json.key("repeat_penalty").real(body.repeat_penalty);
    json.key("repeat_last_n").number(static_cast<u64>(body.repeat_last_n));
    json.end_object().end_object();
    json.key("total_slots").number(s.sessions_max).key("model_alias").text(service.model.name);
    json.key("build_info").text("tarn-" TARN_VERSION).key("arch").text(s.arch);
    json.key("device").text(s.device).key("isa").text(s.isa).key("io").text(s.io);
    json.key("select").text(s.select).key("verified").boolean(s.verified != 0);
    json.key("recompute").real(static_cast<f64>(s.recompute));
    json.key("store").text(s.store);
    json.key("model_verified").boolean(s.model_verified != 0).key("tarn");
    write_engine(service, json);
    json.end_object();
    reply_json(exchange, json);
  });
}

void answer_slots(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const u64 n_max = service.model.status.sessions_max;
  std::vector<tarn_session_row> rows(n_max, TARN_INIT(tarn_session_row));
  u64 n = 0;
  if (tarn_session_list(service.port.get(), rows.data(), n_max, &n) != TARN_OK) {
    return exchange->reply(http_error(latest_error()));
  }
  n = std::min(n, n_max);
  const bool fails_if_full = exchange->request.query.find("fail_on_no_slot=1") != std::string::npos;
  if (fails_if_full && n == n_max) {
    return exchange->reply(
        {.status = 503, .type = "unavailable_error", .message = "no slot available"});
  }
  JsonLine json;
  json.begin_array();
  for (u64 i = 0; i < n_max; ++i) write_slot(i, i < n ? &rows[i] : nullptr, service.model, json);
  json.end_array();
  reply_json(exchange, json);
}

}  // namespace tarn::daemon
