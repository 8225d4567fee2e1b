// Device code: the spans of a row and q head become its output, as attn_gpu.h says.
#pragma once

#include "kernels/attn/attn_gpu.h"
#include "kernels/common/cta.h"
#include "kernels/common/exp_cta.h"
#include "kernels/common/reduce_cta.h"
#include "kernels/quant/quantize_cta.h"

namespace tarn::kernels::TARN_GPU {

constexpr f32 kNoScore = -__builtin_inff();

// A thread a dim of one row and q head; the weights of some spans, a thread each, through shared
// memory.
struct MergeSpans {
  static constexpr u32 kThreads = 128;
  static constexpr u32 kCtasASm = 8;  // with more, or none said, one of the architectures spills
  static_assert(kGpuMergeSpans <= kWarpLanes);  // a lane a span finds their largest m
  static constexpr u64 kSharedBytes = shared_bytes_of(kGpuMergeSpans, sizeof(F32x2));
  using Args = GpuAttnArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Shared<F32x2> weights = cta.shared<F32x2>(kGpuMergeSpans);  // of spans, and their l
    const u32 head_dim = args.pages.head_dim;
    const u32 n_heads = args.pages.n_kv_heads * args.n_group_heads;
    const u32 head = cta.block(), row = cta.block_y();
    if (row >= load<u32>(args.n_rows)) return;
    const u32 visible = args.visible[head / args.n_group_heads * args.visible_stride + row];
    const u32 n_spans = (visible + kGpuSpanSlots - 1) / kGpuSpanSlots;
    const u32 end = args.span_begin + args.spans_max;
    if (args.span_begin > 0 && n_spans <= args.span_begin) return;  // its end was in a part before
    const u32 n = (n_spans < end ? n_spans : end) - args.span_begin;
    const u64 stride = u64{head_dim} + 2;
    const u64 at = u64{row} * n_heads + head;
    const f32* partial = args.partial + at * args.spans_max * stride;
    f32* state = args.states == nullptr ? nullptr : args.states + at * stride;
    const bool goes_on = state != nullptr && n_spans > end;
    for (u32 first = 0; first < head_dim; first += kThreads) {
      const u32 i = first + cta.thread();
      f32 max = kNoScore, sum = 0.0f, o = 0.0f;
      if (state != nullptr && args.span_begin > 0) {
        max = state[head_dim];
        sum = state[head_dim + 1];
        if (i < head_dim) o = state[i];
      }
      for (u32 begin = 0; begin < n; begin += kGpuMergeSpans) {
        const u32 n_here = n - begin < kGpuMergeSpans ? n - begin : kGpuMergeSpans;
        const f32* spans = partial + begin * stride;
        f32 of_spans[kGpuMergeSpans];  // asked for before anything waits
        TARN_UNROLL(kGpuMergeSpans) for (u32 s = 0; s < kGpuMergeSpans; ++s) {
          of_spans[s] = s < n_here && i < head_dim ? spans[s * stride + i] : 0.0f;
        }
        const bool has_span = cta.lane() < n_here;
        const f32* its = spans + (has_span ? cta.lane() : 0) * stride + head_dim;
        const f32 max_here = max_warp(cta, has_span ? its[0] : kNoScore);
        const f32 next = max > max_here ? max : max_here;
        const f32 decay = max == kNoScore ? 0.0f : exp_f32(max - next);
        max = next;
        if (cta.thread() < n_here) {
          weights[cta.thread()] = F32x2{{exp_f32(its[0] - next), its[1]}};
        }
        cta.barrier();  // the weights of these spans are there
        sum = sum * decay;
        o = o * decay;
        TARN_UNROLL(kGpuMergeSpans) for (u32 s = 0; s < kGpuMergeSpans; ++s) {
          if (s >= n_here) continue;
          const F32x2 weight = weights[s];
          sum = fma(weight.v[0], weight.v[1], sum);
          o = fma(weight.v[0], of_spans[s], o);
        }
        cta.barrier();  // all have read them, and the state
      }
      if (goes_on) {
        if (i < head_dim) store(state + i, o);
        if (i == head_dim - 1) {  // in the last turn
          store(state + head_dim, max);
          store(state + head_dim + 1, sum);
        }
        continue;
      }
      const f32 value = n_spans == 0 ? 0.0f : o / sum;
      if (i >= head_dim) continue;  // whole warps, where 32 divides head_dim
      if (args.out != nullptr) {
        store(args.out + row * args.out_stride + u64{head} * head_dim + i, value);
      }
      if (args.quantized.q != nullptr) {
        quantize_element(cta, value, args.quantized, row, u64{n_heads} * head_dim,
                         head * head_dim + i);
      }
    }
  }
};

}  // namespace tarn::kernels::TARN_GPU
