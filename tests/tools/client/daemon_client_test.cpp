// Goal    a request arrives as HTTP/1.1, and its answer, a stream of events, or an error comes back
//         in the server's words; where nobody listens, the failure says so.
// Method  a server that accepts one connection on a Unix socket, keeps what it got, and sends a
//         given text in pieces; tables of answers and of addresses.
#include "tools/client/daemon_client.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temp_file.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"

namespace tarn::tools::daemon_client_test {
namespace {

// Answers one request, which ends with `end`.
class OneAnswer {
 public:
  OneAnswer(const std::string& path, const std::string& end, const std::string& answer)
      : end_(end), answer_(answer) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, path.data(), path.size());
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(listen(listener_, 1) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  OneAnswer(const OneAnswer&) = delete;
  OneAnswer& operator=(const OneAnswer&) = delete;
  ~OneAnswer() {
    if (thread_.joinable()) thread_.join();
    close(listener_);
  }
  // What came.
  const std::string& request() {
    thread_.join();
    return request_;
  }

 private:
  void serve() {
    const int peer = accept(listener_, nullptr, nullptr);
    char bytes[4096];
    ssize_t n = 0;
    while (request_.find(end_) == std::string::npos && (n = read(peer, bytes, sizeof bytes)) > 0) {
      request_.append(bytes, static_cast<size_t>(n));
    }
    for (size_t i = 0; i < answer_.size(); i += 7) {
      const std::string piece = answer_.substr(i, 7);
      if (send(peer, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
    }
    close(peer);
  }

  std::string end_, answer_, request_;
  int listener_ = -1;
  std::thread thread_;
};

// A client as a command line makes it.
struct Client {
  explicit Client(std::vector<std::string> arguments) : line("test", "test") {
    client.add_to(line);
    std::vector<const char*> words = {"test"};
    for (const std::string& argument : arguments) words.push_back(argument.c_str());
    REQUIRE(!line.parse(static_cast<int>(words.size()), words.data()));
  }
  CommandLine line;
  DaemonClient client;
};

std::string answer_of(const std::string& status, const std::string& type, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// The failure of a call, or code 0.
template <class Call>
Failure failure_of(Call call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure;
  }
  return {.code = kExitOk, .text = ""};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a request and its answer, with a key") {
  const test::TempFile path("client.sock"), key("client.key");
  tools::write_file(key.path(), "abc\nsecond line", 15);
  OneAnswer server(path.path(), "{\"x\":1}", answer_of("200 OK", "application/json", "{\"a\":5}"));
  const Client own({"--socket", "unix://" + path.path(), "--key-file", key.path()});
  const rapidjson::Document reply = own.client.json("POST", "/v1/x", "{\"x\":1}");
  CHECK(count_of(reply, "a") == 5);
  CHECK(count_of(reply, "b") == 0);
  CHECK(text_of(reply, "a").empty());
  const std::string request = server.request();
  CHECK(request.starts_with("POST /v1/x HTTP/1.1\r\nHost: localhost\r\n"));
  CHECK(has(request, "\r\nAuthorization: Bearer abc\r\n"));
  CHECK(has(request, "\r\nContent-Type: application/json\r\n"));
  CHECK(has(request, "\r\nContent-Length: 7\r\n"));
}

struct ErrorCase {
  const char* name;
  std::string answer;
  int code;
  const char* text;
};

const ErrorCase kErrors[] = {
    {"refused",
     answer_of("400 Bad Request", "application/json",
               "{\"error\":{\"code\":400,\"message\":\"n must be 1 to 8\"}}"),
     kExitRefused, "n must be 1 to 8"},
    {"busy", answer_of("429 Busy", "application/json", "{\"error\":{\"message\":\"try later\"}}"),
     kExitIo, "try later"},
    {"a terminal's commands",
     answer_of("503 X", "application/json", "{\"error\":{\"message\":\"\\u001b[31m\"}}"), kExitIo,
     "\\x1b[31m"},
    {"another server's error", answer_of("502 Bad Gateway", "text/html", "<html>"), kExitIo,
     "the server answered with status 502"},
    {"no JSON", answer_of("200 OK", "text/html", "<html>"), kExitIo, "no JSON"},
    {"no HTTP", "hello\r\n\r\n", kExitIo, "no HTTP/1.1 response"},
    {"nothing", "", kExitIo, "in the middle of its answer"},
    {"half", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", kExitIo,
     "in the middle of its answer"},
};

TEST_CASE("errors are the server's own sentence") {
  for (const ErrorCase& c : kErrors) {
    CAPTURE(c.name);
    const test::TempFile path("client.sock");
    const OneAnswer server(path.path(), "\r\n\r\n", c.answer);
    const Client own({"--socket", "unix://" + path.path()});
    const Failure failure = failure_of([&] { own.client.json("GET", "/props"); });
    CHECK(failure.code == c.code);
    CAPTURE(failure.text);
    CHECK(has(failure.text, c.text));
  }
}

struct StreamCase {
  const char* name;
  std::string events;
  int code;
  u64 n_events;
};

const StreamCase kStreams[] = {
    {"all of it", ": ping\n\ndata: {\"a\":1}\n\ndata: {\"a\":2}\n\ndata: [DONE]\n\n", kExitOk, 2},
    {"an error in the middle",
     "data: {\"a\":1}\n\ndata: {\"error\":{\"code\":503,\"message\":\"draining\"}}\n\n", kExitIo,
     1},
    {"without its end", "data: {\"a\":1}\n\n", kExitIo, 1},
    {"no JSON", "data: {\"a\":1}\n\ndata: {\n\n", kExitIo, 1},
};

TEST_CASE("a stream's events come one by one, and its end is known") {
  for (const StreamCase& c : kStreams) {
    CAPTURE(c.name);
    const test::TempFile path("client.sock");
    const OneAnswer server(path.path(), "{}", answer_of("200 OK", "text/event-stream", c.events));
    const Client own({"--socket", "unix://" + path.path()});
    u64 n = 0;
    const Failure failure = failure_of([&] {
      own.client.stream("/v1/x", "{}", [&](const rapidjson::Document& event) {
        if (count_of(event, "a") > 0) ++n;
      });
    });
    CAPTURE(failure.text);
    CHECK(failure.code == c.code);
    CHECK(n == c.n_events);
  }
}

TEST_CASE("where nobody listens, the failure says so") {
  const test::TempFile path("client.sock");
  const Client own({"--socket", "unix://" + path.path()});
  const Failure failure = failure_of([&] { own.client.text("GET", "/health"); });
  CHECK(failure.code == kExitIo);
  CHECK(has(failure.text, "is tarnd running"));
}

TEST_CASE("addresses") {
  CHECK(parse_address("unix:///a/b").path == "/a/b");
  CHECK(parse_address("tcp://127.0.0.1:80").host == "127.0.0.1");
  CHECK(parse_address("tcp://[::1]:80").host == "::1");
  CHECK(parse_address("tcp://[::1]:80").port == "80");
  for (const char* text :
       {"", "/a/b", "unix://", "tcp://", "tcp://:80", "tcp://a", "tcp://a:", "http://a:80"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_address(text), Failure);
  }
  const std::string too_long = "unix:///" + std::string(200, 'x');
  CHECK_THROWS_AS(Connection(parse_address(too_long), {}), Failure);
}

TEST_CASE("a query's text is escaped") {
  CHECK(url_escaped("aZ09") == "aZ09");
  CHECK(url_escaped("a b&c/\xc3\xa4") == "a%20b%26c%2F%C3%A4");
}

}  // namespace
}  // namespace tarn::tools::daemon_client_test
