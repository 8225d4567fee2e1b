#include "runtime/engine/sessions/load_control.h"

#include <algorithm>

namespace tarn::engine {

// Once for what was fed, however often it waits. Where not all of its KV has room in memory, what
// is computed would go to the disk again.
void LoadControl::decide_loading(Session& s) {
  const u32 page_tokens = o_.page_tokens();
  if (s.load.decided_order == s.run.order && s.load.decided_fed == s.tokens.turns.n_fed()) return;
  s.load.n_from_disk_max = kNoSlot;
  const u64 n_groups = (s.tokens.n_ids / page_tokens + 1) * u64{o_.model.spec.n_cache_layers};
  const u64 n_frames = n_groups + u64{2} * o_.plan.tiers.pin_set_groups;
  if (!controller_.knows_costs() || n_frames > o_.plan.kv.n_frames) return;
  const u32 n_had = s.sequence.n_slots(),
            n_ids = std::min(s.tokens.n_ids, s.approx.chunks.first_token());
  if (s.watch.fn != nullptr || s.approx.is_any() || n_ids <= n_had) return;
  const kv::Reused there = kv_.cache().prefixes().cached(s.client.root, s.tokens.ids.first(n_ids));
  const u32 n_new = there.n_tokens() - std::min(n_had, there.n_tokens());
  const u32 n_disk = std::min(there.n_from_disk, n_new);
  const control::Decision decision =
      controller_.decide_prompt(s.tokens.n_ids, there.n_tokens() - n_disk, n_disk);
  s.load.decided_order = s.run.order;
  s.load.decided_fed = s.tokens.turns.n_fed();
  s.load.n_from_disk_max = decision.loads ? kNoSlot : 0;
  if (n_disk > 0 || s.load.decision.prompt.n_tokens == 0) s.load.decision = decision;
  if (decision.loads) return;
  probe_disk(s, n_ids);
  o_.log.info("session %u: KV of %u tokens on the disk is computed: %.3f s, reading it %.3f s",
              s.idx, n_disk, decision.compute_s, decision.load_s);
}

// Learns by a read how fast the disk is now. The session's own tail stays.
void LoadControl::probe_disk(Session& s, u32 n_ids) {
  const u32 page_tokens = o_.page_tokens(), n_had = s.sequence.n_slots();
  if (n_had % page_tokens != 0) return;
  kv_.cache().prefixes().take(s.sequence, s.client.root, s.tokens.ids.first(n_ids),
                              controller_.probe_tokens());
  for (u32 page = n_had / page_tokens; page < s.sequence.n_slots() / page_tokens; ++page) {
    for (u32 layer = 0; layer < o_.model.spec.n_cache_layers; ++layer)
      kv_.cache().tiers().mover.read_spare(s.sequence.group(layer, page).idx);
  }
  kv_.cut_taken(s, n_had);
}

// Decides the share of chunks. The ids whose pages are looked for lie behind the session's own
// meanwhile.
void LoadControl::decide_share(Session& s, std::span<const reuse::ChunkSpan> chunks,
                               std::span<const u32> ids, u32 begin) {
  const std::optional<u32> bos = o_.text.tokenizer().first_token();
  u32 n_tokens = 0, n_on_disk = 0;
  for (const reuse::ChunkSpan& chunk : chunks) {
    if (chunk.begin >= chunk.end) continue;
    const u32 n = chunk.end - chunk.begin, n_bos = bos ? 1 : 0;
    n_tokens += n;
    const std::span<u32> looked_for = s.tokens.ids.subspan(s.tokens.n_ids);
    if (!controller_.is_adaptive() || n_bos + n > looked_for.size()) continue;
    if (bos) looked_for[0] = *bos;
    std::ranges::copy(ids.subspan(chunk.begin, n), looked_for.begin() + n_bos);
    n_on_disk +=
        kv_.cache().prefixes().cached(s.client.root, looked_for.first(n_bos + n)).n_from_disk;
  }
  const u32 n_ids = begin + static_cast<u32>(ids.size());
  s.approx.decision =
      controller_.decide_share(n_ids, n_tokens, n_on_disk, static_cast<f64>(o_.least_share));
}

}  // namespace tarn::engine
