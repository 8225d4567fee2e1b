// The program `tarn` as a shell starts it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tarn::test {

struct Ended {
  int exit_code = -1;  // -1: by a signal
  std::string out, err;
};

// The same of another program with tarn's command line.
Ended run_program(const std::string& program, const std::vector<std::string>& arguments,
                  const std::string& out_path = "", const std::string& in_path = "/dev/null");

// Starts tarn with these descriptors for standard output and error, and does not wait.
pid_t start_tarn(const std::vector<std::string>& arguments, int out, int err);

// Starts tarn with a terminal for standard error, and sends it `signal` when it says `when` there.
struct Stopped {
  int signal = 0;  // that it ended by; 0: by none
  bool said = false;
  std::string out, err;
};
Stopped stop_tarn(const std::vector<std::string>& arguments, const std::string& when, int signal);

// `out_path`: where standard output goes, instead of into Ended::out.
Ended run_tarn(const std::vector<std::string>& arguments, const std::string& out_path = "");
// With this standard input.
Ended pipe_to_tarn(const std::string& input, const std::vector<std::string>& arguments);

}  // namespace tarn::test
