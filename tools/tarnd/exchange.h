// One request and its reply. The connection and the answerer share it; it outlives either.
//
//   reply()                             a whole reply, once
//   begin_stream(), send(), end_stream()   server-sent events, with pings while nothing is sent
//
// When the client goes away first, on_gone's function is called once, and all calls do nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/clock/clock.h"
#include "tools/tarnd/network_memory.h"
#include "tools/tarnd/peer.h"

namespace tarn::daemon {

class Connection;
struct Route;

struct Request {
  std::string id;                // X-Request-Id
  const Route* route = nullptr;  // by the head; nullptr: there is none
  std::string path, query;
  std::string body;
  Peer peer;
  std::string cors_fields;       // of the reply to a page of an allowed origin; else ""
  std::string preflight_fields;  // of the reply to a browser's question; else ""
  Lease lease;                   // for the body and what is made of it
};

// A refusal, as OpenAI's clients read it.
struct HttpError {
  int status = 500;
  std::string type, message;
  std::string code = {};   // "": the status
  std::string param = {};  // the field's name; "": none
  std::optional<u64> retry_after_s = std::nullopt;
  std::string_view allow = {};                                 // of 405: the path's method
  std::vector<std::pair<std::string_view, u64>> numbers = {};  // further members, of fixed names
};
std::string error_body(const HttpError& error);
HttpError invalid_request(const std::string& message, const std::string& param = "");
HttpError unavailable(const std::string& message, u64 retry_after_s);
HttpError no_request_memory();

struct Reply {
  int status = 200;
  std::string_view content_type = "application/json";
  std::string_view body = {};
  std::optional<u64> retry_after_s = std::nullopt;
  std::string_view allow = {};  // of 405
};

// The engine's work for a request so far, as the log shows it.
struct Work {
  u64 n_prompt_tokens = 0, n_cached_tokens = 0, n_generated = 0;
  u64 first_token_ns = 0;  // since the request's head; 0: there is none
};

class Exchange {
 public:
  Exchange(Connection* connection, bool keeps_alive, bool is_chunked, bool is_head)
      : connection_(connection),
        keeps_alive_(keeps_alive),
        is_chunked_(is_chunked),
        is_head_(is_head),
        began_ns_(SystemClock().now_ns()) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() = default;

  Request request;
  Work work;

  u64 age_ns() const { return SystemClock().now_ns() - began_ns_; }
  // The client went away before the end of its reply.
  bool was_left() const { return was_left_; }
  bool is_gone() const { return connection_ == nullptr; }
  bool has_begun() const { return has_begun_; }
  void on_gone(std::function<void()> call) { on_gone_ = std::move(call); }

  void reply(const Reply& reply);
  void reply(const HttpError& error);
  void begin_stream();
  void send(std::string_view event_data);
  void ping();
  void end_stream();
  // An error as the stream's last event, or as the whole reply.
  void fail(const HttpError& error);
  // The connection ends with this reply.
  void close_after() { keeps_alive_ = false; }
  int status() const { return status_; }  // of the reply; 0: none yet

  // By the connection, when it ends.
  void leave();

 private:
  void write_head(const Reply& reply, bool is_stream);
  void write_chunk(std::string_view bytes);
  void finish();

  Connection* connection_;
  bool keeps_alive_, is_chunked_, is_head_;
  u64 began_ns_;
  bool has_begun_ = false, was_left_ = false;
  int status_ = 0;
  std::function<void()> on_gone_;
};

}  // namespace tarn::daemon
