// The kernels of a row with selection (kernels/pq/pq_gpu.h, topk_gpu.h, gather_slots_gpu.h), by
// pairs of codes and token by token, over contexts of several lengths.
//
//   memory   the indexes of all cache layers, consecutive as in the engine: each call takes the
//            next layer's, like a token's kernels. KV lies in random groups of the pool. Tables,
//            scores, weights and places are one layer's, as in the engine
//   figures  bytes are those that a kernel must read and write, each once
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attn/attn.h"
#include "platform/base/checked.h"
#include "tools/gpu_check/bench.h"

namespace tarn::gpu_check {
namespace {

constexpr u32 kSelectPageTokens = 64;
constexpr u64 kPieceAlignment = 256;
constexpr auto kFormat = kernels::PqCodeFormat::bytes;

// The offsets of the parts of a head's index, for given codes and length.
struct IndexLayout {
  u32 n_subspaces = 0, code_bits = 0;
  u32 n_middle = 0;
  u32 dims = 0, n_padded = 0;
  bool has_pairs = false;
  u64 half_norms_at = 0, codes_at = 0, codes_stride = 0, counts_at = 0;
  u64 head_bytes = 0;

  u64 codebook_bytes() const { return u64{n_subspaces} * dims * n_padded * sizeof(f32); }
  u64 half_norms_bytes() const { return u64{n_subspaces} * n_padded * sizeof(f32); }
  u64 counts_bytes() const { return u64{n_padded} * n_padded * sizeof(u32); }
  std::string name() const { return std::to_string(n_subspaces) + "x" + std::to_string(code_bits); }
};

IndexLayout layout_of(const BenchShape& shape, bool has_pairs, u32 n_middle) {
  IndexLayout at{.n_subspaces = has_pairs ? 2u : shape.token_subspaces,
                 .code_bits = has_pairs ? shape.pair_bits : shape.token_bits,
                 .n_middle = n_middle};
  at.has_pairs = has_pairs;
  at.dims = shape.head_dim / at.n_subspaces;
  at.n_padded = kernels::pq_padded(1u << at.code_bits);
  at.half_norms_at = at.codebook_bytes();
  at.codes_at = at.half_norms_at + at.half_norms_bytes();
  at.codes_stride = kernels::pq_row_bytes(kFormat, n_middle);
  const u64 codes_end = at.codes_at + at.n_subspaces * at.codes_stride;
  at.counts_at = has_pairs ? codes_end : 0;
  at.head_bytes = align_up(codes_end + (has_pairs ? at.counts_bytes() : 0), kPieceAlignment);
  return at;
}

class Random {
 public:
  u32 below(u32 n) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<u32>((state_ >> 33) % n);
  }
  f32 uniform() { return static_cast<f32>(below(1u << 24)) * 0x1p-23f - 1.0f; }  // in [-1, 1)
  std::vector<f32> uniform(u64 n) {
    std::vector<f32> values(n);
    for (f32& value : values) value = uniform();
    return values;
  }

 private:
  u64 state_ = 1;
};

class SelectBench {
 public:
  explicit SelectBench(Bench& bench) : bench_(bench), table_(bench.table()), shape_(bench.shape()) {
    const u32 depth_max = *std::ranges::max_element(shape_.select_depths);
    u64 head_bytes_max = 0, lut_max = 0;
    for (const bool has_pairs : {true, false}) {
      const IndexLayout at = layout_of(shape_, has_pairs, depth_max);
      head_bytes_max = std::max(head_bytes_max, at.head_bytes);
      lut_max = std::max(lut_max, u64{at.n_subspaces} * at.n_padded);
    }
    indexes_ = bench_.reserve(shape_.n_layers * u64{shape_.n_kv_heads} * head_bytes_max);
    zero_ = bench_.upload(std::vector<u32>{0});
    q_ = bench_.upload(random_.uniform(u64{shape_.n_heads} * shape_.head_dim));
    lut_ = floats(shape_.n_heads * lut_max);
    scores_ = floats(u64{shape_.n_heads} * depth_max);
    weights_ = floats(u64{shape_.n_kv_heads} * depth_max);
    chosen_ = bench_.reserve(places_bytes()).as<u32>().raw();
    place_kv(depth_max);
  }

