// Writes and erasures of the records of extents and codebooks that the store has under way.
//
//   budget   of the day's writes half is left to groups, which nobody can do without, and a second
//            order is worth less than another layer's first
//   thread   the engine's
#pragma once

#include <array>
#include <optional>

#include "runtime/kv/extent_heads.h"
#include "runtime/kv/mover.h"

namespace tarn::kv {

inline constexpr u32 kExtentPutsMax = 64;

class ExtentWrites {
 public:
  struct Args {
    store::Store* store = nullptr;
    Mover* mover = nullptr;  // whose pump() brings our events
    ExtentStats* stats = nullptr;
    u64 daily_write_bytes = 0;
    u64 first_tag = 0;  // of kExtentPutsMax, and one more of erasures, of which nobody hears
  };
  struct Put {
    bool is_used = false;
    bool is_codebook = false;  // and of none of these
    u32 head = 0, record = 0;
  };
  void init(const Args& args);

  bool affords(u64 n_bytes, u32 order) const;
  // False where the store does not take it. The payload is ours until settle().
  bool put(store::PutArgs args, const Put& put);
  void settle();  // waits for what was put
  bool is_settled() const { return n_puts_ == 0; }
  // Of a record that the caller has pinned, unless another session reads it, too.
  void erase(store::RecordRef ref);

  // How a put has ended, once.
  struct Ended {
    Put put{};
    bool is_there = false;
  };
  std::optional<Ended> take(const store::Event& event);

 private:
  Args args_{};
  std::array<Put, kExtentPutsMax> puts_{};
  u32 n_puts_ = 0;  // under way
};

}  // namespace tarn::kv
