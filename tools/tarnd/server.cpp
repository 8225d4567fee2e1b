#include "tools/tarnd/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

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

// Returns whether accept(2) passes on an error of one connection, which is over with it. Any other
// error, such as a lack of descriptors or memory, stays for a while.
bool is_of_one_connection(int error) {
  constexpr int kErrors[] = {EINTR,        ECONNABORTED, EPROTO,     EPERM,
                             ENETDOWN,     ENOPROTOOPT,  EHOSTDOWN,  ENONET,
                             EHOSTUNREACH, EOPNOTSUPP,   ENETUNREACH};
  return std::ranges::find(kErrors, error) != std::end(kErrors);
}

}  // namespace

Server::Server(event_base* base, Api& api, const Limits& limits, u32 connections_max)
    : base_(base),
      api_(api),
      limits_(limits),
      connections_max_(connections_max),
      reaper_(event_new(base, -1, 0, on_reap, this)),
      again_(event_new(base, -1, 0, on_again, this)) {
  if (reaper_ == nullptr || again_ == nullptr) {
    throw tools::Failure{tools::kExitIo, "libevent gives no event"};
  }
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
}

void Server::listen(const Listener& listener) {
  auto door =
      std::make_unique<Door>(Door{this, listener.fd, listener.is_tcp, listener.is_passed, nullptr});
  door->event.reset(event_new(base_, listener.fd, EV_READ | EV_PERSIST, on_waiting, door.get()));
  if (door->event == nullptr || event_add(door->event.get(), nullptr) != 0) {
    throw tools::Failure{tools::kExitIo, "listening on " + listener.name + " failed"};
  }
  doors_.push_back(std::move(door));
}

void Server::begin_draining() {
  closes_ = true;
  std::erase_if(doors_, [](const std::unique_ptr<Door>& door) { return door->is_passed; });
}

void Server::stop_listening() { doors_.clear(); }

void Server::close_idle() {
  closes_ = true;
  std::vector<Connection*> all;
  for (const auto& [connection, owner] : connections_) all.push_back(connection);
  for (Connection* const connection : all) connection->close_soon();
}

void Server::on_waiting(evutil_socket_t, short, void* door) {
  const Door& from = *static_cast<Door*>(door);
  from.server->accept_from(from);
}

// Accepts some. The socket is readable until all are accepted, so the loop comes back for the rest.
void Server::accept_from(const Door& door) {
  constexpr u32 kAcceptsAtOnce = 16;
  for (u32 i = 0; i < kAcceptsAtOnce; ++i) {
    if (connections_.size() >= connections_max_) {
      if (i > 0) return;  // whether one more waits is not known
      if (!make_room()) {
        log_event(Event::connections_full, {{"connections", std::to_string(connections_.size())}});
        return pause();
      }
    }
    const int fd = ::accept4(door.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      add(fd, door.is_tcp);
      continue;
    }
    if (errno == EAGAIN) return;
    if (is_of_one_connection(errno)) continue;
    log_event(Event::accept_failed, {{"text", std::strerror(errno)},
                                     {"connections", std::to_string(connections_.size())}});
    make_room();
    return pause();
  }
}

void Server::add(int fd, bool is_tcp) {
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
  if (!connection->is_usable()) {
    log_event(Event::accept_failed, {{"text", "no memory (daemon.memory_bytes)"},
                                     {"connections", std::to_string(connections_.size())}});
    return;
  }
  Connection* const key = connection.get();
  connections_.emplace(key, std::move(connection));
}

bool Server::make_room() {
  const u64 now_ns = SystemClock().now_ns();
  Connection* longest = nullptr;
  for (const auto& [connection, owner] : connections_) {
    if (!connection->gives_way(now_ns)) continue;
    const bool is_longer = longest == nullptr || connection->used_at_ns() < longest->used_at_ns();
    if (is_longer) longest = connection;
  }
  if (longest == nullptr) return false;
  longest->close();
  return true;
}

void Server::pause() {
  const timeval after{0, kPauseMs * 1000};
  if (event_add(again_.get(), &after) != 0) return;  // then it goes on as it was
  is_paused_ = true;
  for (const auto& door : doors_) event_del(door->event.get());
}

void Server::resume() {
  is_paused_ = false;
  event_del(again_.get());
  for (const auto& door : doors_) {
    if (event_add(door->event.get(), nullptr) != 0) return pause();
  }
}

void Server::on_again(evutil_socket_t, short, void* self) { static_cast<Server*>(self)->resume(); }

std::string Server::next_request_id() {
  return "req-" + id_prefix_ + "-" + std::to_string(++n_requests_);
}

std::optional<HttpError> Server::on_head(const Head& head, Request& request) {
  return api_.on_head(head, request);
}

void Server::on_bad_head(const Head& head, Request& request) { api_.on_bad_head(head, request); }

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
  event_active(reaper_.get(), 0, 0);
}

void Server::on_reap(evutil_socket_t, short, void* self) {
  Server& server = *static_cast<Server*>(self);
  server.closed_.clear();
  if (server.is_paused_) server.resume();
}

}  // namespace tarn::daemon
