// Where selection has its keys and indexes. On a device that holds the KV rows choose there: the
// host makes indexes over keys that come from it, and a finished one goes to it. From then on the
// device codes the keys that the middle gets.
//
//   thread   the engine's
//   errors   the device's; everything is lost then
#pragma once

#include <span>

#include "kernels/pq/pq_codes.h"
#include "platform/base/result.h"
#include "runtime/kv/sequence.h"
#include "runtime/step/batch.h"

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

// Where keys are read from and indexes are read by.
class DeviceIndexes {
 public:
  // Returns whether rows choose on a device.
  virtual bool is_on_device() const = 0;
  // Brings as many of the groups [begin, end) of a layer, which are pinned, as the window holds;
  // returns how many.
  virtual Result<u32> fetch(const kv::Sequence& sequence, u32 cache_layer, u32 begin, u32 end) = 0;
  // Sets where the host reads pages [begin, end) of a KV head, which were brought.
  virtual void pages(const kv::Sequence& sequence, u32 cache_layer, u32 kv_head, u32 begin, u32 end,
                     std::span<const u8*> out) const = 0;
  // Makes the session be read by this index from its next row on: the regions of all its heads.
  virtual Result<void> put(u32 session, const std::byte* index) = 0;
  // Ticks the host of a step that an index is made for, where rows count at the step's end. No end
  // is told where they count as they begin.
  virtual void tick(step::StepHost& host) const = 0;
  // Gives the session the index of another one.
  virtual void copy(u32 from, u32 to) = 0;

 protected:
  ~DeviceIndexes() = default;
};

// Keys and indexes lie where the host reads them.
class HostIndexes final : public DeviceIndexes {
 public:
  bool is_on_device() const override { return false; }
  Result<u32> fetch(const kv::Sequence&, u32, u32 begin, u32 end) override { return end - begin; }
  void pages(const kv::Sequence& sequence, u32 cache_layer, u32 kv_head, u32 begin, u32 end,
             std::span<const u8*> out) const override {
    sequence.pages(cache_layer, kv_head, begin, end, out);
  }
  Result<void> put(u32, const std::byte*) override { return {}; }
  void tick(step::StepHost& host) const override { (void)host.tick(step::Pause::within_op); }
  void copy(u32, u32) override {}
};

}  // namespace tarn::method
