// A device that holds the KV and chooses by the indexes that the selector makes on the host: keys
// come from it, a finished index goes to it. From then on it codes the keys that the middle gets.
//
//   thread   the engine's
//   errors   the device's; everything is lost then
#pragma once

#include <span>

#include "platform/base/result.h"
#include "runtime/kv/sequence.h"

namespace tarn::method {

class DeviceIndexes {
 public:
  // Brings as many of the groups [begin, end) of a layer as the window holds, one behind the other
  // from window() on; returns how many.
  virtual Result<u32> fetch(const kv::Sequence& sequence, u32 cache_layer, u32 begin, u32 end) = 0;
  virtual const u8* window() const = 0;
  // The session is read by this index from its next row on: the regions of all its heads.
  virtual Result<void> put(u32 session, const std::byte* index) = 0;
  // The session gets the index of another one.
  virtual void copy(u32 from, u32 to) = 0;

 protected:
  ~DeviceIndexes() = default;
};

}  // namespace tarn::method
