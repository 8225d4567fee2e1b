// The exit codes of all our programs; scripts rely on them (sysexits.h has their names).
#pragma once

#include <string>
#include <string_view>

#include "platform/base/assert.h"
#include "platform/base/result.h"

namespace tarn::tools {

enum ExitCode : int {
  kExitOk = 0,
  kExitUsage = 64,     // the command line is wrong
  kExitInternal = 70,  // one of our assertions failed
  kExitIo = 74,        // the system refused a read or a write
  kExitGpuLost = 75,   // start the program again
  kExitRefused = 78,   // model, configuration, budget or request refused
};

ExitCode exit_code(Status status);

// Thrown by a tool that cannot continue; main() prints it and exits.
struct Failure {
  ExitCode code = kExitRefused;
  std::string text;
};

// Thrown by a tool after a signal, when its clean-up is done: main() ends by that signal, so that a
// shell sees 128 + its number.
struct Stopped {
  int signal = 0;
};

// Prints "program: text" as a line on standard error. What it quotes of files may be no text: see
// print_escaped().
void print_failure(const char* program, std::string_view text);

// Returns the value, or throws a Failure with the error's sentence.
[[noreturn]] void throw_failure(const Error& error);
template <class T>
T value_of(Result<T> result) {
  if (!result) throw_failure(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}
// The same for a status of the C API.
void check_api(int status);
// Throws for a generation that ended with a status other than ok.
[[noreturn]] void throw_ended_early(Status status);

inline constexpr const char* kOutputFailed =
    "standard output could not be written; is it closed, or its disk full?";
// The exit code of main(): `code`, or kExitIo if standard output could not be written. With
// kExitGpuLost it does not return, because the GPU driver's exit handlers may wait for a GPU that
// hangs.
int code_after_output(const char* program, int code);

// The sink of a program's failed assertions: prints the assertion and exits with kExitInternal.
// main() and every thread of a program set it; an engine's workers get it in OpenArgs.
const FatalSink& fatal_sink();
[[noreturn]] void exit_internal(const char* condition, const char* file, u32 line);

}  // namespace tarn::tools
