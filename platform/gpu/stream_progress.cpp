#include "platform/gpu/stream_progress.h"

#include "platform/base/assert.h"
#include "platform/gpu/device_wait.h"

namespace tarn {

Result<void> StreamProgress::open(const Args& args) {
  TARN_ASSERT(args_.device == nullptr);
  args_ = args;
  Result<void> opened;
  const auto create = [&](GpuEvent*& to) {
    if (!opened) return;
    const Result<GpuEvent*> event = args_.device->create_event();
    if (event) to = *event;
    if (!event) opened = fail(event.error());
  };
  for (GpuEvent*& mark : marks_) create(mark);
  create(done_);
  if (!opened) close();
  return opened;
}

void StreamProgress::close() {
  if (args_.device == nullptr) return;
  for (GpuEvent*& mark : marks_) {
    if (mark != nullptr) args_.device->destroy_event(mark);
    mark = nullptr;
  }
  if (done_ != nullptr) args_.device->destroy_event(done_);
  done_ = nullptr;
  first_ = n_pending_ = n_calls_ = 0;
  args_ = {};
}

void StreamProgress::note() {
  if (++n_calls_ < kStreamMarkCalls || args_.device->is_lost()) return;
  if (n_pending_ == kStreamMarks && !advance()) {
    if (!wait_done(*args_.device, mark(0), *args_.clock, args_.window_ns)) {
      args_.device->give_up();
      return;
    }
    advance();
  }
  if (args_.device->is_lost()) return;
  n_calls_ = 0;
  args_.device->record(mark(n_pending_++), args_.stream);
}

bool StreamProgress::advance() {
  bool has_advanced = false;
  while (n_pending_ > 0) {
    const Result<bool> is_done = args_.device->is_done(mark(0));
    if (!is_done) args_.device->give_up();
    if (!is_done || !*is_done) break;
    first_ = (first_ + 1) % kStreamMarks;
    --n_pending_;
    has_advanced = true;
  }
  return has_advanced;
}

Result<void> StreamProgress::finish(u64* usual_ns) {
  args_.device->record(done_, args_.stream);
  TARN_CHECK(wait_done(*args_.device, done_, *args_.clock, args_.window_ns, usual_ns, this));
  n_pending_ = n_calls_ = 0;
  return {};
}

}  // namespace tarn
