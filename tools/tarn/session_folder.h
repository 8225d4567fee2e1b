// A store's file of a folder (--store DIR), opened without a model. Either this or an engine can
// have it open, not both.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "platform/clock/clock.h"
#include "platform/io/io_backend.h"
#include "platform/mem/reserve.h"
#include "runtime/config/store_config.h"
#include "runtime/reuse/session_copy.h"
#include "runtime/store/store.h"

namespace tarn::tools {

class SessionFolder {
 public:
  // Opens nothing yet. All functions throw Failure.
  explicit SessionFolder(const std::string& folder, const char* file = kSessionsFile);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder();

  // Returns false if there is no file; then nothing is open. What reads alone changes nothing, and
  // works on read-only media; what clears drops the heads of records that are lost.
  enum class Use : u8 { reads, writes, clears };
  bool open(Use use);
  void close();
  reuse::SessionCopy& copy() { return copy_; }
  const store::Store& store() const { return store_; }  // while it is open
  // Called while a call waits for the disk, until another one is set.
  void on_wait(std::function<void()> tell) { on_wait_ = std::move(tell); }
  const std::string& path() const { return path_; }

  // The facts of a pack.
  struct FileFacts {
    std::string name;  // of the first one
    u32 n_sessions = 0;
    u64 n_tokens_max = 0;  // of one session
  };
  // Opens it with room for the sessions of this pack beside the existing ones: extends the store's
  // file if needed, and then it stays so, or creates one, which the destructor removes without
  // keep_file(). `tenant`: whose they will be; none: as the file says. `as`: the only session's
  // name, or "".
  FileFacts make_room(const std::string& file, const std::optional<std::string>& tenant,
                      const std::string& as);
  bool has_grown() const { return has_grown_; }
  void keep_file() { is_new_ = false; }

 private:
  void open_as(const store::Cut& cut, Use use);
  void require_io() const;
  void pump(u64 timeout_ns);

  std::string folder_, path_;
  SystemReserve reserve_;
  SystemClock clock_;
  std::span<std::byte> io_memory_{}, buffers_{}, store_memory_{};
  IoBackend* io_ = nullptr;  // nullptr: the disk still has requests, and uses the memory
  store::Store store_;
  reuse::SessionCopy copy_;
  std::function<void()> on_wait_;
  bool is_open_ = false;
  bool has_grown_ = false;
  bool is_new_ = false;  // the file
  store::Cut cut_{};     // of the file that is open
};

}  // namespace tarn::tools
