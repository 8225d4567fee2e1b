// The index from keys to records and their frames. It has a fixed table of one entry per frame
// (index_entry.h), a hash table over keys (key_chains.h), and the evictable records in order of
// their last use (use_order.h). It is rebuilt at start from the heads on disk, and never stored.
//
//   life        published records are found. Holds (pins and reads) prevent eviction, and that a
//               retired record is freed. Every step asserts the generation of its record
//   places      records are written in order, round and round the file. Manifests, which are
//               replaced often, are written at its end. In between they would leave holes that
//               groups fill in part
//   thread      the owner's
//   when full   reserve() evicts the least recently used record. For a run of frames it evicts
//               neighbouring records. Extents go first, since they are copies, manifests last.
//               With nothing to evict it returns none
//
// Invariant: free frames + frames of records = n_frames; the chains and the orders of use have
//            exactly what their headers say.
#pragma once

#include "runtime/arena/carver.h"
#include "runtime/store/key_chains.h"
#include "runtime/store/use_order.h"

namespace tarn::store {

class RecordIndex {
 public:
  void init(u32 n_frames, Carver& carver);  // all frames are free

  // Finds the published record of this key.
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
  // Reserves consecutive frames for this record, evicting others if it must. None: all are held.
  std::optional<RecordRef> reserve(const NewRecord& record);

  void publish(RecordRef ref);  // writing -> published
  void fail(RecordRef ref);     // writing -> free
  // Published -> retired: no longer found. Returns true if no hold is left.
  bool retire(RecordRef ref);
  void free_completed(RecordRef ref);  // retired, without holds -> free
  void hold(RecordRef ref);
  // Returns true if this was the last hold of a retired record.
  bool let_go(RecordRef ref);

  // For the scan: see() every head found, then weigh() every frame in ascending order, then
  // finish_scan(). Of overlapping records the younger was written over the older, and of two with
  // one key the younger counts. An older manifest is left retired, for the store to erase: it is
  // another version, and must not be found when the younger one is gone. After finish_scan()
  // records are evictable in the order of writing, as far as their places tell (the file is written
  // round and round), manifests after all others.
  void see(u32 frame_idx, const HeadView& view);
  void weigh(u32 frame_idx);
  void finish_scan(u32 youngest_frame_idx);

  u32 n_frames() const { return static_cast<u32>(entries_.size()); }
  u32 n_free() const { return n_free_; }
  u32 n_records() const { return n_records_; }  // published
  u64 n_evicted() const { return n_evicted_; }
  u64 n_manifests_evicted() const { return n_manifests_evicted_; }

 private:
  enum class Takes : u8;

  IndexEntry& at(RecordRef ref);
  void publish_seen(u32 frame_idx);
  void take_frames(u32 first, u32 n);
  void clear(u32 frame_idx);
  static bool may_go(const IndexEntry& entry, Takes takes);
  std::optional<u32> first_window(u32 n, Takes takes) const;
  std::optional<u32> last_window(u32 n, Takes takes) const;
  std::optional<u32> make_room(u32 n, bool is_manifest);
  void evict(u32 frame_idx);

  u32 n_records_ = 0, n_free_ = 0;
  u32 cursor_ = 0;  // end of the last reservation: records of one time are neighbours
  u64 n_evicted_ = 0, n_manifests_evicted_ = 0;
  std::span<IndexEntry> entries_{};
  std::span<u8> n_free_of_{};  // of each kBlock frames: how many are free
  KeyChains chains_{};
  UseOrder evictable_{};
};

}  // namespace tarn::store
