// Where a backend's attention finds K and V. A backend knows parts, and neither methods nor disks.
//
//   for (part of the layer: next(), until there is none) { attend to it; give_back(); }
//
//   failure  of a run: its state is failed, there is no part any more, and what was computed of it
//            is not used
//   thread   the engine's; choose() any worker
#pragma once

#include <span>

#include "runtime/method/device.h"
#include "runtime/step/batch.h"
#include "runtime/step/part.h"

namespace tarn::method {

class PartSource {
 public:
  // How many of these runs, from the first on, have their parts together: all of them where KV lies
  // in place, else one.
  virtual u32 n_together(std::span<const step::Run> runs) const = 0;
  // Whether begin() is to have the query of the run's last row.
  virtual bool wants_query(const step::Run& run) const = 0;
  // A layer of these runs. `query`: [n_heads, head_dim] after RoPE, in host memory.
  virtual void begin(std::span<step::Run> runs, u32 cache_layer, const f32* query) = 0;
  // The part behind `part`, of groups up to group_end at most. False: there is none.
  virtual bool next(std::span<step::Run> runs, u32 cache_layer, u32 group_end,
                    step::KvPart& part) = 0;
  virtual void give_back(std::span<const step::Run> runs, u32 cache_layer,
                         const step::KvPart& part) = 0;
  // What a KV head of a chosen part reads; `q`: its heads' queries.
  struct Head {
    const step::Run& run;
    u32 cache_layer, kv_head;
    const f32* q;
  };
  virtual step::ChosenSlots choose(const Head& head, u32 worker_idx) = 0;
  // Of a run that chooses on a device: what its one row has to know there, once.
  virtual DeviceRow take_device_row(const step::Run& run) = 0;

 protected:
  ~PartSource() = default;
};

}  // namespace tarn::method
