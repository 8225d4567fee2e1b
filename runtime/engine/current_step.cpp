#include "runtime/engine/current_step.h"

#include <algorithm>
#include <array>

namespace tarn::engine {

void CurrentStep::lose_device(const Error& error) {
  if (device_lost()) return;
  std::array<char, 256> text{};
  format_error(error, text.data(), text.size());
  o_.log.error("the GPU is lost: %s", text.data());
  homes_.processor().give_up();
  kv_.archive().stop_checkpoints();
  device_lost_.store(true, std::memory_order_release);
}

bool CurrentStep::device_works() {
  if (device_lost()) return false;
  const Result<void> checked = executor_.finish();
  if (!checked) lose_device(checked.error());
  return checked.has_value();
}

bool CurrentStep::end_cancelled() {
  bool has_ended = false;
  for (Session& s : o_.sessions) {
    if (!s.is_busy()) continue;  // most are not, and tick() asks often
    const bool is_cancelled = s.cancel.load(std::memory_order_relaxed);
    const u64 deadline_ns = s.deadline_ns(o_.scratch);
    const bool is_late = deadline_ns != 0 && o_.clock->now_ns() >= deadline_ns;
    if (!(is_cancelled || is_late) || !s.can_cancel(o_.scratch)) continue;
    s.end_cancelled(is_cancelled ? Finish::cancelled : Finish::deadline, o_.scratch);
    has_ended = true;
  }
  return has_ended;
}

bool CurrentStep::tick(step::Pause pause) {
  if (pause == step::Pause::between_ops) kv_.cache().pump(0);
  if (!may_abandon_) return true;
  if (end_cancelled() && on_early_end_ != nullptr) on_early_end_(early_end_context_);
  return std::ranges::any_of(executor_.batch().runs, [&](const step::Run& run) {
    return run.selects || o_.sessions[run.session].state != SessionState::idle;
  });
}

}  // namespace tarn::engine
