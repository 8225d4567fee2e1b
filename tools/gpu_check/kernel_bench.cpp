#include "tools/gpu_check/kernel_bench.h"

#include <algorithm>

#include "kernels/attn/attn.h"
#include "kernels/quant/gpu_tile.h"
#include "platform/base/checked.h"
#include "tools/gpu_check/bench_device.h"
#include "tools/gpu_check/dense_bench.h"
#include "tools/gpu_check/select_bench.h"
#include "tools/support/json.h"

namespace tarn::gpu_check {
namespace {

using kernels::KvType;
using kernels::TensorType;

constexpr u32 kRowsMax = kernels::kGpuMatvecRowsMax;
constexpr u32 kPageTokens = 64;
constexpr u32 kPoolL2s = 4;  // the pool's bytes in L2s
constexpr TensorType kTypes[] = {TensorType::q4_k, TensorType::q6_k, TensorType::q8_0,
                                 TensorType::f16};

u64 matrix_bytes(TensorType type, u64 n_out, u64 k) {
  return n_out / kernels::kTileRows * kernels::gpu_tile_bytes(type, k);
}

struct Part {
  TensorType type;
  u32 n_out;
};

class Bench {
 public:
  explicit Bench(const BenchArgs& args)
      : device_(*args.device, *args.clock),
        table_(*args.table),
        blas_(args.blas),
        shape_(args.shape) {
    const u64 biggest_matrix =
        std::max({matrix_bytes(TensorType::f16, shape_.n_ff, shape_.d_model),
                  matrix_bytes(TensorType::q6_k, shape_.n_vocab, shape_.d_model),
                  matrix_bytes(TensorType::q6_k, shape_.d_model, shape_.n_ff),
                  2 * matrix_bytes(TensorType::q4_k, shape_.n_ff, shape_.d_model)});
    const u64 pool_bytes =
        std::max({shape_.pool_bytes_min, kPoolL2s * args.device->facts().l2_bytes,
                  align_up(biggest_matrix, kAlignment), 2 * shape_.weight_bytes_min});
    pool_bytes_ = align_up(pool_bytes, 2 * kAlignment);
    pool_ = device_.reserve_random(pool_bytes_);
    row_floats_ = std::max({shape_.d_model + 2 * shape_.n_kv_heads * shape_.head_dim,
                            2 * shape_.n_ff, shape_.n_vocab});
    for (const TensorType type : kTypes) row_floats_ = std::max(row_floats_, big_rows(type));
    x_ = floats(u64{kRowsMax} * row_floats_);
    y_ = floats(u64{kRowsMax} * row_floats_);
    const u64 k_max = std::max(shape_.d_model, shape_.n_ff);
    acts_ = random_acts(kRowsMax * k_max);
    for (u32 n = 0; n <= kRowsMax; ++n) counts_.push_back(device_.upload(std::vector<u32>{n}));
    ids_ = device_.upload(std::vector<u32>(kRowsMax, 1));
    zeros_ = device_.upload(std::vector<u32>(kRowsMax, 0));
  }

  BenchFigures run() {
    measure_copies();
    measure_launches();
    for (const TensorType type : kTypes) {
      for (const u32 rows : {1u, 4u, 8u}) measure_product(type, rows);
    }
    measure_prompt();
    measure_dense();
    for (const u32 depth : shape_.depths) {
      for (const KvType type : {KvType::f16, KvType::q8_0, KvType::q4_0}) {
        measure_attention(type, depth);
      }
    }
    measure_step();
    bench_selection({.device = &device_,
                     .table = &table_,
                     .shape = &shape_,
                     .pool = pool_,
                     .pool_bytes = pool_bytes_},
                    &figures_);
    return std::move(figures_);
  }

 private:
  static constexpr u64 kAlignment = 4 * kKiB;

  kernels::GpuQuantized random_acts(u64 n) {
    return {
        .q = device_.reserve_random(n).as<i8>().raw(),
        .side = device_.reserve_random(n / 32 * sizeof(kernels::U32x2)).as<kernels::U32x2>().raw()};
  }
  f32* floats(u64 n) { return device_.reserve_random(n * sizeof(f32)).as<f32>().raw(); }
  GpuStream* stream() const { return device_.stream(); }

  f64 ns(const std::function<void(u32)>& enqueue, bool in_graph = true) {
    return device_.ns_per_call({.n_calls = shape_.calls_per_graph,
                                .repetitions = shape_.repetitions,
                                .in_graph = in_graph},
                               enqueue);
  }
  // The pool's i-th piece of so many bytes, round and round.
  const std::byte* piece(u64 bytes, u32 i) const {
    const u64 stride = std::max(kAlignment, align_up(bytes, kAlignment));
    return pool_.raw() + i % std::max<u64>(1, pool_bytes_ / stride) * stride;
  }

