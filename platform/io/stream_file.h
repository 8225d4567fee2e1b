// A file that is written or read from front to back, through the page cache, by blocking calls. It
// is for files that go to another machine or come from one. Everything else uses io_backend.h.
//
// A new file is called PATH.part (mode 0600) until it is whole and synced; then it replaces the
// file at PATH. Before that, PATH does not change. The next writer overwrites the PATH.part that a
// killed process left. A second writer of the same name is refused.
//
//   thread   one at a time
//   memory   none but the object's own
#pragma once

#include <array>
#include <span>

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

class FileWriter {
 public:
  FileWriter() = default;
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();  // removes an unfinished file

  Result<void> create(const char* path);
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> finish();  // after it the file outlives a power cut, under its name

 private:
  static constexpr u64 kPathBytesMax = 1024;
  Unexpected failed(const char* hint) const;

  int fd_ = -1;
  std::array<char, kPathBytesMax> path_{};
  std::array<char, kPathBytesMax> part_{};
};

class FileReader {
 public:
  FileReader() = default;
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader();

  Result<void> open(const char* path);  // a regular file
  u64 size_bytes() const { return size_bytes_; }
  Result<void> read(std::span<std::byte> bytes);  // all of them, or fails
  Result<void> rewind(u64 offset);                // sets the offset of the next read

 private:
  int fd_ = -1;
  u64 size_bytes_ = 0;
};

}  // namespace tarn
