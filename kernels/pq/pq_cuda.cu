// kernels/pq/pq_cuda.cu: every sum in the order of the CPU's bodies, so every bit is theirs.
#include "kernels/common/cta.h"
#include "kernels/common/exp_cta.h"
#include "kernels/common/rank_cta.h"
#include "kernels/common/reduce_cta.h"
#include "kernels/pq/pq_gpu.h"
#include "kernels/pq/pq_pairs.h"

namespace tarn::kernels::TARN_GPU {
namespace {

constexpr u32 kInfinity = 0x7f800000u;
constexpr u32 kBlock = 32;  // elements of a block of q8_0 or q4_0
TARN_DEVICE f32 minus_infinity() { return float_of(kInfinity | 0x80000000u); }

// pq_codes.h's, of one token.
TARN_DEVICE u32 code_of(PqCodeFormat format, const u8* row, u32 token) {
  if (format == PqCodeFormat::bytes) return row[token];
  const u32 t = token % kPqBlockTokens;
  const u8* block = row + u64{token / kPqBlockTokens} * (format == PqCodeFormat::packed4 ? 32 : 48);
  const u32 low = block[t % 32] >> (t / 32 * 4) & 15u;
  if (format == PqCodeFormat::packed4) return low;
  return low | (block[32 + t % 16] >> (t / 16 * 2) & 3u) << 4;
}

// Scores tokens `token` and `token` + 32, of one block; a byte of packed codes serves both.
template <PqCodeFormat format>
TARN_DEVICE void two_codes(const u8* row, u32 token, u32 (&codes)[2]) {
  static_assert(kPqBlockTokens == 2 * kWarpLanes);
  if constexpr (format == PqCodeFormat::bytes) {
    codes[0] = row[token];
    codes[1] = row[token + 32];
  } else {
    const u32 t = token % 32;
    const u8* block = row + token / kPqBlockTokens * pq_block_bytes(format);
    const u32 low = block[t];
    codes[0] = low & 15u;
    codes[1] = low >> 4;
    if constexpr (format == PqCodeFormat::packed6) {
      const u32 upper = static_cast<u32>(block[32 + t % 16]) >> (t / 16 * 2);
      codes[0] |= (upper & 3u) << 4;
      codes[1] |= (upper >> 4 & 3u) << 4;
    }
  }
}

TARN_DEVICE u8 with_bits(u8 byte, u32 shift, u32 bits, u32 value) {
  const u32 mask = ((1u << bits) - 1u) << shift;
  return static_cast<u8>((byte & ~mask) | (value << shift & mask));
}

TARN_DEVICE void put_code(PqCodeFormat format, u8* row, u32 token, u32 code) {
  if (format == PqCodeFormat::bytes) {
    store(row + token, static_cast<u8>(code));
    return;
  }
  const u32 t = token % kPqBlockTokens;
  u8* block = row + u64{token / kPqBlockTokens} * (format == PqCodeFormat::packed4 ? 32 : 48);
  store(block + t % 32, with_bits(block[t % 32], t / 32 * 4, 4, code));
  if (format == PqCodeFormat::packed4) return;
  store(block + 32 + t % 16, with_bits(block[32 + t % 16], t / 16 * 2, 2, code >> 4));
}

// The piece of a head, of all layers' where there are several.
TARN_DEVICE u8* head_of(const GpuPqIndex& index, u32 head) {
  return index.heads + load<u32>(index.table) * index.table_stride + head * index.head_stride;
}

// The key's dim that is dim i of a sub-space.
TARN_DEVICE u32 dim_of(const GpuPqIndex& index, u32 subspace, u32 i) {
  const u32 place = subspace * index.dims + i, half = index.adjacent_dims / 2;
  if (place >= index.adjacent_dims) return place;
  return place < half ? 2 * place : 2 * (place - half) + 1;
}

// A thread an entry of the table, a CTA row a q head.
struct PqLut {
  static constexpr u32 kThreads = 128;
  using Args = GpuPqLutArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const GpuPqIndex& index = args.index;
    const u32 n_entries = index.n_subspaces * index.n_padded;
    const u32 entry = cta.block() * kThreads + cta.thread();
    const u32 head = cta.block_y();
    if (entry >= n_entries) return;
    const u32 subspace = entry / index.n_padded, centroid = entry % index.n_padded;
    const u32 kv_head = head / index.n_group_heads;
    const f32* q = args.q + u64{head} * index.n_subspaces * index.dims;
    const f32* column = reinterpret_cast<const f32*>(head_of(index, kv_head)) +
                        u64{subspace} * index.dims * index.n_padded + centroid;
    f32 sum = 0.0f;
    for (u32 i = 0; i < index.dims; ++i) {
      sum = fma(q[dim_of(index, subspace, i)], load<f32>(column + u64{i} * index.n_padded), sum);
    }
    store(args.lut + u64{head} * n_entries + entry, sum);
  }
};

// A thread a token, a CTA row a q head.
struct PqScore {
  static constexpr u32 kThreads = 256;
  using Args = GpuPqScoreArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const GpuPqIndex& index = args.index;
    const u32 token = cta.block() * kThreads + cta.thread();
    const u32 head = cta.block_y();
    if (token >= load<u32>(args.n_tokens)) return;
    const f32* lut = args.lut + u64{head} * index.n_subspaces * index.n_padded;
    const u8* row = head_of(index, head / index.n_group_heads) + index.codes_at;
    f32 sum = load<f32>(lut + code_of(index.format, row, token));
    for (u32 m = 1; m < index.n_subspaces; ++m) {
      row += index.codes_stride;
      lut += index.n_padded;
      sum += load<f32>(lut + code_of(index.format, row, token));
    }
    store(args.scores + head * args.scores_stride + token, sum * args.scale);
  }
};

