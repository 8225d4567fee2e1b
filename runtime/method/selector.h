// runtime/method/selector.h
//
// Reading by selection (DESIGN section 8): which rows do, by what index, and the clustering that
// makes it. The rows of generated tokens select, one of a session at a time; those of a prefill,
// the last one included, attend to everything, as in PQCache (METHODS 3.1).
//
//   session   an IndexLife, and an index of every (cache layer, KV head). What is chosen follows
//             from tokens, the turns' borders, configuration and seed; no timing is in it
//   job       the clustering that a trigger asks for, a cache layer a unit: keys are sampled, the
//             sample clustered, all rows coded. A step of its session does as many units as bring
//             the job to its end in time: layers / swap_tokens, rounded up, each; beside another's
//             prompt, whose first token waits, none before that is the only way. A step without
//             rows does one. A row that must have several units done waits, a unit a step, while
//             others' rows go on: make_index()
//   proposal  what a row makes of its session's life: begin_row() works on a copy, and reads the
//             index that the copy says. commit() applies it. A row that does not count leaves
//             nothing behind: its proposal is forgotten
//   rebuild   fills the spare set of indexes while the session's own serves. The set belongs to
//             the session that came first, until its swap. A session that does not step
//             any more loses it. Who has not got it by its swap fills its own set, which nobody
//             reads any more: the row waits for that, a unit a step
//   extents   over a disk, a unit also writes the layer's middle once more, by pairs of codes; and
//             where sessions are kept, the layer's codes, by which a later start finds both
//   KV        keys are read window by window, in memory or through a KvCache's frames. Over a disk
//             each (session, layer, KV head) has a cache of what it chose: kv::SlotCache
//
//   taken up  a session that was kept brings a name for its codebooks. What was written under it is
//             read; else they are trained again, over the same rows. That
//             is done before its next row, which waits for it likewise; a job that was under way
//             begins behind them
//
//   device    where KV lies in a GPU's memory, the rows are chosen and coded there: a finished
//             index goes to it at the swap, and the host's copy ends with the rows that were
//             clustered, which is all that truncation, copies and rebuilds need of it. A step's
//             part of a job is done while the GPU computes it: work_beside()
//
//   memory    the plan's regions select_index, select_scratch and kv_cache
//   thread    the engine's; attend() on any worker, a (layer, KV head) a task
//   errors    of the disk alone, where KV lies there: the session's KV is lost then
#pragma once

#include <array>
#include <span>

#include "platform/clock/clock.h"
#include "platform/cpu/worker_pool.h"
#include "runtime/kv/kv_cache.h"
#include "runtime/kv/sequence.h"
#include "runtime/kv/slot_cache.h"
#include "runtime/method/codebook_record.h"
#include "runtime/method/device_indexes.h"
#include "runtime/method/device_row.h"
#include "runtime/method/read/pq.h"
#include "runtime/method/select_layout.h"
#include "runtime/method/select_shape.h"
#include "runtime/model/model_spec.h"
#include "runtime/step/batch.h"
#include "runtime/step/part.h"
#include "runtime/step/ready.h"

namespace tarn::method {

struct SelectorArgs {
  const SelectConfig* config = nullptr;
  const SelectShape* shape = nullptr;
  CachesShape caches_shape{};
  const model::ModelSpec* spec = nullptr;
  const kernels::CpuTable* table = nullptr;
  WorkerPool* workers = nullptr;
  Clock* clock = nullptr;
  kv::KvCache* kv = nullptr;        // KV over memory and disk; nullptr: it is in memory
  DeviceIndexes* device = nullptr;  // KV on a device, which chooses; nullptr: the host does
  std::span<std::byte> indexes{};
  std::span<std::byte> caches{};  // of chosen slots; empty: none
  std::span<std::byte> scratch{};
  step::StepHost* host = nullptr;  // ticks between windows of keys, and tasks of a clustering
};

// A session's index in few words: read back, or made again from its KV, it chooses as it did.
struct KeptIndex {
  KeptLife life{};
  u32 turn_end = 0;  // a turn that the index was not told of yet; 0: none
  store::Key key{};  // owns what was written of the index in use; zeros: nothing was
  friend bool operator==(const KeptIndex& one, const KeptIndex& other) {  // wherever it lies
    return one.life == other.life && one.turn_end == other.turn_end;
  }
};

class Selector {
 public:
  Selector() = default;
  Selector(const Selector&) = delete;
  Selector& operator=(const Selector&) = delete;

  // Without it nothing selects.
  void init(const SelectorArgs& args);
  void close() { args_ = {}; }
  bool is_on() const { return args_.config != nullptr; }
  // The part of the caches' region that belongs to the extents.
  std::span<std::byte> extents_memory() const;

