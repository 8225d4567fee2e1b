#include "runtime/engine/jobs.h"

#include <algorithm>

namespace tarn::engine {
namespace {

constexpr u64 kIdleWaitNs = 1'000'000;  // for the disk, where a step has no rows

}  // namespace

void Jobs::run_due(std::span<step::Ready> ready) {
  if (ready.empty()) return;
  method::Selector& selector = kv_.selector();
  PhaseTimer timer(current_.trace(), Phase::cluster, *o_.clock);
  selector.begin_step(ready);
  const bool beside_prompt = std::ranges::any_of(
      ready, [](const step::Ready& each) { return each.kind != step::RunKind::decode; });
  current_.let_end_sessions(true);
  for (step::Ready& each : ready) {
    Session& s = o_.sessions[each.session];
    if (s.state == SessionState::idle || !each.is_generated) continue;
    const Result<bool> waits =
        selector.make_index(each.session, s.sequence.n_slots() + 1, beside_prompt);
    each.waits = !waits || *waits;
    if (waits) continue;
    kv_.lose(s);
    if (s.state != SessionState::idle) s.give_up(waits.error(), o_.log, o_.scratch);
  }
  current_.let_end_sessions(false);
  for (step::Ready& each : ready) {
    const bool has_ended = o_.sessions[each.session].state == SessionState::idle;
    each.waits = each.waits || has_ended;  // cancelled meanwhile, or its KV is lost
    current_.trace().n_waiting += u32{each.waits};
  }
  kv_.release_slots();
}

void Jobs::run_idle() {
  if (current_.device_lost()) return;
  StepTrace& trace = current_.trace();
  const bool is_idle = trace.n_rows == 0 && trace.n_waiting == 0;
  if (is_idle && kv_.selector().has_work()) {
    PhaseTimer timer(trace, Phase::cluster, *o_.clock);
    const Result<void> worked = kv_.selector().work();
    if (!worked) return current_.lose_device(worked.error());
  }
  kv::KvCache& cache = kv_.cache();
  cache.prefixes().save_idle();
  if (cache.is_moving()) cache.pump(is_idle ? kIdleWaitNs : 0);
  cache.tiers().store.log_state();
  sessions_.checkpoint();
}

}  // namespace tarn::engine
