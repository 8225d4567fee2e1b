// Shared by the classes of selection: the memory of every session's index, and the way along a
// layer's keys.
//
//   session   the life of its index, and a set of readers: one of every (cache layer, KV head).
//             `head` counts these pairs. A trained method has one set more, to rebuild an index
//             while the old one serves
//   caches    over a disk: of each (session, layer, KV head), what it chose (kv::SlotCache)
//   scratch   of each worker, then shared by a layer: the sample that is clustered, or what the
//             layer's heads fetch
//
//   memory    the plan's regions select_index, select_scratch and kv_cache
//   thread    the engine's; scratch and pages of keys: a worker has its own
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "platform/base/checked.h"
#include "platform/clock/clock.h"
#include "platform/cpu/worker_pool.h"
#include "runtime/arena/carver.h"
#include "runtime/kv/kv_cache.h"
#include "runtime/kv/sequence.h"
#include "runtime/kv/slot_cache.h"
#include "runtime/method/device.h"
#include "runtime/method/disk_order.h"
#include "runtime/method/select_layout.h"
#include "runtime/model/model_spec.h"
#include "runtime/step/batch.h"

namespace tarn::method {

struct SelectorArgs {
  const SelectConfig* config = nullptr;
  const SelectShape* shape = nullptr;
  CachesShape caches_shape{};
  const model::ModelSpec* spec = nullptr;
  const kernels::CpuTable* table = nullptr;
  WorkerPool* workers = nullptr;
  Clock* clock = nullptr;
  kv::KvCache* kv = nullptr;
  DeviceIndexes* device = nullptr;
  std::span<std::byte> indexes{};
  std::span<std::byte> caches{};  // of chosen slots; empty: none
  std::span<std::byte> scratch{};
  step::StepHost* host = nullptr;  // ticks between windows of keys, and tasks of a clustering
};

struct IndexSession {
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
  // The proposal of the step's row: what it makes of the session, if it counts.
  struct Proposal {
    IndexLife life{};          // behind the turn's end and the row
    Reader** heads = nullptr;  // that the row reads; nullptr: there is no row
    bool activates = false;    // the job's index comes into use
  } next{};
  bool is_restoring = false;  // the job makes the index in use again
  bool is_stuck = false;      // the disk failed it where no row waited: the next row tells

  // Returns the owner of what is written of the index that is being made.
  const store::Key& owner() const { return is_restoring ? used_key : job_key; }
};

struct IndexSets {
  std::span<Reader*> table;      // [n_sets, n_heads]
  std::span<std::byte> readers;  // [n_sets, n_heads, reader_bytes]
  std::span<std::byte> regions;  // [n_sets, n_heads, index_bytes]
  std::span<IndexSession> sessions;
  static IndexSets carve(Carver& carver, const SelectShape& shape);
};

// The scratch of a worker; on a device's host what trains, and the pages, alone.
struct WorkerScratch {
  std::span<std::byte> search, train;
  std::span<u32> slots;
  const u8** pages;
  u8* gathered;
  const u8** gathered_pages;
  f32* state;
  static WorkerScratch carve(Carver& carver, const SelectShape& shape);
};
struct SelectScratch {
  std::span<std::byte> workers;  // [n_workers, n]
  std::span<std::byte> shared;
  static SelectScratch carve(Carver& carver, const SelectShape& shape);
};

// The slots that a head of a layer chose of KV over memory and disk, and got.
struct HeadFetch {
  u8* bytes;                                 // K and V, in the order of attention
  std::span<const u8*> pages;                // of them
  std::span<u32> slots;                      // chosen
  std::span<kv::WantedSlot> wanted;          // of the mover
  std::span<kv::WantedSlot> missing;         // far ones that the cache has not, by name
  std::span<kv::SlotCache::Found> found;     // room for those that it has,
  std::span<kv::SlotCache::Found> cached{};  // and these
  std::span<kv::ExtentWant> places;          // of the missing, those in the extent
  u32 n_chosen = 0, n_missing = 0;
  static HeadFetch carve(Carver& carver, const SelectShape& shape);
};
// All heads of a layer, with tables of what the mover and the extents are asked for. A clustering
// may have used the memory since the layer before, so each layer carves it anew.
struct FetchMemory {
  std::span<HeadFetch> heads;  // [n_kv_heads], like the others
  std::span<std::span<const kv::WantedSlot>> wanted;
  std::span<u8*> out;
  std::span<kv::ExtentReading> readings;
  static FetchMemory carve(Carver& carver, const SelectShape& shape);
};

// Groups of one layer that are in memory, and of their slots those that are wanted.
struct KeyWindow {
  u32 group_begin = 0, group_end = 0;
  u32 slot_begin = 0, slot_end = 0;
};

class IndexMemory {
 public:
  void init(const SelectorArgs& args);

