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
  HttpError refusal{.status = 400,
                    .type = "exceed_context_size_error",
                    .message = error.text,
                    .code = "context_length_exceeded",
                    .param = std::string(text_field),
                    .numbers = {{"n_prompt_tokens", error.figure("n_prompt_tokens")},
                                {"n_ctx", error.figure("n_ctx")}}};
  if (error.figure("estimated") != 0) refusal.numbers.push_back({"estimated", 1});
  return refusal;
}

// An argument of the engine's, and the request's field that it came from.
struct FieldName {
  std::string_view key, field;
};
// Where the text came from, and where its name stands: in a completion that of a session.
constexpr std::string_view kTextField = "*", kNameField = "**";
constexpr FieldName kFieldNames[] = {{"text", kTextField},
                                     {"ids", kTextField},
                                     {"messages", kTextField},
                                     {"messages_json", kTextField},
                                     {"arguments", "chat_template_kwargs"},
                                     {"tools", "tools"},
                                     {"parts", "tarn.chunks"},
                                     {"recompute", "tarn.recompute"},
                                     {"name", kNameField},
                                     {"stops", "stop"},
                                     {"logit_biases", "logit_bias"},
                                     {"n_top_logprobs", "top_logprobs"},
                                     {"penalty_last_tokens", "repeat_last_n"},
                                     {"repetition_penalty", "repeat_penalty"},
                                     {"temperature", "temperature"},
                                     {"top_p", "top_p"},
                                     {"min_p", "min_p"},
                                     {"top_k", "top_k"},
                                     {"frequency_penalty", "frequency_penalty"},
                                     {"presence_penalty", "presence_penalty"}};

std::string param_of(const EngineError& error, std::string_view text_field) {
  std::string_view field;
  switch (error.reason) {
    case TARN_REASON_NO_MEMORY:
    case TARN_REASON_NO_TEMPLATE:
    case TARN_REASON_TEMPLATE_FAILED:
      field = kTextField;
      break;
    case TARN_REASON_NO_STORE:
    case TARN_REASON_NAME_NOT_FOUND:
    case TARN_REASON_NAME_IN_USE:
    case TARN_REASON_SAVED_OTHERWISE:
      field = kNameField;
      break;
    case TARN_REASON_BAD_FIELD: {
      const auto found = std::ranges::find(kFieldNames, error.key, &FieldName::key);
      if (found != std::end(kFieldNames)) field = found->field;
      break;
    }
    default:
      break;
  }
  if (field == kTextField || (field == kNameField && text_field.empty())) field = text_field;
  if (field == kNameField) field = text_field == "content" ? "name" : "tarn.session";
  return std::string(field);
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
      return {.status = 400,
              .type = "not_supported_error",
              .message = error.text,
              .param = param_of(error, text_field)};
    case TARN_NOT_FOUND:
      return {.status = 404,
              .type = "not_found_error",
              .message = error.text,
              .param = param_of(error, text_field)};
    case TARN_NOT_FINITE:
      return {.status = 500, .type = "server_error", .message = error.text};
    default:  // the disk, the GPU, or the engine: not this request's fault
      return unavailable(error.text, 5);
  }
}

}  // namespace tarn::daemon