// sum16 of 16 lanes' sums, by every thread for itself.
TARN_DEVICE f32 sum_lanes(const Shared<f32>& lanes) {
  f32 sums[16];
  TARN_UNROLL(16) for (u32 j = 0; j < 16; ++j) {
    const f32 sum = lanes[j];
    sums[j] = sum;
  }
  TARN_UNROLL(4) for (u32 half = 8; half > 0; half /= 2) {
    TARN_UNROLL(8) for (u32 j = 0; j < half; ++j) sums[j] = sums[j] + sums[j + half];
  }
  return sums[0];
}

// A CTA a KV head.
struct PqWeigh {
  static constexpr u32 kThreads = 512;
  static constexpr u32 kWarps = kThreads / kWarpLanes;
  static constexpr u32 kTile = 2048;  // tokens whose p the lanes of the sum find in shared memory
  static constexpr u32 kLanes = 16;
  static constexpr u64 kSharedBytes = shared_bytes_of(kWarps, sizeof(f32)) +
                                      shared_bytes_of(kTile, sizeof(f32)) +
                                      shared_bytes_of(kLanes, sizeof(f32));
  using Args = GpuPqWeighArgs;

  struct Room {
    Shared<f32> of_warp;  // [kWarps]
    Shared<f32> tile;     // [kTile]
    Shared<f32> lanes;    // [kLanes]
  };

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Room room{.of_warp = cta.shared<f32>(kWarps),
                    .tile = cta.shared<f32>(kTile),
                    .lanes = cta.shared<f32>(kLanes)};
    const u32 n = load<u32>(args.n_tokens);
    f32* weights = args.weights + cta.block() * args.weights_stride;
    for (u32 h = 0; h < args.n_group_heads; ++h) {
      const u32 head = cta.block() * args.n_group_heads + h;
      f32* p = args.scores + head * args.scores_stride;
      const f32 max = max_of(cta, p, n, room);
      const f32 factor = 1.0f / exponentials(cta, p, n, max, room);
      for (u32 t = cta.thread(); t < n; t += kThreads) {  // what this thread wrote itself
        const f32 weight = p[t] * factor;
        store(weights + t, h == 0 ? weight : weights[t] + weight);
      }
    }
  }

  TARN_DEVICE static f32 max_of(Cta& cta, const f32* scores, u32 n, const Room& room) {
    f32 max = minus_infinity();
    for (u32 t = cta.thread(); t < n; t += kThreads) max = scores[t] > max ? scores[t] : max;
    max = max_warp(cta, max);
    if (cta.lane() == 0) room.of_warp[cta.warp()] = max;
    cta.barrier();  // every warp's maximum is there; the last head's are read: two barriers follow
    for (u32 w = 0; w < kWarps; ++w) {
      const f32 other = room.of_warp[w];
      max = other > max ? other : max;
    }
    return max;
  }

  // Scores become p; returns their sum, sum16 of the sums of every 16th.
  TARN_DEVICE static f32 exponentials(Cta& cta, f32* p, u32 n, f32 max, const Room& room) {
    f32 lane_sum = 0.0f;
    for (u32 begin = 0; begin < n; begin += kTile) {
      const u32 n_tile = n - begin < kTile ? n - begin : kTile;
      for (u32 i = cta.thread(); i < n_tile; i += kThreads) {
        const f32 weight = exp_f32(p[begin + i] - max);
        store(p + begin + i, weight);
        room.tile[i] = weight;
      }
      cta.barrier();  // the tile is whole
      if (cta.thread() < kLanes) {
        for (u32 i = cta.thread(); i < n_tile; i += kLanes) {
          const f32 weight = room.tile[i];
          lane_sum += weight;
        }
      }
      cta.barrier();  // the lanes have read the tile
    }
    if (cta.thread() < kLanes) room.lanes[cta.thread()] = lane_sum;
    cta.barrier();  // every lane's sum is there
    return sum_lanes(room.lanes);
  }
};

