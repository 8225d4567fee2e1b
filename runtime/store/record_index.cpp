#include "runtime/store/record_index.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "runtime/store/evictable_window.h"

namespace tarn::store {

const char* life_name(Life life) {
  constexpr const char* kNames[kLives] = {"free",      "reserved",  "writing",
                                          "verified",  "published", "retired",
                                          "completed", "part",      "seen"};
  return kNames[static_cast<u32>(life)];
}

u64 RecordIndex::bytes(u32 n_frames) {
  return n_frames * sizeof(IndexEntry) + KeyChains::bytes(n_frames) + FreeFrames::bytes(n_frames) +
         64;
}

void RecordIndex::init(u32 n_frames, Bump& memory) {
  const auto entries = memory.alloc<IndexEntry>(n_frames);
  TARN_ASSERT(n_frames > 0 && entries);
  entries_ = *entries;
  std::fill(entries_.begin(), entries_.end(), IndexEntry{});
  free_.init(n_frames, memory);
  chains_.init(entries_, memory);
  evictable_.init(entries_);
  lives_ = {};
  n_records_ = cursor_ = 0;
  n_evicted_ = n_manifests_evicted_ = 0;
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

// For one frame the least recently used record is evicted, an extent if there is one. For several
// consecutive frames the use does not decide, so manifests go last. A manifest evicts the last
// extent of the file, because manifests lie there.
std::optional<u32> RecordIndex::make_room(u32 n, bool is_manifest) {
  std::optional<u32> begin;
  const bool has_extents = evictable_.has_extents();
  if (has_extents && is_manifest) begin = last_evictable_window(entries_, n, Takes::extents);
  if (!begin && n == 1) {
    const u32 victim = evictable_.oldest();
    if (victim == kNoFrame) return std::nullopt;
    evict(victim);
    return victim;
  }
  if (has_extents && !begin) begin = first_evictable_window(entries_, n, cursor_, Takes::extents);
  for (const Takes takes : {Takes::all_but_manifests, Takes::all}) {
    if (!begin) begin = first_evictable_window(entries_, n, cursor_, takes);
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
  auto first =
      is_manifest ? free_.last_run(record.n_frames) : free_.first_run(record.n_frames, cursor_);
  if (!first) first = make_room(record.n_frames, is_manifest);
  if (!first) return std::nullopt;
  free_.set_used(*first, record.n_frames);
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
  lives_.step(entry, Life::reserved);
  chains_.insert(*first);
  return RecordRef{*first, record.generation};
}

void RecordIndex::step(RecordRef ref, Life from, Life to) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == from);
  TARN_ASSERT((from == Life::reserved && to == Life::writing) ||
              (from == Life::writing && to == Life::verified));
  lives_.step(entry, to);
}

void RecordIndex::publish(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::verified && entry.holds == 0);
  lives_.step(entry, Life::published);
  evictable_.push_youngest(ref.frame_idx);
  ++n_records_;
}

void RecordIndex::fail(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::reserved || entry.life == Life::writing ||
              entry.life == Life::verified);
  chains_.remove(ref.frame_idx);
  lives_.step(entry, Life::completed);
  free_completed(ref);
}

bool RecordIndex::retire(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::published);
  chains_.remove(ref.frame_idx);
  if (entry.holds == 0) evictable_.remove(ref.frame_idx);
  --n_records_;
  lives_.step(entry, Life::retired);
  if (entry.holds > 0) return false;
  lives_.step(entry, Life::completed);
  return true;
}

void RecordIndex::free_completed(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::completed && entry.holds == 0);
  lives_.step(entry, Life::free);
  clear(ref.frame_idx);
}

// Frees the frames of a completed record.
void RecordIndex::clear(u32 frame_idx) {
  const u32 n = entries_[frame_idx].n_frames;
  free_.set_free(frame_idx, n);
  const auto frames = entries_.subspan(frame_idx, n);
  std::fill(frames.begin(), frames.end(), IndexEntry{});
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
  if (entry.life == Life::retired) {
    lives_.step(entry, Life::completed);
    return true;
  }
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
  lives_.step(entry, Life::seen);
}

void RecordIndex::weigh(u32 frame_idx) {
  const auto forget = [&](IndexEntry& seen) {
    lives_.step(seen, Life::free);
    seen = {};
  };
  IndexEntry& entry = entries_[frame_idx];
  if (entry.life != Life::seen) return;
  const u32 end = frame_idx + entry.n_frames;
  for (u32 i = frame_idx + 1; i < end; ++i) {
    if (entries_[i].life == Life::seen && entries_[i].generation > entry.generation) {
      forget(entry);
      return;
    }
  }
  for (u32 i = frame_idx + 1; i < end; ++i) {
    if (entries_[i].life == Life::seen) forget(entries_[i]);
    entries_[i].life = Life::part;
    entries_[i].older = frame_idx;
  }
  free_.set_used(frame_idx, entry.n_frames);
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
      lives_.step(entries_[loser], Life::completed);  // an older version: erased on disk too
    } else {
      lives_.step(entries_[loser], Life::free);
      clear(loser);
    }
    if (other_wins) return;
  }
  lives_.step(entry, Life::published);
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

void RecordIndex::check_invariants() const {
  u32 n_free = 0, n_used = 0, n_evictable = 0, n_published = 0, n_keys = 0;
  for (u32 i = 0; i < n_frames(); ++i) {
    const IndexEntry& entry = entries_[i];
    TARN_ASSERT(free_.is_free(i) == (entry.life == Life::free));
    if (entry.life == Life::free) ++n_free;
    if (entry.life == Life::free || entry.life == Life::part) continue;
    n_used += entry.n_frames;
    for (u32 k = 1; k < entry.n_frames; ++k) {
      TARN_ASSERT(entries_[i + k].life == Life::part && entries_[i + k].older == i);
    }
    if (entry.life == Life::published) ++n_published;
    if (entry.life == Life::published && entry.holds == 0) ++n_evictable;
    if (entry.life >= Life::reserved && entry.life <= Life::published) ++n_keys;
  }
  TARN_ASSERT(n_free == free_.n_free());
  TARN_ASSERT(n_free + n_used == n_frames());
  TARN_ASSERT(n_published == n_records_);
  TARN_ASSERT(evictable_.check_invariants() == n_evictable);
  TARN_ASSERT(chains_.count() == n_keys);
}

}  // namespace tarn::store
