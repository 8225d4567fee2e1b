// runtime/engine/selector.h
//
// Reading by selection (DESIGN section 8): which rows do, by what index, and the clustering that
// makes it. One row of a session at a time selects: the one whose logits are sampled. Prefill rows
// attend to everything, as in PQCache (METHODS 3.1).
//
//   session   an IndexLife, and an index of every (cache layer, KV head). What is chosen follows
//             from tokens, the turns' borders, configuration and seed; no timing is in it
//   job       the clustering that a trigger asks for, cut into (head, sub-space) units. A step of
//             its session does as many as bring it to its end in time; a step without rows does
//             some; what is left at the swap is done then, and waited for
//   rebuild   fills the spare set of indexes while the session's own serves; where another job
//             has it, the session's own at the swap, which gives the same bits
//   KV        is resident here: ResidentSlots is where another tier would hand out a slot's bytes
//
//   memory    the plan's regions select_index and select_scratch
//   thread    the engine's; attend() on any worker, a (layer, KV head) a task
#pragma once

#include <array>
#include <span>

#include "platform/clock/clock.h"
#include "platform/cpu/worker_pool.h"
#include "runtime/kv/sequence.h"
#include "runtime/model/model_spec.h"
#include "runtime/plan/plan.h"
#include "runtime/select/head_index.h"

namespace tarn::engine {

// K and V of one KV head's slots.
struct ResidentSlots {
  const u8* const* pages;
  u32 page_tokens;
  u64 slot_bytes;
  // The bytes of the slots, one behind the other.
  void gather(std::span<const u32> slots, u8* out) const;
};

struct SelectorArgs {
  const SelectConfig* config = nullptr;
  const plan::Plan* plan = nullptr;
  const model::ModelSpec* spec = nullptr;
  const kernels::CpuTable* table = nullptr;
  kernels::KvType kv_type = kernels::KvType::f16;
  WorkerPool* workers = nullptr;
  Clock* clock = nullptr;
  std::span<std::byte> indexes{};
  std::span<std::byte> scratch{};
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

  // A session begins anew, is cut, or becomes the copy of another one.
  void forget(u32 session);
  void truncate(u32 session, u32 n_tokens);
  void copy(u32 from, u32 to, const kv::Sequence& sequence);

  // The session's next row is its n_tokens-th token, alone in its run, and its logits are sampled;
  // all before it are in the KV. Whether it selects. Waits for a clustering that is due.
  bool begin_row(u32 session, const kv::Sequence& sequence, u32 n_tokens);
  // Some of the clustering of a session whose row is in this step.
  void work_for(u32 session);
  // Some of any session's.
  bool has_work() const;
  void work();

  // Attention of a row that selects, for one KV head. `attention` is scratch of the kernel's.
  struct Head {
    u32 session;
    const kv::Sequence* sequence;
    u32 cache_layer, kv_head;
    const f32* q;
    f32* out;
    void* attention;
  };
  void attend(const Head& head, u32 worker_idx);

  // Of all workers together, since the last call.
  struct Spent {
    u64 select_ns = 0, gather_ns = 0, attend_ns = 0;
    u64 kv_bytes = 0;  // of the slots attended to
    u64 n_slots = 0;   // attended to, a head each
    u32 n_units = 0;   // of clustering
  };
  Spent take_spent();

 private:
  struct Session;
  struct Scratch;
  struct alignas(64) OfWorker {
    Spent spent{};
  };

  Session& session(u32 idx) const;
  Scratch scratch(u32 worker_idx) const;
  select::KeyPages key_pages(const kv::Sequence& sequence, u32 head, const u8** pages) const;
  u32 n_units() const;
  void start_job(Session& s, const kv::Sequence& sequence, bool is_rebuild);
  void drop_job(Session& s);
  bool can_work(const Session& s) const;
  void begin_training(Session& s, select::HeadIndex* target);
  void run_units(Session& s, u32 n);
  void swap(Session& s);

  SelectorArgs args_{};
  std::byte* sessions_ = nullptr;  // [sessions_max] of kSelectSessionBytes
  select::HeadIndex* spare_ = nullptr;
  const Session* spare_user_ = nullptr;
  u32 n_units_spent_ = 0;
  std::array<OfWorker, kWorkersMax> of_workers_{};
};

}  // namespace tarn::engine
