// Steps. How an engine is built is in engine_open.cpp.
#include "runtime/engine/engine.h"

#include <algorithm>

namespace tarn::engine {

bool Engine::has_work() const {
  if (device_lost()) return false;
  if (kv_.selector().has_work() || kv_.cache().is_moving()) return true;
  const u64 deadline_ns = next_deadline_ns();
  if (deadline_ns != 0 && opened_.clock->now_ns() >= deadline_ns) return true;
  const bool may_start = admission_.has_news() || !admission_.any_runs();
  return std::ranges::any_of(opened_.sessions, [&](const Session& s) {
    const bool is_idle = s.state == SessionState::idle;
    return s.n_ready_rows(opened_.scratch) > 0 ||
           kv_.archive().is_due_now(s.saved, s.sequence.n_slots(), is_idle) ||
           (s.can_cancel(opened_.scratch) && (s.cancel.load() || (s.waits() && may_start)));
  });
}

u64 Engine::next_deadline_ns() const {
  u64 next_ns = 0;
  for (const Session& s : opened_.sessions) {
    const u64 deadline_ns = s.deadline_ns(opened_.scratch);
    if (deadline_ns != 0 && (next_ns == 0 || deadline_ns < next_ns)) next_ns = deadline_ns;
  }
  return next_ns;
}

const StepTrace& Engine::step() {
  StepTrace& trace = current_.trace();
  current_.begin();
  if (device_lost()) return trace;
  const kv::KvStats kv_before = kv_.cache().stats();
  executor_.clear();
  (void)current_.end_cancelled();
  kv_.release_slots();
  admission_.give();
  const std::span<step::Ready> ready = planner_.ready();
  jobs_.run_due(ready);
  runner_.collect(planner_.plan(ready));
  const exec::Backend::Traffic traffic = runner_.run();
  admission_.give();
  jobs_.run_idle();
  if (device_lost()) return trace;
  trace_selection(&trace, kv_.selector().take_spent(), traffic);
  trace_disk(&trace.disk, kv_before, kv_.cache().stats());
  trace.end_ns = opened_.clock->now_ns();
  if (!trace.abandoned && trace.n_rows > 0)
    planner_.observe(trace.n_decode_rows, trace.n_prefill_rows, trace.end_ns - trace.start_ns);
  note_costs(trace, executor_.batch().runs, kv_before, kv_.cache().stats(), &loads_.controller());
  status_.counters.add(trace);
  return trace;
}

Result<chat::Rendered> Engine::render_chat(chat::RenderArgs args) {
  args.now = utc_time(opened_.clock->unix_s());
  return templates_.render(args);
}

}  // namespace tarn::engine
