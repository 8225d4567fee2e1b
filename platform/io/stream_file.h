// platform/io/stream_file.h
//
// A file that is written or read from front to back, through the page cache, by calls that wait:
// for what leaves this machine or comes from another one. Everything else goes by io_backend.h.
//
// A file that is written bears another name (PATH.part, mode 0600) until it is whole and on the
// disk; then it takes the place of what had its name. Whatever happens before, nothing stands under
// the final name that did not stand there already; what a killed process leaves of PATH.part is
// written over by the next one. Two writers of one name: the second one is refused.
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
  ~FileWriter();  // what was not finished is removed

  Result<void> create(const char* path);
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> finish();  // it outlives a power cut, under its name

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

  Result<void> open(const char* path);  // a plain file
  u64 size_bytes() const { return size_bytes_; }
  Result<void> read(std::span<std::byte> bytes);  // exactly so many
  Result<void> rewind(u64 offset);                // where the next read begins

 private:
  int fd_ = -1;
  u64 size_bytes_ = 0;
};

}  // namespace tarn
