#include "platform/gpu/stream_progress.h"

#include "platform/base/assert.h"
#include "platform/gpu/device_wait.h"

namespace tarn {

Result<void> StreamProgress::open(const Watched& watched) {
  TARN_ASSERT(watched_.device == nullptr);
  watched_ = watched;
  Result<void> opened;
  const auto create = [&](GpuEvent*& to) {
    if (!opened) return;
    const Result<GpuEvent*> event = watched_.device->create_event();
    if (event) to = *event;
    if (!event) opened = fail(event.error());
  };
  for (GpuEvent*& mark : marks_) create(mark);
  create(done_);
  if (!opened) close();
  return opened;
}

void StreamProgress::close() {
  if (watched_.device == nullptr) return;
  for (GpuEvent*& mark : marks_) {
    if (mark != nullptr) watched_.device->destroy_event(mark);
    mark = nullptr;
  }
  if (done_ != nullptr) watched_.device->destroy_event(done_);
  done_ = nullptr;
  first_ = n_pending_ = n_calls_ = 0;
  watched_ = {};
}

void StreamProgress::note() {
  if (++n_calls_ < kStreamMarkCalls || watched_.device->is_lost()) return;
  if (n_pending_ == kStreamMarks && !advance()) {
    if (!wait_done(*watched_.device, mark(0), *watched_.clock, watched_.window_ns)) {
      watched_.device->give_up();
      return;
    }
    advance();
  }
  if (watched_.device->is_lost()) return;
  n_calls_ = 0;
  watched_.device->record(mark(n_pending_++), watched_.stream);
}

bool StreamProgress::advance() {
  bool has_advanced = false;
  while (n_pending_ > 0) {
    const Result<bool> is_done = watched_.device->is_done(mark(0));
    if (!is_done) watched_.device->give_up();
    if (!is_done || !*is_done) break;
    first_ = (first_ + 1) % kStreamMarks;
    --n_pending_;
    has_advanced = true;
  }
  return has_advanced;
}

Result<void> StreamProgress::finish(u64* usual_ns) {
  watched_.device->record(done_, watched_.stream);
  TARN_CHECK(
      wait_done(*watched_.device, done_, *watched_.clock, watched_.window_ns, usual_ns, this));
  n_pending_ = n_calls_ = 0;
  return {};
}

}  // namespace tarn