  // A session begins anew, is cut, or becomes the copy of another one. What lies on disk of an
  // index goes with it, unless it is what a manifest names.
  void forget(u32 session);
  // What owns the records of the session's index; zeros: nothing does. Its manifest names this
  // owner's from now on, or none: what the one before named goes where it is not in use.
  store::Key codebooks_key(u32 session) const;
  void note_named(u32 session, const store::Key& key);
  void touch_codebooks(u32 session);  // they are wanted now, of all that may give way
  void truncate(u32 session, u32 n_tokens);
  void copy(u32 from, u32 to, const kv::Sequence& sequence);

  // What a session's choices depend on beside its KV, and a session that is told it: of n_tokens,
  // n_slots are in the KV. Its index is read back or made again, in idle steps or when its next row
  // wants it. False, and it is forgotten, where that is no life under this configuration.
  KeptIndex kept(u32 session) const;
  // Whether there is anything to tell: an index, or one that is being made.
  bool has_index(u32 session) const;
  bool take_up(u32 session, const kv::Sequence& sequence, const KeptIndex& kept, u32 n_slots,
               u32 n_tokens);

  // The session's n_tokens are all in the KV, and its first token is about to be sampled: what an
  // index is made from where one is due. Clusters nothing yet.
  void end_turn(u32 session, const kv::Sequence& sequence, u32 n_tokens);
  // A step begins, for which these sessions are ready; none has begun its row. A session that is
  // not ready for two steps has stopped.
  void begin_step(std::span<const step::Ready> ready);
  // The session's next row is that of a generated token, its n_tokens-th, alone in its run; all
  // before it are in the KV. Does a unit of what has to be done before that row, if any: little or
  // none where `beside_prompt`. Whether there is more, so that the row waits for another step;
  // until begin_row() the session may end, be cut or go on otherwise. With a device there never is.
  Result<bool> make_index(u32 session, u32 n_tokens, bool beside_prompt);
  // Behind that the row begins. Whether it selects. With a device, which drops no rows, what is due
  // is waited for, and counts at once; the rest is left to work_beside().
  Result<bool> begin_row(u32 session, const kv::Sequence& sequence, u32 n_tokens,
                         bool beside_prompt);
  // The row that begin_row() has begun in this step counts, if it has begun one.
  void commit(u32 session);
  // Groups of the row that selects of which it reads chosen slots alone: those of the middle.
  void offloaded_groups(u32 session, u32* begin, u32* end) const;
  // Slots that each head of that row attends to: sinks, local ones, and its budget of the middle.
  u32 n_read(u32 session) const;
  // Some of any session's. Fails where a device is lost; what the disk fails is told by the next
  // row.
  bool has_work() const;
  Result<void> work();
  // With a device, while it computes a step: what the step's rows left to it; where that is
  // nothing, and nobody may wait for a first token then, some of any session's.
  bool has_units_due() const;
  Result<void> work_beside();

  // With a device: what the row that selects has to know there, once.
  DeviceRow take_row(u32 session);

  // Of a session in use, for tests. `head` counts (cache layer, KV head) pairs.
  const PqIndex& pq_index(u32 session, u32 head) const;

  bool wants_queries() const { return is_on() && extents() != nullptr; }
  // What a layer's heads asked last, [n_heads, head_dim] after RoPE: extents follow it.
  void note_query(u32 session, u32 cache_layer, const f32* q);

  // A KV head of a row that selects.
  struct Head {
    u32 session;
    const kv::Sequence* sequence;
    u32 cache_layer, kv_head;
    const f32* q;
  };
  // What it chooses. With KV over memory and disk, of the heads that next_heads() named; nothing of
  // one that comes with a later call of that.
  step::ChosenSlots choose(const Head& head, u32 worker_idx);

  // With KV over memory and disk: all KV heads of a layer choose, and what they chose begins to
  // come. next_heads() waits for the next of them, until there are no more: then it is false.
  struct Layer {
    u32 session;
    const kv::Sequence* sequence;
    u32 cache_layer;
    const f32* q;
  };
  Result<void> begin_layer(const Layer& layer);
  Result<bool> next_heads(u32* begin, u32* end);

  // Of all workers together, since the last call.
  struct Spent {
    u64 select_ns = 0, gather_ns = 0;
    u64 kv_bytes = 0;  // of the slots attended to
    u64 n_slots = 0;   // attended to, a head each
    u64 n_far = 0;     // of them, of groups that may be on disk
    u64 n_cached = 0;  // of these, in the cache
    u32 n_units = 0;   // of clustering
  };
  Spent take_spent();

 private:
  struct Session;
  struct Scratch;
  struct Fetched;
  struct LayerTable;
  struct alignas(64) OfWorker {
    Spent spent{};
  };
  // Groups of one layer that are in memory, and of their slots those that are wanted.
  struct Window {
    u32 group_begin = 0, group_end = 0;
    u32 slot_begin = 0, slot_end = 0;
  };

  // A part of a layer that is written to its extents.
  struct Layout {
    u32 cache_layer;
    u32 slot_begin, slot_end;    // of the extents
    u32 order;                   // in them
    u32 place_begin, place_end;  // of each head's, in that order
    std::span<std::byte> memory;
  };
  static constexpr u32 kForeign = u32{1} << 31;  // in a name: the rest is the slot
  struct NameArgs {
    u32 session, head, worker_idx;
    u32 first_rank;  // of the chosen slots among all
  };