  void run() {
    for (const bool has_pairs : {true, false}) {
      for (const u32 depth : shape_.select_depths) {
        const u32 n_middle = depth - shape_.n_sinks - shape_.n_local;
        at_ = layout_of(shape_, has_pairs, n_middle);
        depth_ = depth;
        place_index();
        has_pairs ? measure_pairs() : measure_tokens();
      }
    }
  }

 private:
  f32* floats(u64 n) { return bench_.reserve(n * sizeof(f32)).as<f32>().raw(); }
  GpuStream* stream() const { return bench_.stream(); }
  u64 places_bytes() const { return u64{shape_.n_kv_heads} * shape_.k * sizeof(u32); }
  u64 vector_bytes() const {
    return kernels::kv_vector_bytes(kernels::KvType::f16, shape_.head_dim);
  }
  u64 page_bytes() const { return 2 * kSelectPageTokens * vector_bytes(); }
  u64 layer_bytes() const { return shape_.n_kv_heads * at_.head_bytes; }
  u64 lut_bytes() const {
    return u64{shape_.n_heads} * at_.n_subspaces * at_.n_padded * sizeof(f32);
  }
  u64 codes_bytes() const { return u64{shape_.n_kv_heads} * at_.n_subspaces * at_.n_middle; }
  u64 row_bytes(u32 n_rows) const { return u64{n_rows} * at_.n_middle * sizeof(f32); }

  // `calls`: calls of a token with selection by pairs of codes, the engine's default.
  void measure(const std::string& name, u32 calls, u64 bytes,
               const std::function<void(u32)>& enqueue) {
    bench_.measure({.group = "select",
                    .name = name,
                    .depth = depth_,
                    .calls = at_.has_pairs ? calls : 0,
                    .bytes = bytes},
                   enqueue);
  }

  // Groups of all layers over the longest context, drawn from the pool.
  void place_kv(u32 depth_max) {
    const u64 group = align_up(page_bytes() * shape_.n_kv_heads, kPieceAlignment);
    const auto n_in_pool = static_cast<u32>(bench_.pool_bytes() / group);
    std::vector<u8*> groups(ceil_div(depth_max, kSelectPageTokens) * shape_.n_layers);
    for (u8*& at : groups) at = (bench_.pool() + random_.below(n_in_pool) * group).as<u8>().raw();
    groups_ = bench_.upload(groups);
    const u32 n_slots = shape_.n_sinks + shape_.k + shape_.n_local;
    gathered_ =
        bench_.reserve(ceil_div(n_slots, kSelectPageTokens) * shape_.n_kv_heads * page_bytes())
            .as<u8>()
            .raw();
  }

  // Fills a head's index with random codebooks and codes, and their counts.
  void fill_head(std::byte* head) {
    const auto as_floats = [head](u64 at) { return reinterpret_cast<f32*>(head + at); };
    const u64 n_floats = at_.codebook_bytes() / sizeof(f32);
    std::generate_n(as_floats(0), n_floats, [this] { return random_.uniform(); });
    for (u32 i = 0; i < at_.n_subspaces * at_.n_padded; ++i) {
      const bool is_padding = i % at_.n_padded >= 1u << at_.code_bits;
      as_floats(at_.half_norms_at)[i] = is_padding ? std::numeric_limits<f32>::infinity() : 1.0f;
    }
    u8* const codes = reinterpret_cast<u8*>(head + at_.codes_at);
    for (u32 m = 0; m < at_.n_subspaces; ++m) {
      std::generate_n(codes + m * at_.codes_stride, at_.n_middle,
                      [this] { return static_cast<u8>(random_.below(1u << at_.code_bits)); });
    }
    if (!at_.has_pairs) return;
    u32* const counts = reinterpret_cast<u32*>(head + at_.counts_at);
    for (u32 i = 0; i < at_.n_middle; ++i) {
      ++counts[codes[i] * at_.n_padded + codes[at_.codes_stride + i]];
    }
  }

