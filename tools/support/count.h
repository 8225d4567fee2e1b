// A count as printf's %llu takes it.
#pragma once

#include "platform/base/types.h"

namespace tarn::tools {

inline unsigned long long count(u64 n) { return n; }

}  // namespace tarn::tools