  void init_caches();
  std::span<kv::SlotCache> caches(u32 session) const;
  Session& session(u32 idx) const;
  Scratch scratch(u32 worker_idx) const;
  Fetched fetched(u32 kv_head) const;
  LayerTable layer_table() const;
  std::byte* sample_of(u32 kv_head) const;
  KeyPages key_pages(const kv::Sequence& sequence, u32 head, const Window& window,
                     const u8** pages) const;
  template <class Fn>
  Result<void> each_window(const kv::Sequence& sequence, u32 cache_layer, u32 slot_begin,
                           u32 slot_end, Fn&& fn);
  u32 n_units() const;
  bool has_units_left(const Session& s) const;
  bool is_made(const Session& s, u32 n_rows) const;
  bool overwrites(const Session& s) const;
  void start_job(Session& s, u32 n_rows);
  void drop_job(Session& s);
  void begin_restoring(Session& s);
  void end_restoring(Session& s);
  void await_clustering(Session& s);
  Reader** free_set(const Session& s, bool is_due) const;
  bool can_work(const Session& s, bool is_due) const;
  u32 units_of_step(const Session& s, u32 n_tokens, bool beside_prompt) const;
  void propose(Session& s, u32 n_tokens);
  void truncate_heads(Session& s);
  void tick() const;
  u32 idx_of(const Session& s) const;
  Result<void> send_index(Session& s);
  void begin_training(Session& s, Reader** target);
  Result<void> run_units(Session& s, u32 n, bool is_due);
  Result<void> cluster_layer(Session& s, u32 cache_layer);
  void pass_found_layers(Session& s) const;
  Result<void> make_layer(Session& s, u32 cache_layer);
  Result<void> restore_layer(Session& s, u32 cache_layer);
  Result<void> take_in(const Layer& layer);
  void want(const Layer& layer, u32 kv_head, u32 worker_idx);
  void choose_of(const Layer& layer, u32 begin, u32 end);
  u32 n_heads_at_once() const;
  step::ChosenSlots take_fetched(const Head& head, u32 worker_idx);
  void note_attended(Spent& spent, u64 n_slots) const;
  Result<void> gather(const Layer& layer);

  // selector_extents.cpp
  kv::Extents* extents() const;
  u32 extent_of(const Session& s, u32 head) const;
  void forget_extents(const Session& s);
  void truncate_extents(const Session& s, u32 n_tokens);
  std::span<u32> pair_counters(u32 kv_head) const;
  f32* last_query(u32 session, u32 cache_layer) const;
  std::span<std::byte> borrow_caches(u32 session);
  static u16 pair_of(const PqIndex& pq, u32 slot);
  static Window extent_slots(const Session& s, const PqIndex& pq, u32 page_tokens);
  Result<void> lay_out(Session& s, u32 cache_layer);
  void place_pairs(const Session& s, const Layout& layout);
  Result<void> write_order(const Session& s, const Layout& layout);
  Result<void> write_part(const Session& s, const Layout& layout);
  void name_slots(const NameArgs& args, std::span<const u32> chosen,
                  std::span<kv::WantedSlot> named);
  void choose_orders(const NameArgs& args, std::span<const u32> chosen,
                     std::span<kv::ExtentWant> places);
  void truncate_cache(const Session& s, u32 head, u32 n_tokens, kv::SlotCache& cache);
  Result<u32> fetch_lost(const Layer& layer, u32 begin, u32 end);

  // selector_codebooks.cpp
  store::Key draw_key() const;
  void erase_codebooks(const Session& s, const store::Key& owner);
  void keep_layer(const Session& s, u32 cache_layer);
  void find_layer(Session& s, u32 cache_layer);
  bool has_codes(const Session& s, u32 cache_layer) const;
  bool has_extents(const Session& s, u32 cache_layer) const;
  void adopt_extent(const Session& s, u32 head, const CodebookHead& saved,
                    std::span<const std::byte> record);

  u32 choose_slots(const Head& head, const KeyPages& keys, std::span<u32> slots, u32 worker_idx);
  Head head_of(const Layer& layer, u32 kv_head) const;

  SelectorArgs args_{};
  std::span<kv::SlotCache> caches_{};  // [sessions_max, n_heads]; empty: none
  std::byte* sessions_ = nullptr;      // [sessions_max] of kSelectSessionBytes
  Reader** spare_ = nullptr;
  Session* spare_user_ = nullptr;  // whose job has begun to fill it
  u64 step_idx_ = 0;
  u32 n_units_spent_ = 0;
  Layer layer_{};  // whose heads are read now, and which of them
  struct Turn {
    u32 head_begin = 0, head_end = 0;
    bool is_second = false;
  } turn_{};
  std::array<OfWorker, kWorkersMax> of_workers_{};
};

}  // namespace tarn::method
