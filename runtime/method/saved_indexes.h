// The results of trainings, on disk for a later start: where sessions are kept over a disk, a
// record of each head has what Reader::save() writes, and what its disk order adds. An index is
// read back in the time of these bytes, where a training reads all KV several times.
//
//   owner    records of a job have a key of their own; a manifest names the key of the index in use
//   thread   the engine's
#pragma once

#include "runtime/method/index_memory.h"

namespace tarn::method {

class SavedIndexes {
 public:
  explicit SavedIndexes(IndexMemory* memory) : memory_(*memory), args_(memory->args) {}

  store::Key draw_key() const;
  void erase(const IndexSession& s, const store::Key& owner);
  void touch(const store::Key& owner);
  void keep_layer(const IndexSession& s, u32 cache_layer);
  void find_layer(IndexSession& s, u32 cache_layer);
  // Returns whether all heads of the layer have an index.
  bool has_layer(const IndexSession& s, u32 cache_layer) const;

 private:
  IndexMemory& memory_;
  const SelectorArgs& args_;
};

}  // namespace tarn::method
