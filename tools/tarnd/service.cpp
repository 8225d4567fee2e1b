#include "tools/tarnd/service.h"

#include <algorithm>

#include "tools/tarnd/cors.h"
#include "tools/tarnd/log.h"
#include "tools/tarnd/routes.h"

namespace tarn::daemon {
namespace {

HttpError not_allowed(int status, const std::string& message) {
  const bool is_key = status == 401;
  return {.status = status,
          .type = is_key ? "authentication_error" : "permission_error",
          .message = message,
          .code = is_key ? "invalid_api_key" : ""};
}

// "%41" becomes 'A'. Returns false for an escape that is none, or of a zero byte.
bool unescape(std::string_view path, std::string& out) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      out += path[i];
      continue;
    }
    const int high = i + 2 < path.size() ? digit(path[i + 1]) : -1;
    const int low = i + 2 < path.size() ? digit(path[i + 2]) : -1;
    if (high < 0 || low < 0 || high + low == 0) return false;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

// Returns a name that a client sent as " 'x'", or "" where it is none.
std::string shown(std::string_view name) {
  constexpr size_t kNameBytesMax = 253;  // DNS
  const bool is_name =
      !name.empty() && name.size() <= kNameBytesMax &&
      std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~' && c != '\''; });
  return is_name ? " '" + std::string(name) + "'" : "";
}

std::string ms_text(u64 ns) { return std::to_string(ns / 1'000'000); }

// Returns the pairs of a request that the engine has tokens of.
std::vector<LogPair> work_pairs(const Work& work) {
  if (work.n_prompt_tokens + work.n_generated == 0) return {};
  std::vector<LogPair> pairs = {{"prompt_tokens", std::to_string(work.n_prompt_tokens)},
                                {"cached_tokens", std::to_string(work.n_cached_tokens)},
                                {"generated_tokens", std::to_string(work.n_generated)}};
  if (work.first_token_ns > 0) pairs.push_back({"first_token_ms", ms_text(work.first_token_ns)});
  return pairs;
}

}  // namespace

Service::Service(event_base* base, EnginePort& engine_port, const Settings& settings, Model served)
    : port(engine_port),
      answers(engine_port),
      ingester(base),
      model(std::move(served)),
      settings_(settings),
      rules_(settings) {
  port.on_event = [this](const tarn_event& event) { answers.on_event(event); };
  port.on_io_failed = [this] {
    if (!suspects_) look([this](const tarn_event&) { suspects_ = false; });
    suspects_ = true;
  };
}

void Service::on_bad_head(const Head& head, Request& request) {
  const std::string_view origin = head.field("origin");
  if (head.count("origin") == 1 && !origin.empty() && rules_.is_our_origin(origin)) {
    request.cors_fields = cors_fields(origin);
  }
}

std::optional<HttpError> Service::on_head(const Head& head, Request& request) {
  on_bad_head(head, request);
  if (!unescape(without_last_slash(head.path), request.path))
    return invalid_request("a bad escape in the path");
  std::string_view allowed;
  const Route* const route = request.route = find_route(head.method, request.path, &allowed);
  if (!request.cors_fields.empty() && is_preflight(head)) {
    if (auto error = check_names(head)) return error;
    request.preflight_fields = preflight_fields(head.field("access-control-request-headers"));
    return std::nullopt;
  }
  const bool is_public = route != nullptr && route->is_public;
  if (request.peer.is_tcp || request.path == "/") {
    if (auto error = check_tcp(head, request, is_public)) return error;
  }
  if (!request.peer.is_tcp) request.peer.tenant = "uid:" + std::to_string(request.peer.uid);
  if (settings_.shared) request.peer.tenant.clear();
  if (route == nullptr && allowed.empty()) {
    return HttpError{.status = 404,
                     .type = "not_found_error",
                     .message = is_known_elsewhere(request.path)
                                    ? "this path is not served by this version"
                                    : "there is no such path"};
  }
  if (route == nullptr) {
    return HttpError{.status = 405,
                     .type = "invalid_request_error",
                     .message = "this path has another method",
                     .allow = allowed};
  }
  if (route->needs_engine) return why_not();
  return std::nullopt;
}

