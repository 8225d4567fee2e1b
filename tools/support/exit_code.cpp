#include "tools/support/exit_code.h"

#include <unistd.h>

#include <cstdio>

#include "runtime/api/tarn.h"
#include "tools/support/escaped.h"

namespace tarn::tools {

ExitCode exit_code(Status status) {
  switch (status) {
    case Status::ok:
      return kExitOk;
    case Status::io_failed:
      return kExitIo;
    case Status::device_lost:
      return kExitGpuLost;
    case Status::internal:
      return kExitInternal;
    default:
      return kExitRefused;
  }
}

void throw_failure(const Error& error) {
  char text[512];
  format_error(error, text, sizeof text);
  throw Failure{exit_code(error.status), text};
}

void check_api(int status) {
  if (status == TARN_OK) return;
  throw Failure{exit_code(static_cast<Status>(status)), tarn_error_text()};
}

void throw_ended_early(Status status) {
  std::string text = std::string("the generation ended early: ") + status_name(status);
  if (status == Status::not_finite) {
    text +=
        ": the model's logits are not finite numbers: its weights are damaged, get the file again";
  }
  throw Failure{exit_code(status), text};
}

void print_failure(const char* program, std::string_view text) {
  std::fprintf(stderr, "%s: ", program);
  print_escaped(text, stderr);
  std::fputc('\n', stderr);
}

int code_after_output(const char* program, int code) {
  if (code == kExitGpuLost) {
    std::fflush(nullptr);
    _exit(code);
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  if (code != kExitIo) std::fprintf(stderr, "%s: %s\n", program, kOutputFailed);  // said already
  return code == kExitOk ? kExitIo : code;
}

const FatalSink& fatal_sink() {
  static constexpr FatalSink kSink = {.on_fatal = [](void*, const AssertSite& site) {
    exit_internal(site.condition, site.file, site.line);
  }};
  return kSink;
}

void exit_internal(const char* condition, const char* file, u32 line) {
  std::fprintf(stderr, "tarn: internal error: %s (%s:%u). Please report this line.\n", condition,
               file, line);
  std::fflush(nullptr);
  _exit(kExitInternal);
}

}  // namespace tarn::tools
