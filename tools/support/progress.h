// How far long work is, on standard error, whatever standard output is for. A terminal has one line
// that changes, from half a second on. Elsewhere a line is printed after ten seconds, and then ever
// more rarely: after a tenth of the time that the work has taken. Nothing is allocated.
#pragma once

#include <cstdio>
#include <string_view>

#include "platform/base/types.h"
#include "platform/clock/clock.h"

namespace tarn::tools {

class Progress {
 public:
  Progress();
  // Elsewhere, by another clock.
  Progress(Clock& clock, bool on_terminal, std::FILE* out);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  // Prints the text if it is due. `share_done` of all the work, 0 to 1, adds the time left.
  void show(std::string_view text);
  void show(std::string_view text, f64 share_done);
  // "loading 40 % of 4.6 GB", and the time left.
  void show_bytes(const char* what, u64 done_bytes, u64 total_bytes);
  // Prints it in any case.
  void print(std::string_view text);
  // Takes the line off a terminal, before other output.
  void clear();

  bool is_due() const;

 private:
  f64 now_s() const;

  SystemClock own_clock_;
  Clock& clock_;
  std::FILE* out_;
  f64 start_s_ = 0, shown_s_ = 0;
  bool on_terminal_ = false, is_shown_ = false;
};

}  // namespace tarn::tools
