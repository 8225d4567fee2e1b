// What the record of `tarn verify` is compared with.
#include "runtime/engine/engine.h"
#include "runtime/select/select_shape.h"

namespace tarn::engine {

// Of everything that decides which tokens a step reads, the tensors' bytes among it. swap_tokens is
// not: it says when an index begins to serve.
SelectMark Engine::select_mark() const {
  const SelectConfig& s = select_config_;
  std::array<u64, 23> what = {weights_.content_hash[0],
                              weights_.content_hash[1],
                              static_cast<u64>(kv_type_),
                              static_cast<u64>(s.method),
                              s.n_subspaces,
                              s.code_bits,
                              select::kSelectionId,
                              s.context_divisor,
                              s.context_divisor == 0 ? 0 : s.tokens_min,
                              s.n_sinks,
                              s.context_divisor == 0 ? s.n_local : 0,
                              s.context_divisor == 0 ? s.k : 0,
                              s.block_tokens,
                              s.iterations,
                              select::budget_rule(s).context_min};
  u32 n_told = 15;
  // Costs have no say in a fixed number.
  if (s.iterations == 0) {
    for (const u64 part : {s.cost.job_ns, s.cost.row_ps, s.cost.update_ps, s.cost.layer_ns,
                           s.cost.token_ps, s.cost.squared_fs, u64{s.cost.share_percent}}) {
      what[n_told++] = part;
    }
  }
  const std::array<u8, 32> no_entropy{};  // a mark is the same on every machine
  const store::Key key =
      store::root_key(store::make_secret(no_entropy), std::as_bytes(std::span(what).first(n_told)));
  SelectMark mark{};
  for (u32 i = 0; i < 32; ++i) {
    const u64 half = i < 16 ? key.high : key.low;
    mark[i] = "0123456789abcdef"[half >> (60 - i % 16 * 4) & 15];
  }
  return mark;
}

bool Engine::select_verified() const {
  if (select_config_.is_full()) return true;  // exact
  return select_config_.control == nullptr && select_mark() == select_config_.verified;
}

}  // namespace tarn::engine