  void place_index() {
    std::vector<std::byte> layer(layer_bytes());
    for (u32 h = 0; h < shape_.n_kv_heads; ++h) fill_head(layer.data() + h * at_.head_bytes);
    bench_.send(indexes_, layer);
    for (u32 i = 1; i < shape_.n_layers; ++i) {
      bench_.device().copy(indexes_ + i * layer_bytes(), indexes_, layer_bytes(), stream());
    }
    n_tokens_ = bench_.upload(std::vector<u32>{at_.n_middle});
    n_chosen_ = std::min(shape_.k, at_.n_middle);
    k_ = bench_.upload(std::vector<u32>{n_chosen_});
  }

  kernels::GpuPqIndex index(u32 layer) const {
    return {.format = kFormat,
            .n_kv_heads = shape_.n_kv_heads,
            .n_group_heads = shape_.n_heads / shape_.n_kv_heads,
            .n_subspaces = at_.n_subspaces,
            .dims = at_.dims,
            .adjacent_dims = at_.n_subspaces * at_.dims,
            .n_padded = at_.n_padded,
            .heads = (indexes_ + layer % shape_.n_layers * layer_bytes()).as<u8>().raw(),
            .head_stride = at_.head_bytes,
            .table_stride = 0,
            .table = zero_,
            .half_norms_at = at_.half_norms_at,
            .codes_at = at_.codes_at,
            .counts_at = at_.counts_at,
            .codes_stride = at_.codes_stride};
  }
  f32 scale() const { return 1.0f / std::sqrt(static_cast<f32>(shape_.head_dim)); }

  void measure_lut() {
    const u64 bytes = shape_.n_kv_heads * at_.codebook_bytes() +
                      u64{shape_.n_heads} * shape_.head_dim * sizeof(f32) + lut_bytes();
    measure("pq_lut " + at_.name(), shape_.n_layers, bytes,
            [this](u32 i) { table_.pq_lut({.index = index(i), .q = q_, .lut = lut_}, stream()); });
  }

  // Measures the codes of the last token, in all layers.
  void measure_assign() {
    const u64 n_heads = u64{shape_.n_layers} * shape_.n_kv_heads;
    const u64 bytes = n_heads * (at_.codebook_bytes() + at_.half_norms_bytes() + vector_bytes());
    const kernels::GpuPqNewRows* rows =
        bench_.upload(std::vector<kernels::GpuPqNewRows>{{.slot_begin = shape_.n_sinks,
                                                          .begin = at_.n_middle - 1,
                                                          .end = at_.n_middle,
                                                          .counted = at_.n_middle - 1}});
    measure("pq_assign " + at_.name(), 1, bytes, [this, rows](u32) {
      table_.pq_assign({.index = index(0),
                        .keys = {.type = kernels::TensorType::f16,
                                 .page_tokens = kSelectPageTokens,
                                 .groups = groups_,
                                 .table_stride = 0,
                                 .group_stride = shape_.n_layers,
                                 .page_stride = page_bytes(),
                                 .slot_stride = 2 * vector_bytes()},
                        .n_cache_layers = shape_.n_layers,
                        .rows = rows},
                       stream());
    });
  }

