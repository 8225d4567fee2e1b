#include "tools/gpu_check/kernel_bench.h"

#include <algorithm>

#include "kernels/attn/attn.h"
#include "kernels/quant/gpu_tile.h"
#include "platform/base/checked.h"
#include "tools/gpu_check/bench.h"
#include "tools/support/json.h"

namespace tarn::gpu_check {
namespace {

using kernels::KvType;
using kernels::TensorType;

constexpr u32 kRowsMax = kernels::kGpuMatvecRowsMax;
constexpr u32 kPageTokens = 64;
constexpr TensorType kTypes[] = {TensorType::q4_k, TensorType::q6_k, TensorType::q8_0,
                                 TensorType::f16};

struct Part {
  TensorType type;
  u32 n_out;
};

class DecodeBench {
 public:
  explicit DecodeBench(Bench& bench) : bench_(bench), table_(bench.table()), shape_(bench.shape()) {
    const u64 biggest_matrix =
        std::max({matrix_bytes(TensorType::f16, shape_.n_ff, shape_.d_model),
                  matrix_bytes(TensorType::q6_k, shape_.n_vocab, shape_.d_model),
                  matrix_bytes(TensorType::q6_k, shape_.d_model, shape_.n_ff),
                  2 * matrix_bytes(TensorType::q4_k, shape_.n_ff, shape_.d_model)});
    bench.reserve_pool(biggest_matrix);
    row_floats_ = std::max({shape_.d_model + 2 * shape_.n_kv_heads * shape_.head_dim,
                            2 * shape_.n_ff, shape_.n_vocab});
    for (const TensorType type : kTypes) row_floats_ = std::max(row_floats_, big_rows(type));
    x_ = bench.floats(u64{kRowsMax} * row_floats_);
    y_ = bench.floats(u64{kRowsMax} * row_floats_);
    const u64 k_max = std::max(shape_.d_model, shape_.n_ff);
    acts_ = bench.random_acts(kRowsMax * k_max);
    for (u32 n = 0; n <= kRowsMax; ++n) counts_.push_back(bench_.upload(std::vector<u32>{n}));
    ids_ = bench_.upload(std::vector<u32>(kRowsMax, 1));
    zeros_ = bench_.upload(std::vector<u32>(kRowsMax, 0));
  }

  void run() {
    measure_copies();
    measure_launches();
    for (const TensorType type : kTypes) {
      for (const u32 rows : {1u, 4u, 8u}) measure_product(type, rows);
    }
    bench_prompts(bench_);
    for (const u32 depth : shape_.depths) {
      for (const KvType type : {KvType::f16, KvType::q8_0, KvType::q4_0}) {
        measure_attention(type, depth);
      }
    }
    measure_step();
  }

 private:
  GpuStream* stream() const { return bench_.stream(); }

  void measure_copies() {
    const DeviceBytes pool = bench_.pool();
    const u64 half = bench_.pool_bytes() / 2;
    bench_.measure({.group = "copy", .name = "copy", .bytes = 2 * half},
                   [&](u32) { bench_.device().copy(pool, pool + half, half, stream()); });
    bench_.measure({.group = "copy", .name = "read", .bytes = bench_.pool_bytes()},
                   [&](u32) { bench_.device().read(pool, bench_.pool_bytes(), stream()); });
  }

  void add(u32 d) {
    table_.add({.x = x_,
                .x_stride = row_floats_,
                .y = y_,
                .y_stride = row_floats_,
                .n_rows = counts_[1],
                .rows_max = 1,
                .d = d},
               stream());
  }
  void measure_launches() {
    bench_.measure({.group = "launch", .name = "graph"}, [&](u32) { add(32); });
    Bench::Timing timing = bench_.timing();
    timing.in_graph = false;
    bench_.measure({.group = "launch", .name = "stream"}, timing, [&](u32) { add(32); });
  }

