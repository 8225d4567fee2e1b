#include "tools/tarnd/connection.h"

#include <event2/buffer.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "platform/clock/clock.h"

namespace tarn::daemon {
namespace {

constexpr u64 kInputBytesMax = 2 * kHeadBytesMax;  // what is read ahead
constexpr u64 kDroppedBytesMax = 16 * 1024 * 1024;
constexpr u32 kLingerSeconds = 2;
// A body is read in place; its texts are copied once for the engine, and ids take 4 bytes each.
constexpr u64 kLeaseFactor = 4;
constexpr u64 kChunkedLeaseBytes = 64 * 1024;  // grows by so many

Connection& self_of(void* self) { return *static_cast<Connection*>(self); }

HttpError error_of(const HeadError& error) {
  return {.status = error.status, .type = "invalid_request_error", .message = error.sentence};
}

}  // namespace

Connection::Connection(Handler& handler, event_base* base, int fd, const Peer& peer)
    : handler_(handler), peer_(peer), fd_(fd), used_at_ns_(SystemClock().now_ns()) {
  stream_ = bufferevent_socket_new(base, fd, 0);
  timer_ = event_new(base, -1, 0, on_timer, this);
  if (!is_usable()) return;
  bufferevent_setcb(stream_, on_read, on_written, on_event, this);
  bufferevent_setwatermark(stream_, EV_READ, 0, kInputBytesMax);
  const timeval stalled{static_cast<time_t>(handler.limits().stalled_s), 0};
  bufferevent_set_timeouts(stream_, nullptr, &stalled);
  bufferevent_enable(stream_, EV_READ | EV_WRITE);
  arm(handler.limits().header_s);
}

Connection::~Connection() {
  if (timer_ != nullptr) event_free(timer_);
  if (stream_ != nullptr) bufferevent_free(stream_);
  ::close(fd_);
}

void Connection::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  if (stream_ != nullptr) bufferevent_disable(stream_, EV_READ | EV_WRITE);
  if (timer_ != nullptr) event_del(timer_);
  if (exchange_ != nullptr) {
    const std::shared_ptr<Exchange> exchange = std::move(exchange_);
    exchange->leave();
    handler_.on_replied(*exchange);
  }
  handler_.on_closed(this);
}

bool Connection::gives_way(u64 now_ns) const {
  constexpr u64 kSilent_ns = kSilentMs * 1'000'000;
  if (state_ != State::head || has_output() || has_unread()) return false;
  return had_request_ || now_ns - used_at_ns_ >= kSilent_ns;
}

void Connection::close_soon() {
  if (state_ == State::head && !has_unread()) {
    if (!has_output()) return close();
    closes_ = true;  // once the last reply is out
  }
  if (exchange_ != nullptr) exchange_->close_after();
}

void Connection::write(std::string_view bytes) {
  if (state_ == State::closed) return;
  if (bufferevent_write(stream_, bytes.data(), bytes.size()) != 0) close();
}

void Connection::write_event(std::string_view bytes) {
  const u64 unread = evbuffer_get_length(bufferevent_get_output(stream_));
  if (unread > handler_.limits().unread_bytes_max) return close();
  write(bytes);
  if (state_ == State::answering) arm(handler_.limits().ping_s);
}

void Connection::begin_stream() { arm(handler_.limits().ping_s); }

void Connection::end_reply(bool keeps_alive) {
  const std::shared_ptr<Exchange> exchange = std::move(exchange_);
  handler_.on_replied(*exchange);
  if (state_ == State::closed) return;
  event_del(timer_);
  if (!keeps_alive) {
    closes_ = true;
    if (!has_output()) linger();
    return;
  }
  state_ = State::head;
  arm(has_input() ? handler_.limits().header_s : handler_.limits().idle_s);
  if (has_input()) advance();
}

void Connection::on_read(bufferevent*, void* self) { self_of(self).advance(); }

void Connection::on_written(bufferevent*, void* self) {
  Connection& c = self_of(self);
  if (c.closes_ && c.state_ != State::lingering && c.state_ != State::closed) c.linger();
}

