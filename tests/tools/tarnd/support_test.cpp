// Goal    The log's lines, the notify protocol, and the network's memory.
// Method  Tables, and a datagram socket of the test's own.
#include <doctest/doctest.h>
#include <event2/buffer.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tools/tarnd/log.h"
#include "tools/tarnd/network_memory.h"
#include "tools/tarnd/notify.h"

namespace tarn::daemon::support_test {
namespace {

TEST_CASE("values of a log line") {
  CHECK(log_value("plain-1/2") == "plain-1/2");
  CHECK(log_value("") == "\"\"");
  CHECK(log_value("two words") == "\"two words\"");
  CHECK(log_value("a=\"b\"\n") == "\"a=\\\"b\\\"\\x0a\"");
  CHECK(log_value("\xc3\xa4") == "\"\\xc3\\xa4\"");
}

TEST_CASE("the last warnings are kept, newest first, and no more than 8") {
  set_log_level(LogLevel::error);
  for (int i = 0; i < 20; ++i) {
    log_event(Event::engine, LogLevel::warning, {{"n", std::to_string(i)}});
  }
  const auto errors = last_errors();
  REQUIRE(errors.size() == kLogRecordsMax);
  CHECK(errors[0].text == "engine n=19");
  set_log_level(LogLevel::info);
}

TEST_CASE("a message reaches NOTIFY_SOCKET, and its variables are gone") {
  const std::string path = "/tmp/tarnd_notify." + std::to_string(getpid());
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof at.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  setenv("WATCHDOG_USEC", "3000000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  const Notify notify;
  CHECK(getenv("NOTIFY_SOCKET") == nullptr);
  CHECK(notify.watchdog_us() == 1'500'000);
  notify.send("READY=1");
  char bytes[64];
  REQUIRE(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) == 7);
  CHECK(std::string(bytes, 7) == "READY=1");
  setenv("WATCHDOG_USEC", "3000000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  CHECK(Notify().watchdog_us() == 0);
  Notify().send("nobody hears it");
  close(fd);
  unlink(path.c_str());
}

TEST_CASE("libevent gets no more than the limit, and leases leave it some") {
  NetworkMemory::install(u64{1} << 20);
  const u64 before = NetworkMemory::used_bytes();
  {
    evbuffer* const buffer = evbuffer_new();
    REQUIRE(buffer != nullptr);
    const std::string piece(100'000, 'x');
    int n = 0;
    while (evbuffer_add(buffer, piece.data(), piece.size()) == 0) REQUIRE(++n < 100);
    CHECK(n >= 5);
    CHECK(NetworkMemory::used_bytes() <= NetworkMemory::limit_bytes());
    evbuffer_free(buffer);
  }
  CHECK(NetworkMemory::used_bytes() == before);
  Lease all, more;
  CHECK_FALSE(all.grow_to(u64{1} << 20));
  CHECK(all.grow_to(900'000));
  CHECK_FALSE(more.grow_to(100'000));
  evbuffer* const last = evbuffer_new();
  CHECK(last != nullptr);
  evbuffer_free(last);
  CHECK(all.grow_to(10));
  CHECK(more.grow_to(100'000));
  CHECK(NetworkMemory::used_bytes() == before + 100'010);
}

}  // namespace
}  // namespace tarn::daemon::support_test