  void product(const std::vector<Part>& parts, u32 k, u32 rows, u32 i, kernels::Store store) {
    kernels::GpuMatvecArgs args{.matrices = {},
                                .n_matrices = static_cast<u32>(parts.size()),
                                .k = k,
                                .x = x_,
                                .x_stride = row_floats_,
                                .acts = acts_,
                                .n_rows = counts_[rows],
                                .rows_max = rows};
    const std::byte* weights = bench_.piece(bytes_of(parts, k), i);
    f32* out = y_;
    for (u32 j = 0; j < parts.size(); ++j) {
      args.matrices[j] = {.type = parts[j].type,
                          .store = store,
                          .n_out = parts[j].n_out,
                          .weights = weights,
                          .bias = nullptr,
                          .out = out,
                          .out_stride = row_floats_};
      weights += matrix_bytes(parts[j].type, parts[j].n_out, k);
      out += parts[j].n_out;
    }
    table_.matvec(args, stream());
  }
  static u64 bytes_of(const std::vector<Part>& parts, u32 k) {
    u64 bytes = 0;
    for (const Part& part : parts) bytes += matrix_bytes(part.type, part.n_out, k);
    return bytes;
  }

  // The rows of a matrix of at least weight_bytes_min.
  u32 big_rows(TensorType type) const {
    const u64 tile = kernels::gpu_tile_bytes(type, shape_.d_model);
    return static_cast<u32>((shape_.weight_bytes_min + tile - 1) / tile * kernels::kTileRows);
  }
  void measure_product(TensorType type, u32 rows) {
    const u32 k = shape_.d_model;
    const std::vector<Part> parts = {{type, big_rows(type)}};
    const u64 bytes = bytes_of(parts, k);
    bench_.measure({.group = "kernel",
                    .name = std::string("matvec ") + kernels::type_traits(type).name,
                    .rows = rows,
                    .weight_bytes = bytes,
                    .bytes = bytes},
                   [&](u32 i) { product(parts, k, rows, i, kernels::Store::set); });
  }

  struct Attention {
    kernels::GpuPages pages;
    const u32* visible;
    u32 spans;
    f32* partial;
    u64 bytes;  // of K and V
    u32 n_groups_a_call;
    u64 n_in_pool;  // groups
  };
  // Groups of one layer over the whole pool; each call takes the next ones.
  Attention attention(KvType type, u32 depth) {
    const u64 page = 2 * kPageTokens * kernels::kv_vector_bytes(type, shape_.head_dim);
    const u64 group = align_up(page * shape_.n_kv_heads, 256);
    const u64 n_in_pool = bench_.pool_bytes() / group;
    const u32 n_groups = static_cast<u32>(ceil_div(depth, kPageTokens));
    std::vector<u8*> groups;
    for (u64 i = 0; i < std::max<u64>(n_in_pool, n_groups) + n_groups; ++i) {
      groups.push_back((bench_.pool() + i % n_in_pool * group).as<u8>().raw());
    }
    const u32 spans = static_cast<u32>(ceil_div(depth, kernels::kGpuSpanSlots));
    return {.pages = {.type = type,
                      .page_tokens = kPageTokens,
                      .head_dim = shape_.head_dim,
                      .n_kv_heads = shape_.n_kv_heads,
                      .groups = bench_.upload(groups),
                      .table_stride = 0,
                      .group_stride = 1,
                      .page_stride = page,
                      .tables = zeros_},
            .visible = bench_.upload(std::vector<u32>(kRowsMax, depth)),
            .spans = spans,
            .partial = bench_
                           .reserve(kernels::gpu_attn_partial_bytes(1, shape_.n_heads, spans,
                                                                    shape_.head_dim))
                           .as<f32>()
                           .raw(),
            .bytes = page * shape_.n_kv_heads * depth / kPageTokens,
            .n_groups_a_call = n_groups,
            .n_in_pool = n_in_pool};
  }
  void attend(const Attention& a, u32 i) {
    kernels::GpuPages pages = a.pages;
    pages.groups += u64{i} * a.n_groups_a_call % a.n_in_pool;
    table_.attend({.pages = pages,
                   .q = x_,
                   .q_stride = row_floats_,
                   .out = nullptr,
                   .out_stride = 0,
                   .quantized = acts_,
                   .visible = a.visible,
                   .n_rows = counts_[1],
                   .rows_max = 1,
                   .n_group_heads = shape_.n_heads / shape_.n_kv_heads,
                   .spans_max = a.spans,
                   .scale = 0.1f,
                   .partial = a.partial},
                  stream());
  }
  void measure_attention(KvType type, u32 depth) {
    const Attention a = attention(type, depth);
    const char* type_name = kernels::type_traits(kernels::kv_tensor_type(type)).name;
    bench_.measure({.group = "kernel",
                    .name = std::string("attend ") + type_name,
                    .depth = depth,
                    .bytes = a.bytes},
                   [&](u32 i) { attend(a, i); });
  }

