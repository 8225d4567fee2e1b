// runtime/engine/selector_parts.h
//
// What the files of the selector share: its private parts, and how a layer's keys are walked.
#pragma once

#include <algorithm>

#include "platform/base/checked.h"
#include "runtime/engine/selector.h"

namespace tarn::engine {

struct Selector::Session {
  select::IndexLife life{};
  const kv::Sequence* sequence = nullptr;
  select::HeadIndex* heads = nullptr;  // [n_heads], in use, or what a build fills
  select::HeadIndex* target =
      nullptr;     // what the job fills; nullptr: it has not begun, or there is none
  u32 n_rows = 0;  // that it clusters
  u32 n_units_done = 0;
  u32 n_units_found = 0;  // restoring: layers that were looked for on the disk
  u32 n_units_due = 0;    // with a device: of the step under way; else of the row that waits
  u32 waits_at = 0;       // the row that does: n_tokens of it; 0: none
  u32 n_tokens = 0;       // of the row that advanced its life last
  u64 step_idx = 0;       // that it was in
  u64 row_step_idx = 0;   // that a generated token of it wanted to be in; without a device
  u32 row_tokens = 0;     // up to that token
  u64 spare_since = 0;    // the step that its row first waited in for the spare set; 0: it does not
  u32 n_coded = 0;        // with a device: rows of the middle that have codes there
  u32 n_counted = 0;      // and rows that its counts stand for
  u32 turn_end = 0;       // tokens of a turn that ended while a job was under way; 0: none
  store::Key used_key{};  // owns what was written of the index in use; zeros: nothing was
  store::Key job_key{};   // owns what the job writes
  store::Key named_key{};  // that a manifest names
  // What begin_row() has found and changed, until the row's step ends.
  struct Row {
    select::IndexLife life{};  // before it, and the turn's end
    u32 turn_end = 0;
    store::Key used_key{};  // before a swap in it
    bool has_begun = false;
    bool has_turned = false;   // a job was triggered, or began to serve
    bool has_swapped = false;  // that
    bool has_old = false;      // the spare set has what served before
    bool is_final = false;     // that is overwritten
  } row{};
  bool is_rebuild = false;    // the index serves meanwhile
  bool has_job = false;       // triggered, and units are left
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

// Calls fn(Window) for slots [slot_begin, slot_end) of a layer, in order. Fails as `cancelled`
// where make_index() does that for a session that does not want it any more.
template <class Fn>
Result<void> Selector::each_window(const kv::Sequence& sequence, u32 cache_layer, u32 slot_begin,
                                   u32 slot_end, Fn&& fn) {
  const u32 page_tokens = args_.plan->group_shape.page_tokens;
  const u32 group_end = static_cast<u32>(ceil_div(slot_end, page_tokens));
  for (u32 begin = slot_begin / page_tokens; begin < group_end;) {
    u32 n = group_end - begin;
    if (args_.kv_stream != nullptr) {
      TARN_TRY(n, args_.kv_stream->pin(sequence, cache_layer, begin, group_end));
    }
    if (args_.device != nullptr) {
      TARN_TRY(n, args_.device->fetch(sequence, cache_layer, begin, group_end));
    }
    fn(Window{.group_begin = begin,
              .group_end = begin + n,
              .slot_begin = std::max(slot_begin, begin * page_tokens),
              .slot_end = std::min(slot_end, (begin + n) * page_tokens)});
    if (args_.kv_stream != nullptr) {
      args_.kv_stream->unpin(sequence, cache_layer, begin, begin + n);
    }
    begin += n;
    if (!goes_on()) return fail({.status = Status::cancelled});
  }
  return {};
}

}  // namespace tarn::engine
