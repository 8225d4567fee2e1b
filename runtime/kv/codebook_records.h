// Records of kind codebook beside those of extents: bytes that a head's index is made of, and what
// its extent is found by. A later start that has both makes neither again.
//
//   thread   the engine's
#pragma once

#include <span>

#include "runtime/kv/extent_reads.h"
#include "runtime/kv/extent_writes.h"

namespace tarn::kv {

class CodebookRecords {
 public:
  void init(store::Store* store, ExtentReads* reads, ExtentWrites* writes, ExtentStats* stats);

  // An owner's codebook of one of its heads. `bytes`, as many sectors as n_bytes take, are ours
  // until the writes have settled. In place of one before.
  void put(const store::Key& owner, u32 head, std::span<std::byte> bytes, u64 n_bytes);
  // Waits for the disk. How many bytes of it are in `out`; 0: it is not there, or does not fit.
  u64 read(const store::Key& owner, u32 head, std::span<std::byte> out);
  void erase(const store::Key& owner, u32 head);
  void touch(const store::Key& owner, u32 head);  // used now

 private:
  store::Key key(const store::Key& owner, u32 head) const;
  // Its record, pinned.
  std::optional<store::RecordRef> pinned(const store::Key& owner, u32 head);

  store::Store* store_ = nullptr;
  ExtentReads* reads_ = nullptr;
  ExtentWrites* writes_ = nullptr;
  ExtentStats* stats_ = nullptr;
};

}  // namespace tarn::kv
