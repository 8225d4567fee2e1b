// Where a backend's attention finds K and V. A backend knows parts, and neither methods nor disks.
//
//   for (part of the layer: next(), until there is none) { attend to it; give_back(); }
//
//   failure  of a run: its state is failed, there is no part any more, and what was computed of it
//            is not used
//   thread   the engine's; choose() any worker
#pragma once

#include <span>

#include "runtime/step/batch.h"
#include "runtime/step/part.h"

namespace tarn::kv {

class PartSource {
 public:
  // Returns how many of these runs, from the first on, have their parts together: all of them where
  // KV lies in place, else one.
  virtual u32 n_together(std::span<const step::Run> runs) const = 0;
  // Returns whether begin() is to have the query of the run's last row.
  virtual bool wants_query(const step::Run& run) const = 0;
  // Begins a layer of these runs. `query`: [n_heads, head_dim] after RoPE, in host memory.
  virtual void begin(std::span<step::Run> runs, u32 cache_layer, const f32* query) = 0;
  // Sets the part behind `part`, of groups up to group_end at most. False: there is none.
  virtual bool next(std::span<step::Run> runs, u32 cache_layer, u32 group_end,
                    step::KvPart& part) = 0;
  virtual void give_back(std::span<const step::Run> runs, u32 cache_layer,
                         const step::KvPart& part) = 0;
  // A KV head of a chosen part; `q`: its heads' queries.
  struct Head {
    const step::Run& run;
    u32 cache_layer, kv_head;
    const f32* q;
  };
  virtual step::ChosenSlots choose(const Head& head, u32 worker_idx) = 0;
  // Returns what the one row of a run that chooses on a device has to know there, once.
  virtual step::DeviceRow take_device_row(const step::Run& run) = 0;

 protected:
  ~PartSource() = default;
};

}  // namespace tarn::kv
