// A warp owns kRows neighbouring output rows and all activation rows. It reads each weight byte
// once from memory, past L1, and the activations (k bytes a row) from L1, where its CTA's other
// warps find them too. No shared memory, no barrier: what limits this kernel is how many loads are
// under way, so nothing may make a warp wait for another.
#include "kernels/common/cta.h"
#include "kernels/common/reduce_cta.h"
#include "kernels/matmul/matvec_gpu.h"
#include "kernels/matmul/matvec_tuning.h"

namespace tarn::kernels::TARN_GPU {
namespace {

constexpr u32 kNibbles = 0x0f0f0f0fu;

// A type is: what a lane has of one row of weights. The 32 lanes of a warp take 32 neighbouring
// chunks in a turn, so a lane's chunk of turn t is lane + 32t, and each of the addresses in a
// Cursor (those of turn 0) grows by the same bytes from turn to turn. fetch() loads a chunk,
// unpack() makes numbers of it, add_to() multiplies them with the chunk of one row of activations.

TARN_DEVICE i32 dot16(const u32 (&words)[4], const U32x4& q) {
  i32 dot = 0;
  TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) dot = dp4a(words[i], q.w[i], dot);
  return dot;
}

// A chunk of 32 quantised activations, and what goes with them.
struct Acts {
  struct Cursor {
    const i8* q;
    const U32x2* side;
  };
  U32x4 low, high;  // elements 0..15 and 16..31
  f32 d;
  u32 sums;

  TARN_DEVICE static Cursor cursor(const GpuMatvecArgs& args, u32 lane) {
    return {args.acts.q + lane * 32, args.acts.side + lane};
  }
  TARN_DEVICE static Acts load_from(const Cursor& cursor, u64 k, u32 n, u32 turn) {
    const i8* q = cursor.q + n * k + u64{turn} * (kWarpLanes * 32);
    const U32x2 side = load<U32x2>(cursor.side + n * (k / 32) + u64{turn} * kWarpLanes);
    return {load<U32x4>(q), load<U32x4>(q + 16), float_of(side.w[0]), side.w[1]};
  }
};

struct F16 {
  static constexpr u32 kChunk = 8;  // elements along k
  using Raw = U32x4;
  struct Cursor {
    const u8* values;
  };
  struct X {
    struct Cursor {
      const f32* x;
      u64 stride;
    };
    F32x4 low, high;

    TARN_DEVICE static Cursor cursor(const GpuMatvecArgs& args, u32 lane) {
      return {args.x + lane * kChunk, args.x_stride};
    }
    TARN_DEVICE static X load_from(const Cursor& cursor, u64 /*k*/, u32 n, u32 turn) {
      const f32* x = cursor.x + n * cursor.stride + u64{turn} * (kWarpLanes * kChunk);
      return {load<F32x4>(x), load<F32x4>(x + 4)};
    }
  };
  f32 w[8];

  TARN_DEVICE static Cursor cursor(const u8* tile, u64 k, u32 row, u32 lane) {
    return {tile + row * k * 2 + lane * 16};
  }
  TARN_DEVICE static Raw fetch(const Cursor& cursor, u32 turn) {
    return load_once<U32x4>(cursor.values + u64{turn} * 512);
  }
  TARN_DEVICE void unpack(const Raw& words, u32 /*lane*/) {
    TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) {
      w[2 * i] = widen_f16(static_cast<u16>(words.w[i] & 0xffffu));
      w[2 * i + 1] = widen_f16(static_cast<u16>(words.w[i] >> 16));
    }
  }
  TARN_DEVICE f32 add_to(f32 acc, const X& x) const {
    TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) acc = fma(x.low.v[i], w[i], acc);
    TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) acc = fma(x.high.v[i], w[4 + i], acc);
    return acc;
  }
};

struct Q8_0 {
  static constexpr u32 kChunk = 16;
  struct Cursor {
    const u8* codes;
    const u8* d;
  };
  struct Raw {
    U32x4 words;
    u16 d;
  };
  struct X {
    using Cursor = Acts::Cursor;
    U32x4 q;
    f32 d;