void Connection::on_event(bufferevent*, short what, void* self) {
  Connection& c = self_of(self);
  if ((what & (BEV_EVENT_EOF | BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT)) == 0) return;
  const bool is_end = (what & BEV_EVENT_EOF) != 0 && (what & BEV_EVENT_READING) != 0;
  // A client that has ended its side may still read a reply that is made; one for which an answer
  // is being made is gone.
  if (!is_end || !c.has_output() || c.exchange_ != nullptr) return c.close();
  c.closes_ = true;
  bufferevent_disable(c.stream_, EV_READ);
}

void Connection::on_timer(evutil_socket_t, short, void* self) {
  Connection& c = self_of(self);
  if (c.state_ == State::answering) {
    if (c.exchange_ != nullptr) c.exchange_->ping();
    return;
  }
  if (c.state_ == State::body || (c.state_ == State::head && c.has_input())) {
    const HttpError late{.status = 408,
                         .type = "invalid_request_error",
                         .message = "the request took too long to arrive"};
    return c.exchange_ == nullptr ? c.refuse_head(late) : c.refuse(late, /*keeps_alive=*/false);
  }
  c.close();
}

bool Connection::has_input() const {
  return evbuffer_get_length(bufferevent_get_input(stream_)) > 0;
}

bool Connection::has_output() const {
  return evbuffer_get_length(bufferevent_get_output(stream_)) > 0;
}

bool Connection::has_unread() const {
  int n = 0;
  return ioctl(fd_, FIONREAD, &n) == 0 && n > 0;
}

void Connection::advance() {
  if (is_advancing_) return;
  is_advancing_ = true;
  bool is_more = true;
  while (is_more && state_ != State::closed && !closes_) {
    is_more = state_ == State::head   ? advance_head()
              : state_ == State::body ? advance_body()
                                      : false;
  }
  if (state_ == State::lingering || (closes_ && state_ != State::closed)) drop_input();
  is_advancing_ = false;
}

bool Connection::advance_head() {
  evbuffer* const input = bufferevent_get_input(stream_);
  const u64 n = std::min<u64>(evbuffer_get_length(input), kHeadBytesMax);
  if (n == 0) return false;
  const auto* const bytes =
      reinterpret_cast<char*>(evbuffer_pullup(input, static_cast<ssize_t>(n)));
  if (bytes == nullptr) return close(), false;
  const HeadEnd end = find_head_end({bytes, n});
  Head head;
  std::optional<HeadError> error = end.error;
  if (!error && end.n_bytes == 0) {
    // A connection's first request must begin at once; the time of a later one begins with it.
    if (!head_has_begun_ && had_request_) arm(handler_.limits().header_s);
    head_has_begun_ = true;
    return false;
  }
  head_has_begun_ = false;
  if (!error) error = read_head({bytes, end.n_bytes}, head);
  if (error) return refuse_head(error_of(*error)), false;
  begin_request(head);
  if (state_ != State::closed) evbuffer_drain(input, end.n_bytes);
  if (state_ == State::body && n_body_left_ == 0 && chunks_ == nullptr) hand_over();
  return true;
}

std::shared_ptr<Exchange> Connection::new_exchange(const Head& head) {
  auto exchange = std::make_shared<Exchange>(this, head.keeps_alive, head.minor_version == 1,
                                             head.method == "HEAD");
  exchange->request.id = handler_.next_request_id();
  exchange->request.peer = peer_;
  if (handler_.closes()) exchange->close_after();
  return exchange;
}

