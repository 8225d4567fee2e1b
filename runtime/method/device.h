// Choice on a device that holds the KV: the host makes indexes over keys that come from it, and a
// finished one goes to it. From then on the device codes the keys that the middle gets.
//
//   thread   the engine's
//   errors   the device's; everything is lost then
#pragma once

#include "kernels/pq/pq_codes.h"
#include "platform/base/result.h"
#include "runtime/kv/sequence.h"

namespace tarn::method {

// How the region of a head's codes is laid out, in bytes from its begin; the codebook begins there.
struct DeviceCodes {
  kernels::PqCodeFormat format = kernels::PqCodeFormat::bytes;
  u32 n_subspaces = 0;  // 0: there are no codes
  u32 dims = 0, adjacent_dims = 0, n_padded = 0;
  u32 capacity_tokens = 0;
  u64 head_bytes = 0;  // from one region to the next
  u64 half_norms_at = 0, codes_at = 0;
  u64 counts_at = 0;  // of pairs of codes; 0: the choice is by scores
  bool exist() const { return n_subspaces > 0; }
};

class DeviceIndexes {
 public:
  // Brings as many of the groups [begin, end) of a layer as the window holds, one behind the other
  // from window() on; returns how many.
  virtual Result<u32> fetch(const kv::Sequence& sequence, u32 cache_layer, u32 begin, u32 end) = 0;
  virtual const u8* window() const = 0;
  // Makes the session be read by this index from its next row on: the regions of all its heads.
  virtual Result<void> put(u32 session, const std::byte* index) = 0;
  // Gives the session the index of another one.
  virtual void copy(u32 from, u32 to) = 0;

 protected:
  ~DeviceIndexes() = default;
};

}  // namespace tarn::method
