#include "kernels/sample/sample.h"

#include <bit>

#include "kernels/common/scalar.h"

namespace tarn::kernels {
namespace {

constexpr u32 kExponentBits = 0x7f800000u;

// NaN and +inf. -inf is a legal logit.
bool is_broken(f32 logit) {
  const u32 bits = std::bit_cast<u32>(logit);
  return bits == kExponentBits || (bits & 0x7fffffffu) > kExponentBits;
}

// Whether a is chosen before b.
bool before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Restores the heap below `root`, worst candidate on top.
void sift_down(Candidate* heap, u32 n, u32 root) {
  const Candidate moving = heap[root];
  while (2 * root + 1 < n) {
    u32 child = 2 * root + 1;
    if (child + 1 < n && before(heap[child], heap[child + 1])) child += 1;
    if (!before(moving, heap[child])) break;
    heap[root] = heap[child];
    root = child;
  }
  heap[root] = moving;
}

}  // namespace

LogitsSummary summarize_logits(const f32* logits, u64 n) {
  // Blocks first: a plain maximum and a count vectorise, the place of the maximum does not.
  constexpr u64 kBlock = 256;
  constexpr f32 kNone = -__builtin_inff();
  LogitsSummary summary{.argmax = 0, .max = kNone, .n_not_finite = 0};
  bool found = false;
  for (u64 begin = 0; begin < n; begin += kBlock) {
    const u64 end = n - begin < kBlock ? n : begin + kBlock;
    f32 block_max = kNone;
    u32 n_broken = 0;
    for (u64 i = begin; i < end; ++i) {
      const bool broken = is_broken(logits[i]);
      const f32 value = broken ? kNone : logits[i];
      n_broken += broken ? 1u : 0u;
      block_max = value > block_max ? value : block_max;
    }
    summary.n_not_finite += n_broken;
    if (found ? block_max <= summary.max : block_max == kNone) continue;
    u64 i = begin;
    while (logits[i] != block_max) ++i;
    summary.argmax = static_cast<u32>(i);
    summary.max = block_max;
    found = true;
  }
  return summary;
}

f64 log_sum_exp(const f32* logits, u64 n, f32 max, ExpFn exponential) {
  constexpr u64 kLanes = 16;  // partial sums, element i to lane i mod 16, then added in order
  constexpr u64 kBlock = 16 * kLanes;
  f64 sums[kLanes] = {};
  f32 weights[kBlock];
  for (u64 begin = 0; begin < n; begin += kBlock) {
    const u64 n_here = n - begin < kBlock ? n - begin : kBlock;
    for (u64 i = 0; i < n_here; ++i) weights[i] = logits[begin + i] - max;
    exponential({.x = weights, .out = weights, .n = n_here});
    for (u64 i = n_here; i < kBlock; ++i) weights[i] = 0.0f;
    for (u64 i = 0; i < kBlock; i += kLanes) {
      for (u64 j = 0; j < kLanes; ++j) sums[j] += f64{weights[i + j]};
    }
  }
  f64 sum = 0.0;
  for (const f64 lane : sums) sum += lane;
  return f64{max} + log_f64(sum);
}

void select_top(const f32* logits, u64 n, u32 k, Candidate* out) {
  const u32 n_heap = n < k ? static_cast<u32>(n) : k;
  if (n_heap == 0) return;
  for (u32 i = 0; i < n_heap; ++i) out[i] = {.logit = logits[i], .id = i};
  for (u32 root = n_heap / 2; root-- > 0;) sift_down(out, n_heap, root);
  for (u64 i = n_heap; i < n; ++i) {
    if (!(logits[i] > out[0].logit)) continue;  // ids ascend, so an equal logit comes too late
    out[0] = {.logit = logits[i], .id = static_cast<u32>(i)};
    sift_down(out, n_heap, 0);
  }
  // The worst goes to the end, one after another.
  for (u32 last = n_heap - 1; last > 0; --last) {
    const Candidate worst = out[0];
    out[0] = out[last];
    out[last] = worst;
    sift_down(out, last, 0);
  }
}

}  // namespace tarn::kernels
