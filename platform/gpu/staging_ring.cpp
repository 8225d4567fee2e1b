#include "platform/gpu/staging_ring.h"

#include "platform/base/assert.h"
#include "platform/gpu/device_wait.h"

namespace tarn {

Result<void> StagingRing::open(const Lent& lent) {
  TARN_ASSERT(device_ == nullptr);
  TARN_ASSERT(lent.memory.size() % kStagingPieces == 0);
  device_ = lent.device;
  clock_ = lent.clock;
  wait_ns_max_ = lent.wait_ns_max;
  next_ = 0;
  Result<void> opened;
  if (lent.is_pinned) {
    memory_ = lent.memory;
  } else if (device_->facts().host_register) {
    const Result<DeviceBytes> mapped = device_->register_host(lent.memory);
    is_registered_ = mapped.has_value();
    if (mapped) memory_ = lent.memory;
    if (!mapped) opened = fail(mapped.error());
  } else {
    const auto pinned = device_->reserve_pinned("the staging ring", lent.memory.size());
    is_reserved_ = pinned.has_value();
    if (pinned) memory_ = *pinned;
    if (!pinned) opened = fail(pinned.error());
  }
  for (u32 i = 0; opened && i < kStagingPieces; ++i) {
    const Result<GpuEvent*> event = device_->create_event();
    if (event) events_[i] = *event;
    if (!event) opened = fail(event.error());
  }
  if (!opened) close();
  return opened;
}

void StagingRing::close() {
  if (device_ == nullptr) return;
  for (GpuEvent*& event : events_) {
    if (event != nullptr) device_->destroy_event(event);
    event = nullptr;
  }
  if (is_registered_) {
    device_->unregister_host(memory_);
  } else if (is_reserved_) {
    device_->release_pinned(memory_);
  }
  memory_ = {};
  is_registered_ = is_reserved_ = false;
  device_ = nullptr;
}

Result<std::span<std::byte>> StagingRing::next() {
  TARN_CHECK(wait_done(*device_, events_[next_], *clock_, wait_ns_max_));
  return memory_.subspan(next_ * piece_bytes(), piece_bytes());
}

void StagingRing::send(DeviceBytes to, u64 n_bytes) {
  TARN_ASSERT(n_bytes <= piece_bytes());
  GpuStream* stream = device_->stream(StreamId::copy_in);
  device_->copy_in(to, memory_.subspan(next_ * piece_bytes(), n_bytes), stream);
  device_->record(events_[next_], stream);
  next_ = (next_ + 1) % kStagingPieces;
}

Result<void> StagingRing::finish() {
  for (GpuEvent* event : events_) TARN_CHECK(wait_done(*device_, event, *clock_, wait_ns_max_));
  return device_->check();
}

}  // namespace tarn
