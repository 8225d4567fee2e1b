// `tarn` on a terminal of its own: what a person types, and what the terminal gets.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tarn::test {

class Terminal {
 public:
  // `environment`: NAME=VALUE, beside TERM=dumb and the test's own.
  explicit Terminal(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment = {});
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();

  void type(const std::string& keys);
  // Waits until the terminal gets this text behind what was waited for before. False: the program
  // ended, or 30 s are over.
  bool shows(const std::string& text);
  // Waits until the program ends. Returns its exit code, or 128 and its signal.
  int end();
  void send(int signal);
  const std::string& seen() const { return seen_; }

 private:
  bool read_more();

  int fd_ = -1;
  pid_t pid_ = -1;
  std::string seen_;
  size_t n_searched_ = 0;
};

}  // namespace tarn::test