  IndexSession& session(u32 idx) const { return sets_.sessions[idx]; }
  u32 idx_of(const IndexSession& s) const { return static_cast<u32>(&s - sets_.sessions.data()); }
  // Returns the set that belongs to no session.
  Reader** spare_set() const;
  // Returns the regions of a set's readers, one behind the other.
  const std::byte* regions_of(Reader* const* set) const;
  DiskOrder& order() const { return *order_; }
  u32 extent_of(const IndexSession& s, u32 head) const {
    return idx_of(s) * args.shape->n_heads + head;
  }
  // Returns a session's caches; empty where there is none.
  std::span<kv::SlotCache> caches(u32 session) const;
  // Returns the memory of a session's caches, which are empty from now on.
  std::span<std::byte> borrow_caches(u32 session);
  // Returns the part of the caches' region that belongs to the extents.
  std::span<std::byte> extents_memory() const;

  WorkerScratch scratch(u32 worker_idx) const;
  FetchMemory& fetch() { return fetch_; }
  void begin_fetch();
  std::byte* sample_of(u32 kv_head) const;
  // Keys of a window.
  KeyPages key_pages(const kv::Sequence& sequence, u32 head, const KeyWindow& window,
                     const u8** pages) const;
  // Calls fn(KeyWindow) for slots [slot_begin, slot_end) of a layer, in order.
  template <class Fn>
  Result<void> each_window(const kv::Sequence& sequence, u32 cache_layer, u32 slot_begin,
                           u32 slot_end, Fn&& fn);
  void tick() const;
  kv::Extents* extents() const;

  SelectorArgs args{};  // without a configuration nothing selects

 private:
  void init_caches();

  IndexSets sets_{};
  SelectScratch scratch_{};
  FetchMemory fetch_{};
  std::span<kv::SlotCache> caches_{};  // [sessions_max, n_heads]; empty: none
  DiskOrder no_order_{};
  DiskOrder* order_ = &no_order_;
  alignas(16) std::array<std::byte, kDiskOrderBytes> order_room_{};
};

template <class Fn>
Result<void> IndexMemory::each_window(const kv::Sequence& sequence, u32 cache_layer, u32 slot_begin,
                                      u32 slot_end, Fn&& fn) {
  const u32 page_tokens = args.shape->in.group.page_tokens;
  const u32 group_end = static_cast<u32>(ceil_div(slot_end, page_tokens));
  for (u32 begin = slot_begin / page_tokens; begin < group_end;) {
    TARN_TRY(const u32 n_pinned, args.kv->pin(sequence, cache_layer, begin, group_end));
    TARN_TRY(const u32 n, args.device->fetch(sequence, cache_layer, begin, begin + n_pinned));
    fn(KeyWindow{.group_begin = begin,
                 .group_end = begin + n,
                 .slot_begin = std::max(slot_begin, begin * page_tokens),
                 .slot_end = std::min(slot_end, (begin + n) * page_tokens)});
    args.kv->unpin(sequence, cache_layer, begin, begin + n);
    begin += n;
    tick();
  }
  return {};
}

}  // namespace tarn::method