  void step(const char* name, u32 calls, u64 bytes, const std::function<void(u32)>& enqueue,
            u32 launches = 1) {
    if (calls == 0) return;
    bench_.measure(
        {.group = "step", .name = name, .calls = calls, .launches = launches, .bytes = bytes},
        enqueue);
  }
  void step_product(const char* name, u32 calls, const std::vector<Part>& parts, u32 k,
                    kernels::Store store) {
    step(name, calls, bytes_of(parts, k), [&](u32 i) { product(parts, k, 1, i, store); });
  }

  // Measures the kernels that the engine launches for one token (runtime/exec/gpu).
  void measure_step() {
    const u32 d = shape_.d_model, n = shape_.n_layers, more = shape_.n_layers_more_bits;
    const u32 d_kv = shape_.n_kv_heads * shape_.head_dim, d_q = shape_.n_heads * shape_.head_dim;
    const TensorType q4 = TensorType::q4_k, q6 = TensorType::q6_k;
    using kernels::Store;
    step("embed", 1, kernels::row_bytes(q4, d), [&](u32 i) { embed(i); });
    step("rms_norm", 2 * n + 1, 0, [&](u32) { rms_norm(); });
    step_product("q, k, v", n - more, {{q4, d_q}, {q4, d_kv}, {q4, d_kv}}, d, Store::set);
    step_product("q, k, v (q6_k)", more, {{q4, d_q}, {q4, d_kv}, {q6, d_kv}}, d, Store::set);
    step("rope", n, 0, [&](u32) { rope(); });
    const Attention a = attention(KvType::f16, shape_.step_depth);
    step("kv_append", n, 0, [&](u32) { kv_append(a); });
    step(
        "attend", n, a.bytes, [&](u32 i) { attend(a, i); }, 2);
    step_product("output of attention", n, {{q4, d}}, d_q, Store::add);
    step_product("gate, up", n, {{q4, shape_.n_ff}, {q4, shape_.n_ff}}, d, Store::set);
    step("swiglu", n, 0, [&](u32) { swiglu(); });
    step_product("down", n - more, {{q4, d}}, shape_.n_ff, Store::add);
    step_product("down (q6_k)", more, {{q6, d}}, shape_.n_ff, Store::add);
    step_product("logits", 1, {{q6, shape_.n_vocab}}, d, Store::set);
    step("sample", 1, u64{shape_.n_vocab} * sizeof(f32), [&](u32) { sample(); });
  }
  void embed(u32 i) {
    const u64 bytes = matrix_bytes(TensorType::q4_k, kernels::kTileRows, shape_.d_model);
    table_.embed({.type = TensorType::q4_k,
                  .weights = bench_.piece(bytes, i),
                  .k = shape_.d_model,
                  .tokens = ids_,
                  .out = y_,
                  .out_stride = row_floats_,
                  .n_rows = counts_[1],
                  .rows_max = 1},
                 stream());
  }
  void rms_norm() {
    table_.rms_norm({.x = x_,
                     .x_stride = row_floats_,
                     .weight = y_,
                     .out = nullptr,
                     .out_stride = 0,
                     .quantized = acts_,
                     .n_rows = counts_[1],
                     .rows_max = 1,
                     .n_heads = 1,
                     .d = shape_.d_model,
                     .eps = 1e-5f},
                    stream());
  }
  void rope() {
    f32* k = y_ + u64{shape_.n_heads} * shape_.head_dim;
    table_.rope({.q = {.x = y_, .stride = row_floats_, .n_heads = shape_.n_heads},
                 .k = {.x = k, .stride = row_floats_, .n_heads = shape_.n_kv_heads},
                 .cos = x_,
                 .sin = x_,
                 .n_rows = counts_[1],
                 .rows_max = 1,
                 .head_dim = shape_.head_dim,
                 .n_rot = shape_.head_dim,
                 .pairs = kernels::RopePairs::adjacent},
                stream());
  }
  void kv_append(const Attention& a) {
    table_.kv_append({.pages = a.pages,
                      .k = x_,
                      .k_stride = row_floats_,
                      .v = x_,
                      .v_stride = row_floats_,
                      .slots = ids_,
                      .n_rows = counts_[1],
                      .rows_max = 1},
                     stream());
  }
  void swiglu() {
    table_.swiglu({.gate = x_,
                   .up = x_ + shape_.n_ff,
                   .in_stride = row_floats_,
                   .out = nullptr,
                   .out_stride = 0,
                   .quantized = acts_,
                   .n_rows = counts_[1],
                   .rows_max = 1,
                   .d = shape_.n_ff},
                  stream());
  }

