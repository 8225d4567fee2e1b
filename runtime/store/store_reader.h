// Reads of records: plans a read's requests, and checks that the bytes are the requested record's.
// store.h has the contract.
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
