#include "runtime/api/tarn_explain.h"

#include "runtime/api/border.h"

using namespace tarn;
using namespace tarn::api;

extern "C" {

int32_t tarn_session_explain(tarn_session* session, tarn_explanation* explanation_out) {
  const SessionCall call(session);
  tarn_explanation out{};
  if (!copy_out(out, explanation_out)) return refuse({"struct_size", kBadStruct});
  if (!call) return refuse(call.why_not());
  const auto progress = call.service().progress(call.idx());
  if (!progress) return report(progress.error());
  const control::Decision& loading = progress->loading;
  out.kv_loaded = loading.loads ? 1 : 0;
  out.tokens = loading.prompt.n_tokens;
  out.tokens_in_memory = loading.prompt.n_memory;
  out.tokens_on_disk = loading.prompt.n_disk;
  out.load_s = loading.load_s;
  out.compute_s = loading.compute_s;
  out.prefill_factor = loading.state.prefill.factor;
  out.disk_factor = loading.state.disk.factor;
  const control::ChunkDecision& blending = progress->blending;
  out.recompute = static_cast<float>(blending.share);
  out.recompute_least = static_cast<float>(blending.least);
  out.chunk_tokens = blending.n_chunk_tokens;
  out.chunk_tokens_on_disk = blending.n_on_disk;
  out.chunk_load_s = blending.load_s;
  out.chunk_prefill_s = blending.prefill_s;
  out.chunk_blend_s = blending.blend_s;
  out.adaptive = blending.is_adaptive ? 1 : 0;
  copy_out(out, explanation_out);
  return TARN_OK;
}

}  // extern "C"
