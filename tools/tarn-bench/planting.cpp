#include "tools/tarn-bench/planting.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tools/support/exit_code.h"

namespace tarn::bench {
namespace {

constexpr f64 kTurnMax = 0.5;  // radians that RoPE may turn a planted pair within the context
constexpr u32 kPairsMin = 2, kPairsMax = 8;
constexpr f32 kShared = 0.5f;  // part of g that a run shares

// splitmix64: cheap to create, because each of millions of rows has its own.
class SmallRandom {
 public:
  using result_type = u64;
  SmallRandom(u64 seed, u64 a, u64 b, u64 c) : state_(seed) {
    for (const u64 word : {a, b, c}) state_ = (*this)() ^ word;
  }
  static constexpr u64 min() { return 0; }
  static constexpr u64 max() { return ~u64{0}; }
  u64 operator()() {
    u64 z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  u64 state_;
};

void normalise(f32* x, u64 n) {
  f32 squares = 0;
  for (u64 i = 0; i < n; ++i) squares += x[i] * x[i];
  for (u64 i = 0; i < n; ++i) x[i] /= std::sqrt(squares);
}

std::vector<u32> best_of(const std::vector<f32>& keys, const std::vector<f32>& direction, u64 k) {
  const u64 m = direction.size(), n = keys.size() / m;
  std::vector<f32> scores(n);
  for (u64 i = 0; i < n; ++i) {
    scores[i] = std::inner_product(direction.begin(), direction.end(), &keys[i * m], 0.0f);
  }
  std::vector<u32> order(n);
  std::iota(order.begin(), order.end(), 0u);
  const auto middle = order.begin() + static_cast<i64>(k);
  std::nth_element(order.begin(), middle, order.end(),
                   [&](u32 a, u32 b) { return scores[a] > scores[b]; });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

void Planting::begin(const model::ModelSpec& spec, const f64* inv_freq, u32 context_tokens) {
  n_heads_ = spec.n_heads;
  n_kv_heads_ = spec.n_kv_heads;
  head_dim_ = spec.head_dim;
  dims_.clear();
  const u32 n_pairs = spec.n_rot / 2;
  for (u32 i = n_pairs; i-- > 0 && dims_.size() < 2 * kPairsMax;) {
    if (inv_freq[i] * context_tokens > kTurnMax) break;
    dims_.push_back(spec.rope_halves ? i : 2 * i);
    dims_.push_back(spec.rope_halves ? i + n_pairs : 2 * i + 1);
  }
  if (dims_.size() < 2 * kPairsMin) {
    throw tools::Failure{tools::kExitRefused,
                         "--overlap: within this context RoPE rotates every part of this model's "
                         "keys, so nothing can be planted in them: use a shorter context"};
  }
  directions_.resize(u64{spec.n_cache_layers} * n_kv_heads_ * dims_.size());
  SmallRandom random(seed_, 0, 0, 4);
  std::normal_distribution<f32> normal;
  for (f32& x : directions_) x = normal(random);
  for (u64 at = 0; at < directions_.size(); at += dims_.size()) {
    normalise(&directions_[at], dims_.size());
  }
  n_turns_ = 0;
  find_angle();
}

void Planting::plant_keys(u32 cache_layer, u32 slot, f32* k) const {
  for (u32 head = 0; head < n_kv_heads_; ++head) {
    const u64 place = u64{cache_layer} * n_kv_heads_ + head;
    SmallRandom of_run(seed_, place, slot / kRunTokens, 1), of_slot(seed_, place, slot, 2);
    std::normal_distribution<f32> shared, own;  // one each, because a distribution keeps a draw
    const f32 size = std::sqrt(std::exponential_distribution<f32>()(of_slot));
    for (const u32 dim : dims_) {
      const f32 g = kShared * shared(of_run) + std::sqrt(1 - kShared * kShared) * own(of_slot);
      k[u64{head} * head_dim_ + dim] = size * g;
    }
  }
}

void Planting::turn(f32* direction) {
  const u64 m = dims_.size();
  SmallRandom random(seed_, n_turns_++, 0, 3);
  std::normal_distribution<f32> normal;
  std::vector<f32> side(m);
  f32 along = 0;
  for (u64 i = 0; i < m; ++i) {
    side[i] = normal(random);
    along += side[i] * direction[i];
  }
  for (u64 i = 0; i < m; ++i) side[i] -= along * direction[i];
  normalise(side.data(), m);
  const f32 cosine = static_cast<f32>(std::cos(angle_)), sine = static_cast<f32>(std::sin(angle_));
  for (u64 i = 0; i < m; ++i) direction[i] = cosine * direction[i] + sine * side[i];
}

void Planting::plant_queries(const step::KvRows& rows) {
  const f32 length =
      static_cast<f32>(args_.tail * std::sqrt(2.0) * std::sqrt(static_cast<f64>(head_dim_)));
  const u32 n_group_heads = n_heads_ / n_kv_heads_;
  for (u32 row = 0; row < rows.n; ++row) {
    f32* q = rows.q.data + row * rows.q.stride;
    std::fill_n(q, u64{n_heads_} * head_dim_, 0.0f);
    for (u32 head = 0; head < n_heads_; ++head) {
      const u64 place = u64{rows.cache_layer} * n_kv_heads_ + head / n_group_heads;
      f32* direction = &directions_[place * dims_.size()];
      if (head % n_group_heads == 0) turn(direction);
      for (u64 i = 0; i < dims_.size(); ++i) q[head * head_dim_ + dims_[i]] = length * direction[i];
    }
  }
}

// Finds the angle by bisection: the further a direction turns, the fewer of the best stay.
void Planting::find_angle() {
  constexpr u64 kKeys = 4096, kTries = 8;
  const u64 m = dims_.size();
  const u64 k = std::clamp<u64>(static_cast<u64>(args_.chosen_share * kKeys), 16, kKeys / 2);
  std::vector<f32> keys(kKeys * m), head(u64{n_kv_heads_} * head_dim_);
  for (u64 i = 0; i < kKeys; ++i) {
    plant_keys(0, static_cast<u32>(i), head.data());
    for (u64 j = 0; j < m; ++j) keys[i * m + j] = head[dims_[j]];
  }
  f64 low = 0, high = std::acos(-1.0) / 2;
  for (u32 step = 0; step < 12; ++step) {
    angle_ = (low + high) / 2;
    f64 share = 0;
    std::vector<f32> direction(directions_.begin(), directions_.begin() + static_cast<i64>(m));
    n_turns_ = 0;
    std::vector<u32> last = best_of(keys, direction, k), both;
    for (u64 i = 0; i < kTries; ++i) {
      turn(direction.data());
      const std::vector<u32> next = best_of(keys, direction, k);
      both.clear();
      std::set_intersection(last.begin(), last.end(), next.begin(), next.end(),
                            std::back_inserter(both));
      share += static_cast<f64>(both.size()) / static_cast<f64>(k * kTries);
      last = next;
    }
    (share > args_.overlap ? low : high) = angle_;
  }
}

}  // namespace tarn::bench
