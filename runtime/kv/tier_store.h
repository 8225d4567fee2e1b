// The store under the KV cache: its file in a folder, the I/O backend, and what the log says of it.
//
//   thread   the engine's
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "platform/clock/clock.h"
#include "platform/io/io_backend.h"
#include "platform/log/log.h"
#include "runtime/arena/carver.h"
#include "runtime/store/store.h"

namespace tarn::kv {

struct TierStoreMemory {
  std::span<std::byte> io, store;
  // Takes the memory of a store with these limits, for which store_bytes() knows a size.
  static TierStoreMemory carve(Carver& carver, const store::StoreLimits& limits) {
    return {.io = carver.take<std::byte>("io", io_backend_bytes()),
            .store = carver.take<std::byte>("index and heads", *store::store_bytes(limits))};
  }
};

struct TierStoreArgs {
  const char* folder = nullptr;
  const char* file = nullptr;  // in it
  IoKind io_kind = IoKind::automatic;
  u32 io_in_flight = 0;
  IoBackend* io = nullptr;  // borrowed; nullptr: one of its own
  Clock* clock = nullptr;
  Log log{};
  store::StoreLimits limits{};
  TierStoreMemory memory{};
  std::span<const std::span<std::byte>> buffers{};  // that are read into and written from
};

using StorePath = std::array<char, 512>;
StorePath store_path(std::string_view folder, std::string_view file);

class TierStore {
 public:
  TierStore() = default;
  TierStore(const TierStore&) = delete;
  TierStore& operator=(const TierStore&) = delete;

  // Waits until the store takes records. On an error it is closed again.
  Result<void> open(const TierStoreArgs& args);
  // Goes on without the disk, where all KV has room in memory.
  Result<void> stay_off(const Error& why);
  // Waits for what is under way, as long as the store's deadlines let it. Where the disk keeps
  // something beyond them, all memory that was lent to open() must stay.
  void close();
  // Returns whether the disk has kept something at close(), and says so once.
  bool take_abandoned();

  store::Store& store() { return store_; }
  const store::Store& store() const { return store_; }
  // none, on, read-only (its disk refuses writes), off (it refuses all).
  const char* state_name() const;
  // Logs a state that is worse than the one logged last.
  void log_state();
  // Returns whether the file had parts that were unreadable when it was opened.
  bool has_lost_records() const;
  void log_lost_records() const;

 private:
  Result<void> open_file(const TierStoreArgs& args);

  store::Store store_{};
  IoBackend* io_ = nullptr;
  Log log_{};
  bool is_open_ = false;
  bool owns_io_ = false;
  bool is_abandoned_ = false;
  store::Mode logged_mode_ = store::Mode::on;
};

}  // namespace tarn::kv