    TARN_DEVICE static Cursor cursor(const GpuMatvecArgs& args, u32 lane) {
      return {args.acts.q + lane * kChunk, args.acts.side + lane / 2};
    }
    TARN_DEVICE static X load_from(const Cursor& cursor, u64 k, u32 n, u32 turn) {
      const i8* q = cursor.q + n * k + u64{turn} * (kWarpLanes * kChunk);
      const U32x2 side = load<U32x2>(cursor.side + n * (k / 32) + u64{turn} * (kWarpLanes / 2));
      return {load<U32x4>(q), float_of(side.w[0])};
    }
  };
  u32 codes[4];
  f32 d;

  TARN_DEVICE static Cursor cursor(const u8* tile, u64 k, u32 row, u32 lane) {
    return {tile + row * k + lane * 16, tile + gpu_q8_0_d(k) + row * (k / 16) + lane / 2 * 2};
  }
  TARN_DEVICE static Raw fetch(const Cursor& cursor, u32 turn) {
    return {load_once<U32x4>(cursor.codes + u64{turn} * 512),
            load<u16>(cursor.d + u64{turn} * kWarpLanes)};
  }
  TARN_DEVICE void unpack(const Raw& raw, u32 /*lane*/) {
    TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) codes[i] = raw.words.w[i];
    d = widen_f16(raw.d);
  }
  TARN_DEVICE f32 add_to(f32 acc, const X& x) const {
    return fma(static_cast<f32>(dot16(codes, x.q)), d * x.d, acc);
  }
};

struct Q4K {
  static constexpr u32 kChunk = 32;
  using X = Acts;
  struct Cursor {
    const u8* codes;
    const u8* heads;
  };
  struct Raw {
    U32x4 words, head;
  };
  u32 low[4], high[4];  // the codes of elements 0..15 and 16..31, a byte each
  f32 scale, min;

  TARN_DEVICE static Cursor cursor(const u8* tile, u64 k, u32 row, u32 lane) {
    return {tile + row * (k / 2) + lane * 16,
            tile + gpu_q4_k_heads(k) + row * (k / 16) + lane / 8 * 16};
  }
  TARN_DEVICE static Raw fetch(const Cursor& cursor, u32 turn) {
    return {load_once<U32x4>(cursor.codes + u64{turn} * 512),
            load<U32x4>(cursor.heads + u64{turn} * 64)};
  }
  TARN_DEVICE void unpack(const Raw& raw, u32 lane) {
    const U32x4& head = raw.head;
    TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) {
      low[i] = raw.words.w[i] & kNibbles;
      high[i] = raw.words.w[i] >> 4 & kNibbles;
    }
    // Strip s has 12 bits from bit 12s of the last three words; s is the same in all of a lane's
    // chunks, so the choice of words is made once.
    const u32 s = lane % 8;
    const u32 first = s < 3 ? head.w[1] : s < 6 ? head.w[2] : head.w[3];
    const u32 next = s < 3 ? head.w[2] : head.w[3];
    const u32 bits = funnel_right(first, next, 12 * s % 32);
    scale = widen_f16(static_cast<u16>(head.w[0] & 0xffffu)) * static_cast<f32>(bits & 63u);
    min = widen_f16(static_cast<u16>(head.w[0] >> 16)) * static_cast<f32>(bits >> 6 & 63u);
  }
  TARN_DEVICE f32 add_to(f32 acc, const X& x) const {
    const f32 dot = static_cast<f32>(dot16(low, x.low) + dot16(high, x.high));
    const f32 sum = static_cast<f32>(dp2a_low(x.sums, 0x0101u, 0));
    return fma(fma(dot, scale, -(sum * min)), x.d, acc);
  }
};

