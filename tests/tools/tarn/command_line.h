// tests/tools/tarn/command_line.h
//
// The program `tarn` as a shell starts it.
#pragma once

#include <string>
#include <vector>

namespace tarn::test {

struct Ended {
  int exit_code = -1;  // -1: by a signal
  std::string out, err;
};

Ended run_tarn(const std::vector<std::string>& arguments);

}  // namespace tarn::test
