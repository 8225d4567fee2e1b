// A path for a file of this test, which the destructor removes. Nothing is created here.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace tarn::test {

class TempFile {
 public:
  explicit TempFile(const std::string& name)
      : path_((std::filesystem::temp_directory_path() /
               ("tarn_" + std::to_string(getpid()) + "_" + name))
                  .string()) {}
  ~TempFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tarn::test
