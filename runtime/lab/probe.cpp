#include "runtime/lab/probe.h"

namespace tarn::lab {

VerifyMark Probe::blend_mark(u32 recompute_percent) const {
  return engine::blend_mark(engine_.opened_.model.weights, engine_.opened_.kv_type,
                            engine_.opened_.plan.group_shape.page_tokens, recompute_percent);
}

void Probe::score_rows_by(reuse::ScoreRows score) {
  for (reuse::Blend& blend : engine_.kv_.blends().all()) blend.args_.score = score;
}

void Probe::watch_logits(SessionIdx idx, engine::LogitsFn on_logits, void* context) {
  engine_.opened_.sessions[idx].watch.fn = on_logits;
  engine_.opened_.sessions[idx].watch.context = context;
}

Result<void> Probe::generate(SessionIdx idx, const engine::GenerateParams& params,
                             std::span<const u32> forced) {
  TARN_CHECK(engine::check_ids(engine_.spec(), forced));
  TARN_CHECK(engine_.sessions_.generate(idx, params));
  engine_.opened_.sessions[idx].generation.forced = forced;
  return {};
}

const f64* Probe::rope_inv_freq() const {
  return engine_.executor_.args_.setup.rows.inv_freq.data();
}

}  // namespace tarn::lab
