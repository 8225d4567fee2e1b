// matvec gives chunk c of a row of weights to lane c mod 32: that lane is here the chunk's class. A
// CTA walks along k by windows of 8 neighbouring chunks, one for each of its warps, which are in
// shared memory, brought by asynchronous copies one window ahead. So warp w has the classes w,
// w + 8, w + 16 and w + 24, one after the other, each in ascending order of its chunks, and the
// butterfly's first two levels are sums of its own; the other three are over the warps, at the end.
//
// Per window and warp, q4_k: 8 mma for 32 rows by 32 outputs by 32 k, and for each of a lane's 32
// sums four f32 instructions (to float, the minimum's part, two fma): 128 of 295 on sm_87.
#include "kernels/common/cta.h"
#include "kernels/matmul/matmat_gpu.h"

namespace tarn::kernels::TARN_GPU {
namespace {

constexpr u32 kThreads = 256;
constexpr u32 kWarps = kThreads / kWarpLanes;  // also the chunks of a window
constexpr u32 kSide = 32;                      // rows and outputs of a CTA: a lane each
constexpr u32 kUnitBytes = 16;                 // what one asynchronous copy brings
constexpr u32 kUnitWords = kUnitBytes / 4;
constexpr u32 kGroups = kWarpLanes / kWarps;  // windows with other classes, then the same again

// 1.5 * 2^23, as a float and as its bits: an integer below 2^22 in magnitude added to the bits is
// added to the float too, so a dot becomes a float without a conversion, exactly.
constexpr f32 kMagic = 12582912.0f;
constexpr i32 kMagicBits = 0x4b400000;

// A lane's share of the CTA's 32 outputs: those of 4 rows of weights (2 fragments' upper and lower
// half) for 8 rows of activations.
struct Sums {
  f32 of[2][4][4];  // [16 outputs][8 rows][fragment]
};

struct Operands {
  const u8* tiles[kSide / kTileRows];  // the weights of the CTA's 32 outputs
  u32 n_begin, n_rows;                 // first row of activations; how many there are in all
  u64 k;
};

TARN_DEVICE const u8* tile_of(const Operands& operands, u32 row) {
  return row < kTileRows ? operands.tiles[0] : operands.tiles[1];
}

// Every type has 16 bytes of codes in a chunk: a window has 8 units of a row, a thread one of them.
TARN_DEVICE const u8* codes_from(Cta& cta, const Operands& operands, u64 row_bytes) {
  const u32 row = cta.thread() / kWarps;
  return tile_of(operands, row) + row % kTileRows * row_bytes + cta.thread() % kWarps * kUnitBytes;
}
template <class Type>
TARN_DEVICE u32 codes_to(Cta& cta) {
  return cta.thread() / kWarps * Type::kRowUnits + cta.thread() % kWarps;
}

// A type is: how a window of 32 rows of weights lies in shared memory, in units a row, odd, so that
// the 8 rows of a fragment lie in different banks; from where and how it comes there; what a lane
// holds of it beside, for the row of its own number; and a lane's sums over the warp's chunk.

struct Q4K {
  static constexpr u32 kChunk = 32;    // k
  static constexpr u32 kRowUnits = 9;  // 8 of codes, the block's head
  static constexpr u32 kRowWords = kRowUnits * kUnitWords;
  struct Held {};
  struct Scale {
    f32 scale, min;
  };
  struct X {
    f32 d, sum;
  };

