// Rows that choose their slots on the device: codes of the keys that their middle has got, what
// each KV head chooses, and the chosen slots gathered into groups of their own. Attention finds
// these by tables behind those of the sessions, and sees as many slots as were gathered.
#pragma once

#include "runtime/exec/gpu/step.h"

namespace tarn::exec {

class GpuChooser {
 public:
  explicit GpuChooser(GpuStep* step) : step_(*step) {}

  bool chooses() const { return step_.sizes().choosing_rows() > 0; }
  // Fills, once, the tables whose groups the rows of a launch gather, the same for every layer.
  void place_gathered();
  // Into the step's state: what each row attends to, that is what it sees or what it gathers.
  void write_choices(const step::Batch& batch);
  // Keys that left the local window, of all layers: they were in the KV before this step.
  void code_new_keys(u32 row);
  // Chooses, and has the chosen slots where the row's table says.
  void gather(u32 cache_layer, u32 row, const f32* q);

 private:
  void choose(u32 cache_layer, u32 row, const f32* q);

  GpuStep& step_;
};

}  // namespace tarn::exec
