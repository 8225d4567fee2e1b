#include "tests/support/folders.h"

namespace tarn::test {

const std::string& source_folder() {
  static const std::string folder = TARN_SOURCE_DIR;
  return folder;
}

const std::string& build_folder() {
  static const std::string folder = TARN_BINARY_DIR;
  return folder;
}

}  // namespace tarn::test