struct Q6K {
  static constexpr u32 kChunk = 32;
  using X = Acts;
  struct Cursor {
    const u8* low;
    const u8* high;
    const u8* scales;
    const u8* d;
  };
  struct Raw {
    U32x4 nibbles;
    U32x2 upper;
    u16 scales, d;
  };
  u32 low[4], high[4];  // 4 * (code - 32) of elements 0..15 and 16..31, an i8 each
  i32 scales[2];
  f32 d;

  TARN_DEVICE static Cursor cursor(const u8* tile, u64 k, u32 row, u32 lane) {
    return {tile + row * (k / 2) + lane * 16, tile + gpu_q6_k_high(k) + row * (k / 4) + lane * 8,
            tile + gpu_q6_k_scales(k) + row * (k / 16) + lane * 2,
            tile + gpu_q6_k_d(k) + row * (k / 128) + lane / 8 * 2};
  }
  TARN_DEVICE static Raw fetch(const Cursor& cursor, u32 turn) {
    return {load_once<U32x4>(cursor.low + u64{turn} * 512),
            load_once<U32x2>(cursor.high + u64{turn} * 256),
            load<u16>(cursor.scales + u64{turn} * 64), load<u16>(cursor.d + u64{turn} * 8)};
  }
  TARN_DEVICE void unpack(const Raw& raw, u32 /*lane*/) {
    TARN_UNROLL(4) for (u32 g = 0; g < 4; ++g) {
      constexpr u32 kMiddle = 0x3c3c3c3cu, kTop = 0xc0c0c0c0u;
      low[g] = (raw.nibbles.w[g] << 2 & kMiddle) | (raw.upper.w[0] << (6 - 2 * g) & kTop);
      high[g] = (raw.nibbles.w[g] >> 2 & kMiddle) | (raw.upper.w[1] << (6 - 2 * g) & kTop);
    }
    scales[0] = static_cast<i8>(raw.scales & 0xffu);
    scales[1] = static_cast<i8>(raw.scales >> 8);
    d = widen_f16(raw.d) * 0.25f;
  }
  TARN_DEVICE f32 add_to(f32 acc, const X& x) const {
    const i32 dot = scales[0] * dot16(low, x.low) + scales[1] * dot16(high, x.high);
    return fma(static_cast<f32>(dot), d * x.d, acc);
  }
};

// The weights of kAhead turns are under way at any time: a turn's are asked for as soon as the turn
// kAhead before it is done with its registers. Nothing else hides the memory's latency.
template <class Type, u32 kActs, u32 kRows>
TARN_DEVICE void multiply(Cta& cta, const GpuMatvecArgs& args, const GpuMatrix& matrix, u32 row) {
  constexpr u32 kAhead = matvec_ahead(kActs);
  const u64 k = args.k;
  const u8* tile = static_cast<const u8*>(matrix.weights) +
                   u64{row / kTileRows} * gpu_tile_bytes(matrix.type, k);
  const u32 lane = cta.lane(), n_chunks = args.k / Type::kChunk;
  const u32 n_turns = (n_chunks + kWarpLanes - 1 - lane) / kWarpLanes;  // this lane's
  typename Type::Cursor cursors[kRows];
  TARN_UNROLL(kRows) for (u32 r = 0; r < kRows; ++r) {
    cursors[r] = Type::cursor(tile, k, row % kTileRows + r, lane);
  }
  typename Type::Raw ahead[kAhead][kRows];
  TARN_UNROLL(kAhead) for (u32 a = 0; a < kAhead; ++a) {
    if (a >= n_turns) continue;
    TARN_UNROLL(kRows) for (u32 r = 0; r < kRows; ++r) ahead[a][r] = Type::fetch(cursors[r], a);
  }
  const u32 n_rows = load<u32>(args.n_rows);
  if (n_rows == 0) return;  // asked here, while weights are under way, and not behind the sums
  const typename Type::X::Cursor acts = Type::X::cursor(args, lane);
  f32 acc[kRows][kActs] = {};
  for (u32 first = 0; first < n_turns; first += kAhead) {
    TARN_UNROLL(kAhead) for (u32 a = 0; a < kAhead; ++a) {
      const u32 turn = first + a;
      // A branch in every turn also keeps the compiler from moving loads from one to another.
      if (turn >= n_turns) break;
      Type weights[kRows];
      TARN_UNROLL(kRows) for (u32 r = 0; r < kRows; ++r) { weights[r].unpack(ahead[a][r], lane); }
      TARN_UNROLL(kActs) for (u32 n = 0; n < kActs; ++n) {
        const typename Type::X x = Type::X::load_from(acts, k, n, turn);
        TARN_UNROLL(kRows) for (u32 r = 0; r < kRows; ++r) {
          acc[r][n] = weights[r].add_to(acc[r][n], x);
        }
      }
      if (turn + kAhead >= n_turns) continue;
      TARN_UNROLL(kRows) for (u32 r = 0; r < kRows; ++r) {
        ahead[a][r] = Type::fetch(cursors[r], turn + kAhead);
      }
    }
  }
  TARN_UNROLL(kRows) for (u32 r = 0; r < kRows; ++r) {
    TARN_UNROLL(kActs) for (u32 n = 0; n < kActs; ++n) {
      f32 sum = sum_warp(cta, acc[r][n]);
      // Each result has a lane that stores it; rows of the last tile that are not there have none.
      if (lane != r * kActs + n || n >= n_rows || row + r >= matrix.n_out) continue;
      if (matrix.bias != nullptr) sum = sum + matrix.bias[row + r];
      f32* out = matrix.out + n * matrix.out_stride + row + r;
      store(out, matrix.store == Store::add ? *out + sum : sum);
    }
  }
}

