// The table of endpoints. Each function answers one request, now or later.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "tools/tarnd/service.h"

namespace tarn::daemon {

using RouteFunction = void (*)(Service& service, const std::shared_ptr<Exchange>& exchange);

struct Route {
  const char* method;
  const char* path;  // one that ends in '/' takes every path behind it
  RouteFunction answer;
  bool is_public = false;    // needs no key
  bool needs_engine = true;  // 503 until there is one
};
std::span<const Route> routes();
// nullptr: there is none; then `allowed` is the path's method, or "" for an unknown path.
const Route* find_route(std::string_view method, std::string_view path, std::string_view* allowed);

// "/v1/models/" asks for "/v1/models". Before escapes are read: a name may end with one of '/'.
std::string_view without_last_slash(std::string_view path);
// Whether other servers have something at this path, which is not served here.
bool is_known_elsewhere(std::string_view path);

// routes_answers.cpp
void answer_chat(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_completion(Service& service, const std::shared_ptr<Exchange>& exchange);
// routes_text.cpp
void answer_tokenize(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_detokenize(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_apply_template(Service& service, const std::shared_ptr<Exchange>& exchange);
// routes_state.cpp
void answer_root(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_health(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_models(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_model(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_metrics(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_props(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_slots(Service& service, const std::shared_ptr<Exchange>& exchange);
// routes_store.cpp
void answer_ingest(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_store_list(Service& service, const std::shared_ptr<Exchange>& exchange);
void answer_store_remove(Service& service, const std::shared_ptr<Exchange>& exchange);

}  // namespace tarn::daemon
