// Accepts connections on the listeners and hands their requests to an Api. All of it happens on the
// thread that runs the event loop.
//
// At connections_max the longest idle connection is closed for a new one. A connection that has
// sent no whole head for a second counts as idle. If there is none, new ones wait in the listeners'
// backlog, which the system bounds. Without a descriptor or memory for a new one the same happens;
// accepting goes on when a connection has closed, or after kPauseMs.
#pragma once

#include <event2/event.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/tarnd/connection.h"
#include "tools/tarnd/listeners.h"

namespace tarn::daemon {

// The application's side of the server.
class Api {
 public:
  virtual ~Api() = default;
  virtual bool allows(const Peer& peer) const = 0;
  virtual std::optional<HttpError> on_head(const Head& head, Request& request) = 0;
  virtual void on_bad_head(const Head& head, Request& request) = 0;
  virtual void on_request(const std::shared_ptr<Exchange>& exchange) = 0;
  virtual void on_replied(const Exchange& exchange) = 0;
};

class Server : public Handler {
 public:
  static constexpr u32 kPauseMs = 100;

  Server(event_base* base, Api& api, const Limits& limits, u32 connections_max);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() override;

  // Begins to accept. Throws Failure if the system refuses.
  void listen(const Listener& listener);
  // Every later reply closes its connection. New ones are accepted, and told that the daemon stops;
  // those to a socket that was passed wait for the next process.
  void begin_draining();
  void stop_listening();
  // Connections end with the reply that they wait for; idle ones at once.
  void close_idle();
  void set_limits(const Limits& limits) { limits_ = limits; }
  u64 n_connections() const { return connections_.size(); }

 private:
  struct EventFree {
    void operator()(event* e) const { event_free(e); }
  };
  using EventOwner = std::unique_ptr<event, EventFree>;
  struct Door {
    Server* server;
    int fd;
    bool is_tcp, is_passed;
    EventOwner event;
  };
  static void on_waiting(evutil_socket_t, short, void* door);
  static void on_again(evutil_socket_t, short, void* self);
  static void on_reap(evutil_socket_t, short, void* self);

  const Limits& limits() const override { return limits_; }
  std::string next_request_id() override;
  bool closes() const override { return closes_; }
  std::optional<HttpError> on_head(const Head& head, Request& request) override;
  void on_bad_head(const Head& head, Request& request) override;
  void on_request(const std::shared_ptr<Exchange>& exchange) override;
  void on_replied(const Exchange& exchange) override;
  void on_closed(Connection* connection) override;

  void accept_from(const Door& door);
  void add(int fd, bool is_tcp);
  bool make_room();  // whether a connection was closed
  void pause();
  void resume();

  event_base* base_;
  Api& api_;
  Limits limits_;
  u32 connections_max_;
  EventOwner reaper_, again_;
  std::vector<std::unique_ptr<Door>> doors_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> closed_;
  std::string id_prefix_;
  u64 n_requests_ = 0;
  bool is_paused_ = false, closes_ = false;
};

}  // namespace tarn::daemon
