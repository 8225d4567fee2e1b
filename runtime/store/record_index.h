// runtime/store/record_index.h
//
// Which record lies in which frames: a fixed table of one entry a frame, a hash table over keys,
// the free frames as a bitmap, and the records that may be evicted in order of their last
// use. Rebuilt at start from the heads on disk; nothing of it is stored.
//
//   entry       of a record's first frame: its life. Of the following ones: `part`
//   life        free -> reserved -> writing -> verified -> published -> retired -> completed ->
//               free. A record that fails goes from where it is to completed. Published records are
//               found; holds (pins and reads) keep one from being evicted, and a retired one from
//               being completed. Every step names the generation that it means and asserts it.
//   places      records lie in the order in which they were written, round and round the file; but
//               manifests, which are replaced again and again, from its end: in between, each would
//               leave a hole, groups would fill a part of it, and in the end no manifest would find
//               its frames in a row between groups that are held
//   thread      its owner's
//   when full   reserve() evicts the least recently used, for a run of frames what lies together
//               (for a manifest at the end), extents first, since they are copies, and manifests
//               last; with nothing to evict it returns none
//
// Invariant: free frames + frames of records = n_frames; the two orders of use, of extents and of
//            all others, have exactly the published records without holds; entry.next chains have
//            exactly the keys of records that are reserved to published.
#pragma once

#include <optional>
#include <span>

#include "platform/base/bump.h"
#include "runtime/store/record.h"

namespace tarn::store {

inline constexpr u32 kNoFrame = ~u32{0};

// Names a record without pointing at it; a generation behind its frame's is stale.
struct RecordRef {
  u32 frame_idx = kNoFrame;
  u64 generation = 0;
  friend bool operator==(const RecordRef&, const RecordRef&) = default;
};

enum class Life : u8 {
  free,
  reserved,
  writing,
  verified,
  published,
  retired,
  completed,
  part,  // of the record before it
  seen,  // by the scan, not yet weighed against its neighbours
};
inline constexpr u32 kLives = 9;
const char* life_name(Life life);

struct IndexEntry {
  Key key{};
  u64 generation = 0;
  u64 payload_bytes = 0;
  u32 next = kNoFrame;     // in the chain of its bucket
  u32 older = kNoFrame;    // in the LRU list; of a part: the record's first frame
  u32 younger = kNoFrame;  // likewise; of a part: kNoFrame
  u32 n_frames = 0;
  u32 n_tokens = 0;
  u32 holds = 0;
  Kind kind = Kind::group;
  Life life = Life::free;
};

class RecordIndex {
 public:
  static u64 bytes(u32 n_frames);
  void init(u32 n_frames, Bump& memory);  // of at least bytes(n_frames)

  // The published record of this key.
  std::optional<RecordRef> find(const Key& key) const;
  // Whether a record of this very key is reserved, writing or verified.
  bool is_on_its_way(const Key& key) const;
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
  void touch(RecordRef ref);  // used now

  // The scan's part. see() every head that was found; then weigh() every frame in ascending order:
  // where records overlap, the younger was written over the older, and of two with one key the
  // younger counts (of manifests the older is left completed, for the store to erase: it is another
  // version, and must not be found when the younger one is gone). At last finish_scan(): records
  // become evictable in the order in which they were written, as far as their places tell, since
  // the file is written round and round; manifests after all others.
  void see(u32 frame_idx, const HeadView& view);
  void weigh(u32 frame_idx);
  void finish_scan(u32 youngest_frame_idx);
  void forget_all();

  u32 n_frames() const { return n_frames_; }
  u32 n_free() const { return n_free_; }
  u32 n_records() const { return n_records_; }  // published
  u64 n_evicted() const { return n_evicted_; }
  u64 n_manifests_evicted() const { return n_manifests_evicted_; }
  u64 steps(Life from, Life to) const {
    return steps_[static_cast<u32>(from) * kLives + static_cast<u32>(to)];
  }
  void check_invariants() const;

 private:
  struct UseOrder {  // of records that may be evicted
    u32 oldest = kNoFrame, youngest = kNoFrame;
  };
  UseOrder& order_of(const IndexEntry& entry);
  u32 bucket(const Key& key) const;
  void insert(u32 frame_idx);
  void remove(u32 frame_idx);
  void push_youngest(u32 frame_idx);
  void unlink(u32 frame_idx);
  void set_free(u32 first, u32 n);
  void set_used(u32 first, u32 n);
  bool frame_is_free(u32 frame_idx) const {
    return (free_bits_[frame_idx / 64] >> (frame_idx % 64) & 1) != 0;
  }
  void move(IndexEntry& entry, Life to);
  void publish_seen(u32 frame_idx);
  void forget_seen(u32 frame_idx);
  std::optional<u32> free_run(u32 n) const;
  std::optional<u32> last_free_run(u32 n) const;
  enum class Takes : u8 { extents, all_but_manifests, all };  // each what the one before does, too
  std::optional<u32> evictable_window(u32 n, Takes takes) const;
  std::optional<u32> last_evictable_window(u32 n, Takes takes) const;
  std::optional<u32> evictable_run(u32 n, bool is_manifest);
  bool may_go(const IndexEntry& entry, Takes takes) const;
  void evict(u32 frame_idx);
  IndexEntry& at(RecordRef ref);

  u32 n_frames_ = 0, n_free_ = 0, n_records_ = 0;
  u32 cursor_ = 0;  // where the last reservation ended: records of one time lie side by side
  std::array<UseOrder, 2> orders_{};  // of extents, and of all others
  u64 n_evicted_ = 0, n_manifests_evicted_ = 0;
  std::span<IndexEntry> entries_{};
  std::span<u32> buckets_{};
  std::span<u64> free_bits_{};
  std::array<u64, u64{kLives} * kLives> steps_{};
};

}  // namespace tarn::store
