// One connection: HTTP/1.1 over a bufferevent, one request after another.
//
//   head       at most kHeadBytesMax and Limits::header_s seconds; between requests idle_s
//   body       within Limits::body_s seconds, charged to the network's memory before it is read
//   answering  the handler has the exchange; what comes meanwhile waits in the socket
//   lingering  the last reply is out: what still comes is dropped, so that the client reads the
//              reply before it sees the connection closed
//
// A write that makes no progress for stalled_s seconds ends the connection, and so does a stream of
// which the client has left more than unread_bytes_max unread.
#pragma once

#include <event2/bufferevent.h>
#include <event2/event.h>

#include <memory>
#include <string_view>

#include "tools/support/chunked_body.h"
#include "tools/tarnd/exchange.h"
#include "tools/tarnd/http_head.h"

namespace tarn::daemon {

struct Limits {
  u64 body_bytes_max = 8 * 1024 * 1024;
  u64 unread_bytes_max = 256 * 1024;
  u32 header_s = 10, body_s = 30, idle_s = 75, stalled_s = 10, ping_s = 15;
};

// The interface that connections ask. One per server.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual const Limits& limits() const = 0;
  virtual std::string next_request_id() = 0;
  virtual bool closes() const { return false; }  // each connection ends with its next reply
  // Before the body: whether the request may go on. It may set what depends on the head.
  virtual std::optional<HttpError> on_head(const Head& head, Request& request) = 0;
  // The head is refused, or did not come whole: sets what its reply depends on.
  virtual void on_bad_head(const Head& head, Request& request) = 0;
  virtual void on_request(const std::shared_ptr<Exchange>& exchange) = 0;
  // The reply is out, or the client is gone.
  virtual void on_replied(const Exchange& exchange) = 0;
  // The connection is to be deleted once its own callback has returned.
  virtual void on_closed(Connection* connection) = 0;
};

class Connection {
 public:
  static constexpr u64 kSilentMs = 1000;

  // Takes the descriptor. is_usable() is false if there is no memory for it.
  Connection(Handler& handler, event_base* base, int fd, const Peer& peer);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();
  bool is_usable() const { return stream_ != nullptr && timer_ != nullptr; }
  // Returns whether no request is there and the last reply is out: it is silent, or has sent a part
  // of a head. One that has sent no request yet is given kSilentMs for it.
  bool gives_way(u64 now_ns) const;
  u64 used_at_ns() const { return used_at_ns_; }  // of the last request, or of the connection

  void close();
  // No further request is read. Closes at once if there is none.
  void close_soon();

  // By the exchange.
  void write(std::string_view bytes);
  void write_event(std::string_view bytes);
  void begin_stream();
  void end_reply(bool keeps_alive);

 private:
  enum class State : u8 { head, body, answering, lingering, closed };

  static void on_read(bufferevent*, void* self);
  static void on_written(bufferevent*, void* self);
  static void on_event(bufferevent*, short what, void* self);
  static void on_timer(evutil_socket_t, short, void* self);

  bool has_input() const;
  bool has_output() const;
  bool has_unread() const;  // in the socket
  void advance();
  bool advance_head();  // whether there is more to do
  bool advance_body();
  void begin_request(const Head& head);
  void refuse(const HttpError& error, bool keeps_alive);
  void refuse_head(const HttpError& error);
  void hand_over();
  void linger();
  void drop_input();
  void arm(u32 seconds);
  std::shared_ptr<Exchange> new_exchange(const Head& head);

  Handler& handler_;
  Peer peer_;
  bufferevent* stream_ = nullptr;
  event* timer_ = nullptr;
  int fd_;
  State state_ = State::head;
  bool is_advancing_ = false;
  bool closes_ = false;  // once the output is written
  bool head_has_begun_ = false;
  u64 used_at_ns_;
  bool had_request_ = false;
  u64 n_dropped_ = 0;
  std::shared_ptr<Exchange> exchange_;
  u64 n_body_left_ = 0;
  std::unique_ptr<tools::ChunkedBody> chunks_;
};

}  // namespace tarn::daemon
