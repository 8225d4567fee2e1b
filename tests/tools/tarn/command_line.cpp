#include "tests/tools/tarn/command_line.h"

#include <sys/wait.h>

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

Ended run_program(const std::string& program, const std::vector<std::string>& arguments,
                  const std::string& out_path) {
  const TempFile out("stdout.txt"), err("stderr.txt");
  std::string line = quoted(program);
  for (const auto& argument : arguments) line += " " + quoted(argument);
  line += " >" + quoted(out_path.empty() ? out.path() : out_path) + " 2>" + quoted(err.path()) +
          " </dev/null";
  const int status = std::system(line.c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = out_path.empty() ? tools::read_file(out.path()) : "",
          .err = tools::read_file(err.path())};
}

}  // namespace tarn::test
