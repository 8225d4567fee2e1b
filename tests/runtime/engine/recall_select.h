// tests/runtime/engine/recall_select.h: what recall by selection is asked with.
#pragma once

#include <cmath>

#include "runtime/lab/probe.h"
#include "runtime/method/pq/pq_reader.h"
#include "tests/runtime/engine/recall_document.h"
#include "tests/runtime/method/synthetic_keys.h"

namespace tarn::test {

// Reads one in `divisor` of n_tokens, 8 of them sinks, from the second answer token on; codes of
// 4 x 8 bits: half of this model's key says nothing, so 2 x 6 tells 64 of its tokens apart.
inline SelectConfig one_in(u32 divisor, u32 n_tokens, const char* method) {
  SelectConfig select;
  lab::set_method(select, method);
  select.n_sinks = 8;
  select.n_local = n_tokens / divisor / 2;
  select.k = n_tokens / divisor - select.n_sinks - select.n_local;
  select.n_subspaces = 4;
  select.code_bits = 8;
  select.iterations = 4;
  select.index_delay_tokens = 1;
  return select;
}

// Of the index that the session's steps search, of the last layer's first KV head: how far the keys
// are from what the codes give back, by their size.
inline f64 reconstruction_error(const engine::Engine& engine, engine::SessionIdx session) {
  const model::ModelSpec& spec = engine.spec();
  const u32 head = (spec.n_cache_layers - 1) * spec.n_kv_heads;
  const method::PqIndex& index = method::pq_of(&lab::Probe::selector(engine).reader(session, head));
  const kv::Sequence& sequence = engine.sessions().state(session).sequence;
  std::vector<const u8*> pages(sequence.n_groups());
  sequence.pages(spec.n_cache_layers - 1, 0, 0, sequence.n_groups(), pages);
  const method::KeyPages keys{kernels::KvType::f16, pages.data(),
                              engine.plan().group_shape.page_tokens, spec.head_dim};
  REQUIRE(index.n_tokens() > 0);
  f64 error = 0, size = 0;
  std::vector<f32> key(spec.head_dim), again(spec.head_dim);
  for (u32 row = 0; row < index.n_tokens(); ++row) {
    keys.load(**kernels::cpu_table_select("auto"), index.slot_begin() + row, 1, key.data());
    method::test::reconstruct(index, row, again.data());
    for (u32 i = 0; i < spec.head_dim; ++i) {
      error += std::pow(f64{key[i]} - again[i], 2.0);
      size += std::pow(f64{key[i]}, 2.0);
    }
  }
  return std::sqrt(error / size);
}

struct Recalled {
  f64 share = 0;
  f64 error = 0;  // of the last question's index
};
inline Recalled recall_with_error(RecallCase c) {
  Recalled recalled;
  c.on_answer = [&](const engine::Engine& engine, engine::SessionIdx session) {
    recalled.error = reconstruction_error(engine, session);
  };
  recalled.share = share_recalled(c);
  return recalled;
}

}  // namespace tarn::test
