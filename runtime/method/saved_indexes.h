// What a clustering has made, on disk for a later start: where sessions are kept over a disk, each
// head's codes and the places of its extents are a record (method/pq/codebook_record.h). An index
// is read back with its extents in the time of its codes, where a clustering reads all KV several
// times.
//
//   owner    records of a job have a key of their own; a manifest names the key of the index in use
//   thread   the engine's
#pragma once

#include "runtime/method/pq/pq_order.h"

namespace tarn::method {

class SavedIndexes {
 public:
  SavedIndexes(IndexMemory* memory, PqOrder* order)
      : memory_(*memory), args_(memory->args), order_(*order) {}

  store::Key draw_key() const;
  void erase(const IndexSession& s, const store::Key& owner);
  void touch(const store::Key& owner);
  void keep_layer(const IndexSession& s, u32 cache_layer);
  void find_layer(IndexSession& s, u32 cache_layer);
  bool has_codes(const IndexSession& s, u32 cache_layer) const;

 private:
  IndexMemory& memory_;
  const SelectorArgs& args_;
  PqOrder& order_;
};

}  // namespace tarn::method