void Connection::begin_request(const Head& head) {
  used_at_ns_ = SystemClock().now_ns();
  had_request_ = true;
  exchange_ = new_exchange(head);
  Request& request = exchange_->request;
  request.query = head.query;
  n_body_left_ = head.content_bytes.value_or(0);
  chunks_ = head.is_chunked ? std::make_unique<tools::ChunkedBody>() : nullptr;
  std::optional<HttpError> error = handler_.on_head(head, request);
  if (!error && n_body_left_ > handler_.limits().body_bytes_max) {
    error = HttpError{.status = 413,
                      .type = "invalid_request_error",
                      .message = "the body is longer than daemon.body_bytes_max"};
  }
  if (!error && !request.lease.grow_to(n_body_left_ * kLeaseFactor)) error = no_request_memory();
  if (error) return refuse(*error, head.keeps_alive && !head.has_body());
  state_ = State::body;
  request.body.reserve(n_body_left_);
  arm(handler_.limits().body_s);
  if (head.expects_continue && head.has_body()) write("HTTP/1.1 100 Continue\r\n\r\n");
}

bool Connection::advance_body() {
  evbuffer* const input = bufferevent_get_input(stream_);
  const u64 n = evbuffer_get_contiguous_space(input);
  if (n == 0) return false;
  const auto* const bytes =
      reinterpret_cast<char*>(evbuffer_pullup(input, static_cast<ssize_t>(n)));
  Request& request = exchange_->request;
  u64 n_taken = 0;
  if (chunks_ == nullptr) {
    n_taken = std::min(n, n_body_left_);
    request.body.append(bytes, n_taken);
    n_body_left_ -= n_taken;
  } else {
    const u64 lease = (request.body.size() + n + kChunkedLeaseBytes) * kLeaseFactor;
    if (lease > request.lease.bytes() && !request.lease.grow_to(lease)) {
      return refuse(no_request_memory(), false), false;
    }
    n_taken = chunks_->take({bytes, n}, request.body, handler_.limits().body_bytes_max);
  }
  evbuffer_drain(input, n_taken);
  if (chunks_ == nullptr) {
    if (n_body_left_ > 0) return true;
  } else if (chunks_->state() != tools::ChunkedBody::State::done) {
    if (chunks_->state() == tools::ChunkedBody::State::more) return true;
    const bool is_bad = chunks_->state() == tools::ChunkedBody::State::bad;
    refuse(error_of(is_bad ? HeadError{400, "bad chunked body"}
                           : HeadError{413, "the body is longer than daemon.body_bytes_max"}),
           false);
    return false;
  }
  hand_over();
  return true;
}

void Connection::refuse(const HttpError& error, bool keeps_alive) {
  if (!keeps_alive) exchange_->close_after();
  state_ = State::answering;
  const std::shared_ptr<Exchange> exchange = exchange_;
  exchange->reply(error);
}

// The reply depends on the lines that are whole.
void Connection::refuse_head(const HttpError& error) {
  evbuffer* const input = bufferevent_get_input(stream_);
  const u64 n = std::min<u64>(evbuffer_get_length(input), kHeadBytesMax);
  const auto* const bytes =
      reinterpret_cast<char*>(evbuffer_pullup(input, static_cast<ssize_t>(n)));
  Head head;
  if (bytes != nullptr) {
    const std::string_view got(bytes, n);
    const size_t end = got.rfind("\r\n");
    if (end != std::string_view::npos) static_cast<void>(read_head(got.substr(0, end), head));
  }
  exchange_ = new_exchange(head);
  handler_.on_bad_head(head, exchange_->request);
  refuse(error, /*keeps_alive=*/false);
}

void Connection::hand_over() {
  state_ = State::answering;
  event_del(timer_);
  const std::shared_ptr<Exchange> exchange = exchange_;
  handler_.on_request(exchange);
}

void Connection::linger() {
  state_ = State::lingering;
  shutdown(fd_, SHUT_WR);
  arm(kLingerSeconds);
  drop_input();
}

void Connection::drop_input() {
  evbuffer* const input = bufferevent_get_input(stream_);
  const u64 n = evbuffer_get_length(input);
  n_dropped_ += n;
  evbuffer_drain(input, n);
  if (n_dropped_ > kDroppedBytesMax) close();
}

void Connection::arm(u32 seconds) {
  const timeval after{static_cast<time_t>(seconds), 0};
  if (event_add(timer_, &after) != 0) close();
}

}  // namespace tarn::daemon
