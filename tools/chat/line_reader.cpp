#include "tools/chat/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

volatile std::sig_atomic_t g_signal = 0;

void catch_signal(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);  // without SA_RESTART: it ends a wait
}

class PlainLines : public LineReader {
 public:
  LineRead next(const char* prompt, std::string& line) override {
    if (is_interactive()) std::fputs(prompt, stderr);
    for (u64 n_searched = 0;;) {
      const size_t end = text_.find('\n', n_searched);
      if (end != std::string::npos || (is_ended_ && !text_.empty())) {
        line = text_.substr(0, end);
        text_.erase(0, line.size() + 1);
        if (line.ends_with('\r')) line.pop_back();
        return LineRead::line;
      }
      if (is_ended_) return LineRead::end;
      n_searched = text_.size();
      if (n_searched > kLineBytesMax) {
        throw Failure{kExitRefused, "a line of the input is longer than 16 MiB: shorten it"};
      }
      if (!read_more()) return LineRead::caught_signal;
    }
  }

 private:
  static constexpr u64 kLineBytesMax = u64{16} << 20;

  bool read_more() {
    Waited waited = wait_for_input();
    while (waited == Waited::resumed) waited = wait_for_input();
    if (waited == Waited::caught_signal) return false;
    std::array<char, 65536> bytes;
    const ssize_t n = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (n < 0) {
      throw Failure{kExitIo, std::string("cannot read standard input: ") + std::strerror(errno)};
    }
    text_.append(bytes.data(), static_cast<size_t>(n));
    is_ended_ = n == 0;
    return true;
  }

  std::string text_;  // read, but not taken
  bool is_ended_ = false;
};

}  // namespace

void catch_signals() {
  for (const int signal : {SIGINT, SIGTERM}) {
    catch_signal(signal, [](int caught) { g_signal = caught; });
  }
  // They change the terminal; the wait ends with Waited::resumed.
  for (const int signal : {SIGCONT, SIGWINCH}) catch_signal(signal, [](int) {});
}

int signal_caught() { return g_signal; }
void clear_signal() { g_signal = 0; }

Waited wait_for_input() {
  // Blocked, so that none can come between the look at the flag and the wait.
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGCONT, SIGWINCH}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const bool is_ready = g_signal == 0 && ppoll(&input, 1, nullptr, &before) > 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (g_signal != 0) return Waited::caught_signal;
  return is_ready ? Waited::has_input : Waited::resumed;
}

std::unique_ptr<LineReader> plain_lines() { return std::make_unique<PlainLines>(); }

bool is_interactive() { return isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0; }

bool has_escapes() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && terminal != nullptr && *terminal != '\0' &&
         std::string_view(terminal) != "dumb";
}

}  // namespace tarn::tools
