#include "tools/tarnd/routes.h"

namespace tarn::daemon {
namespace {

constexpr Route kRoutes[] = {
    {"GET", "/", answer_root, /*is_public=*/false, /*needs_engine=*/false},
    {"GET", "/health", answer_health, /*is_public=*/true, /*needs_engine=*/false},
    {"GET", "/v1/health", answer_health, /*is_public=*/true, /*needs_engine=*/false},
    {"GET", "/v1/models", answer_models, /*is_public=*/true},
    {"GET", "/models", answer_models, /*is_public=*/true},
    {"GET", "/v1/models/", answer_model, /*is_public=*/true},
    {"POST", "/v1/chat/completions", answer_chat},
    {"POST", "/chat/completions", answer_chat},
    {"POST", "/v1/completions", answer_completion},
    {"POST", "/completions", answer_completion},
    {"POST", "/tokenize", answer_tokenize},
    {"POST", "/detokenize", answer_detokenize},
    {"POST", "/apply-template", answer_apply_template},
    {"GET", "/metrics", answer_metrics},
    {"GET", "/props", answer_props},
    {"GET", "/slots", answer_slots},
    {"POST", "/v1/tarn/ingest", answer_ingest},
    {"GET", "/v1/tarn/store", answer_store_list},
    {"DELETE", "/v1/tarn/store/", answer_store_remove},
};

bool is_at(const Route& route, std::string_view path) {
  const std::string_view known = route.path;
  if (known.size() > 1 && known.ends_with('/')) {
    return path.size() > known.size() && path.starts_with(known);
  }
  return path == known;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

const Route* find_route(std::string_view method, std::string_view path, std::string_view* allowed) {
  *allowed = "";
  if (method == "HEAD") method = "GET";
  for (const Route& route : kRoutes) {
    if (!is_at(route, path)) continue;
    *allowed = route.method;
    if (method == route.method) return &route;
  }
  return nullptr;
}

}  // namespace tarn::daemon
