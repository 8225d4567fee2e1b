#include "tools/tarn-bench/recall.h"

#include <algorithm>
#include <vector>

#include "runtime/lab/probe.h"
#include "tools/support/exit_code.h"
#include "tools/support/stepping.h"

namespace tarn::bench {
namespace {

using tools::value_of;

// The queries of the one row of a step, [n_cache_layers, n_heads * head_dim].
struct Queries {
  u64 width = 0;
  step::KvWatch planter{};
  u32 position = 0;
  std::vector<f32> rows{};
  static void take(void* context, const step::KvRows& shown) {
    auto& self = *static_cast<Queries*>(context);
    if (self.planter.rows != nullptr) self.planter.rows(self.planter.context, shown);
    std::copy_n(shown.q.data, self.width, &self.rows[shown.cache_layer * self.width]);
    self.position = shown.first_slot;
  }
};

Queries next_queries(engine::Engine& engine, engine::SessionIdx session, step::KvWatch planter) {
  const model::ModelSpec& spec = engine.spec();
  Queries out{.width = u64{spec.n_heads} * spec.head_dim, .planter = planter};
  out.rows.resize(out.width * spec.n_cache_layers);
  lab::Probe(engine).watch_kv({&Queries::take, &out});
  value_of(engine.sessions().generate(session, {.max_tokens = 1, .ignore_end = true}));
  while (engine.has_work()) {
    tools::step(engine);
    tools::drain(engine, session);
  }
  lab::Probe(engine).watch_kv({});
  std::vector<f32> cos(spec.n_rot / 2), sin(spec.n_rot / 2);
  kernels::rope_table(
      {&out.position, 1, spec.n_rot, lab::Probe(engine).rope_inv_freq(), cos.data(), sin.data()});
  kernels::rope_generic(
      {.x = out.rows.data(),
       .x_stride = 0,
       .cos = cos.data(),
       .sin = sin.data(),
       .n_rows = 1,
       .n_heads = spec.n_heads * spec.n_cache_layers,
       .head_dim = spec.head_dim,
       .n_rot = spec.n_rot,
       .pairs = spec.rope_halves ? kernels::RopePairs::halves : kernels::RopePairs::adjacent});
  return out;
}

}  // namespace

f64 recall_against_oracle(engine::Engine& engine, engine::SessionIdx session,
                          step::KvWatch planter) {
  const model::ModelSpec& spec = engine.spec();
  const Queries queries = next_queries(engine, session, planter);
  const u64 group_width = u64{spec.n_heads / spec.n_kv_heads} * spec.head_dim;
  f64 sum = 0;
  u32 n_heads = 0;
  for (u32 layer = 0; layer < spec.n_cache_layers; layer += std::max(spec.n_cache_layers / 3, 1u)) {
    for (u32 head = 0; head < spec.n_kv_heads; head += std::max(spec.n_kv_heads / 2, 1u)) {
      sum += lab::Probe(engine).recall(
          {.session = session,
           .cache_layer = layer,
           .kv_head = head,
           .q = &queries.rows[layer * queries.width + head * group_width]});
      ++n_heads;
    }
  }
  return sum / n_heads;
}

}  // namespace tarn::bench
