// tests/runtime/engine/recall_select.h: what recall by selection is asked with.
#pragma once

#include <cmath>

#include "runtime/select/head_index.h"
#include "tests/runtime/engine/recall_document.h"

namespace tarn::test {

// Reads one in `divisor` of n_tokens, 8 of them sinks, from the second answer token on; codes of
// 4 x 8 bits: half of this model's key says nothing, so 2 x 6 tells 64 of its tokens apart.
inline SelectConfig one_in(u32 divisor, u32 n_tokens, SelectMethod method) {
  SelectConfig select;
  select.method = method;
  select.n_sinks = 8;
  select.n_local = n_tokens / divisor / 2;
  select.k = n_tokens / divisor - select.n_sinks - select.n_local;
  select.n_subspaces = 4;
  select.code_bits = 8;
  select.iterations = 4;
  select.swap_tokens = 1;
  return select;
}

// Of the index of the last layer's first KV head over a document: |key - reconstruction| by |key|.
inline f64 reconstruction_error(u32 n_tokens, const SelectConfig& config) {
  const TempFile file("recall.gguf");
  synth::recall_write(*synth::parse_quant("f16"), file.path(), synth::RecallKeys::turning);
  Config engine_config = small_config();
  engine_config.context_tokens = n_tokens + 64;
  engine_config.n_threads = 2;
  OpenEngine open(file.path(), engine_config);
  const engine::SessionIdx session = open.session_with(
      synth::recall_document(seed_from_environment(), n_tokens, 3, synth::RecallKeys::turning).ids);
  open.run();
  const kv::Sequence& sequence = open.engine.session_state(session).sequence;
  const model::ModelSpec& spec = open.engine.spec();
  std::vector<const u8*> pages(sequence.n_groups());
  sequence.pages(spec.n_cache_layers - 1, 0, pages);
  const kernels::CpuTable& table = **kernels::cpu_table_select("auto");
  const select::KeyPages keys{kernels::KvType::f16, pages.data(), engine_config.page_tokens,
                              spec.head_dim};
  const select::PqShape shape = select::pq_shape(config, spec.head_dim, n_tokens);
  const auto aligned = [](std::vector<std::byte>& bytes, u64 n) {
    bytes.resize(n + 64);
    const u64 at = reinterpret_cast<std::uintptr_t>(bytes.data());
    return std::span(bytes).subspan((64 - at % 64) % 64, n);
  };
  std::vector<std::byte> region, scratch;
  select::PqIndex index;
  index.init(shape, aligned(region, select::PqIndex::region_bytes(shape)));
  index.start(config.n_sinks);
  const u32 n_rows = sequence.n_slots() - config.n_sinks - config.n_local;
  index.begin_codebook(n_rows);
  REQUIRE(select::PqIndex::n_sample(shape, n_rows) == n_rows);
  for (u32 m = 0; m < shape.n_subspaces; ++m) {
    const auto room = aligned(scratch, select::PqIndex::train_scratch_bytes(shape));
    index.train({table, keys, config.n_sinks, m, config.iterations, room});
    index.code({table, keys, m, config.n_sinks, config.n_sinks + n_rows, room});
  }
  index.end_codebook();
  f64 error = 0, size = 0;
  std::vector<f32> key(spec.head_dim), again(spec.head_dim);
  for (u32 row = 0; row < n_rows; ++row) {
    keys.load(table, config.n_sinks + row, 1, key.data());
    index.reconstruct(row, again.data());
    for (u32 i = 0; i < spec.head_dim; ++i) {
      error += std::pow(f64{key[i]} - again[i], 2.0);
      size += std::pow(f64{key[i]}, 2.0);
    }
  }
  return std::sqrt(error / size);
}

}  // namespace tarn::test
