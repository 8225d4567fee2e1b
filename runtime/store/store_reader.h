// runtime/store/store_reader.h
//
// Reads of records: which requests a read makes, and whether what the disk gave is the record that
// was asked for. store.h has the contract.
#pragma once

#include "runtime/store/store_parts.h"

namespace tarn::store {

class StoreReader {
 public:
  explicit StoreReader(StoreParts& parts) : parts_(parts) {}

  Begun begin(const ReadArgs& args);
  void go_on(Slot& slot);

 private:
  void plan_runs(Slot& slot, std::span<const u32> sectors, u64 n_sectors) const;
  std::optional<HeadView> head_of(const Slot& slot) const;
  Outcome verified(const Slot& slot) const;

  StoreParts& parts_;
};

}  // namespace tarn::store
