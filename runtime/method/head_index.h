// runtime/method/head_index.h
//
// The index of one (layer, KV head), of whichever method the configuration names, in one region;
// and a step's choice by it.
//
//   thread   one at a time; training as in pq_index.h
#pragma once

#include "runtime/method/select_shape.h"
#include "runtime/method/selection.h"

namespace tarn::method {

struct HeadIndex {
  PqIndex pq;        // of method pq
  QuestIndex quest;  // of method quest

  // 0 for a method without an index.
  static u64 region_bytes(const SelectConfig& config, const KeyDims& dims, u32 capacity_tokens);
  void init(const SelectConfig& config, const KeyDims& dims, u32 capacity_tokens,
            std::span<std::byte> region);
  // What is not clustered begins with the next choice.
  void forget() { quest.truncate(0); }
  // Keeps what belongs to the slots before middle_end.
  void truncate(const SelectConfig& config, u32 middle_end);
  void copy_from(const SelectConfig& config, const HeadIndex& source);

  // The first slot whose key it has not taken in; of a method that takes in none, slot_end.
  u32 n_taken(const SelectConfig& config, u32 slot_end) const;
  // Takes in the keys from there up to slot_end; scratch as of PqIndex::encode().
  void take_in(const SelectConfig& config, const kernels::CpuTable& table, const KeyPages& keys,
               u32 slot_end, std::span<std::byte> scratch);
  // All of the middle was taken in. Method oracle reads `keys`, of the whole middle.
  u32 choose(const SelectConfig& config, const SelectionArgs& args, const KeyPages& keys,
             u64 seed) const;
};

}  // namespace tarn::method