  void measure_copies() {
    const u64 half = pool_bytes_ / 2;
    const f64 copy_ns =
        ns([&](u32) { device_.device().copy(pool_, pool_ + half, half, stream()); });
    const f64 read_ns = ns([&](u32) { device_.device().read(pool_, pool_bytes_, stream()); });
    figures_.copy_bytes_per_s = 2 * static_cast<f64>(half) * 1e9 / copy_ns;
    figures_.read_bytes_per_s = static_cast<f64>(pool_bytes_) * 1e9 / read_ns;
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
    figures_.graph_launch_ns = ns([&](u32) { add(32); });
    figures_.stream_launch_ns = ns([&](u32) { add(32); }, /*in_graph=*/false);
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
    const std::byte* weights = piece(bytes_of(parts, k), i);
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

  // Rows of a matrix of at least weight_bytes_min.
  u32 big_rows(TensorType type) const {
    const u64 tile = kernels::gpu_tile_bytes(type, shape_.d_model);
    return static_cast<u32>((shape_.weight_bytes_min + tile - 1) / tile * kernels::kTileRows);
  }
  void measure_product(TensorType type, u32 rows) {
    const u32 k = shape_.d_model;
    const std::vector<Part> parts = {{type, big_rows(type)}};
    const u64 bytes = bytes_of(parts, k);
    const f64 call_ns = ns([&](u32 i) { product(parts, k, rows, i, kernels::Store::set); });
    figures_.kernels.push_back({.name = std::string("matvec ") + kernels::type_traits(type).name,
                                .rows = rows,
                                .weight_bytes = bytes,
                                .bytes = bytes,
                                .ns = call_ns});
  }

  // Gate's or up's product.
  void measure_prompt() {
    if (shape_.prompt_rows.empty()) return;
    const u32 k = shape_.d_model, n_out = shape_.n_ff;
    const u64 rows_max = *std::ranges::max_element(shape_.prompt_rows);
    const kernels::GpuQuantized acts = random_acts(rows_max * k);
    f32* out = floats(rows_max * n_out);
    for (const TensorType type : kTypes) {
      if (!kernels::gpu_matmat_takes(type, k)) continue;
      for (const u32 rows : shape_.prompt_rows) {
        const u32* n_rows = device_.upload(std::vector<u32>{rows});
        const f64 call_ns = ns([&](u32 i) {
          table_.matmat({.matrices = {{.type = type,
                                       .store = kernels::Store::set,
                                       .n_out = n_out,
                                       .weights = piece(matrix_bytes(type, n_out, k), i),
                                       .bias = nullptr,
                                       .out = out,
                                       .out_stride = n_out}},
                         .n_matrices = 1,
                         .k = k,
                         .x = nullptr,
                         .x_stride = 0,
                         .acts = acts,
                         .n_rows = n_rows,
                         .rows_max = rows},
                        stream());
        });
        figures_.prompt.push_back({.name = std::string("matmat ") + kernels::type_traits(type).name,
                                   .rows = rows,
                                   .ops = 2 * u64{rows} * n_out * k,
                                   .ns = call_ns});
      }
    }
  }

  void measure_dense() {
    figures_.has_blas = blas_ != nullptr;
    if (shape_.prompt_rows.empty()) return;
    const u32 k = shape_.d_model, n_out = shape_.n_ff;
    const auto weights = [&](TensorType type, u32 i) {
      return piece(matrix_bytes(type, n_out, k), i);
    };
    const auto dense = bench_dense({.device = &device_,
                                    .table = &table_,
                                    .blas = blas_,
                                    .rows = *std::ranges::max_element(shape_.prompt_rows),
                                    .n_out = n_out,
                                    .k = k,
                                    // They take long, and a library may not want to be captured.
                                    .timing = {.n_calls = std::min(shape_.calls_per_graph, 4u),
                                               .repetitions = std::min(shape_.repetitions, 2u),
                                               .in_graph = false},
                                    .weights = weights});
    figures_.prompt.insert(figures_.prompt.end(), dense.begin(), dense.end());
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
  // Groups of one layer over the whole pool; a call takes the next of them.
  Attention attention(KvType type, u32 depth) {
    const u64 page = 2 * kPageTokens * kernels::kv_vector_bytes(type, shape_.head_dim);
    const u64 group = align_up(page * shape_.n_kv_heads, 256);
    const u64 n_in_pool = pool_bytes_ / group;
    const u32 n_groups = static_cast<u32>(ceil_div(depth, kPageTokens));
    std::vector<u8*> groups;
    for (u64 i = 0; i < std::max<u64>(n_in_pool, n_groups) + n_groups; ++i) {
      groups.push_back((pool_ + i % n_in_pool * group).as<u8>().raw());
    }
    const u32 spans = static_cast<u32>(ceil_div(depth, kernels::kGpuSpanSlots));
    return {.pages = {.type = type,
                      .page_tokens = kPageTokens,
                      .head_dim = shape_.head_dim,
                      .n_kv_heads = shape_.n_kv_heads,
                      .groups = device_.upload(groups),
                      .table_stride = 0,
                      .group_stride = 1,
                      .page_stride = page,
                      .tables = zeros_},
            .visible = device_.upload(std::vector<u32>(kRowsMax, depth)),
            .spans = spans,
            .partial = device_
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
    const f64 call_ns = ns([&](u32 i) { attend(a, i); });
    const char* type_name = kernels::type_traits(kernels::kv_tensor_type(type)).name;
    figures_.kernels.push_back(
        {.name = std::string("attend ") + type_name + " d" + std::to_string(depth),
         .rows = 1,
         .weight_bytes = 0,
         .bytes = a.bytes,
         .ns = call_ns});
  }

  void step(const char* name, u32 calls, u64 bytes, const std::function<void(u32)>& enqueue,
            u32 launches_a_call = 1) {
    figures_.step.push_back({.name = name,
                             .calls = calls,
                             .launches_a_call = launches_a_call,
                             .bytes = bytes,
                             .ns = calls > 0 ? ns(enqueue) : 0});
  }
  void step_product(const char* name, u32 calls, const std::vector<Part>& parts, u32 k,
                    kernels::Store store) {
    step(name, calls, bytes_of(parts, k), [&](u32 i) { product(parts, k, 1, i, store); });
  }

  // One token, the kernels that the engine launches for it (runtime/engine/gpu_backend.cpp).
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
                  .weights = piece(bytes, i),
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

  BenchDevice device_;
  const kernels::GpuTable& table_;
  GpuBlas* blas_;
  const BenchShape& shape_;
  BenchFigures figures_;
  DeviceBytes pool_{};
  u64 pool_bytes_ = 0;
  u32 row_floats_ = 0;
  f32* x_ = nullptr;
  f32* y_ = nullptr;
  kernels::GpuQuantized acts_{};
  std::vector<const u32*> counts_;
  const u32* ids_ = nullptr;
  const u32* zeros_ = nullptr;
};

}  // namespace

u32 BenchFigures::step_launches() const {
  u32 n = 0;
  for (const StepKernel& kernel : step) n += kernel.calls * kernel.launches_a_call;
  return n;
}

f64 BenchFigures::step_ns() const {
  f64 ns = 0;
  for (const StepKernel& kernel : step) ns += kernel.calls * kernel.ns;
  return ns;
}

BenchFigures bench_kernels(const BenchArgs& args) { return Bench(args).run(); }

std::string to_json(const BenchFigures& figures) {
  tools::Json json;
  json.begin_object();
  json.key("copy_gb_per_s").real(figures.copy_bytes_per_s * 1e-9);
  json.key("read_gb_per_s").real(figures.read_bytes_per_s * 1e-9);
  json.key("graph_launch_ns").real(figures.graph_launch_ns);
  json.key("stream_launch_ns").real(figures.stream_launch_ns);
  json.key("kernels").begin_array();
  for (const KernelFigure& kernel : figures.kernels) {
    const f64 bytes_per_s = static_cast<f64>(kernel.bytes) * 1e9 / kernel.ns;
    json.begin_object();
    json.key("name").text(kernel.name);
    json.key("rows").number(kernel.rows);
    json.key("weight_bytes").number(kernel.weight_bytes);
    json.key("bytes").number(kernel.bytes);
    json.key("ns").real(kernel.ns);
    json.key("gb_per_s").real(bytes_per_s * 1e-9);
    json.key("share").real(bytes_per_s / figures.copy_bytes_per_s);
    json.end_object();
  }
  json.end_array();
  json.key("prompt").begin_array();
  for (const PromptFigure& kernel : figures.prompt) {
    json.begin_object();
    json.key("name").text(kernel.name);
    json.key("rows").number(kernel.rows);
    json.key("ns").real(kernel.ns);
    json.key("tera_ops_per_s").real(static_cast<f64>(kernel.ops) * 1e-3 / kernel.ns);
    json.end_object();
  }
  json.end_array();
  json.key("has_cublas").boolean(figures.has_blas);
  json.key("step").begin_object();
  json.key("launches").number(figures.step_launches());
  json.key("busy_ns").real(figures.step_ns());
  json.key("kernels").begin_array();
  for (const StepKernel& kernel : figures.step) {
    json.begin_object();
    json.key("name").text(kernel.name);
    json.key("calls").number(kernel.calls);
    json.key("launches_a_call").number(kernel.launches_a_call);
    json.key("bytes").number(kernel.bytes);
    json.key("ns").real(kernel.ns);
    json.end_object();
  }
  json.end_array().end_object();
  json.key("select").begin_array();
  for (const SelectFigure& token : figures.select) {
    json.begin_object();
    json.key("depth").number(token.depth);
    json.key("launches").number(token.launches);
    json.key("busy_ns").real(token.ns);
    json.end_object();
  }
  json.end_array();
  return std::string(json.end_object().str());
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
