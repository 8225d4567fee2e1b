#include "runtime/api/border.h"

namespace tarn::api {
namespace {

thread_local char t_error_text[512] = "";

}  // namespace

const char* error_text() { return t_error_text; }

int32_t report(const Error& error) {
  format_error(error, t_error_text, sizeof t_error_text);
  return static_cast<int32_t>(error.status);
}

int32_t report(const Result<void>& result) { return result ? TARN_OK : report(result.error()); }

int32_t refuse(const char* hint) {
  return report(Error{.status = Status::invalid_request, .hint = hint});
}

}  // namespace tarn::api
