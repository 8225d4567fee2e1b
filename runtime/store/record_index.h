// runtime/store/record_index.h
//
// Which record lies in which frames: a fixed table of one entry a frame (index_entry.h), a hash
// table over keys (key_chains.h), the free frames (free_frames.h), and the records that may be
// evicted in order of their last use (use_order.h). It is rebuilt at start from the heads on disk;
// none of it is stored.
//
//   life        published records are found; holds (pins and reads) keep one from being evicted,
//               and a retired one from being completed. Every step names the generation that it
//               means and asserts it
//   places      records lie in the order in which they were written, round and round the file; but
//               manifests, which are replaced again and again, from its end: in between, each would
//               leave a hole, groups would fill a part of it, and in the end no manifest would find
//               its frames in a row between groups that are held
//   thread      its owner's
//   when full   reserve() evicts the least recently used, for a run of frames what lies together
//               (for a manifest at the end), extents first, since they are copies, and manifests
//               last; with nothing to evict it returns none
//
// Invariant: free frames + frames of records = n_frames; the chains and the orders of use have
//            exactly what their headers say.
#pragma once

#include "runtime/store/free_frames.h"
#include "runtime/store/key_chains.h"
#include "runtime/store/use_order.h"

namespace tarn::store {

class RecordIndex {
 public:
  static u64 bytes(u32 n_frames);
  void init(u32 n_frames, Bump& memory);  // of at least bytes(n_frames); all is free

  // The published record of this key.
  std::optional<RecordRef> find(const Key& key) const { return chains_.find(key); }
  bool is_on_its_way(const Key& key) const { return chains_.is_on_its_way(key); }
  const IndexEntry& entry(RecordRef ref) const;  // asserts the generation
  bool is_current(RecordRef ref) const;          // published, of this generation
  const IndexEntry& frame(u32 frame_idx) const { return entries_[frame_idx]; }

  struct NewRecord {
    Key key{};
    RecordShape shape{};
    u32 n_frames = 0;
    Kind kind = Kind::group;
    u64 generation = 0;
  };
  // Frames in a row, reserved for this record; evicts what must go. None: all is held.
  std::optional<RecordRef> reserve(const NewRecord& record);

  // One step of a record's life.
  void step(RecordRef ref, Life from, Life to);
  void publish(RecordRef ref);  // verified -> published
  void fail(RecordRef ref);     // reserved, writing or verified -> completed -> free
  // Published -> retired: no longer found. Completes at once where nothing holds it; then true.
  bool retire(RecordRef ref);
  void free_completed(RecordRef ref);
  void hold(RecordRef ref);
  // True where it was the last hold of a retired record, which now is completed.
  bool let_go(RecordRef ref);

  // The scan's part. see() every head that was found; then weigh() every frame in ascending order:
  // where records overlap, the younger was written over the older, and of two with one key the
  // younger counts (of manifests the older is left completed, for the store to erase: it is another
  // version, and must not be found when the younger one is gone). At last finish_scan(): records
  // become evictable in the order in which they were written, as far as their places tell, since
  // the file is written round and round; manifests after all others.
  void see(u32 frame_idx, const HeadView& view);
  void weigh(u32 frame_idx);
  void finish_scan(u32 youngest_frame_idx);

  u32 n_frames() const { return static_cast<u32>(entries_.size()); }
  u32 n_free() const { return free_.n_free(); }
  u32 n_records() const { return n_records_; }  // published
  u64 n_evicted() const { return n_evicted_; }
  u64 n_manifests_evicted() const { return n_manifests_evicted_; }
  u64 steps(Life from, Life to) const { return lives_.count(from, to); }
  void check_invariants() const;

 private:
  IndexEntry& at(RecordRef ref);
  void publish_seen(u32 frame_idx);
  void clear(u32 frame_idx);
  std::optional<u32> make_room(u32 n, bool is_manifest);
  void evict(u32 frame_idx);

  u32 n_records_ = 0;
  u32 cursor_ = 0;  // where the last reservation ended: records of one time lie side by side
  u64 n_evicted_ = 0, n_manifests_evicted_ = 0;
  std::span<IndexEntry> entries_{};
  FreeFrames free_{};
  KeyChains chains_{};
  UseOrder evictable_{};
  LifeSteps lives_{};
};

}  // namespace tarn::store
