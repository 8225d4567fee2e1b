#include "tools/support/utc.h"

#include <algorithm>
#include <ctime>

namespace tarn::tools {

std::string utc_now() { return utc_at(static_cast<u64>(std::time(nullptr))); }

std::string utc_at(u64 unix_s) {
  // A wrong clock is shown too, but not with years of more than four digits.
  constexpr u64 kYear10000 = 253'402'300'800;
  const auto at = static_cast<std::time_t>(std::min(unix_s, kYear10000 - 1));
  std::tm utc{};
  gmtime_r(&at, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace tarn::tools