std::optional<HttpError> Service::check_names(const Head& head) const {
  const std::string_view host = head.field("host"), origin = head.field("origin");
  if (!rules_.is_our_host(host)) {
    return not_allowed(403, "the Host field" + shown(without_port(host)) +
                                " is no name of this daemon: add the name to daemon.hosts");
  }
  if (!rules_.is_our_origin(origin)) {
    return not_allowed(403, "web pages of this origin" + shown(origin) +
                                " may not ask: add it to daemon.origins, if that is meant");
  }
  return std::nullopt;
}

std::optional<HttpError> Service::check_tcp(const Head& head, Request& request,
                                            bool is_public) const {
  if (auto error = check_names(head)) return error;
  if (!request.peer.is_tcp || settings_.insecure_no_key) return std::nullopt;
  const auto label = rules_.label_of(head.field("authorization"), head.field("x-api-key"));
  if (label) request.peer.tenant = "key:" + *label;
  if (!label && !is_public) return not_allowed(401, "the key is missing or wrong");
  return std::nullopt;
}

void Service::on_request(const std::shared_ptr<Exchange>& exchange) {
  if (!exchange->request.preflight_fields.empty()) return exchange->reply(Reply{.status = 204});
  // It may have begun to stop while the body came.
  const Route& route = *exchange->request.route;
  if (const auto error = route.needs_engine ? why_not() : std::nullopt) {
    return exchange->reply(*error);
  }
  route.answer(*this, exchange);
}

void Service::on_replied(const Exchange& exchange) {
  const Request& request = exchange.request;
  const bool was_left = exchange.was_left();
  ++(was_left ? counts_.n_gone : counts_.replies[exchange.status()]);
  if (exchange.work.first_token_ns > 0) counts_.first_token.add_ns(exchange.work.first_token_ns);
  if (!was_left && exchange.work.n_prompt_tokens > 0) counts_.reply.add_ns(exchange.age_ns());
  log_event(was_left ? Event::client_gone : Event::request,
            {{"id", request.id},
             {"path", request.route != nullptr ? request.route->path : "other"},
             {"tenant", request.peer.tenant},
             {"status", std::to_string(exchange.status())},
             {"ms", ms_text(exchange.age_ns())}},
            work_pairs(exchange.work));
}

std::optional<HttpError> Service::why_not() const {
  switch (port.state()) {
    case EnginePort::State::loading:
      return unavailable("Loading model", 1);
    case EnginePort::State::ready:
      if (drains_) return unavailable("the daemon is stopping", 5);
      return std::nullopt;
    default:
      return unavailable(port.error().text, 5);
  }
}

void Service::on_engine_state() {
  if (port.state() == EnginePort::State::ready) {
    tarn_engine_status_get(port.get(), &model.status);  // nothing runs yet, so it does not wait
    tarn_plan plan = TARN_INIT(tarn_plan);
    if (tarn_engine_plan(port.get(), &plan) == TARN_OK) model.plan_bytes = plan.total_bytes;
  } else {
    answers.fail_all(unavailable(port.error().text, 5));
  }
}

void Service::reload(const Settings& settings) {
  Settings merged = settings_;
  take_reloadable(settings, merged);
  check_settings(merged);
  rules_ = PeerRules(merged);
  settings_ = std::move(merged);
}

void Service::end_answers() {
  ingester.cancel();
  answers.fail_all(unavailable("the daemon is stopping", 5));
}

void Service::look(EnginePort::Done then) {
  const auto status = std::make_shared<tarn_engine_status>();
  *status = TARN_INIT(tarn_engine_status);
  port.call(
      [status](tarn_engine* engine, void* request) {
        return tarn_submit_engine_status_get(engine, status.get(), request);
      },
      [this, status, then = std::move(then)](const tarn_event& reply) {
        if (reply.status == TARN_OK) model.status = *status;
        if (reply.status == TARN_OK && status->model_lost != 0) {
          port.give_up({.status = TARN_INTERNAL,
                        .text = "the model's file has changed, or cannot be read "
                                "(model.embedding = \"disk\"): the process ends, and is to be "
                                "started again"});
        }
        then(reply);
      });
}

void Service::with_status(const std::shared_ptr<Exchange>& exchange, std::function<void()> then) {
  look([exchange, then = std::move(then)](const tarn_event& reply) {
    if (reply.status != TARN_OK) return exchange->fail(http_error(error_in(reply)));
    then();
  });
}

}  // namespace tarn::daemon
