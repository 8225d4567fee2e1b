#include "tests/tools/tarn/command_line.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "tests/support/temp_file.h"
#include "tools/support/input.h"

namespace tarn::test {
namespace {

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

Ended run_tarn(const std::vector<std::string>& arguments, const std::string& out_path) {
  return run_program(TARN_PROGRAM, arguments, out_path);
}

Ended pipe_to_tarn(const std::string& input, const std::vector<std::string>& arguments) {
  const TempFile in("stdin.txt");
  tools::write_file(in.path(), input.data(), input.size());
  return run_program(TARN_PROGRAM, arguments, "", in.path());
}

Ended run_program(const std::string& program, const std::vector<std::string>& arguments,
                  const std::string& out_path, const std::string& in_path) {
  const TempFile out("stdout.txt"), err("stderr.txt");
  std::string line = quoted(program);
  for (const auto& argument : arguments) line += " " + quoted(argument);
  line += " >" + quoted(out_path.empty() ? out.path() : out_path) + " 2>" + quoted(err.path()) +
          " <" + quoted(in_path);
  const int status = std::system(line.c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = out_path.empty() ? tools::read_file(out.path()) : "",
          .err = tools::read_file(err.path())};
}

pid_t start_tarn(const std::vector<std::string>& arguments, int out, int err) {
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), TARN_PROGRAM);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv(TARN_PROGRAM, argv.data());
    _exit(127);
  }
  return pid;
}

Stopped stop_tarn(const std::vector<std::string>& arguments, const std::string& when, int signal) {
  const TempFile out("stdout.txt");
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return {};
  const int err = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  const int to_file = open(out.path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const pid_t pid = start_tarn(arguments, to_file, err);
  close(err);
  close(to_file);
  Stopped stopped;
  char bytes[4096];
  // It ends with an error when the program has closed its side.
  for (ssize_t n = 0; (n = read(terminal, bytes, sizeof bytes)) > 0;) {
    stopped.err.append(bytes, static_cast<size_t>(n));
    if (stopped.said || stopped.err.find(when) == std::string::npos) continue;
    stopped.said = true;
    kill(pid, signal);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  close(terminal);
  stopped.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  stopped.out = tools::read_file(out.path());
  return stopped;
}

}  // namespace tarn::test
