// The table of open files that both backends keep. Opens regular files and block devices only: a
// pipe or a terminal would hang the reader.
//
//   when full   open() fails with that reason
#pragma once

#include <array>

#include "platform/io/io_backend.h"

namespace tarn {

class IoFileTable {
 public:
  IoFileTable() = default;
  IoFileTable(const IoFileTable&) = delete;
  IoFileTable& operator=(const IoFileTable&) = delete;
  ~IoFileTable();  // closes what is open

  Result<IoFile> open(const IoOpenArgs& args);
  IoFile adopt(i32 fd);  // a descriptor that lies in memory; the table closes it
  void close(IoFile file);

  bool is_direct(IoFile file) const { return entry(file).direct; }
  i32 descriptor(IoFile file) const { return entry(file).fd; }
  Result<u64> size_bytes(IoFile file) const;
  Result<void> allocate(IoFile file, u64 bytes) const;

 private:
  struct Entry {
    i32 fd = -1;
    bool direct = false;
    bool exclusive = false;
  };
  static void close_entry(const Entry& open_entry);
  const Entry& entry(IoFile file) const;
  i32 free_index() const;  // -1 when full

  std::array<Entry, kIoFilesMax> entries_{};
};

}  // namespace tarn
