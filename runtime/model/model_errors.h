// The errors of a model's readers for a refused file.
#pragma once

#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"

namespace tarn::model {

// `detail` names the key or the tensor at fault.
inline Unexpected invalid(const char* hint, std::string_view detail, Figure a = {}, Figure b = {},
                          Figure c = {}, Figure d = {}) {
  return fail({.status = Status::invalid_model,
               .hint = hint,
               .detail = Detail(detail),
               .figures = {{a, b, c, d}}});
}

inline Unexpected unsupported(const char* hint, std::string_view detail, Figure a = {}) {
  return fail(
      {.status = Status::unsupported, .hint = hint, .detail = Detail(detail), .figures = {{a}}});
}

inline Unexpected big_endian() {
  return unsupported("a big-endian GGUF file; convert it for little-endian machines", "");
}

inline Unexpected out_of_memory(const char* hint, const Bump& memory) {
  return fail({.status = Status::over_budget,
               .hint = hint,
               .figures = {{{"bytes_free", memory.free_bytes()}}}});
}

}  // namespace tarn::model
