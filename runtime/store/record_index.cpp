#include "runtime/store/record_index.h"

#include <algorithm>
#include <bit>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::store {
namespace {

constexpr u32 kBlock = 64;  // frames; a search for free ones skips blocks without any

}  // namespace

// The records that the frames of a new record may take; each value includes the one before it.
enum class RecordIndex::Takes : u8 { nothing, extents, all_but_manifests, all };

void RecordIndex::init(u32 n_frames, Carver& carver) {
  TARN_ASSERT(n_frames > 0);
  *this = RecordIndex();
  entries_ = carver.take<IndexEntry>("index", n_frames);
  n_free_of_ = carver.take<u8>("free", ceil_div(n_frames, kBlock));
  chains_.init(entries_, carver.take<u32>("chains", std::bit_ceil(u64{n_frames})));
  evictable_.init(entries_);
  std::fill(entries_.begin(), entries_.end(), IndexEntry{});
  std::fill(n_free_of_.begin(), n_free_of_.end(), u8{0});
  n_free_ = this->n_frames();
  for (u32 i = 0; i < n_free_; ++i) ++n_free_of_[i / kBlock];
}

IndexEntry& RecordIndex::at(RecordRef ref) {
  TARN_ASSERT(ref.frame_idx < n_frames());
  IndexEntry& entry = entries_[ref.frame_idx];
  TARN_ASSERT(entry.generation == ref.generation);
  TARN_ASSERT(entry.life != Life::free && entry.life != Life::part);
  return entry;
}

const IndexEntry& RecordIndex::entry(RecordRef ref) const {
  return const_cast<RecordIndex*>(this)->at(ref);
}

bool RecordIndex::is_current(RecordRef ref) const {
  return ref.frame_idx < n_frames() && entries_[ref.frame_idx].generation == ref.generation &&
         entries_[ref.frame_idx].life == Life::published;
}

void RecordIndex::evict(u32 frame_idx) {
  const RecordRef ref{frame_idx, entries_[frame_idx].generation};
  n_manifests_evicted_ += entries_[frame_idx].kind == Kind::manifest;
  const bool completed = retire(ref);
  TARN_ASSERT(completed);
  free_completed(ref);
  ++n_evicted_;
}

bool RecordIndex::may_go(const IndexEntry& entry, Takes takes) {
  if (entry.life == Life::free) return true;
  if (takes == Takes::nothing || entry.life != Life::published || entry.holds > 0) return false;
  if (takes == Takes::extents) return entry.kind == Kind::extent;
  return takes == Takes::all || entry.kind != Kind::manifest;
}

// The first window of n frames without a record that must stay, from the cursor on, then from the
// file's begin. The cursor follows the writes around the file, so the records after it are nearly
// the oldest.
std::optional<u32> RecordIndex::first_window(u32 n, Takes takes) const {
  if (takes == Takes::nothing && n_free_ < n) return std::nullopt;
  for (const u32 start : {cursor_, u32{0}}) {
    u32 first = start, end = start;  // frames [first, end) may go
    while (end < n_frames() && end - first < n) {
      if (takes == Takes::nothing && n_free_of_[end / kBlock] == 0) {
        first = end = (end / kBlock + 1) * kBlock;
        continue;
      }
      const IndexEntry& there = entries_[first_frame_of(entries_, end)];
      end = first_frame_of(entries_, end) + (there.life == Life::free ? 1 : there.n_frames);
      if (!may_go(there, takes)) first = end;
    }
    if (end - first >= n) return first;
  }
  return std::nullopt;
}

// The last such window of the file.
std::optional<u32> RecordIndex::last_window(u32 n, Takes takes) const {
  if (takes == Takes::nothing && n_free_ < n) return std::nullopt;
  for (u32 first = n_frames(), end = n_frames(); first > 0;) {
    if (takes == Takes::nothing && first % kBlock == 0 && n_free_of_[first / kBlock - 1] == 0) {
      first = end = first - kBlock;
      continue;
    }
    first = first_frame_of(entries_, first - 1);
    if (!may_go(entries_[first], takes)) end = first;
    if (end - first >= n) return end - n;
  }
  return std::nullopt;
}

// For one frame the least recently used record is evicted, an extent if there is one. For several
// consecutive frames the use does not decide, so manifests go last. A manifest evicts the last
// extent of the file, because manifests lie there.
std::optional<u32> RecordIndex::make_room(u32 n, bool is_manifest) {
  std::optional<u32> begin;
  const bool has_extents = evictable_.has_extents();
  if (has_extents && is_manifest) begin = last_window(n, Takes::extents);
  if (!begin && n == 1) {
    const u32 victim = evictable_.oldest();
    if (victim == kNoFrame) return std::nullopt;
    evict(victim);
    return victim;
  }
  if (has_extents && !begin) begin = first_window(n, Takes::extents);
  for (const Takes takes : {Takes::all_but_manifests, Takes::all}) {
    if (!begin) begin = first_window(n, takes);
  }
  if (!begin) return std::nullopt;
  for (u32 i = *begin; i < *begin + n; ++i) {
    const u32 first = first_frame_of(entries_, i);
    if (entries_[first].life != Life::free) evict(first);
  }
  return begin;
}