  struct From {
    const u8 *codes, *head;
  };
  TARN_DEVICE static From from(Cta& cta, const Operands& operands) {
    const u32 head_row = cta.lane();
    return {codes_from(cta, operands, operands.k / 2),
            tile_of(operands, head_row) + gpu_q4_k_heads(operands.k) +
                head_row % kTileRows * (operands.k / 16)};
  }
  TARN_DEVICE static Held fetch(Cta& cta, const From& from, u32 window, u32 /*n_chunks*/,
                                const Shared<U32x4>& to) {
    cta.copy_async(to, codes_to<Q4K>(cta), from.codes + u64{window} * 128);
    if (cta.warp() == 0) {
      cta.copy_async(to, cta.lane() * kRowUnits + 8, from.head + u64{window} * 16);
    }
    return {};
  }
  TARN_DEVICE static Scale scale_of(Cta& cta, const Shared<u32>& words, const Held& /*held*/) {
    const U32x4 head = words.template as<U32x4>()[cta.lane() * kRowUnits + 8];
    const u32 s = cta.warp();  // the chunk's index in its block
    const u32 first = s < 3 ? head.w[1] : s < 6 ? head.w[2] : head.w[3];
    const u32 next = s < 3 ? head.w[2] : head.w[3];
    const u32 bits = funnel_right(first, next, 12 * s % 32);
    return {widen_f16(static_cast<u16>(head.w[0] & 0xffffu)) * static_cast<f32>(bits & 63u),
            widen_f16(static_cast<u16>(head.w[0] >> 16)) * static_cast<f32>(bits >> 6 & 63u)};
  }
  TARN_DEVICE static Scale scale_from(Cta& cta, const Scale& mine, u32 lane) {
    return {cta.shuffle(mine.scale, lane), cta.shuffle(mine.min, lane)};
  }
  TARN_DEVICE static X x_of(const U32x2& side) {
    return {float_of(side.w[0]), static_cast<f32>(dp2a_low(side.w[1], 0x0101u, 0))};
  }

  struct Weights {
    u32 a[4];
  };
  TARN_DEVICE static Weights weights_at(Cta& cta, const Shared<u32>& words, u32 first_row) {
    const u32 at = (first_row + cta.lane() / 4) * kRowWords + cta.warp() * 4 + cta.lane() % 4;
    const u32 upper = words[at], lower = words[at + 8 * kRowWords];
    constexpr u32 kNibbles = 0x0f0f0f0fu;
    return {{upper & kNibbles, lower & kNibbles, upper >> 4 & kNibbles, lower >> 4 & kNibbles}};
  }
  TARN_DEVICE static void dots(Cta& cta, const Weights& weights, const u32 (&b)[2],
                               const Scale (&)[2], f32 (&out)[4]) {
    i32 sums[4];
    cta.mma_i8(sums, weights.a, b, kMagicBits);
    TARN_UNROLL(4) for (u32 e = 0; e < 4; ++e) {
      out[e] = float_of(static_cast<u32>(sums[e])) - kMagic;
    }
  }
  TARN_DEVICE static f32 add(f32 acc, f32 dot, const Scale& w, const X& x) {
    return fma(fma(dot, w.scale, -(x.sum * w.min)), x.d, acc);
  }
};

struct Q6K {
  static constexpr u32 kChunk = 32;
  static constexpr u32 kRowUnits = 13;  // 8 of low, 4 of high, the scales
  static constexpr u32 kRowWords = kRowUnits * kUnitWords;
  struct Held {
    u16 d;
  };
  struct Scale {
    u32 codes;  // two i8
    f32 d;
  };
  struct X {
    f32 d;
  };

