// The errors of a model's readers for a refused file. Private to runtime/model.
#pragma once

#include <string_view>

#include "platform/base/result.h"

namespace tarn::model {

// `detail` names the key or the tensor at fault.
inline Error invalid(const char* hint, std::string_view detail, Figure a = {}, Figure b = {},
                     Figure c = {}) {
  return {.status = Status::invalid_model,
          .hint = hint,
          .detail = Detail(detail),
          .figures = {{a, b, c}}};
}

inline Error unsupported(const char* hint, std::string_view detail, Figure a = {}) {
  return {.status = Status::unsupported, .hint = hint, .detail = Detail(detail), .figures = {{a}}};
}

}  // namespace tarn::model
