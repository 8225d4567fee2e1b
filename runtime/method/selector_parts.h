// runtime/method/selector_parts.h
//
// What the files of the selector share: its private parts, and how a layer's keys are walked.
#pragma once

#include <algorithm>

#include "platform/base/checked.h"
#include "runtime/arena/carver.h"
#include "runtime/method/selector.h"

namespace tarn::method {

// Of a trained method.
inline PqIndex& pq_of(Reader* reader) { return static_cast<PqReader*>(reader)->index; }

struct Selector::Session {
  IndexLife life{};
  const kv::Sequence* sequence = nullptr;
  Reader** heads = nullptr;  // [n_heads], in use, or what a first build fills
  // The job: a clustering that is to be made, or is made and not in use yet.
  Reader** target = nullptr;  // what it fills; nullptr: it has not begun
  u32 n_rows = 0;             // that it clusters; 0: there is none
  u32 n_units_done = 0;
  u32 n_units_found = 0;   // restoring: layers that were looked for on the disk
  u32 n_units_due = 0;     // with a device: of the step under way; else of the row that waits
  u32 waits_at = 0;        // the row that does: n_tokens of it; 0: none
  u64 step_idx = 0;        // the last step that it was in
  u32 n_coded = 0;         // with a device: rows of the middle that have codes there
  u32 n_counted = 0;       // and rows that its counts stand for
  u32 turn_end = 0;        // tokens of a turn that ended while a job was under way; 0: none
  store::Key used_key{};   // owns what was written of the index in use; zeros: nothing was
  store::Key job_key{};    // owns what the job writes
  store::Key named_key{};  // that a manifest names
  // What the row of the step under way makes of the session, if it counts.
  struct Proposal {
    IndexLife life{};          // behind the turn's end and the row
    Reader** heads = nullptr;  // that the row reads; nullptr: there is no row
    bool swaps = false;        // the job's index comes into use
  } next{};
  bool is_restoring = false;  // the job makes the index in use again
  bool is_stuck = false;      // the disk failed it where nobody waited: the next row tells
  bool is_clustered = false;  // the layer of the unit that is next: an extent is left of it

  // Of what is written of the index that is being made.
  const store::Key& owner() const { return is_restoring ? used_key : job_key; }
};

struct Selector::Scratch {
  std::span<std::byte> search, train;
  std::span<u32> slots;
  const u8** pages;
  u8* gathered;
  const u8** gathered_pages;
  f32* state;
};

// What a layer's heads chose of KV over memory and disk, and got: a head's piece.
struct Selector::Fetched {
  u8* bytes;                              // K and V, in the order of attention
  const u8** pages;                       // of them
  std::span<u32> slots;                   // chosen
  std::span<kv::WantedSlot> wanted;       // of the mover
  std::span<kv::WantedSlot> missing;      // far ones that the cache has not, by name
  std::span<kv::SlotCache::Found> found;  // and those that it has
  std::span<kv::ExtentWant> places;       // of the missing, those in the extent
};

// And of all its heads.
struct Selector::LayerTable {
  std::span<u32> n_chosen;
  std::span<u32> n_missing;  // far ones that the cache has not, by name
  std::span<std::span<const kv::SlotCache::Found>> found;
  std::span<std::span<const kv::WantedSlot>> wanted;
  std::span<u8*> out;
  std::span<kv::ExtentReading> readings;
};

// Calls fn(Window) for slots [slot_begin, slot_end) of a layer, in order.
template <class Fn>
Result<void> Selector::each_window(const kv::Sequence& sequence, u32 cache_layer, u32 slot_begin,
                                   u32 slot_end, Fn&& fn) {
  const u32 page_tokens = args_.shape->in.group.page_tokens;
  const u32 group_end = static_cast<u32>(ceil_div(slot_end, page_tokens));
  for (u32 begin = slot_begin / page_tokens; begin < group_end;) {
    TARN_TRY(u32 n, args_.kv->pin(sequence, cache_layer, begin, group_end));
    if (args_.device != nullptr) {
      TARN_TRY(n, args_.device->fetch(sequence, cache_layer, begin, group_end));
    }
    fn(Window{.group_begin = begin,
              .group_end = begin + n,
              .slot_begin = std::max(slot_begin, begin * page_tokens),
              .slot_end = std::min(slot_end, (begin + n) * page_tokens)});
    args_.kv->unpin(sequence, cache_layer, begin, begin + n);
    begin += n;
    tick();
  }
  return {};
}

}  // namespace tarn::method