std::optional<RecordRef> RecordIndex::reserve(const NewRecord& record) {
  TARN_ASSERT(record.n_frames > 0);
  if (record.n_frames > n_frames()) return std::nullopt;
  const bool is_manifest = record.kind == Kind::manifest;
  auto first = is_manifest ? last_window(record.n_frames, Takes::nothing)
                           : first_window(record.n_frames, Takes::nothing);
  if (!first) first = make_room(record.n_frames, is_manifest);
  if (!first) return std::nullopt;
  take_frames(*first, record.n_frames);
  if (!is_manifest) cursor_ = (*first + record.n_frames) % n_frames();
  IndexEntry& entry = entries_[*first];
  entry.key = record.key;
  entry.generation = record.generation;
  entry.payload_bytes = record.shape.payload_bytes;
  entry.n_frames = record.n_frames;
  entry.n_tokens = record.shape.n_tokens;
  entry.kind = record.kind;
  for (u32 i = 1; i < record.n_frames; ++i) {
    IndexEntry& part = entries_[*first + i];
    part.life = Life::part;
    part.older = *first;
  }
  entry.life = Life::writing;
  chains_.insert(*first);
  return RecordRef{*first, record.generation};
}

void RecordIndex::publish(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::writing && entry.holds == 0);
  entry.life = Life::published;
  evictable_.push_youngest(ref.frame_idx);
  ++n_records_;
}

void RecordIndex::fail(RecordRef ref) {
  TARN_ASSERT(at(ref).life == Life::writing);
  chains_.remove(ref.frame_idx);
  clear(ref.frame_idx);
}

bool RecordIndex::retire(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::published);
  chains_.remove(ref.frame_idx);
  if (entry.holds == 0) evictable_.remove(ref.frame_idx);
  --n_records_;
  entry.life = Life::retired;
  return entry.is_completed();
}

void RecordIndex::free_completed(RecordRef ref) {
  TARN_ASSERT(at(ref).is_completed());
  clear(ref.frame_idx);
}

void RecordIndex::take_frames(u32 first, u32 n) {
  for (u32 i = first; i < first + n; ++i) {
    TARN_ASSERT(n_free_of_[i / kBlock] > 0);
    --n_free_of_[i / kBlock];
  }
  n_free_ -= n;
}

// Frees the frames of a record.
void RecordIndex::clear(u32 frame_idx) {
  const u32 n = entries_[frame_idx].n_frames;
  for (u32 i = frame_idx; i < frame_idx + n; ++i) {
    ++n_free_of_[i / kBlock];
    entries_[i] = {};
  }
  n_free_ += n;
}

void RecordIndex::hold(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::published && entry.holds < ~u32{0});
  if (entry.holds++ == 0) evictable_.remove(ref.frame_idx);
}

bool RecordIndex::let_go(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::published || entry.life == Life::retired);
  TARN_ASSERT(entry.holds > 0);
  if (--entry.holds > 0) return false;
  if (entry.life == Life::retired) return true;
  evictable_.push_youngest(ref.frame_idx);
  return false;
}

void RecordIndex::see(u32 frame_idx, const HeadView& view) {
  IndexEntry& entry = entries_[frame_idx];
  TARN_ASSERT(entry.life == Life::free);
  entry.key = view.head().key;
  entry.generation = view.head().generation;
  entry.payload_bytes = view.head().payload_bytes;
  entry.n_frames = view.head().n_frames;
  entry.n_tokens = view.head().n_tokens;
  entry.kind = view.kind();
  entry.life = Life::seen;
}

void RecordIndex::weigh(u32 frame_idx) {
  IndexEntry& entry = entries_[frame_idx];
  if (entry.life != Life::seen) return;
  const u32 end = frame_idx + entry.n_frames;
  for (u32 i = frame_idx + 1; i < end; ++i) {
    if (entries_[i].life == Life::seen && entries_[i].generation > entry.generation) {
      entry = {};
      return;
    }
  }
  for (u32 i = frame_idx + 1; i < end; ++i) {
    entries_[i] = {.older = frame_idx, .life = Life::part};
  }
  take_frames(frame_idx, entry.n_frames);
  publish_seen(frame_idx);
}

// finish_scan() makes the order of use; until then published records are not in it.
void RecordIndex::publish_seen(u32 frame_idx) {
  IndexEntry& entry = entries_[frame_idx];
  const auto other = chains_.find(entry.key);  // at most one per key
  if (other) {
    const bool other_wins = other->generation > entry.generation;
    const u32 loser = other_wins ? frame_idx : other->frame_idx;
    if (!other_wins) {
      chains_.remove(loser);
      --n_records_;
    }
    if (entries_[loser].kind == Kind::manifest) {
      entries_[loser].life = Life::retired;  // an older version: erased on disk too
    } else {
      clear(loser);
    }
    if (other_wins) return;
  }
  entry.life = Life::published;
  ++n_records_;
  chains_.insert(frame_idx);
}

void RecordIndex::finish_scan(u32 youngest_frame_idx) {
  TARN_ASSERT(evictable_.is_empty());
  TARN_ASSERT(youngest_frame_idx < n_frames());
  const u32 n_last = std::max(entries_[youngest_frame_idx].n_frames, u32{1});
  cursor_ = (youngest_frame_idx + n_last) % n_frames();
  for (u32 i = 0; i < n_frames(); ++i) {
    const u32 frame_idx = (cursor_ + i) % n_frames();
    const IndexEntry& entry = entries_[frame_idx];
    if (entry.life == Life::published && entry.kind != Kind::manifest)
      evictable_.push_youngest(frame_idx);
  }
  for (u32 i = 0; i < n_frames(); ++i) {  // their places do not tell their age
    const IndexEntry& entry = entries_[i];
    if (entry.life == Life::published && entry.kind == Kind::manifest) evictable_.push_youngest(i);
  }
}

}  // namespace tarn::store
