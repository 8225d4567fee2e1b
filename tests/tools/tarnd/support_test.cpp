// Goal    The log's lines, libevent's too, the limit on descriptors, the notify protocol, and the
//         network's memory.
// Method  Tables, and a datagram socket of the test's own.
#include <doctest/doctest.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include "tests/support/forked.h"
#include "tools/support/exit_code.h"
#include "tools/tarnd/descriptors.h"
#include "tools/tarnd/event_loop.h"
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
  CHECK(log_value("ä \x1b\u009b\xff") == "\"ä \\x1b\\xc2\\x9b\\xff\"");
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

// Returns the text that standard error got meanwhile.
template <class Fn>
std::string said(Fn&& fn) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const int before = dup(STDERR_FILENO);
  REQUIRE(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
  fn();
  dup2(before, STDERR_FILENO);
  close(before);
  char bytes[8192];
  const ssize_t n = read(ends[0], bytes, sizeof bytes);
  close(ends[0]);
  close(ends[1]);
  return n > 0 ? std::string(bytes, static_cast<size_t>(n)) : "";
}

TEST_CASE("what a peer or a lack of resources can repeat is one line a second, with a count") {
  constexpr Event kBounded[] = {Event::peer_refused, Event::connections_full, Event::accept_failed,
                                Event::network};
  const auto thousand = [&] {
    for (int i = 0; i < 1000; ++i) {
      for (const Event event : kBounded) log_event(event, {{"n", std::to_string(i)}});
    }
  };
  const std::string first = said(thousand);
  usleep(1'050'000);
  const std::string then = said(thousand);
  CHECK(std::ranges::count(first, '\n') == std::ssize(kBounded));
  CHECK(std::ranges::count(then, '\n') == std::ssize(kBounded));
  for (const Event event : kBounded) {
    const std::string begin = std::string(" event=") + event_name(event);
    CHECK(first.find(begin + " n=0\n") != std::string::npos);
    CHECK(then.find(begin + " n=0 more=999\n") != std::string::npos);
  }
  const std::string requests = said([] {
    for (int i = 0; i < 20; ++i) log_event(Event::request, {});
  });
  CHECK(std::ranges::count(requests, '\n') == 20);
}

TEST_CASE("lines have a priority where standard error is the journal's stream, else none") {
  struct stat facts {};
  REQUIRE(fstat(STDERR_FILENO, &facts) == 0);
  const std::string own = std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino);
  CHECK(is_journal_stream(own.c_str()));
  for (const char* other : {"", "1:2", "x", ":"}) CHECK_FALSE(is_journal_stream(other));
  CHECK_FALSE(is_journal_stream(nullptr));
  const auto one_each = [] {
    log_event(Event::request, {});
    log_event(Event::engine, LogLevel::warning, {});
    log_event(Event::reload_failed, {});
  };
  CHECK(said(one_each).starts_with("time="));
  set_journal_prefixes(true);
  const std::string lines = said(one_each);
  set_journal_prefixes(false);
  CHECK(lines.starts_with("<6>time="));
  CHECK(lines.find("\n<4>time=") != std::string::npos);
  CHECK(lines.find("\n<3>time=") != std::string::npos);
}

TEST_CASE("libevent's warnings are lines of the log") {
  const EventLoop loop;
  const std::string line = said([] {
    usleep(1'050'000);
    EventLoop other;
    const int closed = dup(STDERR_FILENO);  // small: libevent has a table as long as its number
    close(closed);
    event* const wrong = event_new(other.base, closed, EV_READ, nullptr, nullptr);
    event_add(wrong, nullptr);
    event_free(wrong);
  });
  CHECK(line.find("level=warning event=network text=") != std::string::npos);
}

TEST_CASE("the limit on descriptors is raised to what connections need, or is refused") {
  struct LimitCase {
    rlim_t soft, hard;
    u32 connections;
    rlim_t then;    // 0: refused
    u64 lower = 0;  // what connections_max may be lowered to; 0: that is no remedy
  };
  constexpr LimitCase kCases[] = {
      {1024, 4096, 64, 1024},
      {1024, 4096, 2000, 2000 + kDescriptorsBeside},
      {30, 4096, 64, 64 + kDescriptorsBeside},
      {1024, 1024, 2000, 0, 1024 - kDescriptorsBeside},
      {30, 30, 64, 0},
      {60, 60, 1, 0},
      {kDescriptorsBeside, kDescriptorsBeside, 1, 0},
      {192, 192, 64, 192},
      {191, 191, 64, 0, 63},
  };
  for (const LimitCase& each : kCases) {
    CAPTURE(each.soft);
    CAPTURE(each.connections);
    const int code = tarn::test::in_child([&] {
      const rlimit limit{each.soft, each.hard};
      if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
      try {
        raise_descriptor_limit(each.connections);
      } catch (const tools::Failure& failure) {
        const bool has_figure =
            failure.text.find(std::to_string(each.connections + kDescriptorsBeside)) !=
            std::string::npos;
        const std::string lower = "lower daemon.connections_max to " + std::to_string(each.lower);
        const bool has_lower = failure.text.find("lower") != std::string::npos;
        const bool is_right = each.lower == 0 ? !has_lower : failure.text.ends_with(lower);
        const bool is_refused = each.then == 0 && failure.code == tools::kExitRefused;
        return is_refused && has_figure && is_right ? 0 : 2;
      }
      rlimit now{};
      getrlimit(RLIMIT_NOFILE, &now);
      return now.rlim_cur == each.then ? 0 : 3;
    });
    CHECK(code == 0);
  }
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
