#include "tools/client/connection.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

[[noreturn]] void fail_to_connect(const Address& address, int error) {
  std::string remedy = ": is tarnd running, and does it listen there?";
  if (error == EACCES || error == EPERM) {
    remedy = ": you may not use this socket; its owner and mode say who may (ls -l)";
  }
  throw Failure{kExitIo,
                "cannot connect to " + address.text + ": " + std::strerror(error) + remedy};
}

int connect_unix(const Address& address) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (address.path.size() >= sizeof to.sun_path) {
    throw Failure{kExitUsage, address.text + ": the path of a Unix socket has at most " +
                                  std::to_string(sizeof to.sun_path - 1) + " bytes"};
  }
  std::memcpy(to.sun_path, address.path.data(), address.path.size());
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) fail_to_connect(address, errno);
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    const int error = errno;
    close(descriptor);
    fail_to_connect(address, error);
  }
  return descriptor;
}

int connect_tcp(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  if (failed != 0) throw Failure{kExitIo, address.text + ": " + gai_strerror(failed)};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* to = found; to != nullptr; to = to->ai_next) {
    const int descriptor = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC, to->ai_protocol);
    if (descriptor >= 0 && connect(descriptor, to->ai_addr, to->ai_addrlen) == 0) return descriptor;
    error = errno;
    if (descriptor >= 0) close(descriptor);
  }
  fail_to_connect(address, error);
}

std::string head_of(const Address& address, const HttpRequest& request) {
  const std::string host = address.path.empty() ? address.host + ":" + address.port : "localhost";
  std::string head = request.method + " " + request.target + " HTTP/1.1\r\nHost: " + host +
                     "\r\nConnection: close\r\n";
  if (!request.key.empty()) head += "Authorization: Bearer " + request.key + "\r\n";
  if (!request.body.empty()) head += "Content-Type: application/json\r\n";
  if (request.method == "POST") {
    head += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  }
  return head + "\r\n";
}

}  // namespace

Address parse_address(const std::string& text) {
  constexpr std::string_view kUnix = "unix://", kTcp = "tcp://";
  Address address;
  address.text = text;
  if (text.starts_with(kUnix) && text.size() > kUnix.size()) {
    address.path = text.substr(kUnix.size());
    return address;
  }
  const size_t colon = text.rfind(':');
  if (text.starts_with(kTcp) && colon > kTcp.size() && colon + 1 < text.size()) {
    address.host = text.substr(kTcp.size(), colon - kTcp.size());
    address.port = text.substr(colon + 1);
    if (address.host.starts_with('[') && address.host.ends_with(']')) {  // IPv6
      address.host = address.host.substr(1, address.host.size() - 2);
    }
    return address;
  }
  throw Failure{kExitUsage, "no address: '" + text + "'; give unix:///PATH or tcp://HOST:PORT"};
}

Connection::Connection(const Address& address, const HttpRequest& request)
    : address_(address.text) {
  descriptor_ = address.path.empty() ? connect_tcp(address) : connect_unix(address);
  try {
    send(head_of(address, request));
    send(request.body);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

Connection::~Connection() { close(descriptor_); }

const HttpResponse& Connection::response() {
  while (!response_.has_head()) receive();
  return response_;
}

std::string Connection::read() {
  std::string body = response_.take_body();
  while (body.empty() && !response_.is_complete()) {
    receive();
    body = response_.take_body();
  }
  return body;
}

std::string Connection::read_all() {
  std::string all;
  for (std::string piece; !(piece = read()).empty();) all += piece;
  return all;
}

void Connection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    // The server may have refused the request before it read all of it: its answer says why.
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return;
    if (n < 0) throw Failure{kExitIo, "cannot send to " + address_ + ": " + std::strerror(errno)};
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void Connection::receive() {
  std::array<char, 16 * 1024> bytes;
  const ssize_t n = recv(descriptor_, bytes.data(), bytes.size(), 0);
  if (n < 0 && errno == EINTR) return;
  if (n < 0) {
    throw Failure{kExitIo, "cannot read from " + address_ + ": " + std::strerror(errno)};
  }
  if (n == 0) return response_.end();
  response_.feed({bytes.data(), static_cast<size_t>(n)});
}

}  // namespace tarn::tools
