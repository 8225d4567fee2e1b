#include "tools/support/shown_answer.h"

#include <unistd.h>

#include <cstdio>

#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

bool is_terminal() {
  static const bool is = isatty(STDOUT_FILENO) != 0;
  return is;
}

}  // namespace

void print_answer(std::string_view piece) {
  if (is_terminal()) {
    print_escaped(piece, stdout);
  } else {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
  }
  // An answer without a reader is not computed to its end.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw Failure{kExitIo, kOutputFailed};
}

void end_line(std::string_view text, bool everywhere) {
  if (text.empty() || text.ends_with('\n') || !(everywhere || is_terminal())) return;
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

const char* behind_answer() { return is_terminal() ? "" : "\n"; }

}  // namespace tarn::tools
