// tools/gpu_check/process.h
//
// Another program, run to its end or to a limit. It is a process group of its own: what is cut is
// cut with its children, and it dies when gpu-check is killed.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::gpu_check {

struct Command {
  std::vector<std::string> arguments;  // the first is the program: a path, no search in PATH
  std::string library_dir;             // goes before LD_LIBRARY_PATH; empty: as it is
  f64 limit_s = 0;
};

enum class Ending : u8 { exited, signalled, timed_out, interrupted, not_started };

struct Outcome {
  Ending ending = Ending::not_started;
  int code = 0;  // exited: the exit code; signalled: the signal; not_started: errno
  f64 seconds = 0;
  std::string out, err;  // at most kOutputBytesMax each: of `out` the first, of `err` the last
};

inline constexpr u64 kOutputBytesMax = 4 * kMiB;

Outcome run_command(const Command& command);

// From now on SIGINT, SIGTERM and SIGHUP cut the running command, and every later one at once.
void catch_interrupts();
bool is_interrupted();

}  // namespace tarn::gpu_check