  struct From {
    const u8 *codes, *high, *scales, *d;
  };
  TARN_DEVICE static From from(Cta& cta, const Operands& operands) {
    const u32 row = cta.thread() / 4 % kSide, mine = cta.lane();
    return {
        codes_from(cta, operands, operands.k / 2),
        tile_of(operands, row) + gpu_q6_k_high(operands.k) + row % kTileRows * (operands.k / 4) +
            cta.thread() % 4 * kUnitBytes,
        tile_of(operands, mine) + gpu_q6_k_scales(operands.k) +
            mine % kTileRows * (operands.k / 16),
        tile_of(operands, mine) + gpu_q6_k_d(operands.k) + mine % kTileRows * (operands.k / 128)};
  }
  TARN_DEVICE static Held fetch(Cta& cta, const From& from, u32 window, u32 /*n_chunks*/,
                                const Shared<U32x4>& to) {
    cta.copy_async(to, codes_to<Q6K>(cta), from.codes + u64{window} * 128);
    if (cta.warp() < 4) {
      cta.copy_async(to, cta.thread() / 4 * kRowUnits + 8 + cta.thread() % 4,
                     from.high + u64{window} * 64);
    } else if (cta.warp() == 4) {
      cta.copy_async(to, cta.lane() * kRowUnits + 12, from.scales + u64{window} * 16);
    }
    return {load<u16>(from.d + u64{window} * 2)};
  }
  TARN_DEVICE static Scale scale_of(Cta& cta, const Shared<u32>& words, const Held& held) {
    const u32 codes = words[cta.lane() * kRowWords + 12 * kUnitWords + cta.warp() / 2];
    return {codes >> (cta.warp() % 2 * 16), widen_f16(held.d) * 0.25f};
  }
  TARN_DEVICE static Scale scale_from(Cta& cta, const Scale& mine, u32 lane) {
    return {cta.shuffle(mine.codes, lane), cta.shuffle(mine.d, lane)};
  }
  TARN_DEVICE static X x_of(const U32x2& side) { return {float_of(side.w[0])}; }

  struct Weights {
    u32 low[2], high[2];  // elements 0..15 and 16..31, of the rows above and 8 below
  };
  TARN_DEVICE static Weights weights_at(Cta& cta, const Shared<u32>& words, u32 first_row) {
    const u32 g = cta.lane() % 4;
    Weights out;
    TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
      const u32 row = (first_row + cta.lane() / 4 + 8 * i) * kRowWords;
      const u32 nibbles = words[row + cta.warp() * 4 + g];
      const U32x2 upper = words.template as<U32x2>()[row / 2 + 4 * kUnitWords + cta.warp()];
      constexpr u32 kMiddle = 0x3c3c3c3cu, kTop = 0xc0c0c0c0u;
      out.low[i] = (nibbles << 2 & kMiddle) | (upper.w[0] << (6 - 2 * g) & kTop);
      out.high[i] = (nibbles >> 2 & kMiddle) | (upper.w[1] << (6 - 2 * g) & kTop);
    }
    return out;
  }
  TARN_DEVICE static void dots(Cta& cta, const Weights& weights, const u32 (&b)[2],
                               const Scale (&scales)[2], f32 (&out)[4]) {
    i32 low[4], high[4];
    cta.mma_i8_k16(low, weights.low, b[0], 0);
    cta.mma_i8_k16(high, weights.high, b[1], 0);
    TARN_UNROLL(4) for (u32 e = 0; e < 4; ++e) {
      const i32 first = static_cast<i8>(scales[e / 2].codes & 0xffu);
      const i32 second = static_cast<i8>(scales[e / 2].codes >> 8 & 0xffu);
      out[e] = static_cast<f32>(first * low[e] + second * high[e]);
    }
  }
  TARN_DEVICE static f32 add(f32 acc, f32 dot, const Scale& w, const X& x) {
    return fma(dot, w.d * x.d, acc);
  }
};

struct Q8_0 {
  static constexpr u32 kChunk = 16;
  static constexpr u32 kRowUnits = 9;  // 8 of codes, and one of padding
  static constexpr u32 kRowWords = kRowUnits * kUnitWords;
  struct Held {
    u16 d;
  };
  struct Scale {
    f32 d;
  };
  using X = Q6K::X;

  struct From {
    const u8 *codes, *d;
  };
  TARN_DEVICE static From from(Cta& cta, const Operands& operands) {
    const u32 mine = cta.lane();
    return {codes_from(cta, operands, operands.k),
            tile_of(operands, mine) + gpu_q8_0_d(operands.k) +
                mine % kTileRows * (operands.k / 16) + cta.warp() / 2 * 2};
  }
  TARN_DEVICE static Held fetch(Cta& cta, const From& from, u32 window, u32 n_chunks,
                                const Shared<U32x4>& to) {
    if (cta.thread() % kWarps < n_chunks) {
      cta.copy_async(to, codes_to<Q8_0>(cta), from.codes + u64{window} * 128);
    }
    if (cta.warp() >= n_chunks) return {0};
    return {load<u16>(from.d + u64{window} * 8)};
  }
  TARN_DEVICE static Scale scale_of(Cta&, const Shared<u32>&, const Held& held) {
    return {widen_f16(held.d)};
  }
  TARN_DEVICE static Scale scale_from(Cta& cta, const Scale& mine, u32 lane) {
    return {cta.shuffle(mine.d, lane)};
  }
  TARN_DEVICE static X x_of(const U32x2& side) { return {float_of(side.w[0])}; }