// A CTA a KV head. A thread has the same pairs of codes all the time, in registers.
struct PqPairs {
  static constexpr u32 kThreads = 256;
  static constexpr u32 kCtasASm = 1;  // registers; there are fewer CTAs than SMs
  static constexpr u32 kWarps = kThreads / kWarpLanes;
  static constexpr u32 kPairsMax = kPqPairSideMax * kPqPairSideMax;
  static constexpr u32 kMine = kPairsMax / kThreads;  // of a thread: thread, thread + kThreads, ...
  static constexpr u32 kLanes = 16;
  static constexpr u32 kAtOnce = 16;
  using Args = GpuPqPairsArgs;
  using Best = RankCta<kThreads>;
  static constexpr u64 kSharedBytes =
      shared_bytes_of(kPairsMax, sizeof(f32)) + shared_bytes_of(kWarps, sizeof(f32)) +
      shared_bytes_of(kLanes, sizeof(f32)) + shared_bytes_of(Best::kRoom, sizeof(u32));

  struct Room {
    Shared<f32> p;        // [kPairsMax], of a head, times how many tokens have the pair
    Shared<f32> of_warp;  // [kWarps]
    Shared<f32> lanes;    // [kLanes]
    Shared<u32> rank;
  };
  struct Pairs {
    u32 n;  // of the head; [kMine] from the thread's own on
    u32 counts[kMine];
    f32 weights[kMine];
    template <class Fn>
    TARN_DEVICE void each(Fn&& fn) const {
      TARN_UNROLL(kMine) for (u32 j = 0; j < kMine; ++j) {
        if (j * kThreads < n) fn(rank_key(weights[j]), counts[j]);
      }
    }
  };
  template <PqCodeFormat format>
  struct Ranks {
    Shared<u32> of_pair;
    u32 side;
    const u8* first;  // row of codes
    const u8* second;
    TARN_DEVICE void two(u32 token, Rank (&ranks)[2]) const {
      u32 codes[2], others[2];
      two_codes<format>(first, token, codes);
      two_codes<format>(second, token, others);
      TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
        const u32 pair = codes[i] * side + others[i];  // any number behind the last token
        const u32 rank = of_pair[pair < kPairsMax ? pair : 0];
        ranks[i] = static_cast<Rank>(rank);
      }
    }
  };

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Room room{.p = cta.shared<f32>(kPairsMax),
                    .of_warp = cta.shared<f32>(kWarps),
                    .lanes = cta.shared<f32>(kLanes),
                    .rank = cta.shared<u32>(Best::kRoom)};
    const GpuPqIndex& index = args.index;
    const u8* head = head_of(index, cta.block());
    const u32* counts = reinterpret_cast<const u32*>(head + index.counts_at);
    u32* out = args.out + cta.block() * args.out_stride;
    const u32 n = load<u32>(args.n_tokens), k = load<u32>(args.k), side = index.n_padded;
    if (k == 0) return;
    if (n <= k) {
      for (u32 i = cta.thread(); i < n; i += kThreads) store(out + i, i);
      return;
    }
    Pairs pairs;
    pairs.n = side * side;
    u32 codes_of[kMine];  // first and, 16 bits higher, second
    TARN_UNROLL(kMine) for (u32 j = 0; j < kMine; ++j) {
      const u32 pair = cta.thread() + j * kThreads;
      codes_of[j] = pair / side | pair % side << 16;
      pairs.counts[j] = pair < pairs.n ? counts[pair] : 0;
      pairs.weights[j] = 0.0f;
    }
    for (u32 h = 0; h < index.n_group_heads; ++h) {
      const u32 q_head = cta.block() * index.n_group_heads + h;
      const f32* lut = args.lut + u64{q_head} * 2 * side;
      f32 scores[kMine];
      TARN_UNROLL(kMine) for (u32 j = 0; j < kMine; ++j) {
        scores[j] = minus_infinity();  // of a pair that no token has
        if (pairs.counts[j] == 0) continue;
        scores[j] = (load<f32>(lut + (codes_of[j] & 0xffffu)) +
                     load<f32>(lut + side + (codes_of[j] >> 16))) *
                    args.scale;
      }
      if (index.n_group_heads > 1) {
        weigh(cta, scores, h, room, &pairs);
        continue;
      }
      TARN_UNROLL(kMine) for (u32 j = 0; j < kMine; ++j) pairs.weights[j] = scores[j];
    }
    const RankBound bound = Best::kth(cta, pairs, k, room.rank);
    const Shared<u32> of_pair = room.p.template as<u32>();
    TARN_UNROLL(kMine) for (u32 j = 0; j < kMine; ++j) {
      of_pair[cta.thread() + j * kThreads] = static_cast<u32>(bound.of(rank_key(pairs.weights[j])));
    }
    cta.barrier();  // every pair's rank is there
    const u8* codes = head + index.codes_at;
    const u8* others = codes + index.codes_stride;
    const auto take = [&](const auto& ranks) {
      Best::take(cta, ranks, n, bound.n_equal, out, room.rank);
    };
    switch (index.format) {  // asked here, and not for each token
      case PqCodeFormat::bytes:
        return take(Ranks<PqCodeFormat::bytes>{of_pair, side, codes, others});
      case PqCodeFormat::packed4:
        return take(Ranks<PqCodeFormat::packed4>{of_pair, side, codes, others});
      case PqCodeFormat::packed6:
        return take(Ranks<PqCodeFormat::packed6>{of_pair, side, codes, others});
    }
  }

  // Adds the weights by q head h of the group.
  TARN_DEVICE static void weigh(Cta& cta, const f32 (&scores)[kMine], u32 h, const Room& room,
                                Pairs* pairs) {
    f32 max = minus_infinity();
    TARN_UNROLL(kMine) for (u32 j = 0; j < kMine; ++j) max = scores[j] > max ? scores[j] : max;
    max = max_warp(cta, max);
    if (cta.lane() == 0) room.of_warp[cta.warp()] = max;
    cta.barrier();  // every warp's maximum is there; the last head's sum was read
    max = max_warp(cta, static_cast<f32>(room.of_warp[cta.lane() % kWarps]));
    f32 p[kMine];
    TARN_UNROLL(kMine) for (u32 j = 0; j < kMine; ++j) {
      if (j * kThreads >= pairs->n) continue;
      p[j] = exp_f32(scores[j] - max);
      room.p[cta.thread() + j * kThreads] = static_cast<f32>(pairs->counts[j]) * p[j];
    }
    cta.barrier();  // every pair's share of the sum is there
    if (cta.thread() < kLanes) {
      f32 sum = 0.0f;
      static_assert(kPqLanes * kPqLanes % (kAtOnce * kLanes) == 0);  // so is every number of pairs
      for (u32 i = cta.thread(); i < pairs->n; i += kAtOnce * kLanes) {
        f32 shares[kAtOnce];  // read before the first is added
        TARN_UNROLL(kAtOnce) for (u32 j = 0; j < kAtOnce; ++j) {
          const f32 share = room.p[i + j * kLanes];
          shares[j] = share;
        }
        TARN_UNROLL(kAtOnce) for (u32 j = 0; j < kAtOnce; ++j) sum = sum + shares[j];
      }
      room.lanes[cta.thread()] = sum;
    }
    cta.barrier();  // every lane's sum is there
    const f32 factor = 1.0f / sum_lanes(room.lanes);
    TARN_UNROLL(kMine) for (u32 j = 0; j < kMine; ++j) {
      if (j * kThreads >= pairs->n) continue;
      const f32 weight = p[j] * factor;
      pairs->weights[j] = h == 0 ? weight : pairs->weights[j] + weight;
    }
  }
};

