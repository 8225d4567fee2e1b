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

// The same of another program with tarn's command line.
Ended run_program(const std::string& program, const std::vector<std::string>& arguments,
                  const std::string& out_path = "");

// `out_path`: where standard output goes, instead of into Ended::out.
Ended run_tarn(const std::vector<std::string>& arguments, const std::string& out_path = "");

}  // namespace tarn::test
