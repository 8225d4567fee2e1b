#include "runtime/method/step_parts.h"

namespace tarn::method {

void StepParts::begin(std::span<step::Run> runs, u32 cache_layer, const f32* query) {
  if (in_place()) return;
  step::Run& run = runs[0];
  if (wants_query(run)) selector_.note_query(run.session, cache_layer, query);
  if (!run.selects || run.state == step::RunState::failed) return;
  const Result<void> chosen = selector_.begin_layer(
      {.session = run.session, .sequence = run.sequence, .cache_layer = cache_layer, .q = query});
  if (!chosen) (void)may_go_on(run, fail(chosen.error()));
}

// In place, all of it is one part.
bool StepParts::next(std::span<step::Run> runs, u32 cache_layer, u32 group_end,
                     step::KvPart& part) {
  if (in_place()) {
    const bool is_first = part.group_end == 0;
    part = {.group_end = ~u32{0}, .head_end = ~u32{0}};
    return is_first;
  }
  step::Run& run = runs[0];
  if (run.state == step::RunState::failed) return false;
  if (run.selects) {
    return may_go_on(run, selector_.next_heads(&part.head_begin, &part.head_end));
  }
  part.group_begin = part.group_end;
  if (part.group_begin == group_end) return false;
  const Result<u32> n = kv_.pin(*run.sequence, cache_layer, part.group_begin, group_end);
  if (!n) return may_go_on(run, fail(n.error()));
  part.group_end += *n;
  return true;
}

void StepParts::give_back(std::span<const step::Run> runs, u32 cache_layer,
                          const step::KvPart& part) {
  if (in_place() || runs[0].selects) return;
  kv_.unpin(*runs[0].sequence, cache_layer, part.group_begin, part.group_end);
}

// A failure of the disk is the run's: the others go on.
bool StepParts::may_go_on(step::Run& run, const Result<bool>& goes_on) {
  if (goes_on) return *goes_on;
  run.state = step::RunState::failed;
  kv_.note_failure(goes_on.error());
  return false;
}

step::ChosenSlots StepParts::choose(const Head& head, u32 worker_idx) {
  return selector_.choose({.session = head.run.session,
                           .sequence = head.run.sequence,
                           .cache_layer = head.cache_layer,
                           .kv_head = head.kv_head,
                           .q = head.q},
                          worker_idx);
}

}  // namespace tarn::method
