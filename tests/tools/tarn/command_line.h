// tests/tools/tarn/command_line.h
//
// The program `tarn` as a shell starts it.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/temp_file.h"
#include "tools/support/input.h"

namespace tarn::test {

struct Ended {
  int exit_code = -1;
  std::string out, err;
};

inline std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

inline Ended run_tarn(const std::vector<std::string>& arguments) {
  const TempFile out("stdout.txt"), err("stderr.txt");
  std::string line = quoted(TARN_PROGRAM);
  for (const auto& argument : arguments) line += " " + quoted(argument);
  line += " >" + quoted(out.path()) + " 2>" + quoted(err.path()) + " </dev/null";
  const int status = std::system(line.c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = tools::read_file(out.path()),
          .err = tools::read_file(err.path())};
}

}  // namespace tarn::test
