#include "runtime/store/record_index.h"

#include <algorithm>
#include <bit>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::store {
namespace {

u64 bucket_count(u32 n_frames) { return std::bit_ceil(u64{n_frames}); }

}  // namespace

const char* life_name(Life life) {
  constexpr const char* kNames[kLives] = {"free",      "reserved",  "writing",
                                          "verified",  "published", "retired",
                                          "completed", "part",      "seen"};
  return kNames[static_cast<u32>(life)];
}

u64 RecordIndex::bytes(u32 n_frames) {
  return n_frames * sizeof(IndexEntry) + bucket_count(n_frames) * sizeof(u32) +
         ceil_div(n_frames, 64) * sizeof(u64) + 64;
}

void RecordIndex::init(u32 n_frames, Bump& memory) {
  const auto entries = memory.alloc<IndexEntry>(n_frames);
  const auto free_bits = memory.alloc<u64>(ceil_div(n_frames, 64));
  const auto buckets = memory.alloc<u32>(bucket_count(n_frames));
  TARN_ASSERT(n_frames > 0 && entries && free_bits && buckets);
  n_frames_ = n_frames;
  entries_ = *entries;
  free_bits_ = *free_bits;
  buckets_ = *buckets;
  steps_ = {};
  n_evicted_ = 0;
  n_manifests_evicted_ = 0;
  forget_all();
}

void RecordIndex::forget_all() {
  std::fill(entries_.begin(), entries_.end(), IndexEntry{});
  std::fill(buckets_.begin(), buckets_.end(), kNoFrame);
  std::fill(free_bits_.begin(), free_bits_.end(), u64{0});
  n_free_ = n_records_ = cursor_ = 0;
  orders_ = {};
  set_free(0, n_frames_);
}

u32 RecordIndex::bucket(const Key& key) const {
  return static_cast<u32>(key.low & (buckets_.size() - 1));  // the key is a hash already
}

std::optional<RecordRef> RecordIndex::find(const Key& key) const {
  std::optional<RecordRef> best;
  for (u32 i = buckets_[bucket(key)]; i != kNoFrame; i = entries_[i].next) {
    const IndexEntry& record = entries_[i];
    if (!(record.key == key) || record.life != Life::published) continue;
    if (!best || record.generation > best->generation) best = RecordRef{i, record.generation};
  }
  return best;
}

bool RecordIndex::is_on_its_way(const Key& key) const {
  for (u32 i = buckets_[bucket(key)]; i != kNoFrame; i = entries_[i].next) {
    const Life life = entries_[i].life;
    if (entries_[i].key == key && life != Life::published) return true;
  }
  return false;
}

IndexEntry& RecordIndex::at(RecordRef ref) {
  TARN_ASSERT(ref.frame_idx < n_frames_);
  IndexEntry& entry = entries_[ref.frame_idx];
  TARN_ASSERT(entry.generation == ref.generation);
  TARN_ASSERT(entry.life != Life::free && entry.life != Life::part);
  return entry;
}

const IndexEntry& RecordIndex::entry(RecordRef ref) const {
  return const_cast<RecordIndex*>(this)->at(ref);
}

bool RecordIndex::is_current(RecordRef ref) const {
  return ref.frame_idx < n_frames_ && entries_[ref.frame_idx].generation == ref.generation &&
         entries_[ref.frame_idx].life == Life::published;
}

void RecordIndex::move(IndexEntry& entry, Life to) {
  ++steps_[static_cast<u32>(entry.life) * kLives + static_cast<u32>(to)];
  entry.life = to;
}

void RecordIndex::insert(u32 frame_idx) {
  u32& head = buckets_[bucket(entries_[frame_idx].key)];
  entries_[frame_idx].next = head;
  head = frame_idx;
}

void RecordIndex::remove(u32 frame_idx) {
  u32* link = &buckets_[bucket(entries_[frame_idx].key)];
  while (*link != frame_idx) {
    TARN_ASSERT(*link != kNoFrame);
    link = &entries_[*link].next;
  }
  *link = entries_[frame_idx].next;
  entries_[frame_idx].next = kNoFrame;
}

