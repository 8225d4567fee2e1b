// runtime/engine/kv_stream.h
//
// KV over memory and disk, as the engine sees it: the frames, the store and the mover of one
// engine, and which sessions' KV failed in a step. Off, it costs nothing.
//
//   a step     make_writable() gives frames to what the rows append; plan_step() tells the mover
//              the order of uses; attention takes each layer window by window, pin() to unpin(), or
//              gathers single slots; pump() between other ops lets reads run behind them
//   a cut      prepare_cut() brings what truncate() reopens or copies; end_cut() after it
//   failures   of a session: its run is marked, the others go on
//   sessions   where the plan keeps them, names of pages and their manifests (session_store.h)
//   memory     the plan's regions kv_groups, kv_tables (their last part) and store
//   thread     the engine's
#pragma once

#include <array>
#include <span>
#include <utility>

#include "platform/clock/clock.h"
#include "platform/io/io_backend.h"
#include "platform/log/log.h"
#include "runtime/kv/extents.h"
#include "runtime/kv/mover.h"
#include "runtime/plan/plan.h"
#include "runtime/reuse/session_store.h"
#include "runtime/step/batch.h"

namespace tarn::engine {

struct KvStreamArgs {
  const plan::Plan* plan = nullptr;
  u32 n_cache_layers = 0;
  const char* folder = nullptr;  // of the store
  IoKind io_kind = IoKind::automatic;
  IoBackend* io = nullptr;  // borrowed; nullptr: one of its own
  Clock* clock = nullptr;
  Log log{};
  const reuse::KvIdentity* identity = nullptr;  // where sessions are kept
  step::StepHost* host = nullptr;               // MoverArgs::host
  std::span<std::byte> frames{};
  std::span<std::byte> tables{};
  std::span<std::byte> store_memory{};
  std::span<std::byte> extents{};  // memory of theirs
};

// The store's file in its folder.
class StorePath {
 public:
  StorePath(const char* folder, bool keeps_sessions);
  const char* c_str() const { return text_.data(); }

 private:
  std::array<char, 512> text_{};
};

class KvStream {
 public:
  static constexpr u32 kOwnersMax = 1024;  // Run::session is below

  KvStream() = default;
  KvStream(const KvStream&) = delete;
  KvStream& operator=(const KvStream&) = delete;
  ~KvStream() { close(); }

  // Opens the store and waits until it takes records. Where its disk fails but the frames hold all
  // KV, the store stays off and the rest goes on: a box answers though its disk is gone.
  Result<void> open(const KvStreamArgs& args);
  // Waits for what is under way, as long as the store's deadlines let it.
  void close();
  // Whether the disk has kept something beyond them: all memory that was lent to open() must stay.
  // Says so once.
  bool take_abandoned() { return std::exchange(is_abandoned_, false); }
  bool is_on() const { return is_on_; }
  kv::GroupMemory* memory() { return &residency_; }

  void begin_step();
  // Frames for the rows that a sequence appends; before plan_step(), run by run.
  Result<void> make_writable(const kv::Sequence& sequence, u32 n_rows) {
    return mover_.make_writable(sequence, n_rows);
  }
  void plan_step(const step::Batch& batch);
  void drop_plan();  // for who is not attention
  // Groups [begin, end) of a layer, or fewer; returns how many.
  Result<u32> pin(const kv::Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
    return mover_.pin(sequence, cache_layer, begin, end);
  }
  void unpin(const kv::Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
    mover_.unpin(sequence, cache_layer, begin, end);
  }
  Result<void> gather(const kv::GatherArgs& args) { return mover_.gather(args); }
  // What selection reads, once more; off where the plan has none.
  kv::Extents& extents() { return extents_; }
  const kv::Extents& extents() const { return extents_; }
  void note_failure(u32 owner, const Error& error);
  // Whether the owner's run of this step has failed, and why the last one did.
  bool failed(u32 owner) const { return (failed_[owner / 64] >> (owner % 64) & 1) != 0; }
  const Error& error() const { return error_; }

  // Before and after a cut of the sequence to n slots, which may fail.
  Result<void> prepare_cut(const kv::Sequence& sequence, u32 n);
  void end_cut() { mover_.drop_hold(); }
  Result<void> prepare_fork() { return mover_.make_room(n_cache_layers_); }

  void pump(u64 timeout_ns) {
    mover_.pump(timeout_ns);
    (void)sessions_.pump();
  }
  bool is_moving() const { return is_on_ && (!mover_.idle() || sessions_.is_busy()); }
  // Sessions in the store; off where the plan keeps none.
  reuse::SessionStore& sessions() { return sessions_; }
  const reuse::SessionStore& sessions() const { return sessions_; }
  bool keeps_sessions() const { return sessions_.is_on(); }
  // The first page of the sequence of which a part is lost, once reads under way have ended;
  // n_groups() where none is.
  u32 first_lost_page(const kv::Sequence& sequence);
  const kv::MoverStats& stats() const { return mover_.stats(); }
  const kv::Residency& residency() const { return residency_; }
  const store::Store& store() const { return store_; }
  // How the store is: none, on, read-only (its disk refuses writes), off (it refuses all).
  const char* store_name() const;
  // Whether the file had parts that were unreadable when it was opened: a session may lie there.
  bool may_have_lost_sessions() const;
  // Whether that has got worse since the last call.
  bool take_worse_store();

 private:
  Result<void> open_store(const KvStreamArgs& args);
  void close_store();
  void place_sessions(const KvStreamArgs& args, u64 nonce, Bump& tables);
  static void on_other(void* context, const store::Event& event);

  bool is_on_ = false;
  bool owns_io_ = false;
  bool is_abandoned_ = false;
  u32 n_cache_layers_ = 0;
  u32 page_tokens_ = 0;
  IoBackend* io_ = nullptr;
  kv::Residency residency_{};
  kv::Mover mover_{};
  store::Store store_{};
  store::Mode told_mode_ = store::Mode::on;
  kv::Extents extents_{};
  kv::PageNames names_{};
  reuse::SessionStore sessions_{};
  std::array<u64, kOwnersMax / 64> failed_{};  // of this step, a bit an owner
  Error error_{};                              // of the last of them
};

}  // namespace tarn::engine
