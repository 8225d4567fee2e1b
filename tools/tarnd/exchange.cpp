#include "tools/tarnd/exchange.h"

#include <array>
#include <cstdio>
#include <ctime>

#include "tools/support/json.h"
#include "tools/tarnd/connection.h"

namespace tarn::daemon {
namespace {

struct Reason {
  int status;
  const char* text;
};
constexpr Reason kReasons[] = {
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

const char* reason_of(int status) {
  for (const Reason& reason : kReasons) {
    if (reason.status == status) return reason.text;
  }
  return "Unknown";
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return text;
}

}  // namespace

HttpError invalid_request(const std::string& message, const std::string& param) {
  return {.status = 400, .type = "invalid_request_error", .message = message, .param = param};
}

HttpError unavailable(const std::string& message, u64 retry_after_s) {
  return {.status = 503,
          .type = "unavailable_error",
          .message = message,
          .retry_after_s = retry_after_s};
}

HttpError no_request_memory() {
  return unavailable("the memory for requests is in use (daemon.memory_bytes): try again", 1);
}

std::string error_body(const HttpError& error) {
  tools::JsonLine json;
  json.begin_object().key("error").begin_object().key("code");
  if (error.code.empty()) {
    json.number(static_cast<u64>(error.status));
  } else {
    json.text(error.code);
  }
  json.key("message").text(error.message).key("type").text(error.type).key("param");
  if (error.param.empty()) {
    json.null();
  } else {
    json.text(error.param);
  }
  for (const auto& [name, value] : error.numbers) json.key(name).number(value);
  json.end_object().end_object();
  return std::string(json.str());
}

void Exchange::reply(const Reply& reply) {
  if (is_gone() || has_begun_) return;
  has_begun_ = true;
  write_head(reply, /*is_stream=*/false);
  if (!is_head_ && !is_gone()) connection_->write(reply.body);
  finish();
}

void Exchange::reply(const HttpError& error) {
  const std::string body = error_body(error);
  reply({.status = error.status,
         .body = body,
         .retry_after_s = error.retry_after_s,
         .allow = error.allow});
}

void Exchange::begin_stream() {
  if (is_gone() || has_begun_) return;
  has_begun_ = true;
  if (!is_chunked_) keeps_alive_ = false;  // HTTP/1.0: the end of the connection ends the reply
  write_head({.content_type = "text/event-stream"}, /*is_stream=*/true);
  if (!is_gone()) connection_->begin_stream();
}

void Exchange::send(std::string_view event_data) {
  std::string event = "data: ";
  event.append(event_data).append("\n\n");
  write_chunk(event);
}

void Exchange::ping() { write_chunk(": ping\n\n"); }

void Exchange::end_stream() {
  if (!is_gone() && is_chunked_) connection_->write("0\r\n\r\n");
  finish();
}

void Exchange::fail(const HttpError& error) {
  if (!has_begun_) return reply(error);
  send(error_body(error));
  end_stream();
}

void Exchange::leave() {
  was_left_ = true;
  connection_ = nullptr;
  const std::function<void()> call = std::move(on_gone_);
  on_gone_ = nullptr;
  if (call) call();
}

void Exchange::write_head(const Reply& reply, bool is_stream) {
  status_ = reply.status;
  std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " " + reason_of(reply.status) +
                     "\r\nDate: " + date_now();
  const bool has_body = reply.status != 204;
  if (has_body) head.append("\r\nContent-Type: ").append(reply.content_type);
  head += "\r\nX-Request-Id: " + request.id + "\r\nCache-Control: no-store";
  if (!is_stream && has_body) head += "\r\nContent-Length: " + std::to_string(reply.body.size());
  if (is_stream && is_chunked_) head += "\r\nTransfer-Encoding: chunked";
  if (reply.retry_after_s) head += "\r\nRetry-After: " + std::to_string(*reply.retry_after_s);
  if (reply.status == 401) head += "\r\nWWW-Authenticate: Bearer";
  if (!reply.allow.empty()) head.append("\r\nAllow: ").append(reply.allow);
  head += keeps_alive_ ? "\r\nConnection: keep-alive\r\n" : "\r\nConnection: close\r\n";
  head += request.cors_fields + request.preflight_fields + "\r\n";
  connection_->write(head);
}

void Exchange::write_chunk(std::string_view bytes) {
  if (is_gone()) return;
  std::string chunk;
  if (is_chunked_) {
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
    chunk.append(size).append(bytes).append("\r\n");
    bytes = chunk;
  }
  connection_->write_event(bytes);
}

void Exchange::finish() {
  if (is_gone()) return;
  Connection* const connection = connection_;
  connection_ = nullptr;
  on_gone_ = nullptr;
  connection->end_reply(keeps_alive_);
}

}  // namespace tarn::daemon