RecordIndex::UseOrder& RecordIndex::order_of(const IndexEntry& entry) {
  return orders_[entry.kind == Kind::extent ? 0 : 1];
}

void RecordIndex::push_youngest(u32 frame_idx) {
  IndexEntry& entry = entries_[frame_idx];
  UseOrder& order = order_of(entry);
  entry.older = order.youngest;
  entry.younger = kNoFrame;
  (order.youngest == kNoFrame ? order.oldest : entries_[order.youngest].younger) = frame_idx;
  order.youngest = frame_idx;
}

void RecordIndex::unlink(u32 frame_idx) {
  IndexEntry& entry = entries_[frame_idx];
  UseOrder& order = order_of(entry);
  (entry.older == kNoFrame ? order.oldest : entries_[entry.older].younger) = entry.younger;
  (entry.younger == kNoFrame ? order.youngest : entries_[entry.younger].older) = entry.older;
  entry.older = entry.younger = kNoFrame;
}

void RecordIndex::set_free(u32 first, u32 n) {
  for (u32 i = first; i < first + n; ++i) {
    TARN_ASSERT(!frame_is_free(i));
    free_bits_[i / 64] |= u64{1} << (i % 64);
    entries_[i] = IndexEntry{};
  }
  n_free_ += n;
}

void RecordIndex::set_used(u32 first, u32 n) {
  for (u32 i = first; i < first + n; ++i) {
    TARN_ASSERT(frame_is_free(i));
    free_bits_[i / 64] &= ~(u64{1} << (i % 64));
  }
  n_free_ -= n;
}

// The first run of n free frames from the cursor on, then from the beginning. Words without a free
// frame are passed at once.
std::optional<u32> RecordIndex::free_run(u32 n) const {
  if (n_free_ < n) return std::nullopt;
  for (const u32 start : {cursor_, u32{0}}) {
    u32 length = 0;
    for (u32 i = start; i < n_frames_; ++i) {
      if (i % 64 == 0 && free_bits_[i / 64] == 0) {
        length = 0;
        i += 63;
        continue;
      }
      length = frame_is_free(i) ? length + 1 : 0;
      if (length == n) return i + 1 - n;
    }
  }
  return std::nullopt;
}

// The last one of the file.
std::optional<u32> RecordIndex::last_free_run(u32 n) const {
  u32 length = 0;
  for (u32 i = n_frames_; n_free_ >= n && i-- > 0;) {
    length = frame_is_free(i) ? length + 1 : 0;
    if (length == n) return i;
  }
  return std::nullopt;
}

void RecordIndex::evict(u32 frame_idx) {
  const RecordRef ref{frame_idx, entries_[frame_idx].generation};
  n_manifests_evicted_ += entries_[frame_idx].kind == Kind::manifest;
  const bool completed = retire(ref);
  TARN_ASSERT(completed);
  free_completed(ref);
  ++n_evicted_;
}

bool RecordIndex::may_go(const IndexEntry& entry, Takes takes) const {
  if (entry.life == Life::free) return true;
  if (entry.life != Life::published || entry.holds > 0) return false;
  if (takes == Takes::extents) return entry.kind == Kind::extent;
  return takes == Takes::all || entry.kind != Kind::manifest;
}

// The first window of n frames from the cursor on in which nothing is held, nor lies what is to be
// spared: the cursor follows the writes around the file, so what it comes to next is the oldest, or
// nearly.
std::optional<u32> RecordIndex::evictable_window(u32 n, Takes takes) const {
  for (const u32 start : {cursor_, u32{0}}) {
    u32 begin = start, end = start;  // frames [begin, end) can be had
    while (end < n_frames_ && end - begin < n) {
      const u32 first = entries_[end].life == Life::part ? entries_[end].older : end;
      const IndexEntry& there = entries_[first];
      const u32 length = there.life == Life::free ? 1 : there.n_frames;
      end = first + length;
      if (!may_go(there, takes)) begin = end;
    }
    if (end - begin >= n) return begin;
  }
  return std::nullopt;
}