template <u32 kActs>
struct Matvec {
  static constexpr u32 kRows = kActs == 1 ? 1 : 2;  // a tile has a multiple of it
  static constexpr u32 kThreads = kMatvecThreads;
  static constexpr u32 kCtasASm = matvec_ctas_a_sm(kActs);
  static constexpr u32 kCtaRows = kThreads / kWarpLanes * kRows;
  using Args = GpuMatvecArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    u32 block = cta.block(), j = 0;
    for (; j + 1 < args.n_matrices; ++j) {
      const u32 n_ctas = (args.matrices[j].n_out + kCtaRows - 1) / kCtaRows;
      if (block < n_ctas) break;
      block -= n_ctas;
    }
    const GpuMatrix& matrix = args.matrices[j];
    const u32 row = block * kCtaRows + cta.warp() * kRows;
    if (row >= matrix.n_out) return;  // a whole warp
    switch (matrix.type) {
      case TensorType::f16:
        return multiply<F16, kActs, kRows>(cta, args, matrix, row);
      case TensorType::q8_0:
        return multiply<Q8_0, kActs, kRows>(cta, args, matrix, row);
      case TensorType::q4_k:
        return multiply<Q4K, kActs, kRows>(cta, args, matrix, row);
      default:
        return multiply<Q6K, kActs, kRows>(cta, args, matrix, row);
    }
  }
};

template <u32 kActs>
void launch_for(const GpuMatvecArgs& args, GpuStream* stream) {
  u32 n_ctas = 0;
  for (u32 j = 0; j < args.n_matrices; ++j) {
    n_ctas += (args.matrices[j].n_out + Matvec<kActs>::kCtaRows - 1) / Matvec<kActs>::kCtaRows;
  }
  launch<Matvec<kActs>>({.n_ctas = n_ctas}, stream, args);
}

}  // namespace

void matvec_gpu(const GpuMatvecArgs& args, GpuStream* stream) {
  switch (args.rows_max) {
    case 1:
      return launch_for<1>(args, stream);
    case 2:
      return launch_for<2>(args, stream);
    case 4:
      return launch_for<4>(args, stream);
    default:
      return launch_for<8>(args, stream);
  }
}

void matvec_kernels(const KernelSink& sink) {
  tell<Matvec<1>, Matvec<2>, Matvec<4>, Matvec<8>>(sink);
}

}  // namespace tarn::kernels::TARN_GPU