// A CTA a KV head of a layer, a thread a centroid; token by token, since codes share bytes.
struct PqAssign {
  static constexpr u32 kThreads = kPqCentroidsMax;
  static constexpr u32 kCtasASm = 4;
  static constexpr u32 kWarps = kThreads / kWarpLanes;
  static constexpr u64 kSharedBytes =
      shared_bytes_of(kWarps, sizeof(f32)) + shared_bytes_of(kWarps, sizeof(u32));
  using Args = GpuPqAssignArgs;

  struct Best {
    f32 value;
    u32 centroid;
  };
  TARN_DEVICE static Best better(const Best& a, const Best& b) {
    return b.value > a.value || (b.value == a.value && b.centroid < a.centroid) ? b : a;
  }

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Shared<f32> values = cta.shared<f32>(kWarps);
    const Shared<u32> centroids = cta.shared<u32>(kWarps);
    const GpuPqIndex& index = args.index;
    const GpuPqNewRows rows = *args.rows;
    u8* head = head_of(index, cta.block());
    if (cta.thread() == 0) {
      for (u32 token = rows.begin; token < rows.counted; ++token) count(index, head, token, ~0u);
    }
    for (u32 token = rows.begin; token < rows.end; ++token) {
      const u8* key = key_of(args, cta.block(), rows.slot_begin + token);
      for (u32 m = 0; m < index.n_subspaces; ++m) {
        Best best = of_thread(cta, args, head, key, m);
        for (u32 mask = kWarpLanes / 2; mask > 0; mask /= 2) {
          best = better(best,
                        {cta.shuffle_xor(best.value, mask), cta.shuffle_xor(best.centroid, mask)});
        }
        if (cta.lane() == 0) {
          values[cta.warp()] = best.value;
          centroids[cta.warp()] = best.centroid;
        }
        cta.barrier();  // every warp's best is there
        if (cta.thread() == 0) {
          for (u32 w = 1; w < kWarps; ++w) {
            const f32 value = values[w];
            const u32 centroid = centroids[w];
            best = better(best, {value, centroid});
          }
          put_code(index.format, head + index.codes_at + m * index.codes_stride, token,
                   best.centroid);
        }
        cta.barrier();  // it has read them
      }
      if (cta.thread() == 0) count(index, head, token, 1);
    }
  }

  // By the thread that wrote the codes.
  TARN_DEVICE static void count(const GpuPqIndex& index, u8* head, u32 token, u32 step) {
    if (index.counts_at == 0) return;
    const u8* codes = head + index.codes_at;
    const u32 first = code_of(index.format, codes, token);
    const u32 second = code_of(index.format, codes + index.codes_stride, token);
    u32* counts = reinterpret_cast<u32*>(head + index.counts_at);
    u32* of_pair = counts + first * index.n_padded + second;
    store(of_pair, *of_pair + step);
  }

  TARN_DEVICE static const u8* key_of(const Args& args, u32 layer_head, u32 slot) {
    const GpuPqKeys& keys = args.keys;
    const u32 n_kv_heads = args.index.n_kv_heads;
    u8* const* groups = keys.groups + load<u32>(args.index.table) * keys.table_stride;
    const u64 group = u64{slot / keys.page_tokens} * keys.group_stride + layer_head / n_kv_heads;
    return groups[group] + layer_head % n_kv_heads * keys.page_stride +
           u64{slot % keys.page_tokens} * keys.slot_stride;
  }

  // This thread's centroid of a sub-space.
  TARN_DEVICE static Best of_thread(Cta& cta, const Args& args, const u8* head, const u8* key,
                                    u32 subspace) {
    const GpuPqIndex& index = args.index;
    const u32 c = cta.thread();
    if (c >= index.n_padded) return {minus_infinity(), 0};
    const f32* column =
        reinterpret_cast<const f32*>(head) + u64{subspace} * index.dims * index.n_padded + c;
    const f32* norms = reinterpret_cast<const f32*>(head + index.half_norms_at);
    f32 dot = 0.0f;
    for (u32 i = 0; i < index.dims; ++i) {
      dot = fma(element(args.keys.type, key, dim_of(index, subspace, i)),
                load<f32>(column + u64{i} * index.n_padded), dot);
    }
    const f32 value = dot - load<f32>(norms + subspace * index.n_padded + c);
    return value > minus_infinity() ? Best{value, c} : Best{minus_infinity(), 0};
  }

  TARN_DEVICE static f32 element(TensorType type, const u8* key, u32 i) {
    if (type == TensorType::f16) return widen_f16(load<u16>(key + u64{i} * 2));
    const bool is_q8 = type == TensorType::q8_0;
    const u8* block = key + u64{i / kBlock} * (2 + (is_q8 ? kBlock : kBlock / 2));
    const u8* code = block + 2 + i % (is_q8 ? kBlock : kBlock / 2);
    const i32 q = is_q8 ? load<i8>(code) : (load<u8>(code) >> (i % kBlock / 16 * 4) & 15) - 8;
    return widen_f16(load<u16>(block)) * static_cast<f32>(q);
  }
};

