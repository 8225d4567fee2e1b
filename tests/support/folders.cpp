#include "tests/support/folders.h"

#include <filesystem>

namespace tarn::test {

const std::string& source_folder() {
  static const std::string folder = TARN_SOURCE_DIR;
  return folder;
}

const std::string& build_folder() {
  namespace fs = std::filesystem;
  static const std::string folder = fs::is_directory(TARN_BINARY_DIR)
                                        ? TARN_BINARY_DIR
                                        : fs::read_symlink("/proc/self/exe").parent_path().string();
  return folder;
}

}  // namespace tarn::test