  void sample() {
    table_.sample({.logits = x_,
                   .stride = row_floats_,
                   .n = shape_.n_vocab,
                   .k = 0,
                   .summary = reinterpret_cast<kernels::GpuLogitsSummary*>(y_),
                   .top = nullptr,
                   .n_rows = counts_[1],
                   .rows_max = 1},
                  stream());
  }

  Bench& bench_;
  const kernels::GpuTable& table_;
  const BenchShape& shape_;
  u32 row_floats_ = 0;
  f32* x_ = nullptr;
  f32* y_ = nullptr;
  kernels::GpuQuantized acts_{};
  std::vector<const u32*> counts_;
  const u32* ids_ = nullptr;
  const u32* zeros_ = nullptr;
};

}  // namespace

std::vector<Figure> bench_kernels(const BenchArgs& args) {
  Bench bench(args);
  DecodeBench(bench).run();
  bench_selection(bench);
  return bench.take_figures();
}

std::string to_json(const std::vector<Figure>& figures) {
  tools::Json json;
  json.begin_array();
  for (const Figure& f : figures) {
    json.begin_object();
    json.key("group").text(f.group);
    json.key("name").text(f.name);
    json.key("rows").number(f.rows);
    json.key("depth").number(f.depth);
    json.key("calls").number(f.calls);
    json.key("launches").number(f.launches);
    json.key("weight_bytes").number(f.weight_bytes);
    json.key("bytes").number(f.bytes);
    json.key("ops").number(f.ops);
    json.key("ns").real(f.ns);
    json.end_object();
  }
  return std::string(json.end_array().str());
}

std::string to_json(const DeviceFacts& facts) {
  tools::Json json;
  json.begin_object();
  json.key("name").text(facts.name.data());
  json.key("compute_capability").number(facts.compute_capability);
  json.key("sms").number(facts.n_sms);
  json.key("integrated").boolean(facts.integrated);
  json.key("l2_bytes").number(facts.l2_bytes);
  json.key("memory_bytes").number(facts.memory_bytes);
  return std::string(json.end_object().str());
}

}  // namespace tarn::gpu_check
