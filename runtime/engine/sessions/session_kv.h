// The KV of sessions: it is taken from others' pages, reserved, committed, cut,
// lost, and evicted where another session needs the room.
//
//   room     KV of sessions without a run slot is evicted for one that needs room: of idle ones,
//            the longest unused first; for one that has something to do, of those that wait, the
//            last one first; last, of background ones that run, for an interactive one. Tokens
//            stay. Pages that are still there, in memory or on the disk, are taken again, and the
//            rest is computed again with equal bits (recomputation: vLLM, arXiv:2309.06180,
//            section 4.5)
//   stays    KV that does not follow from its tokens (selection), and KV whose rows are watched
//   thread   the engine's
//   memory   the engine's regions, lent from open() to close()
#pragma once

#include <span>

#include "runtime/engine/opened.h"
#include "runtime/engine/sessions/blends.h"
#include "runtime/kv/parts/whole_parts.h"
#include "runtime/method/selector.h"
#include "runtime/reuse/archive.h"

namespace tarn::engine {

class SessionKv {
 public:
  explicit SessionKv(const Opened& opened) : o_(opened) {}
  SessionKv(const SessionKv&) = delete;
  SessionKv& operator=(const SessionKv&) = delete;

  kv::KvCache& cache() { return cache_; }
  const kv::KvCache& cache() const { return cache_; }
  reuse::Archive& archive() { return archive_; }  // off where the plan keeps no sessions
  const reuse::Archive& archive() const { return archive_; }
  method::Selector& selector() { return selector_; }
  const method::Selector& selector() const { return selector_; }
  // Returns the parts that attention reads: full attention needs no method.
  kv::PartSource& parts() {
    return o_.select.is_full() ? static_cast<kv::PartSource&>(whole_parts_) : selector_.parts();
  }
  Blends& blends() { return blends_; }
  const Blends& blends() const { return blends_; }

  // Takes the pages of the session's first n_ids tokens that others have computed.
  void take_prefix(Session& session, u32 n_ids);
  // Commits the next n_rows slots: they are in the KV.
  void commit(Session& session, u32 n_rows);
  // Commits the next slots of the session's blend.
  void commit_blended(Session& session, u32 n_slots);
  // Cuts KV that was just taken back to n_slots.
  void cut_taken(Session& session, u32 n_slots);
  Result<void> cut(Session& session, u32 n_slots);
  // Cuts off the KV that exact answers do not keep.
  Result<void> cut_approximate(Session& session);
  // Cuts off what could not be read back.
  void lose(Session& session);
  // KV of a chunk that is blended into the session's prompt could not be read.
  void lose_chunk(Session& session, const Error& error);
  // Releases slots that idle sessions reserved for tokens which a cancel took back.
  void release_slots();
  // Reserves slots for all of the session's tokens, and the blend of its chunks. False: what holds
  // the room stays.
  bool make_room(Session& session);
  // Calls fn(), which returns Result<void>, again while it finds no room and KV is evicted for it.
  template <class Fn>
  Result<void> with_room(const Session& needs, Fn&& fn) {
    for (;;) {
      const Result<void> done = fn();
      const bool is_full = !done && done.error().status == Status::would_block;
      if (!is_full || !take_room(needs)) return done;
    }
  }

 private:
  bool reserve(Session& session);
  bool take_room(const Session& needs);
  Session* room_holder(const Session& needs);
  bool can_evict(const Session& session) const;
  void evict(Session& session);

  const Opened& o_;
  kv::KvCache cache_{};
  reuse::Archive archive_{};
  kv::WholeParts whole_parts_{&cache_};
  method::Selector selector_{&cache_};
  Blends blends_{};
};

}  // namespace tarn::engine
