#include "tools/support/json.h"

#include <cstdio>

namespace tarn::tools {

void print_json(const Json& json) {
  std::fwrite(json.str().data(), 1, json.str().size(), stdout);
  std::fputc('\n', stdout);
}

}  // namespace tarn::tools
