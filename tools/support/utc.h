// tools/support/utc.h
//
// The wall clock, for reports alone: nothing that the library does depends on it.
#pragma once

#include <string>

namespace tarn::tools {

std::string utc_now();  // "2026-11-21T15:04:05Z"

}  // namespace tarn::tools
