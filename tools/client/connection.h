// A request to tarnd and its answer: one connection for each, over a Unix socket or TCP.
#pragma once

#include <string>
#include <string_view>

#include "tools/client/http_response.h"

namespace tarn::tools {

// Where tarnd listens when its unit started it.
inline constexpr const char* kDefaultAddress = "unix:///run/tarn/tarn.sock";

// unix:///PATH or tcp://HOST:PORT, HOST a name or a number.
struct Address {
  std::string path;  // of a Unix socket; empty: TCP
  std::string host, port;
  std::string text;  // as it was given
};
// Throws Failure.
Address parse_address(const std::string& text);

struct HttpRequest {
  std::string method = "GET", target{}, body{};  // a body is JSON
  std::string key{};                             // empty: none
};

class Connection {
 public:
  // Connects and sends the request. All functions throw Failure.
  Connection(const Address& address, const HttpRequest& request);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  // Waits for the head of the response.
  const HttpResponse& response();
  // Waits for the next bytes of the body; "" is its end.
  std::string read();
  // Waits for all of the body.
  std::string read_all();

 private:
  void send(std::string_view bytes);
  // Reads what has arrived, at least one byte, or the end.
  void receive();

  int descriptor_ = -1;
  std::string address_;  // for messages
  HttpResponse response_;
};

}  // namespace tarn::tools