u32 n_heads(const GpuPqIndex& index) { return index.n_kv_heads * index.n_group_heads; }

}  // namespace

void pq_lut_gpu(const GpuPqLutArgs& args, GpuStream* stream) {
  const u32 n_entries = args.index.n_subspaces * args.index.n_padded;
  launch<PqLut>({.n_ctas = (n_entries + PqLut::kThreads - 1) / PqLut::kThreads,
                 .n_ctas_y = n_heads(args.index)},
                stream, args);
}

void pq_score_gpu(const GpuPqScoreArgs& args, GpuStream* stream) {
  launch<PqScore>({.n_ctas = (args.tokens_max + PqScore::kThreads - 1) / PqScore::kThreads,
                   .n_ctas_y = n_heads(args.index)},
                  stream, args);
}

void pq_weigh_gpu(const GpuPqWeighArgs& args, GpuStream* stream) {
  launch<PqWeigh>({.n_ctas = args.n_kv_heads, .shared_bytes = PqWeigh::kSharedBytes}, stream, args);
}

void pq_pairs_gpu(const GpuPqPairsArgs& args, GpuStream* stream) {
  launch<PqPairs>({.n_ctas = args.index.n_kv_heads, .shared_bytes = PqPairs::kSharedBytes}, stream,
                  args);
}

void pq_assign_gpu(const GpuPqAssignArgs& args, GpuStream* stream) {
  launch<PqAssign>({.n_ctas = args.n_cache_layers * args.index.n_kv_heads,
                    .shared_bytes = PqAssign::kSharedBytes},
                   stream, args);
}

void pq_kernels(const KernelSink& sink) { tell<PqLut, PqScore, PqWeigh, PqPairs, PqAssign>(sink); }

}  // namespace tarn::kernels::TARN_GPU
