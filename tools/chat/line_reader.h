// Lines of standard input, with a line editor on a terminal that can have one. Signals are read
// here, too: SIGINT and SIGTERM end a wait for input, and are a flag everywhere else.
#pragma once

#include <memory>
#include <string>

#include "platform/base/types.h"

namespace tarn::tools {

// From now on SIGINT and SIGTERM set a flag.
void catch_signals();
// The signal that came last; 0: none since clear_signal().
int signal_caught();
void clear_signal();

// Waits until standard input has bytes, or has ended. Returns false if a signal came first.
enum class Waited : u8 { has_input, caught_signal, resumed };
Waited wait_for_input();

enum class LineRead : u8 { line, caught_signal, end };

class LineReader {
 public:
  virtual ~LineReader() = default;
  // Reads a line without its line break ("\n" or "\r\n"). Prints the prompt on standard error, on a
  // terminal alone.
  virtual LineRead next(const char* prompt, std::string& line) = 0;
  // Adds a line to what the editor's arrow keys bring back.
  virtual void remember(const std::string&) {}
};

// Lines as they come.
std::unique_ptr<LineReader> plain_lines();
// A line editor (package libedit-dev). nullptr: this build has none, or the terminal is dumb.
std::unique_ptr<LineReader> edited_lines();

// Whether standard input and standard error are terminals.
bool is_interactive();
// Whether standard error is a terminal that knows escape sequences.
bool has_escapes();

}  // namespace tarn::tools