  struct Weights {
    u32 a[2];
  };
  TARN_DEVICE static Weights weights_at(Cta& cta, const Shared<u32>& words, u32 first_row) {
    const u32 at = (first_row + cta.lane() / 4) * kRowWords + cta.warp() * 4 + cta.lane() % 4;
    return {{words[at], words[at + 8 * kRowWords]}};
  }
  TARN_DEVICE static void dots(Cta& cta, const Weights& weights, const u32 (&b)[1],
                               const Scale (&)[2], f32 (&out)[4]) {
    i32 sums[4];
    cta.mma_i8_k16(sums, weights.a, b[0], kMagicBits);
    TARN_UNROLL(4) for (u32 e = 0; e < 4; ++e) {
      out[e] = float_of(static_cast<u32>(sums[e])) - kMagic;
    }
  }
  TARN_DEVICE static f32 add(f32 acc, f32 dot, const Scale& w, const X& x) {
    return fma(dot, w.d * x.d, acc);
  }
};

// A window of 32 rows of activations: their codes, then their sides, then one unit of padding.
template <class Type>
struct Acts {
  static constexpr u32 kWindow = kWarps * Type::kChunk;  // k
  static constexpr u32 kCodeUnits = kWindow / kUnitBytes;
  static constexpr u32 kSideUnits = kWindow / 32 / 2;
  static constexpr u32 kRowUnits = kCodeUnits + kSideUnits + 1;
  static_assert(kRowUnits % 2 == 1 && Type::kRowUnits % 2 == 1, "fragments would share banks");
  static constexpr u32 kRowWords = kRowUnits * kUnitWords;
  static constexpr u32 kWords = Type::kChunk / 16;  // of a fragment

  static constexpr u32 kTurns = kSide * kCodeUnits / kThreads;  // of the CTA, for the codes
  static constexpr u32 kTurnRows = kThreads / kCodeUnits;

  struct From {
    const i8* codes[kTurns];
    const U32x2* side;
  };
  TARN_DEVICE static From from(Cta& cta, const GpuQuantized& acts, const Operands& operands) {
    From out;
    TARN_UNROLL(2) for (u32 i = 0; i < kTurns; ++i) {
      const u64 n = row_of(operands, cta.thread() / kCodeUnits + i * kTurnRows);
      out.codes[i] = acts.q + n * operands.k + cta.thread() % kCodeUnits * kUnitBytes;
    }
    const u64 n = row_of(operands, cta.thread() / kSideUnits % kSide);
    out.side = acts.side + n * (operands.k / 32) + cta.thread() % kSideUnits * 2;
    return out;
  }
  // Rows beyond the last read the last: what comes of them is not stored.
  TARN_DEVICE static u32 row_of(const Operands& operands, u32 row) {
    const u32 n = operands.n_begin + row;
    return n < operands.n_rows ? n : operands.n_rows - 1;
  }
  TARN_DEVICE static void fetch(Cta& cta, const From& from, u32 window, u32 n_chunks,
                                const Shared<U32x4>& to) {
    // Blocks of 256 k come in whole windows.
    const bool is_whole = Type::kChunk == 32 || n_chunks == kWarps;
    const u32 code_unit = cta.thread() % kCodeUnits, side_unit = cta.thread() % kSideUnits;
    if (is_whole || code_unit < n_chunks * Type::kChunk / kUnitBytes) {
      const u32 at = cta.thread() / kCodeUnits * kRowUnits + code_unit;
      TARN_UNROLL(2) for (u32 i = 0; i < kTurns; ++i) {
        cta.copy_async(to, at + i * (kTurnRows * kRowUnits), from.codes[i] + u64{window} * kWindow);
      }
    }
    if (cta.thread() < kSide * kSideUnits &&
        (is_whole || side_unit < n_chunks * Type::kChunk / 64)) {
      cta.copy_async(to, cta.thread() / kSideUnits * kRowUnits + kCodeUnits + side_unit,
                     from.side + u64{window} * (kWindow / 32));
    }
  }

