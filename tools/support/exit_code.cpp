#include "tools/support/exit_code.h"

#include "runtime/api/tarn.h"

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

}  // namespace tarn::tools
