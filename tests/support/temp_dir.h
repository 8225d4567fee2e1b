// A path for a folder of this test, which the destructor removes with its content. It is on the
// build's disk, because direct I/O needs a real one. Nothing is created here.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/folders.h"

namespace tarn::test {

class TempDir {
 public:
  explicit TempDir(const std::string& name)
      : path_(build_folder() + "/" + name + "." + std::to_string(getpid())) {
    remove();
  }
  ~TempDir() { remove(); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  void remove() const {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::string path_;
};

}  // namespace tarn::test
