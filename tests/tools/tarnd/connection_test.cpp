// Goal    A connection answers one request after another, whatever pieces they come in; its limits
//         end what is too long, too slow or unread; whoever answers learns at once that the client
//         is gone.
// Method  Raw bytes over a socket pair, with a handler that echoes, waits, or streams.
#include "tools/tarnd/connection.h"

#include <doctest/doctest.h>
#include <event2/event.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "platform/clock/clock.h"

namespace tarn::daemon::connection_test {
namespace {

class EchoHandler : public Handler {
 public:
  EchoHandler() { NetworkMemory::install(u64{8} << 20); }
  const Limits& limits() const override { return own; }
  std::string next_request_id() override { return "id" + std::to_string(++n_requests); }
  void on_bad_head(const Head& head, Request& request) override {
    if (head.count("origin") == 1) request.cors_fields = "X-Origin-Seen: yes\r\n";
  }
  std::optional<HttpError> on_head(const Head& head, Request& request) override {
    request.path = head.path;
    if (head.path == "/refused") return invalid_request("refused");
    return std::nullopt;
  }
  void on_request(const std::shared_ptr<Exchange>& exchange) override {
    if (exchange->request.path == "/wait" || exchange->request.path == "/stream") {
      held = exchange;
      exchange->on_gone([this] { ++n_gone; });
      if (exchange->request.path == "/stream") exchange->begin_stream();
      return;
    }
    exchange->reply({.content_type = "text/plain", .body = exchange->request.body});
  }
  void on_replied(const Exchange&) override { ++n_replied; }
  void on_closed(Connection*) override { ++n_closed; }

