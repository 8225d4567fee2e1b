// Reads records to verify them, several at a time, and erases damaged ones if asked to. Each is
// read in pieces, so that records of any size pass through the buffers.
#pragma once

#include "runtime/reuse/blocking_store.h"

namespace tarn::reuse {

// A record that is damaged.
struct Damage {
  store::Kind kind = store::Kind::group;
  store::Key key{};
  u32 frame_idx = 0;
  u64 n_bytes = 0;  // of the record
  const char* why = "";
};
struct CheckArgs {
  bool removes = false;  // erases damaged records
  void (*on_damage)(void* context, const Damage& damage) = nullptr;
  void* context = nullptr;
};
struct CheckDone {
  u64 n_records = 0;
  u64 n_bytes = 0;  // that were read
  u64 n_damaged = 0;
  u64 n_removed = 0;  // of them; those that open sessions hold stay
};

class RecordCheck {
 public:
  RecordCheck(store::Store& store, BlockingStore& ops, const CheckArgs& args)
      : store_(store), ops_(ops), args_(args) {}

  // Before the first record. `buffer_bytes`: of all buffers of `ops`.
  Result<void> begin(u64 buffer_bytes);
  // Every byte of the record. A record whose head is too long for this store is left out.
  void read(store::RecordRef ref);
  // Whether the record's first tokens are these.
  void read_tokens(store::RecordRef ref, std::span<const u32> token_ids);
  // Notes damage that a caller has found. The caller has it pinned once.
  void note_damage(store::RecordRef ref, const char* why);
  void finish();  // waits for all reads
  const CheckDone& done() const { return done_; }

 private:
  struct Piece {
    store::RecordRef ref{};
    u64 n_bytes = 0;
    bool is_read = false;  // and not judged yet
  };

  void begin_piece(store::RecordRef ref, u32 first_sector, u64 n_sectors,
                   std::span<const u32> token_ids);
  void judge(u64 idx);

  store::Store& store_;
  BlockingStore& ops_;
  CheckArgs args_;
  CheckDone done_{};
  std::array<Piece, kCopyBuffersMax> pieces_{};  // by slot
  u64 n_begun_ = 0;
  u64 piece_sectors_ = 0;
  store::RecordRef damaged_{};  // the last one, of which more pieces may follow
};

}  // namespace tarn::reuse
