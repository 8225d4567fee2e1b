#include "runtime/kv/parts/whole_parts.h"

#include "platform/base/assert.h"

namespace tarn::kv {

bool WholeParts::next(std::span<step::Run> runs, u32 cache_layer, u32 group_end,
                      step::KvPart& part) {
  step::Run& run = runs[0];
  if (run.state == step::RunState::failed) return false;
  part.head_end = ~u32{0};  // in place heads choose of it
  part.group_begin = part.group_end;
  if (part.group_begin == group_end) return false;
  const Result<u32> n = kv_.pin(*run.sequence, cache_layer, part.group_begin, group_end);
  if (!n) return goes_on(run, fail(n.error()));
  part.group_end += *n;
  return true;
}

void WholeParts::give_back(std::span<const step::Run> runs, u32 cache_layer,
                           const step::KvPart& part) {
  kv_.unpin(*runs[0].sequence, cache_layer, part.group_begin, part.group_end);
}

step::ChosenSlots WholeParts::choose(const Head& /*head*/, u32 /*worker_idx*/) {
  TARN_ASSERT(false);
  return {};
}

step::DeviceRow WholeParts::take_device_row(const step::Run& /*run*/) {
  TARN_ASSERT(false);
  return {};
}

bool WholeParts::goes_on(step::Run& run, const Result<bool>& has_part) {
  if (has_part) return *has_part;
  run.state = step::RunState::failed;
  kv_.note_failure(has_part.error());
  return false;
}

}  // namespace tarn::kv