  Limits own;
  std::shared_ptr<Exchange> held;
  u64 n_requests = 0, n_gone = 0, n_replied = 0, n_closed = 0;
};

class Wire {
 public:
  explicit Wire(const Limits& limits = {}) {
    handler.own = limits;
    base_ = event_base_new();
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    client = fds[0];
    connection = std::make_unique<Connection>(handler, base_, fds[1], Peer{});
    REQUIRE(connection->is_usable());
  }
  ~Wire() {
    connection.reset();
    if (client >= 0) ::close(client);
    handler.held.reset();
    event_base_free(base_);
  }
  void send(std::string_view bytes) {
    REQUIRE(::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  void turn() { event_base_loop(base_, EVLOOP_NONBLOCK); }
  // What the server has said within some turns of the loop.
  std::string read(u32 turns = 20) {
    std::string all;
    for (u32 i = 0; i < turns; ++i) {
      turn();
      char bytes[4096];
      const ssize_t n = ::recv(client, bytes, sizeof bytes, MSG_DONTWAIT);
      if (n > 0) all.append(bytes, static_cast<size_t>(n));
      is_ended = n == 0;
    }
    return all;
  }
  void hang_up() { ::close(std::exchange(client, -1)); }

  EchoHandler handler;
  std::unique_ptr<Connection> connection;
  int client = -1;
  bool is_ended = false;

 private:
  event_base* base_;
};

int status_of(const std::string& reply) {
  return reply.starts_with("HTTP/1.1 ") ? std::stoi(reply.substr(9, 3)) : 0;
}
std::string body_of(const std::string& reply) {
  const size_t at = reply.find("\r\n\r\n");
  return at == std::string::npos ? "" : reply.substr(at + 4);
}

const std::string kPost = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";

TEST_CASE("a head that is refused shows its Origin, before and behind what is wrong") {
  const std::string kOrigin = "Origin: http://a\r\n";
  struct Trial {
    const char* wrong;
    int status;
  };
  constexpr Trial kTrials[] = {{"Content-Encoding: gzip\r\n", 415},
                               {"Expect: x\r\n", 417},
                               {"Transfer-Encoding: gzip\r\n", 501},
                               {"Content-Length: x\r\n", 400},
                               {"Content-Length: 9999999999999999999\r\n", 413},
                               {"Host: i\r\n", 400},
                               {"A : b\r\n", 400},
                               {"X: \x01\r\n", 400}};
  for (const Trial& trial : kTrials) {
    CAPTURE(trial.wrong);
    for (const bool is_first : {true, false}) {
      const std::string fields = is_first ? kOrigin + trial.wrong : trial.wrong + kOrigin;
      Wire wire;
      wire.send("POST /x HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n");
      const std::string reply = wire.read();
      CHECK(status_of(reply) == trial.status);
      CHECK(reply.find("X-Origin-Seen: yes\r\n") != std::string::npos);
    }
  }
  const std::string kLines[] = {"BAD\r\n" + kOrigin + "Host: h\r\n\r\n",
                                "GET / HTTP/3.0\r\n" + kOrigin + "Host: h\r\n\r\n",
                                "GET / HTTP/1.1\r\n" + kOrigin + std::string(kHeadBytesMax, 'a')};
  for (const std::string& head : kLines) {
    Wire wire;
    wire.send(head);
    const std::string reply = wire.read();
    CHECK(status_of(reply) >= 400);
    CHECK(reply.find("X-Origin-Seen: yes\r\n") != std::string::npos);
  }
  Wire late({.header_s = 1});
  late.send("GET / HTTP/1.1\r\n" + kOrigin + "Hos");
  std::string reply;
  for (int i = 0; i < 200 && reply.empty(); ++i) {
    usleep(10'000);
    reply = late.read(1);
  }
  CHECK(status_of(reply) == 408);
  CHECK(reply.find("X-Origin-Seen: yes\r\n") != std::string::npos);
}

TEST_CASE("a request in two pieces, cut anywhere, has the same reply") {
  for (size_t cut = 1; cut < kPost.size(); ++cut) {
    Wire wire;
    wire.send(kPost.substr(0, cut));
    CHECK(wire.read(3).empty());
    wire.send(kPost.substr(cut));
    const std::string reply = wire.read(3);
    REQUIRE(status_of(reply) == 200);
    REQUIRE(body_of(reply) == "hello");
  }
}

TEST_CASE("requests follow each other, also in one piece") {
  Wire wire;
  wire.send(kPost + kPost + kPost);
  const std::string replies = wire.read();
  CHECK(wire.handler.n_replied == 3);
  CHECK(replies.find("X-Request-Id: id3") != std::string::npos);
  wire.send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  wire.read(2);
  wire.send("3\r\nabc\r\n0\r\n\r\n");
  CHECK(body_of(wire.read(2)) == "abc");
  CHECK_FALSE(wire.is_ended);
}

TEST_CASE("a request that comes while one is answered waits") {
  Wire wire;
  wire.send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n" + kPost);
  CHECK(wire.read().empty());
  CHECK(wire.handler.n_requests == 1);
  wire.handler.held->reply({.body = "{}"});
  const std::string replies = wire.read();
  CHECK(replies.find("hello") != std::string::npos);
  CHECK(wire.handler.n_replied == 2);
  CHECK(wire.handler.n_gone == 0);
}

struct RefusedCase {
  const char* name;
  std::string bytes;
  int status;
  bool closes;
};
TEST_CASE("what is refused, and whether the connection goes on") {
  const RefusedCase kCases[] = {
      {"bad head", "GET / HTTP/1.1\nHost: h\n\n", 400, true},
      {"head too long", "GET / HTTP/1.1\r\nA: " + std::string(kHeadBytesMax, 'a'), 431, true},
      {"a megabyte of head", "GET / HTTP/1.1\r\nA: " + std::string(100'000, 'a'), 431, true},
      {"body too long", "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n", 413, true},
      {"chunks too long",
       "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" +
           std::string(101, 'a'),
       413, true},
      {"bad chunk", "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400,
       true},
      {"by the handler", "GET /refused HTTP/1.1\r\nHost: h\r\n\r\n", 400, false},
      {"by the handler, with a body",
       "POST /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\n", 400, true},
      {"close is asked for", "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 200, true},
      {"HTTP/1.0", "GET /x HTTP/1.0\r\n\r\n", 200, true},
      {"HTTP/1.0 that goes on", "GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, false},
  };
  for (const RefusedCase& each : kCases) {
    CAPTURE(each.name);
    Wire wire({.body_bytes_max = 100});
    wire.send(each.bytes);
    const std::string reply = wire.read(40);
    CHECK(status_of(reply) == each.status);
    CHECK((reply.find("Connection: close") != std::string::npos) == each.closes);
    CHECK(wire.is_ended == each.closes);
    if (each.closes) continue;
    wire.send(kPost);
    CHECK(body_of(wire.read()) == "hello");
  }
}

TEST_CASE("a body's memory is asked for before it is read") {
  Wire wire;  // of 8 MiB, of which a body takes four times its length
  wire.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n");
  const std::string reply = wire.read();
  CHECK(status_of(reply) == 503);
  CHECK(reply.find("Retry-After: 1") != std::string::npos);
  CHECK(NetworkMemory::peak_bytes() < (u64{8} << 20));
}

TEST_CASE("100 Continue comes before the body, and HEAD without one") {
  Wire wire;
  wire.send("POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  CHECK(wire.read(3) == "HTTP/1.1 100 Continue\r\n\r\n");
  wire.send("ab");
  CHECK(body_of(wire.read(3)) == "ab");
  wire.send("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string reply = wire.read(3);
  CHECK(reply.find("Content-Length: 0") != std::string::npos);
  CHECK(body_of(reply).empty());
}

TEST_CASE("a client that goes away is noticed while it waits, and while it is sent to") {
  for (const char* path : {"/wait", "/stream"}) {
    CAPTURE(path);
    Wire wire;
    wire.send(std::string("GET ") + path + " HTTP/1.1\r\nHost: h\r\n\r\n");
    wire.read(3);
    wire.hang_up();
    for (int i = 0; i < 10; ++i) wire.turn();
    CHECK(wire.handler.n_gone == 1);
    CHECK(wire.handler.n_closed == 1);
    CHECK(wire.handler.held->is_gone());
    wire.handler.held->send("{}");  // nobody hears it
    wire.handler.held->end_stream();
    wire.handler.held->reply({.body = "{}"});
    CHECK(wire.handler.n_replied == 1);
  }
}

TEST_CASE("a stream: chunks, pings, the end, and the next request") {
  Wire wire({.ping_s = 1});
  wire.send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string head = wire.read();
  CHECK(head.find("Transfer-Encoding: chunked") != std::string::npos);
  CHECK(head.find("text/event-stream") != std::string::npos);
  wire.handler.held->send("{}");
  CHECK(wire.read() == "a\r\ndata: {}\n\n\r\n");
  usleep(1'050'000);
  CHECK(wire.read() == "8\r\n: ping\n\n\r\n");
  wire.handler.held->end_stream();
  CHECK(wire.read() == "0\r\n\r\n");
  wire.send(kPost);
  CHECK(body_of(wire.read()) == "hello");
}

TEST_CASE("a stream to HTTP/1.0 ends with its connection") {
  Wire wire;
  wire.send("GET /stream HTTP/1.0\r\n\r\n");
  CHECK(wire.read().find("chunked") == std::string::npos);
  wire.handler.held->send("{}");
  wire.handler.held->end_stream();
  CHECK(wire.read() == "data: {}\n\n");
  CHECK(wire.is_ended);
}

TEST_CASE("a stream that nobody reads is dropped within its bound") {
  Wire wire({.unread_bytes_max = 10'000});
  wire.send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  wire.read();
  const u64 before = NetworkMemory::used_bytes();
  const std::string event(1000, 'x');
  for (int i = 0; i < 100'000 && wire.handler.n_gone == 0; ++i) {
    wire.handler.held->send(event);
    wire.turn();
    REQUIRE(NetworkMemory::used_bytes() < before + 20'000);
  }
  CHECK(wire.handler.n_gone == 1);
}

TEST_CASE("slow requests and silent connections are closed in time") {
  const Limits limits{.header_s = 1, .body_s = 1, .idle_s = 1};
  const std::string kBegins[] = {"", "GET / HT", "POST /x HTTP/1.1\r\nHost: h\r\n",
                                 kPost.substr(0, kPost.size() - 1), kPost};
  std::vector<std::unique_ptr<Wire>> wires;  // all wait at once
  for (const std::string& begin : kBegins) {
    Wire& wire = *wires.emplace_back(std::make_unique<Wire>(limits));
    if (!begin.empty()) wire.send(begin);
    wire.read(3);
  }
  const auto is_closed = [](const auto& wire) { return wire->handler.n_closed > 0; };
  for (int ms = 0; ms < 4000 && !std::all_of(wires.begin(), wires.end(), is_closed); ++ms) {
    for (const auto& wire : wires) wire->turn();
    usleep(1000);
  }
  for (size_t i = 0; i < wires.size(); ++i) {
    CAPTURE(kBegins[i]);
    CHECK(is_closed(wires[i]));
  }
}

TEST_CASE("a slow request is told so") {
  Wire wire({.header_s = 1});
  wire.send("GET / HT");
  for (int i = 0; i < 12; ++i) {
    usleep(100'000);
    wire.turn();
  }
  CHECK(status_of(wire.read()) == 408);
}

TEST_CASE("what stays of a dropped connection's request is nothing") {
  const u64 before = NetworkMemory::used_bytes();
  for (size_t n = 0; n < kPost.size(); ++n) {
    Wire wire;
    if (n > 0) wire.send(kPost.substr(0, n));
    wire.turn();
    wire.hang_up();
    for (int i = 0; i < 5; ++i) wire.turn();
    REQUIRE(wire.handler.n_closed == 1);
  }
  CHECK(NetworkMemory::used_bytes() == before);
}

u64 later_ns(u64 ms = 60'000) { return SystemClock().now_ns() + ms * 1'000'000; }

struct RoomCase {
  const char* name;
  std::string bytes;  // that came, and are read
  bool gives_way_at_once, gives_way_later;
};
TEST_CASE("what gives way to a new connection: silence and half a head, after a second") {
  const RoomCase kCases[] = {
      {"silent", "", false, true},
      {"a byte of a head", "G", false, true},
      {"half a head", "POST /x HTTP/1.1\r\nHost: h\r\n", false, true},
      {"a request was answered", kPost, true, true},
      {"another one begins", kPost + "GET /x HT", true, true},
      {"half a body", kPost.substr(0, kPost.size() - 1), false, false},
      {"an answer is made", "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n", false, false},
  };
  for (const RoomCase& each : kCases) {
    CAPTURE(each.name);
    Wire wire;
    if (!each.bytes.empty()) wire.send(each.bytes);
    wire.read(3);
    CHECK(wire.connection->gives_way(later_ns(0)) == each.gives_way_at_once);
    CHECK(wire.connection->gives_way(later_ns()) == each.gives_way_later);
    wire.send("GET /x");  // what waits in the socket may be a request
    CHECK_FALSE(wire.connection->gives_way(later_ns()));
  }
}

TEST_CASE("a request that waits in the socket is answered before its connection ends") {
  Wire wire;
  wire.send(kPost);
  wire.connection->close_soon();
  CHECK(body_of(wire.read()) == "hello");
}

TEST_CASE("a connection whose reply is not read yet is not idle, and ends with all of it") {
  const std::string kBig(u64{1} << 20, 'a');  // more than a socket holds
  Wire wire;
  wire.send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  wire.turn();
  CHECK_FALSE(wire.connection->gives_way(later_ns()));
  REQUIRE(wire.handler.held != nullptr);
  wire.handler.held->reply({.body = kBig});
  wire.turn();
  CHECK_FALSE(wire.connection->gives_way(later_ns()));
  wire.connection->close_soon();
  CHECK(body_of(wire.read(2000)) == kBig);
  CHECK(wire.is_ended);
}

}  // namespace
}  // namespace tarn::daemon::connection_test
