// The wall clock, only for reports: the library does not depend on it.
#pragma once

#include <string>

#include "platform/base/types.h"

namespace tarn::tools {

std::string utc_now();  // "2026-11-21T15:04:05Z"
std::string utc_at(u64 unix_s);

}  // namespace tarn::tools
