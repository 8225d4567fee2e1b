#include "tools/tarnd/engine_error.h"

#include <algorithm>

namespace tarn::daemon {
namespace {

// Whole seconds; at least 1, also where the engine knows no time.
u64 retry_seconds(const EngineError& error) {
  constexpr u64 kMsPerSecond = 1000;
  return std::max<u64>((error.figure("retry_ms") + kMsPerSecond - 1) / kMsPerSecond, 1);
}

HttpError try_later(const EngineError& error) {
  return {.status = 429,
          .type = "rate_limit_error",
          .message = error.text,
          .retry_after_s = retry_seconds(error)};
}

// OpenAI's code beside the type and the numbers of llama-server: clients look for either.
HttpError too_long(const EngineError& error, std::string_view text_field) {
  return {.status = 400,
          .type = "exceed_context_size_error",
          .message = error.text,
          .code = "context_length_exceeded",
          .param = std::string(text_field),
          .numbers = {{"n_prompt_tokens", error.figure("n_prompt_tokens")},
                      {"n_ctx", error.figure("n_ctx")}}};
}

// The request's name for an argument of the engine's.
std::string param_of(const EngineError& error, std::string_view text_field) {
  constexpr std::string_view kTexts[] = {"text", "ids", "messages"};
  if (error.reason == TARN_REASON_NO_MEMORY) return std::string(text_field);
  if (error.reason != TARN_REASON_BAD_FIELD) return "";
  return std::ranges::find(kTexts, error.key) != std::end(kTexts) ? std::string(text_field) : "";
}

}  // namespace

u64 EngineError::figure(std::string_view name) const {
  const auto found = std::ranges::find_if(
      figures, [&](const tarn_figure& each) { return each.name != nullptr && each.name == name; });
  return found != figures.end() ? found->value : 0;
}

EngineError latest_error() {
  tarn_error own = TARN_INIT(tarn_error);
  tarn_error_get(&own);
  EngineError error{
      .status = own.status, .reason = own.reason, .key = own.key, .text = tarn_error_text()};
  std::ranges::copy(own.figures, error.figures.begin());
  return error;
}

EngineError error_in(const tarn_event& reply) {
  EngineError error{.status = reply.status,
                    .reason = reply.reason,
                    .key = reply.key != nullptr ? reply.key : "",
                    .text = {reply.text, reply.text_bytes}};
  std::ranges::copy(reply.figures, error.figures.begin());
  return error;
}

tarn_event reply_of(const EngineError& error) {
  tarn_event event = TARN_INIT(tarn_event);
  event.type = TARN_EVENT_REPLY;
  event.status = error.status;
  event.reason = error.reason;
  event.key = error.key.c_str();
  std::ranges::copy(error.figures, event.figures);
  event.text_bytes = static_cast<u32>(error.text.copy(event.text, sizeof event.text - 1));
  return event;
}

HttpError http_error(const EngineError& error, std::string_view text_field) {
  switch (error.reason) {
    case TARN_REASON_CONTEXT_TOO_LONG:
      return too_long(error, text_field);
    case TARN_REASON_BUSY_SESSIONS:
    case TARN_REASON_BUSY_WAITING:
    case TARN_REASON_BUSY_KV:
    case TARN_REASON_BUSY_CALLS:
    case TARN_REASON_STORE_FULL:
      return try_later(error);
    default:
      break;
  }
  switch (error.status) {
    case TARN_WOULD_BLOCK:
      return try_later(error);
    case TARN_INVALID_REQUEST:
      return invalid_request(error.text, param_of(error, text_field));
    case TARN_UNSUPPORTED:
      return {.status = 400, .type = "not_supported_error", .message = error.text};
    case TARN_NOT_FOUND:
      return {.status = 404, .type = "not_found_error", .message = error.text};
    case TARN_NOT_FINITE:
      return {.status = 500, .type = "server_error", .message = error.text};
    default:  // the disk, the GPU, or the engine: not this request's fault
      return unavailable(error.text, 5);
  }
}

}  // namespace tarn::daemon
