#include "tests/tools/tarn/terminal.h"

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

namespace tarn::test {

Terminal::Terminal(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment) {
  std::vector<std::string> words = arguments, variables = environment;
  words.insert(words.begin(), TARN_PROGRAM);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 80;
  pid_ = forkpty(&fd_, nullptr, nullptr, &size);
  if (pid_ != 0) return;
  setenv("TERM", "dumb", 1);
  for (std::string& variable : variables) putenv(variable.data());
  execv(TARN_PROGRAM, argv.data());
  _exit(127);
}

Terminal::~Terminal() {
  if (pid_ > 0) {
    send(SIGKILL);
    end();
  }
  if (fd_ >= 0) close(fd_);
}

void Terminal::type(const std::string& keys) {
  if (write(fd_, keys.data(), keys.size()) < 0) seen_ += "[the terminal is closed]";
}

bool Terminal::read_more() {
  constexpr int kWaitMs = 30'000;
  pollfd input = {.fd = fd_, .events = POLLIN, .revents = 0};
  std::array<char, 4096> bytes;
  if (poll(&input, 1, kWaitMs) <= 0) return false;
  // It ends with an error when the program has closed its side.
  const ssize_t n = read(fd_, bytes.data(), bytes.size());
  if (n <= 0) return false;
  seen_.append(bytes.data(), static_cast<size_t>(n));
  return true;
}

bool Terminal::shows(const std::string& text) {
  for (;;) {
    const size_t at = seen_.find(text, n_searched_);
    if (at != std::string::npos) {
      n_searched_ = at + text.size();
      return true;
    }
    if (!read_more()) return false;
  }
}

int Terminal::end() {
  while (read_more()) {
  }
  int status = 0;
  // A program that waits for more, although nothing comes, is ended: a test fails, and hangs not.
  constexpr int kLooks = 500;
  constexpr useconds_t kLookUs = 10'000;
  for (int look = 0; waitpid(pid_, &status, WNOHANG) == 0; ++look) {
    if (look == kLooks) send(SIGKILL);
    usleep(kLookUs);
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void Terminal::send(int signal) { kill(pid_, signal); }

}  // namespace tarn::test