std::optional<u32> RecordIndex::last_evictable_window(u32 n, Takes takes) const {
  for (u32 begin = n_frames_, end = n_frames_; begin > 0;) {
    const u32 last = begin - 1;
    begin = entries_[last].life == Life::part ? entries_[last].older : last;
    if (!may_go(entries_[begin], takes)) end = begin;
    if (end - begin >= n) return end - n;
  }
  return std::nullopt;
}

// For one frame the least recently used record gives way, an extent where there is one. Where more
// in a row are wanted the use does not decide, so manifests go last. Of extents a manifest
// takes the last: where manifests lie.
std::optional<u32> RecordIndex::evictable_run(u32 n, bool is_manifest) {
  std::optional<u32> begin;
  const bool has_extents = orders_[0].oldest != kNoFrame;
  if (has_extents && is_manifest) begin = last_evictable_window(n, Takes::extents);
  if (!begin && n == 1) {
    const u32 victim = orders_[0].oldest != kNoFrame ? orders_[0].oldest : orders_[1].oldest;
    if (victim == kNoFrame) return std::nullopt;
    evict(victim);
    return victim;
  }
  if (!begin && has_extents) begin = evictable_window(n, Takes::extents);
  if (!begin) begin = evictable_window(n, Takes::all_but_manifests);
  if (!begin) begin = evictable_window(n, Takes::all);
  if (!begin) return std::nullopt;
  for (u32 i = *begin; i < *begin + n; ++i) {
    const u32 first = entries_[i].life == Life::part ? entries_[i].older : i;
    if (entries_[first].life != Life::free) evict(first);
  }
  return begin;
}

std::optional<RecordRef> RecordIndex::reserve(const NewRecord& record) {
  TARN_ASSERT(record.n_frames > 0);
  if (record.n_frames > n_frames_) return std::nullopt;
  const bool is_manifest = record.kind == Kind::manifest;
  auto first = is_manifest ? last_free_run(record.n_frames) : free_run(record.n_frames);
  if (!first) first = evictable_run(record.n_frames, is_manifest);
  if (!first) return std::nullopt;
  set_used(*first, record.n_frames);
  if (!is_manifest) cursor_ = (*first + record.n_frames) % n_frames_;
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
  move(entry, Life::reserved);
  insert(*first);
  return RecordRef{*first, record.generation};
}

void RecordIndex::step(RecordRef ref, Life from, Life to) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == from);
  TARN_ASSERT((from == Life::reserved && to == Life::writing) ||
              (from == Life::writing && to == Life::verified));
  move(entry, to);
}

void RecordIndex::publish(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::verified && entry.holds == 0);
  move(entry, Life::published);
  push_youngest(ref.frame_idx);
  ++n_records_;
}

void RecordIndex::fail(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::reserved || entry.life == Life::writing ||
              entry.life == Life::verified);
  remove(ref.frame_idx);
  move(entry, Life::completed);
  free_completed(ref);
}

bool RecordIndex::retire(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::published);
  remove(ref.frame_idx);
  if (entry.holds == 0) unlink(ref.frame_idx);
  --n_records_;
  move(entry, Life::retired);
  if (entry.holds > 0) return false;
  move(entry, Life::completed);
  return true;
}

void RecordIndex::free_completed(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::completed && entry.holds == 0);
  move(entry, Life::free);
  set_free(ref.frame_idx, entry.n_frames);
}

void RecordIndex::hold(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::published && entry.holds < ~u32{0});
  if (entry.holds++ == 0) unlink(ref.frame_idx);
}

bool RecordIndex::let_go(RecordRef ref) {
  IndexEntry& entry = at(ref);
  TARN_ASSERT(entry.life == Life::published || entry.life == Life::retired);
  TARN_ASSERT(entry.holds > 0);
  if (--entry.holds > 0) return false;
  if (entry.life == Life::retired) {
    move(entry, Life::completed);
    return true;
  }
  push_youngest(ref.frame_idx);
  return false;
}

void RecordIndex::touch(RecordRef ref) {
  const IndexEntry& entry = at(ref);
  if (entry.life != Life::published || entry.holds > 0) return;
  unlink(ref.frame_idx);
  push_youngest(ref.frame_idx);
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
  move(entry, Life::seen);
}

