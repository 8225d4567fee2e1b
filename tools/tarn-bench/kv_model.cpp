#include "tools/tarn-bench/kv_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>

#include "runtime/lab/probe.h"
#include "tools/support/exit_code.h"
#include "tools/support/stepping.h"
#include "tools/tarn-bench/random_ids.h"

namespace tarn::bench {
namespace {

using tools::value_of;

// The mix of recorded rows for a run's rows.
struct Mix {
  std::array<u32, KvModel::kCursors> first{};  // recorded rows for the run's first slot
  std::array<f32, KvModel::kCursors> weight{};
};

Mix mix_of(u64 seed, u32 run, u32 begin, u32 end) {
  std::mt19937_64 random(seed * 1000003 + run);
  std::normal_distribution<f32> normal;
  std::uniform_int_distribution<u32> place(begin, end - KvModel::kRunTokens);
  Mix mix;
  f32 squares = 0;
  for (u32 i = 0; i < KvModel::kCursors; ++i) {
    mix.first[i] = place(random);
    mix.weight[i] = normal(random);
    squares += mix.weight[i] * mix.weight[i];
  }
  for (f32& weight : mix.weight) weight /= std::sqrt(squares);
  return mix;
}

}  // namespace

KvModelKind kv_model_kind(const std::string& name) {
  return name == kKvModelNames[0] ? KvModelKind::recorded : KvModelKind::synthetic;
}

std::string KvModel::name() const {
  std::string text = std::string("filled, ") + kKvModelNames[static_cast<u64>(kind_)];
  if (!planting_) return text;
  char more[64];
  std::snprintf(more, sizeof more, ", overlap %g, tail %g", planted_.overlap, planted_.tail);
  return text + more;
}

step::KvWatch KvModel::planter() {
  if (!planting_) return {};
  return {[](void* context, const step::KvRows& rows) {
            static_cast<Planting*>(context)->plant_queries(rows);
          },
          &*planting_};
}

void KvModel::begin(u32 n_layers, u32 n_tokens, u32 d) {
  n_layers_ = n_layers;
  n_tokens_ = std::max(n_tokens, kSinkTokens + kRunTokens);
  d_ = d;
  rows_.assign(u64{n_layers_} * n_tokens_ * 2 * d_, 0.0f);
}

void KvModel::record(engine::Engine& engine, u32 n_tokens) {
  const model::ModelSpec& spec = engine.spec();
  begin(spec.n_cache_layers, n_tokens, spec.n_kv_heads * spec.head_dim);
  const engine::SessionIdx session = value_of(engine.sessions().create());
  lab::Probe(engine).watch_kv(recorder());
  // The last token waits for the next call.
  value_of(
      engine.sessions().feed(session, random_ids(seed_, n_tokens_ + 1, engine.spec().n_vocab)));
  tools::compute_all(engine, session);
  lab::Probe(engine).watch_kv({});
  engine.sessions().destroy(session);
  end();
}

void KvModel::plant(const PlantingArgs& args, engine::Engine& engine) {
  planted_ = args;
  planting_.emplace(args, seed_);
  planting_->begin(engine.spec(), lab::Probe(engine).rope_inv_freq(), engine.plan().context_tokens);
}

void KvModel::take(void* context, const step::KvRows& rows) {
  auto& self = *static_cast<KvModel*>(context);
  for (u32 i = 0; i < rows.n; ++i) {
    f32* to =
        &self.rows_[(u64{rows.cache_layer} * self.n_tokens_ + rows.first_slot + i) * 2 * self.d_];
    std::copy_n(rows.k.data + i * rows.k.stride, self.d_, to);
    std::copy_n(rows.v.data + i * rows.v.stride, self.d_, to + self.d_);
  }
}

void KvModel::end() {
  const u64 width = u64{2} * d_;
  means_.assign(n_layers_ * width, 0.0f);
  const f32 share = 1.0f / static_cast<f32>(n_tokens_ - kSinkTokens);
  for (u32 layer = 0; layer < n_layers_; ++layer) {
    for (u32 token = kSinkTokens; token < n_tokens_; ++token) {
      const f32* row = &rows_[(u64{layer} * n_tokens_ + token) * width];
      for (u64 i = 0; i < width; ++i) means_[layer * width + i] += row[i] * share;
    }
  }
}

void KvModel::write(void* context, const step::KvRows& rows) {
  const auto& self = *static_cast<const KvModel*>(context);
  for (u32 i = 0; i < rows.n; ++i) {
    self.write_row(rows.cache_layer, rows.first_slot + i, rows.k.data + i * rows.k.stride,
                   rows.v.data + i * rows.v.stride);
  }
}

void KvModel::write_row(u32 cache_layer, u32 slot, f32* k, f32* v) const {
  const u64 width = u64{2} * d_;
  const f32* rows = &rows_[u64{cache_layer} * n_tokens_ * width];
  const u32 n_behind = n_tokens_ - kSinkTokens;
  if (kind_ == KvModelKind::recorded || slot < kSinkTokens) {
    const u32 token = slot < kSinkTokens ? slot : kSinkTokens + (slot - kSinkTokens) % n_behind;
    std::copy_n(rows + token * width, d_, k);
    std::copy_n(rows + token * width + d_, d_, v);
    return;
  }
  const f32* mean = &means_[cache_layer * width];
  const Mix mix = mix_of(seed_, slot / kRunTokens, kSinkTokens, n_tokens_);
  std::array<const f32*, kCursors> at;
  for (u32 i = 0; i < kCursors; ++i) at[i] = rows + (mix.first[i] + slot % kRunTokens) * width;
  const auto mixed = [&](u64 j) {
    f32 sum = mean[j];
    for (u32 i = 0; i < kCursors; ++i) sum += mix.weight[i] * (at[i][j] - mean[j]);
    return sum;
  };
  for (u64 j = 0; j < d_; ++j) k[j] = mixed(j);
  for (u64 j = 0; j < d_; ++j) v[j] = mixed(d_ + j);
  if (planting_) planting_->plant_keys(cache_layer, slot, k);
}

}  // namespace tarn::bench
