// Accepts connections on the listeners and hands their requests to an Api. All of it happens on the
// thread that runs the event loop.
//
// At connections_max the longest idle connection is closed for a new one; if none is idle, new ones
// wait in the listeners' backlog, which the system bounds.
#pragma once

#include <event2/event.h>
#include <event2/listener.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/tarnd/connection.h"
#include "tools/tarnd/listeners.h"

namespace tarn::daemon {

// What the server asks of the application.
class Api {
 public:
  virtual ~Api() = default;
  virtual bool allows(const Peer& peer) const = 0;
  virtual std::optional<HttpError> on_head(const Head& head, Request& request) = 0;
  virtual void on_request(const std::shared_ptr<Exchange>& exchange) = 0;
  virtual void on_replied(const Exchange& exchange) = 0;
};

class Server : public Handler {
 public:
  Server(event_base* base, Api& api, const Limits& limits, u32 connections_max);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() override;

  // Begins to accept. Throws Failure if the system refuses.
  void listen(const Listener& listener);
  void stop_listening();
  // Connections end with the reply that they wait for; idle ones at once.
  void close_idle();
  void set_limits(const Limits& limits) { limits_ = limits; }
  u64 n_connections() const { return connections_.size(); }

 private:
  struct Door {
    Server* server;
    bool is_tcp;
    evconnlistener* listener;
  };
  static void on_accept(evconnlistener*, evutil_socket_t fd, sockaddr*, int, void* door);
  static void on_reap(evutil_socket_t, short, void* self);

  const Limits& limits() const override { return limits_; }
  std::string next_request_id() override;
  std::optional<HttpError> on_head(const Head& head, Request& request) override;
  void on_request(const std::shared_ptr<Exchange>& exchange) override;
  void on_replied(const Exchange& exchange) override;
  void on_closed(Connection* connection) override;

  void accept(int fd, bool is_tcp);
  void make_room();
  void log_full();
  void set_accepting(bool accepts);

  event_base* base_;
  Api& api_;
  Limits limits_;
  u32 connections_max_;
  event* reaper_;
  std::vector<std::unique_ptr<Door>> doors_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> closed_;
  std::string id_prefix_;
  u64 n_requests_ = 0;
  bool accepts_ = true, closes_ = false;
  u64 full_logged_ns_ = 0;
};

}  // namespace tarn::daemon