  TARN_DEVICE static void codes_at(Cta& cta, const Shared<u32>& words, u32 first_row,
                                   u32 (&b)[kWords]) {
    const u32 at =
        (first_row + cta.lane() / 4) * kRowWords + cta.warp() * (Type::kChunk / 4) + cta.lane() % 4;
    TARN_UNROLL(2) for (u32 i = 0; i < kWords; ++i) b[i] = words[at + 4 * i];
  }
  TARN_DEVICE static U32x2 side_at(Cta& cta, const Shared<u32>& words, u32 row) {
    const u32 strip = cta.warp() * Type::kChunk / 32;
    return words.template as<U32x2>()[(row * kRowUnits + kCodeUnits) * 2 + strip];
  }
};

template <class Type>
struct Product {
  using A = Acts<Type>;
  static constexpr u32 kWeightUnits = kSide * Type::kRowUnits;
  static constexpr u32 kBufferUnits = kWeightUnits + kSide * A::kRowUnits;

  // The sums of the window's chunk of this warp, added.
  TARN_DEVICE static void multiply(Cta& cta, const Shared<U32x4>& buffer,
                                   const typename Type::Held& held, Sums& sums) {
    const Shared<u32> weights = buffer.part(0, kWeightUnits).template as<u32>();
    const Shared<u32> acts =
        buffer.part(kWeightUnits, kBufferUnits - kWeightUnits).template as<u32>();
    const typename Type::Scale mine = Type::scale_of(cta, weights, held);
    typename Type::Scale scales[2][2];
    typename Type::Weights w[2];
    TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
      w[i] = Type::weights_at(cta, weights, 16 * i);
      TARN_UNROLL(2) for (u32 half = 0; half < 2; ++half) {
        scales[i][half] = Type::scale_from(cta, mine, 16 * i + 8 * half + cta.lane() / 4);
      }
    }
    TARN_UNROLL(4) for (u32 j = 0; j < 4; ++j) {
      u32 b[A::kWords];
      A::codes_at(cta, acts, 8 * j, b);
      typename Type::X x[2];
      TARN_UNROLL(2) for (u32 column = 0; column < 2; ++column) {
        x[column] = Type::x_of(A::side_at(cta, acts, 8 * j + cta.lane() % 4 * 2 + column));
      }
      TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
        f32 dots[4];
        Type::dots(cta, w[i], b, scales[i], dots);
        TARN_UNROLL(4) for (u32 e = 0; e < 4; ++e) {
          f32& sum = sums.of[i][j][e];
          sum = Type::add(sum, dots[e], scales[i][e / 2], x[e % 2]);
        }
      }
    }
  }

  struct From {
    typename Type::From weights;
    typename A::From acts;
    u32 n_chunks;
  };

  // Sums as matvec's butterfly after its first two levels, for the lanes below 8: this warp's.
  TARN_DEVICE static Sums run(Cta& cta, const GpuQuantized& acts, const Operands& operands,
                              const Shared<U32x4>& buffers) {
    const From from{.weights = Type::from(cta, operands),
                    .acts = A::from(cta, acts, operands),
                    .n_chunks = static_cast<u32>(operands.k) / Type::kChunk};
    const u32 n_windows = (from.n_chunks + kWarps - 1) / kWarps;
    u32 turn = 0;  // which of the buffers
    typename Type::Held held = fetch(cta, from, 0, buffers.part(0, kBufferUnits));
    Sums total{}, pair{};
    for (u32 step = 0; step < kGroups; ++step) {
      Sums sums{};
      for (u32 window = first_of(step); window < n_windows; window += kGroups) {
        cta.copy_wait<0>();
        cta.barrier();  // the window has arrived, and no warp needs the one before any more
        const Shared<U32x4> buffer = buffers.part(turn * kBufferUnits, kBufferUnits);
        turn ^= 1u;
        const typename Type::Held its = held;
        const u32 next = after(window, step, n_windows);
        if (next < n_windows) {
          held = fetch(cta, from, next, buffers.part(turn * kBufferUnits, kBufferUnits));
        }
        if (window * kWarps + cta.warp() < from.n_chunks) multiply(cta, buffer, its, sums);
      }
      // Lane w + 16 to lane w, then lane w + 24 to lane w + 8, then these two.
      if (step % 2 == 0) {
        pair = sums;
      } else {
        add(pair, sums);
      }
      if (step == 1) total = pair;
      if (step == 3) add(total, pair);
    }
    return total;
  }

  TARN_DEVICE static void add(Sums& to, const Sums& more) {
    TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
      TARN_UNROLL(4) for (u32 j = 0; j < 4; ++j) {
        TARN_UNROLL(4) for (u32 e = 0; e < 4; ++e) {
          to.of[i][j][e] = to.of[i][j][e] + more.of[i][j][e];
        }
      }
    }
  }

  // The groups of classes in the order in which the butterfly wants their sums.
  TARN_DEVICE static u32 first_of(u32 step) { return step / 2 + step % 2 * 2; }
  // The window that comes after this one; none: n_windows or more.
  TARN_DEVICE static u32 after(u32 window, u32 step, u32 n_windows) {
    u32 next = window + kGroups;
    while (next >= n_windows && ++step < kGroups) next = first_of(step);
    return next;
  }

  TARN_DEVICE static typename Type::Held fetch(Cta& cta, const From& from, u32 window,
                                               const Shared<U32x4>& buffer) {
    const u32 left = from.n_chunks - window * kWarps;
    const u32 n = left < kWarps ? left : kWarps;
    A::fetch(cta, from.acts, window, n, buffer.part(kWeightUnits, kBufferUnits - kWeightUnits));
    const typename Type::Held held =
        Type::fetch(cta, from.weights, window, n, buffer.part(0, kWeightUnits));
    cta.copy_commit();
    return held;
  }
};

