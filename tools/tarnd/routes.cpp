#include "tools/tarnd/routes.h"

#include <algorithm>

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

// Paths of other servers, which clients try, and all paths below them.
// clang-format off
constexpr std::string_view kPathsElsewhere[] = {
    "/v1/embeddings", "/embeddings", "/embedding", "/embed", "/embed_all", "/pooling",
    "/v1/responses", "/responses", "/v1/messages", "/messages", "/v1/complete",
    "/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking", "/v1/score", "/score",
    "/v1/classify", "/classify", "/predict", "/infill", "/completion", "/generate",
    "/generate_stream", "/inference", "/invocations", "/v1/edits", "/v1/engines", "/v1/moderations",
    "/v1/audio", "/v1/images", "/v1/videos", "/v1/files", "/v1/uploads", "/v1/batches",
    "/v1/fine_tuning", "/v1/assistants", "/v1/threads", "/v1/conversations", "/v1/vector_stores",
    "/v1/realtime", "/v1/completions", "/v1/chat", "/api", "/lora-adapters", "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter", "/slots", "/models", "/info", "/version", "/ping", "/load",
    "/get_model_info", "/v1/internal", "/chat_tokenize", "/count_tokens"};
// clang-format on

bool is_under(std::string_view known, std::string_view path) {
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
    if (!is_under(route.path, path)) continue;
    *allowed = route.method;
    if (method == route.method) return &route;
  }
  return nullptr;
}

std::string_view without_last_slash(std::string_view path) {
  return path.size() > 1 && path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
}

bool is_known_elsewhere(std::string_view path) {
  return std::ranges::any_of(kPathsElsewhere, [path](std::string_view known) {
    return path.starts_with(known) && (path.size() == known.size() || path[known.size()] == '/');
  });
}

}  // namespace tarn::daemon
