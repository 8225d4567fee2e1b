#include "tools/tarnd/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

#include "platform/clock/clock.h"
#include "tools/support/exit_code.h"
#include "tools/tarnd/log.h"

namespace tarn::daemon {
namespace {

Peer peer_of(int fd) {
  Peer peer;
  ucred who{};
  socklen_t n = sizeof who;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0) who.uid = who.gid = ~0u;
  peer.uid = who.uid;
  peer.groups = {who.gid};
  gid_t others[64];
  n = sizeof others;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, others, &n) == 0) {
    peer.groups.insert(peer.groups.end(), others, others + n / sizeof(gid_t));
  }
  return peer;
}

}  // namespace

Server::Server(event_base* base, Api& api, const Limits& limits, u32 connections_max)
    : base_(base),
      api_(api),
      limits_(limits),
      connections_max_(connections_max),
      reaper_(event_new(base, -1, 0, on_reap, this)) {
  u32 random = 0;
  static_cast<void>(getrandom(&random, sizeof random, GRND_NONBLOCK));
  char text[16];
  std::snprintf(text, sizeof text, "%08x", random);
  id_prefix_ = text;
}

Server::~Server() {
  stop_listening();
  while (!connections_.empty()) connections_.begin()->first->close();
  closed_.clear();
  event_free(reaper_);
}

void Server::listen(const Listener& listener) {
  auto door = std::make_unique<Door>(Door{this, listener.is_tcp, nullptr});
  // The descriptor listens already; no flag, so that it stays open when the listener is freed.
  door->listener =
      evconnlistener_new(base_, on_accept, door.get(), LEV_OPT_CLOSE_ON_EXEC, 0, listener.fd);
  if (door->listener == nullptr) {
    throw tools::Failure{tools::kExitIo, "listening on " + listener.name + " failed"};
  }
  doors_.push_back(std::move(door));
}

void Server::stop_listening() {
  for (const auto& door : doors_) evconnlistener_free(door->listener);
  doors_.clear();
}

void Server::close_idle() {
  closes_ = true;
  std::vector<Connection*> all;
  for (const auto& [connection, owner] : connections_) all.push_back(connection);
  for (Connection* const connection : all) connection->close_soon();
}

void Server::on_accept(evconnlistener*, evutil_socket_t fd, sockaddr*, int, void* door) {
  const Door& from = *static_cast<Door*>(door);
  from.server->accept(fd, from.is_tcp);
}

void Server::accept(int fd, bool is_tcp) {
  const Peer peer = is_tcp ? Peer{.is_tcp = true} : peer_of(fd);
  if (is_tcp) {
    const int on = 1;  // tokens go out as they come
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  if (!api_.allows(peer)) {
    log_event(Event::peer_refused, {{"uid", std::to_string(peer.uid)}});
    ::close(fd);
    return;
  }
  auto connection = std::make_unique<Connection>(*this, base_, fd, peer);
  if (!connection->is_usable()) return;
  Connection* const key = connection.get();
  connections_.emplace(key, std::move(connection));
  if (connections_.size() >= connections_max_) make_room();
}

void Server::make_room() {
  Connection* longest = nullptr;
  for (const auto& [connection, owner] : connections_) {
    if (!connection->is_idle() || connection->used_at_ns() == 0) continue;
    const bool is_longer = longest == nullptr || connection->used_at_ns() < longest->used_at_ns();
    if (is_longer) longest = connection;
  }
  if (longest != nullptr) return longest->close();
  log_full();
  set_accepting(false);
}

// At most once a second: a client that opens one after another does not fill the log.
void Server::log_full() {
  constexpr u64 kSecond_ns = 1'000'000'000;
  const u64 now_ns = SystemClock().now_ns();
  if (full_logged_ns_ > 0 && now_ns - full_logged_ns_ < kSecond_ns) return;
  full_logged_ns_ = now_ns;
  log_event(Event::connections_full, {{"connections", std::to_string(connections_.size())}});
}

void Server::set_accepting(bool accepts) {
  accepts_ = accepts;
  for (const auto& door : doors_) {
    if (accepts) {
      evconnlistener_enable(door->listener);
    } else {
      evconnlistener_disable(door->listener);
    }
  }
}

std::string Server::next_request_id() {
  return "req-" + id_prefix_ + "-" + std::to_string(++n_requests_);
}

std::optional<HttpError> Server::on_head(const Head& head, Request& request) {
  return api_.on_head(head, request);
}

void Server::on_request(const std::shared_ptr<Exchange>& exchange) {
  if (closes_) exchange->close_after();
  api_.on_request(exchange);
}

void Server::on_replied(const Exchange& exchange) { api_.on_replied(exchange); }

void Server::on_closed(Connection* connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  closed_.push_back(std::move(found->second));
  connections_.erase(found);
  event_active(reaper_, 0, 0);
}

void Server::on_reap(evutil_socket_t, short, void* self) {
  Server& server = *static_cast<Server*>(self);
  server.closed_.clear();
  if (!server.accepts_ && server.connections_.size() < server.connections_max_) {
    server.set_accepting(true);
  }
}

}  // namespace tarn::daemon
