// tools/support/utc.h
//
// The wall clock, for reports alone: nothing that the library does depends on it.
#pragma once

#include <string>

#include "platform/base/types.h"

namespace tarn::tools {

std::string utc_now();  // "2026-11-21T15:04:05Z"
std::string utc_at(u64 unix_s);

}  // namespace tarn::tools