struct Matmat {
  static constexpr u32 kThreads = kernels::TARN_GPU::kThreads;
  // An SM's other CTA computes while this one waits for its window. That leaves 128 registers, so
  // sums that wait for another group lie in local memory; in a group's loop nothing spills.
  static constexpr u32 kCtasASm = 2;
  // The warps' parts at the end: [warp][row][output], rows padded so that a fragment's lanes hit
  // different banks.
  static constexpr u32 kRowFloats = kSide + 4;
  static constexpr u32 kPartFloats = kSide * kRowFloats;
  static constexpr u32 kPartUnits = kWarps * kPartFloats / 4;
  static constexpr u32 kUnits = 2 * Product<Q6K>::kBufferUnits > kPartUnits
                                    ? 2 * Product<Q6K>::kBufferUnits
                                    : kPartUnits;  // q6_k has the largest buffers
  static_assert(Product<Q4K>::kBufferUnits <= Product<Q6K>::kBufferUnits);
  static_assert(Product<Q8_0>::kBufferUnits <= Product<Q6K>::kBufferUnits);
  static constexpr u64 kSharedBytes = shared_bytes_of(kUnits, sizeof(U32x4));
  using Args = GpuMatvecArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Shared<U32x4> room = cta.shared<U32x4>(kUnits);
    const u32 n_tall = (args.rows_max + kSide - 1) / kSide;  // CTAs that share weights
    u32 block = cta.block() / n_tall, j = 0;
    for (; j + 1 < args.n_matrices; ++j) {
      const u32 n_ctas = (args.matrices[j].n_out + kSide - 1) / kSide;
      if (block < n_ctas) break;
      block -= n_ctas;
    }
    const GpuMatrix& matrix = args.matrices[j];
    const u32 r_begin = block * kSide;
    Operands operands{.tiles = {},
                      .n_begin = cta.block() % n_tall * kSide,
                      .n_rows = load<u32>(args.n_rows),
                      .k = args.k};
    if (operands.n_begin >= operands.n_rows) return;
    const u64 tile_bytes = gpu_tile_bytes(matrix.type, args.k);
    operands.tiles[0] = static_cast<const u8*>(matrix.weights) + r_begin / kTileRows * tile_bytes;
    // Outputs of a tile that is not there are the first tile's, and not stored.
    operands.tiles[1] = operands.tiles[0] + (r_begin + kTileRows < matrix.n_out ? tile_bytes : 0);
    const Sums sums = multiply(cta, args.acts, matrix.type, operands, room);
    write(cta, matrix, operands, r_begin, sums, room.as<f32>());
  }

  TARN_DEVICE static Sums multiply(Cta& cta, const GpuQuantized& acts, TensorType type,
                                   const Operands& operands, const Shared<U32x4>& room) {
    switch (type) {
      case TensorType::q4_k:
        return Product<Q4K>::run(cta, acts, operands, room);
      case TensorType::q6_k:
        return Product<Q6K>::run(cta, acts, operands, room);
      default:
        return Product<Q8_0>::run(cta, acts, operands, room);
    }
  }

  TARN_DEVICE static void write(Cta& cta, const GpuMatrix& matrix, const Operands& operands,
                                u32 r_begin, const Sums& sums, const Shared<f32>& parts) {
    cta.barrier();  // no warp needs the last window any more
    TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
      TARN_UNROLL(4) for (u32 j = 0; j < 4; ++j) {
        TARN_UNROLL(4) for (u32 e = 0; e < 4; ++e) {
          const u32 r = 16 * i + cta.lane() / 4 + e / 2 * 8;
          const u32 n = 8 * j + cta.lane() % 4 * 2 + e % 2;
          parts[cta.warp() * kPartFloats + n * kRowFloats + r] = sums.of[i][j][e];
        }
      }
    }
    cta.barrier();  // every warp's part is there
    const u32 r = cta.lane();
    for (u32 n = cta.warp(); n < kSide; n += kWarps) {
      if (operands.n_begin + n >= operands.n_rows || r_begin + r >= matrix.n_out) continue;
      f32 p[kWarps];
      TARN_UNROLL(8) for (u32 w = 0; w < kWarps; ++w) {
        p[w] = parts[w * kPartFloats + n * kRowFloats + r];
      }
      // The butterfly's last three levels.
      TARN_UNROLL(3) for (u32 width = kWarps / 2; width > 0; width /= 2) {
        TARN_UNROLL(4) for (u32 w = 0; w < width; ++w) p[w] = p[w] + p[w + width];
      }
      f32 sum = p[0];
      if (matrix.bias != nullptr) sum = sum + matrix.bias[r_begin + r];
      f32* out = matrix.out + (u64{operands.n_begin} + n) * matrix.out_stride + r_begin + r;
      store(out, matrix.store == Store::add ? *out + sum : sum);
    }
  }
};

}  // namespace

void matmat_gpu(const GpuMatvecArgs& args, GpuStream* stream) {
  u32 n_ctas = 0;
  for (u32 j = 0; j < args.n_matrices; ++j) {
    n_ctas += (args.matrices[j].n_out + kSide - 1) / kSide;
  }
  const u32 n_tall = (args.rows_max + kSide - 1) / kSide;
  launch<Matmat>({.n_ctas = n_ctas * n_tall, .shared_bytes = Matmat::kSharedBytes}, stream, args);
}

void matmat_kernels(const KernelSink& sink) { tell<Matmat>(sink); }

}  // namespace tarn::kernels::TARN_GPU
