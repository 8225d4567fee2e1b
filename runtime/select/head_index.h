// runtime/select/head_index.h
//
// The index of one (layer, KV head), of whichever method the configuration names, in one region;
// and a step's choice by it.
//
//   thread   one at a time; training as in pq_index.h
#pragma once

#include "runtime/select/select_shape.h"
#include "runtime/select/selection.h"

namespace tarn::select {

struct HeadIndex {
  PqIndex pq;        // of method pq
  QuestIndex quest;  // of method quest

  // 0 for a method without an index.
  static u64 region_bytes(const SelectConfig& config, u32 head_dim, u32 capacity_tokens);
  void init(const SelectConfig& config, u32 head_dim, u32 capacity_tokens,
            std::span<std::byte> region);
  // Keeps what belongs to the slots before middle_end.
  void truncate(const SelectConfig& config, u32 middle_end);
  void copy_from(const SelectConfig& config, const HeadIndex& source);

  // Takes in the keys that the middle has got since, then chooses; `train_scratch` as of
  // PqIndex::encode().
  u32 choose(const SelectConfig& config, const SelectionArgs& args, const KeyPages& keys, u64 seed,
             std::span<std::byte> train_scratch);
};

}  // namespace tarn::select
