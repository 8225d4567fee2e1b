// The file with kept sessions of a folder (--store DIR), opened without a model. Either this or an
// engine can have it open, not both.
#pragma once

#include <string>

#include "platform/clock/clock.h"
#include "platform/io/io_backend.h"
#include "platform/mem/reserve.h"
#include "runtime/reuse/session_copy.h"
#include "runtime/store/store.h"

namespace tarn::tools {

class SessionFolder {
 public:
  // Opens nothing yet. All functions throw Failure.
  explicit SessionFolder(const std::string& folder);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder();

  // Returns false if there is no file; then nothing is open.
  bool open();
  void close();
  reuse::SessionCopy& copy() { return copy_; }

  // Opens it with room for an exported session beside the existing ones: extends the file if
  // needed, or creates one. Without keep_room() the destructor restores the file's old size.
  void make_room(const reuse::SessionCopy::FileFacts& facts);
  void keep_room() { restores_ = false; }

 private:
  enum class Change : u8 { none_or_longer, shorter };
  void open_as(const store::Cut& cut, Change change);
  void require_io() const;
  void pump(u64 timeout_ns);
  void restore();

  std::string folder_, path_;
  SystemReserve reserve_;
  SystemClock clock_;
  std::span<std::byte> io_memory_{}, buffers_{}, store_memory_{};
  IoBackend* io_ = nullptr;  // nullptr: the disk still has requests, and uses the memory
  store::Store store_;
  reuse::SessionCopy copy_;
  bool is_open_ = false;
  bool restores_ = false;
  store::Cut before_{};  // the file's layout before it was extended; 0: there was none
};

}  // namespace tarn::tools
