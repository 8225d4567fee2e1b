#include "runtime/kv/tiers.h"

#include "platform/base/checked.h"

namespace tarn::kv {

void Tiers::on_event(void* self, const store::Event& event) {
  auto& tiers = *static_cast<Tiers*>(self);
  if (event.tag >= kExtentTag) return tiers.extents.on_event(event);
  tiers.guest->take(event);
}

Result<void> Tiers::hold(const Sequence& sequence, u32 group) {
  TARN_CHECK(mover.hold(sequence, group));
  const Result<void> made = make_room();
  if (!made) mover.drop_hold();
  return made;
}

void Tiers::plan_step(const step::Batch& batch, const Sequence* next) {
  UsePlan& uses = mover.uses();
  uses.begin();
  for (const step::Run& run : batch.runs) {
    if (run.part == step::RunPart::check) continue;  // of other layers than the others
    const u32 n_slots = batch.visible[run.row_begin + run.n_rows - 1];
    const u32 n_groups = static_cast<u32>(ceil_div(n_slots, residency.shape().page_tokens));
    uses.add({run.sequence, n_groups, run.offloaded_begin, run.offloaded_end});
  }
  if (next != nullptr) uses.add({next, next->n_groups()});
  uses.end();
}

void Tiers::plan_later(const Sequence& sequence) {
  mover.uses().add_later({&sequence, sequence.n_slots() / residency.shape().page_tokens});
}

void Tiers::pump(u64 timeout_ns) {
  mover.pump(timeout_ns);
  if (guest != nullptr) guest->go_on();
}

bool Tiers::are_under_way() const {
  return !mover.idle() || (guest != nullptr && guest->is_busy());
}

// Erases extents: in a store that outlives us no start would find them.
void Tiers::stop() {
  mover.stop();
  for (u32 head = 0; outlives_us && head < extents.shape().n_heads; ++head) extents.forget(head);
  const store::Store& records = store.store();
  while (!(mover.idle() && records.idle()) && !records.is_stuck()) mover.pump(kWaitNs);
}

}  // namespace tarn::kv