void RecordIndex::forget_seen(u32 frame_idx) {
  ++steps_[static_cast<u32>(Life::seen) * kLives + static_cast<u32>(Life::free)];
  entries_[frame_idx] = IndexEntry{};
}

void RecordIndex::weigh(u32 frame_idx) {
  IndexEntry& entry = entries_[frame_idx];
  if (entry.life != Life::seen) return;
  const u32 end = frame_idx + entry.n_frames;
  for (u32 i = frame_idx + 1; i < end; ++i) {
    if (entries_[i].life == Life::seen && entries_[i].generation > entry.generation) {
      forget_seen(frame_idx);
      return;
    }
  }
  for (u32 i = frame_idx + 1; i < end; ++i) {
    if (entries_[i].life == Life::seen) forget_seen(i);
    entries_[i].life = Life::part;
    entries_[i].older = frame_idx;
  }
  set_used(frame_idx, entry.n_frames);
  publish_seen(frame_idx);
}

// The LRU list is made when all have been seen; until then published records are in no list.
void RecordIndex::publish_seen(u32 frame_idx) {
  IndexEntry& entry = entries_[frame_idx];
  for (u32 i = buckets_[bucket(entry.key)]; i != kNoFrame; i = entries_[i].next) {
    if (!(entries_[i].key == entry.key) || entries_[i].life != Life::published) continue;
    const u32 loser = entries_[i].generation > entry.generation ? frame_idx : i;
    if (loser == i) {
      remove(i);
      --n_records_;
    }
    if (entries_[loser].kind == Kind::manifest) {
      move(entries_[loser], Life::completed);  // an older version: to be erased on disk too
    } else {
      move(entries_[loser], Life::free);
      set_free(loser, entries_[loser].n_frames);
    }
    if (loser == frame_idx) return;
    break;  // never more than one of a key
  }
  move(entry, Life::published);
  ++n_records_;
  insert(frame_idx);
}

void RecordIndex::finish_scan(u32 youngest_frame_idx) {
  TARN_ASSERT(orders_[0].oldest == kNoFrame && orders_[1].oldest == kNoFrame);
  TARN_ASSERT(youngest_frame_idx < n_frames_);
  const u32 n_last = std::max(entries_[youngest_frame_idx].n_frames, u32{1});
  cursor_ = (youngest_frame_idx + n_last) % n_frames_;
  for (u32 i = 0; i < n_frames_; ++i) {
    const u32 frame_idx = (cursor_ + i) % n_frames_;
    const IndexEntry& entry = entries_[frame_idx];
    if (entry.life == Life::published && entry.kind != Kind::manifest) push_youngest(frame_idx);
  }
  for (u32 i = 0; i < n_frames_; ++i) {  // where they lie says nothing of when
    const IndexEntry& entry = entries_[i];
    if (entry.life == Life::published && entry.kind == Kind::manifest) push_youngest(i);
  }
}

void RecordIndex::check_invariants() const {
  u32 n_free = 0, n_used = 0, n_evictable = 0, n_published = 0, n_keys = 0, n_chained = 0;
  for (u32 i = 0; i < n_frames_; ++i) {
    const IndexEntry& entry = entries_[i];
    TARN_ASSERT(frame_is_free(i) == (entry.life == Life::free));
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
  TARN_ASSERT(n_free == n_free_);
  TARN_ASSERT(n_free + n_used == n_frames_);
  TARN_ASSERT(n_published == n_records_);
  u32 n_listed = 0;
  for (const UseOrder& order : orders_) {
    for (u32 i = order.oldest; i != kNoFrame; i = entries_[i].younger) {
      TARN_ASSERT(entries_[i].life == Life::published && entries_[i].holds == 0);
      TARN_ASSERT((entries_[i].kind == Kind::extent) == (&order == &orders_[0]));
      ++n_listed;
    }
  }
  TARN_ASSERT(n_listed == n_evictable);
  for (const u32 head : buckets_) {
    for (u32 i = head; i != kNoFrame; i = entries_[i].next) ++n_chained;
  }
  TARN_ASSERT(n_chained == n_keys);
}

}  // namespace tarn::store