  // Gathers slots of the whole middle, a random one from each part.
  void measure_gather() {
    std::vector<u32> places;
    const u32 part = at_.n_middle / n_chosen_;
    for (u32 i = 0; i < shape_.n_kv_heads * n_chosen_; ++i) {
      const u64 begin = u64{i % n_chosen_} * at_.n_middle / n_chosen_;
      places.push_back(static_cast<u32>(begin) + random_.below(part));
    }
    const u32* some = bench_.upload(places);
    const kernels::GpuSegments segments{.n_sinks = shape_.n_sinks,
                                        .n_places = n_chosen_,
                                        .local_begin = depth_ - shape_.n_local,
                                        .n_slots = shape_.n_sinks + n_chosen_ + shape_.n_local};
    const auto* on_device = bench_.upload(std::vector<kernels::GpuSegments>{segments});
    const u64 slot_bytes = shape_.n_kv_heads * 2 * vector_bytes();
    const u64 bytes = 2 * segments.n_slots * slot_bytes + places.size() * sizeof(u32);
    measure("gather_slots f16", shape_.n_layers, bytes, [&, some, on_device](u32 i) {
      table_.gather_slots({.pages = {.type = kernels::KvType::f16,
                                     .page_tokens = kSelectPageTokens,
                                     .head_dim = shape_.head_dim,
                                     .n_kv_heads = shape_.n_kv_heads,
                                     .groups = groups_ + i % shape_.n_layers,
                                     .table_stride = 0,
                                     .group_stride = shape_.n_layers,
                                     .page_stride = page_bytes(),
                                     .tables = zero_},
                           .row = 0,
                           .places = some,
                           .places_stride = n_chosen_,
                           .segments = on_device,
                           .slots_max = segments.n_slots,
                           .out = gathered_},
                          stream());
    });
  }

  void measure_pairs() {
    measure_lut();
    const u64 bytes = codes_bytes() + shape_.n_kv_heads * at_.counts_bytes() + lut_bytes() +
                      u64{shape_.n_kv_heads} * n_chosen_ * sizeof(u32);
    measure("pq_pairs " + at_.name(), shape_.n_layers, bytes, [this](u32 i) {
      table_.pq_pairs({.index = index(i),
                       .lut = lut_,
                       .out = chosen_,
                       .out_stride = shape_.k,
                       .n_tokens = n_tokens_,
                       .k = k_,
                       .scale = scale()},
                      stream());
    });
    measure_gather();
    measure_assign();
  }

  void score(u32 i) {
    table_.pq_score({.index = index(i),
                     .lut = lut_,
                     .scores = scores_,
                     .scores_stride = at_.n_middle,
                     .n_tokens = n_tokens_,
                     .tokens_max = at_.n_middle,
                     .scale = scale()},
                    stream());
  }
  void weigh() {
    table_.pq_weigh({.scores = scores_,
                     .scores_stride = at_.n_middle,
                     .weights = weights_,
                     .weights_stride = at_.n_middle,
                     .n_tokens = n_tokens_,
                     .n_kv_heads = shape_.n_kv_heads,
                     .n_group_heads = shape_.n_heads / shape_.n_kv_heads},
                    stream());
  }
  void measure_tokens() {
    const u32 n_q = shape_.n_heads, n_kv = shape_.n_kv_heads;
    measure_lut();
    measure("pq_score " + at_.name(), 0, codes_bytes() + lut_bytes() + row_bytes(n_q),
            [this](u32 i) { score(i); });
    measure("pq_weigh", 0, 2 * row_bytes(n_q) + row_bytes(n_kv), [this](u32) { weigh(); });
    score(0);  // the calls before have overwritten the scores
    weigh();
    const u64 bytes = row_bytes(n_kv) + u64{n_kv} * n_chosen_ * sizeof(u32);
    measure("top_k", 0, bytes, [this](u32) {
      table_.top_k({.values = weights_,
                    .values_stride = at_.n_middle,
                    .out = chosen_,
                    .out_stride = shape_.k,
                    .n = n_tokens_,
                    .k = k_,
                    .n_rows = shape_.n_kv_heads},
                   stream());
    });
    measure_assign();
  }

  Bench& bench_;
  const kernels::GpuTable& table_;
  const BenchShape& shape_;
  Random random_;
  IndexLayout at_{};
  u32 depth_ = 0, n_chosen_ = 0;
  DeviceBytes indexes_{};
  u8** groups_ = nullptr;
  u8* gathered_ = nullptr;
  const u32* zero_ = nullptr;
  const u32* n_tokens_ = nullptr;
  const u32* k_ = nullptr;
  const f32* q_ = nullptr;
  f32* lut_ = nullptr;
  f32* scores_ = nullptr;
  f32* weights_ = nullptr;
  u32* chosen_ = nullptr;
};

}  // namespace

void bench_selection(Bench& bench) {
  if (!bench.shape().select_depths.empty()) SelectBench(bench).run();
}

}  // namespace tarn::gpu_check
