#include "runtime/arena/pinned_reserve.h"

#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn {

Result<ReserveOutcome> PinnedReserve::reserve(const ReserveArgs& args) {
  TARN_ASSERT(device_ != nullptr && args.bytes > 0);
  constexpr u64 kSector = 4096;  // alignment of the disk's requests
  TARN_TRY(const std::span<std::byte> bytes,
           device_->reserve_pinned(args.name, align_up(args.bytes, kSector)));
  std::memset(bytes.data(), 0, bytes.size());
  return ReserveOutcome{.bytes = bytes, .locked = true};
}

}  // namespace tarn
