#include "tools/gpu_check/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace tarn::gpu_check {
namespace {

using Clock = std::chrono::steady_clock;

volatile sig_atomic_t g_interrupted = 0;

void on_signal(int) { g_interrupted = 1; }

constexpr int kPollMs = 50;
constexpr int kEndingMs = 2;  // between a program's last word and its end

struct Pipe {
  int read = -1, write = -1;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  return {ends[0], ends[1]};
}

// In the child: nothing may be allocated between fork and exec, so all of it is made before.
[[noreturn]] void become(char* const* arguments, char* const* environment, int out, int err,
                         pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(126);  // it died before the line above
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) signal(signal_number, SIG_DFL);
  execve(arguments[0], arguments, environment);
  const char* why = std::strerror(errno);
  static_cast<void>(!write(STDERR_FILENO, why, std::strlen(why)));
  _exit(127);
}

std::vector<std::string> environment_of(const Command& command) {
  std::vector<std::string> variables;
  std::string libraries = command.library_dir;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (libraries.empty() || !text.starts_with("LD_LIBRARY_PATH=")) {
      variables.push_back(text);
    } else {
      libraries += ":" + text.substr(std::strlen("LD_LIBRARY_PATH="));
    }
  }
  if (!libraries.empty()) variables.push_back("LD_LIBRARY_PATH=" + libraries);
  return variables;
}

std::vector<char*> pointers_of(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Reads what is there; false at the end of the stream.
bool take(int from, std::string& text, bool keep_last) {
  std::array<char, 65536> bytes;
  const ssize_t n = read(from, bytes.data(), bytes.size());
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n == 0) return false;
  text.append(bytes.data(), static_cast<size_t>(n));
  if (text.size() > kOutputBytesMax) {
    text = keep_last ? text.substr(text.size() - kOutputBytesMax) : text.substr(0, kOutputBytesMax);
  }
  return true;
}

// Follows the output until both streams are closed and the child is gone, or it has to be cut.
Outcome follow(pid_t child, int out, int err, f64 limit_s) {
  Outcome outcome;
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<f64>(Clock::now() - begin).count(); };
  std::array<pollfd, 2> streams = {pollfd{out, POLLIN, 0}, pollfd{err, POLLIN, 0}};
  int status = 0;
  bool is_gone = false;
  Ending cut = Ending::exited;
  while (!is_gone) {
    const bool is_closed = streams[0].fd < 0 && streams[1].fd < 0;
    poll(streams.data(), streams.size(), is_closed ? kEndingMs : kPollMs);
    if (streams[0].revents != 0 && !take(out, outcome.out, false)) streams[0].fd = -1;
    if (streams[1].revents != 0 && !take(err, outcome.err, true)) streams[1].fd = -1;
    is_gone = waitpid(child, &status, WNOHANG) == child;
    if (!is_gone && cut == Ending::exited) {
      if (is_interrupted()) cut = Ending::interrupted;
      if (seconds() > limit_s) cut = Ending::timed_out;
      if (cut != Ending::exited) kill(-child, SIGKILL);
    }
  }
  kill(-child, SIGKILL);  // what it left behind
  // A grandchild that went away from the group may hold a pipe open: what is there, no more.
  for (pollfd& stream : streams) {
    const bool is_out = stream.fd == out;
    while (stream.fd >= 0 && poll(&stream, 1, kPollMs) > 0) {
      if (!take(stream.fd, is_out ? outcome.out : outcome.err, !is_out)) stream.fd = -1;
      if (seconds() > limit_s + 1) break;
    }
  }
  outcome.seconds = seconds();
  outcome.ending = cut;
  if (cut != Ending::exited) return outcome;
  outcome.ending = WIFSIGNALED(status) ? Ending::signalled : Ending::exited;
  outcome.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return outcome;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    sigaction(signal_number, &action, nullptr);
  }
}

bool is_interrupted() { return g_interrupted != 0; }

Outcome run_command(const Command& command) {
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> environment = environment_of(command);
  const std::vector<char*> argv = pointers_of(arguments), env = pointers_of(environment);
  const Pipe out = make_pipe(), err = make_pipe();
  Outcome outcome{.ending = Ending::not_started, .code = errno, .seconds = 0, .out = {}, .err = {}};
  const bool has_pipes = out.read >= 0 && err.read >= 0;
  const pid_t parent = getpid();
  const pid_t child = has_pipes ? fork() : -1;
  if (child == 0) become(argv.data(), env.data(), out.write, err.write, parent);
  if (child > 0) setpgid(child, child);  // whoever is first: it must be there when it is cut
  outcome.code = errno;
  for (const int end : {out.write, err.write}) close(end);
  if (child > 0) outcome = follow(child, out.read, err.read, command.limit_s);
  for (const int end : {out.read, err.read}) close(end);
  if (outcome.ending == Ending::exited && outcome.code == 127 && outcome.out.empty() &&
      access(command.arguments[0].c_str(), X_OK) != 0) {
    outcome.ending = Ending::not_started;
    outcome.code = ENOENT;
  }
  return outcome;
}

}  // namespace tarn::gpu_check
