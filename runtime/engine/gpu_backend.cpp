#include "runtime/engine/gpu_backend.h"

#include <algorithm>
#include <bit>

#include "kernels/quant/gpu_tile.h"
#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/plan/gpu_shape.h"

namespace tarn::engine {
namespace {

constexpr u32 kActBlock = 32;  // elements of a row that are quantised together
constexpr u32 kRowsMax = kernels::kGpuMatvecRowsMax;  // of one launch of a product or of attention

// Calls fn(row_begin, n_rows) for all of [0, n), kRowsMax at a time.
template <class Fn>
void for_launches(u32 n, Fn&& fn) {
  for (u32 begin = 0; begin < n; begin += kRowsMax) fn(begin, std::min(kRowsMax, n - begin));
}

}  // namespace

Result<void> GpuBackend::open(const GpuBackendArgs& args) {
  TARN_ASSERT(stream_ == nullptr);
  TARN_ASSERT(args.rows_max % kRowsMax == 0);
  args_ = args;
  stream_ = args_.device->stream(StreamId::compute);
  TARN_CHECK(progress_.open({.device = args_.device,
                             .stream = stream_,
                             .clock = args_.clock,
                             .window_ns = kGpuWaitNsMax}));
  auto* host_counts = reinterpret_cast<u32*>(args_.host_state);
  for (u32 n = 0; n <= args_.rows_max; ++n) host_counts[n] = n;
  send(args_.counts, host_counts, args_.rows_max + 1);
  if (may_select()) place_gathered();
  if (streams()) {
    TARN_TRY(host_part_, args_.device->create_event());
    place_stream();
  }
  return finish();
}

void GpuBackend::close() {
  progress_.close();
  stream_ = nullptr;
  if (host_part_ != nullptr) args_.device->destroy_event(host_part_);
  host_part_ = nullptr;
  for (auto& of_rows : graphs_) {
    for (GpuGraph*& graph : of_rows) {
      if (graph != nullptr) args_.device->destroy_graph(graph);
      graph = nullptr;
    }
  }
  if (selecting_graph_ != nullptr) args_.device->destroy_graph(selecting_graph_);
  selecting_graph_ = nullptr;
  mode_ = Mode::eager;
}

// The graph of the smallest buckets that hold a step.
GpuGraph*& GpuBackend::graph(u32 n_rows, u32 n_spans) {
  const auto rows_idx = static_cast<u32>(std::countr_zero(std::bit_ceil(n_rows)));
  const auto spans_idx = static_cast<u32>(std::countr_zero(std::bit_ceil(n_spans)));
  TARN_ASSERT(rows_idx < kRowBuckets);
  TARN_ASSERT(spans_idx < kSpanBuckets);
  return graphs_[rows_idx][spans_idx];
}

Result<void> GpuBackend::begin_graph(u32 n_rows, u32 n_spans) {
  TARN_ASSERT(mode_ == Mode::eager);
  TARN_ASSERT(graph(n_rows, n_spans) == nullptr);
  TARN_CHECK(args_.device->begin_capture(stream_));
  mode_ = Mode::capture;
  place_state(n_rows);
  graph_rows_ = n_rows;
  graph_spans_ = n_spans;
  graph_selects_ = false;
  return {};
}

Result<void> GpuBackend::begin_selecting_graph() {
  TARN_ASSERT(may_select());
  TARN_ASSERT(selecting_graph_ == nullptr);
  TARN_CHECK(args_.device->begin_capture(stream_));
  mode_ = Mode::capture;
  place_state(1);
  graph_spans_ = plan::gpu_spans(args_.select.n_chosen_max);
  graph_selects_ = true;
  return {};
}

Result<void> GpuBackend::end_graph() {
  TARN_ASSERT(mode_ == Mode::capture);
  mode_ = Mode::eager;
  traffic_ = {};
  GpuGraph*& captured = graph_selects_ ? selecting_graph_ : graph(graph_rows_, graph_spans_);
  TARN_TRY(captured, args_.device->end_capture(stream_));
  return {};
}

Result<void> GpuBackend::warm_graph(GpuGraph* graph, u32 n_rows) {
  if (graph == nullptr) return {};
  place_state(n_rows);
  std::fill_n(args_.host_state, state_.bytes, std::byte{0});
  send(args_.state, args_.host_state, state_.bytes);
  args_.device->launch(graph, stream_);
  return finish();
}

Result<void> GpuBackend::warm_graphs() {
  TARN_ASSERT(mode_ == Mode::eager);
  for (u32 rows_idx = 0; rows_idx < kRowBuckets; ++rows_idx) {
    for (GpuGraph* graph : graphs_[rows_idx]) TARN_CHECK(warm_graph(graph, 1u << rows_idx));
  }
  return warm_graph(selecting_graph_, 1);
}

const u32* GpuBackend::count(u32 n) const {
  TARN_ASSERT(n <= args_.rows_max);
  return mode_ == Mode::eager ? args_.counts + n : state<u32>(state_.n_rows);
}

// Whether the step is one of a graph's, which is then on its way.
bool GpuBackend::launch_graph(const step::Batch& batch) {
  const bool is_decode = batch.n_rows <= kRowsMax && batch.runs.size() == batch.n_rows &&
                         batch.logit_rows.size() == batch.n_rows;
  if (!is_decode || streams() || batch.kv_watch.rows != nullptr) return false;
  const auto selects = [](const step::Run& run) { return run.selects; };
  const bool some_select = std::ranges::any_of(batch.runs, selects);
  if (some_select && batch.n_rows > 1) return false;
  const u32 visible_max = *std::max_element(batch.visible, batch.visible + batch.n_rows);
  GpuGraph* captured =
      some_select ? selecting_graph_ : graph(batch.n_rows, plan::gpu_spans(visible_max));
  TARN_ASSERT(captured != nullptr);  // before READY, for every session and span of the plan
  args_.device->launch(captured, stream_);
  return true;
}

void GpuBackend::begin_step(const step::Batch& batch) {
  quantized_ = nullptr;
  step_kind_ = batch.n_rows > kRowsMax ? StepKind::many_rows : StepKind::few_rows;
  if (mode_ == Mode::capture) {
    each_selecting(batch, [this](u32 row) { code_new_keys(row); });
    return;
  }
  mode_ = Mode::eager;
  place_state(batch.n_rows);
  write_state(batch);
  kept_.begin_step();
  for (const step::Run& run : batch.runs) streams() ? send_tails(batch, run) : send_groups(run);
  send(args_.state, args_.host_state, state_.bytes);
  if (args_.host_embedded != nullptr) {
    send(args_.embedded, args_.host_embedded, u64{batch.n_rows} * args_.spec->d_model);
  }
  if (launch_graph(batch)) mode_ = Mode::replay;
  each_selecting(batch, [this](u32 row) { code_new_keys(row); });
}

// Calls fn(row) for every row that selects.
template <class Fn>
void GpuBackend::each_selecting(const step::Batch& batch, Fn&& fn) const {
  if (mode_ == Mode::capture) {
    if (graph_selects_) fn(0);
    return;
  }
  for (const step::Run& run : batch.runs) {
    if (run.selects) fn(run.row_begin);
  }
}

// Slots that a row attends to.
u32 GpuBackend::attended(u32 row) const {
  return reinterpret_cast<const u32*>(args_.host_state + state_.attended)[row];
}

void GpuBackend::place_state(u32 n_rows) {
  TARN_ASSERT(n_rows <= args_.rows_max);
  state_ = plan::gpu_state_shape(*args_.spec, n_rows, may_select() ? args_.sessions_max : 0);
}

void GpuBackend::write_state(const step::Batch& batch) {
  const auto place = [this](u64 offset) {
    return reinterpret_cast<u32*>(args_.host_state + offset);
  };
  const u32 n = batch.n_rows;
  place(state_.n_rows)[0] = n;
  place(state_.n_rows)[1] = batch.takes_best ? n : 0;
  std::copy_n(batch.tokens, n, place(state_.tokens));
  std::copy_n(batch.slots, n, place(state_.slots));
  std::copy_n(batch.visible, n, place(state_.visible));
  std::copy(batch.logit_rows.begin(), batch.logit_rows.end(), place(state_.logit_rows));
  for (const step::Run& run : batch.runs) {
    std::fill_n(place(state_.sessions) + run.row_begin, run.n_rows, run.session);
  }
  if (may_select()) write_choices(batch);
  kernels::rope_table({.positions = batch.positions,
                       .n_rows = n,
                       .n_rot = args_.spec->n_rot,
                       .inv_freq = args_.inv_freq,
                       .cos = reinterpret_cast<f32*>(args_.host_state + state_.cos),
                       .sin = reinterpret_cast<f32*>(args_.host_state + state_.sin)});
}

// The part of a sequence's tables that is not on the device yet: mostly nothing, and a new group of
// every layer, side by side, where the row before filled one.
void GpuBackend::send_groups(const step::Run& run) {
  TARN_ASSERT(run.session < args_.sessions_max);
  const u32 n_layers = args_.spec->n_cache_layers;
  const u32 n_groups = run.sequence->n_groups();
  const u32 begin = run.sequence->take_changed_groups();
  TARN_ASSERT(begin <= n_groups && n_groups <= args_.pages_max);
  if (begin == n_groups) return;
  const u64 first = (u64{run.session} * args_.pages_max + begin) * n_layers;
  u64* address = args_.host_groups + first;
  for (u32 group_idx = begin; group_idx < n_groups; ++group_idx) {
    for (u32 layer = 0; layer < n_layers; ++layer) {
      *address++ = run.sequence->group_address(layer, group_idx);
    }
  }
  send(args_.groups + first, args_.host_groups + first, u64{n_groups - begin} * n_layers);
}

void GpuBackend::embed(const model::WeightMatrix& table, const step::Batch& batch, Rows out) {
  enqueue(args_.table->embed, kernels::GpuEmbedArgs{.type = table.type,
                                                    .weights = table.tiled,
                                                    .k = table.k,
                                                    .tokens = state<u32>(state_.tokens),
                                                    .out = out.data,
                                                    .out_stride = out.stride,
                                                    .n_rows = count(batch.n_rows),
                                                    .rows_max = batch.n_rows});
  traffic_.weight_bytes += batch.n_rows * kernels::row_bytes(table.type, table.k);
}

// Where an op that writes rows of k elements at x leaves their quantised form as well, if a product
// may want it. Every op that writes rows forgets the one before.
kernels::GpuQuantized GpuBackend::acts_for(Rows x, u64 k) {
  const bool is_wanted = args_.quantizes && k % kActBlock == 0;
  quantized_ = is_wanted ? x.data : nullptr;
  return is_wanted ? args_.acts : kernels::GpuQuantized{};
}

kernels::GpuQuantized GpuBackend::acts_from(u32 row, u64 k) const {
  return {.q = args_.acts.q + row * k, .side = args_.acts.side + row * (k / kActBlock)};
}

void GpuBackend::rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) {
  enqueue(args_.table->rms_norm, kernels::GpuRmsNormArgs{.x = x.data,
                                                         .x_stride = x.stride,
                                                         .weight = weight,
                                                         .out = out.data,
                                                         .out_stride = out.stride,
                                                         .quantized = acts_for(out, d),
                                                         .n_rows = count(n),
                                                         .rows_max = n,
                                                         .n_heads = 1,
                                                         .d = d,
                                                         .eps = eps});
}

void GpuBackend::rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) {
  enqueue(args_.table->rms_norm, kernels::GpuRmsNormArgs{.x = x.data,
                                                         .x_stride = x.stride,
                                                         .weight = weight,
                                                         .out = x.data,
                                                         .out_stride = x.stride,
                                                         .n_rows = count(n),
                                                         .rows_max = n,
                                                         .n_heads = n_heads,
                                                         .d = args_.spec->head_dim,
                                                         .eps = eps});
}

void GpuBackend::quantize(Rows x, u32 k, u32 n) {
  enqueue(args_.table->quantize, kernels::GpuQuantizeArgs{.x = x.data,
                                                          .x_stride = x.stride,
                                                          .out = args_.acts,
                                                          .n_rows = count(n),
                                                          .rows_max = n,
                                                          .k = k});
}

void GpuBackend::project(Rows x, u32 n, std::span<const Projection> projections) {
  multiply(x, n, projections, kernels::Store::set);
}

void GpuBackend::project_add(const ResidualProjection& p, u32 n) {
  const Projection product[] = {{p.weight, nullptr, p.x}};
  multiply(p.in, n, product, kernels::Store::add);
}

void GpuBackend::multiply(Rows x, u32 n, std::span<const Projection> projections,
                          kernels::Store store) {
  TARN_ASSERT(projections.size() <= kernels::kGpuMatricesMax);
  const u32 k = projections[0].weight->k;
  const kernels::GpuMatvecArgs none{.matrices = {},
                                    .n_matrices = 0,
                                    .k = k,
                                    .x = x.data,
                                    .x_stride = x.stride,
                                    .acts = args_.acts,
                                    .n_rows = count(n),
                                    .rows_max = n};
  kernels::GpuMatvecArgs few = none, many = none;  // by 8 rows, and all rows at once
  bool is_quantized = false;
  for (const Projection& p : projections) {
    const kernels::TensorType type = p.weight->type;
    TARN_ASSERT(p.weight->k == k);
    is_quantized = is_quantized || type != kernels::TensorType::f16;
    const bool at_once = n > kRowsMax && kernels::gpu_matmat_takes(type, k);
    traffic_.weight_bytes += p.weight->bytes() * (at_once ? 1 : ceil_div(n, kRowsMax));
    kernels::GpuMatvecArgs& product = at_once ? many : few;
    product.matrices[product.n_matrices++] = {.type = type,
                                              .store = store,
                                              .n_out = static_cast<u32>(p.weight->n_out),
                                              .weights = p.weight->tiled,
                                              .bias = p.bias,
                                              .out = p.out.data,
                                              .out_stride = p.out.stride};
  }
  if (is_quantized && quantized_ != x.data) quantize(x, k, n);
  quantized_ = nullptr;
  if (many.n_matrices > 0) enqueue(args_.table->matmat, many);
  if (few.n_matrices == 0) return;
  for_launches(n, [&](u32 begin, u32 n_rows) {
    kernels::GpuMatvecArgs product = few;
    product.x = from_row(x, begin).data;
    product.acts = acts_from(begin, k);
    product.n_rows = count(n_rows);
    product.rows_max = std::bit_ceil(n_rows);
    for (u32 i = 0; i < product.n_matrices; ++i) {
      product.matrices[i].out += begin * product.matrices[i].out_stride;
    }
    enqueue(args_.table->matvec, product);
  });
}

void GpuBackend::rope(Rows q, Rows k, u32 n) {
  const model::ModelSpec& spec = *args_.spec;
  enqueue(args_.table->rope,
          kernels::GpuRopeArgs{.q = {.x = q.data, .stride = q.stride, .n_heads = spec.n_heads},
                               .k = {.x = k.data, .stride = k.stride, .n_heads = spec.n_kv_heads},
                               .cos = state<f32>(state_.cos),
                               .sin = state<f32>(state_.sin),
                               .n_rows = count(n),
                               .rows_max = n,
                               .head_dim = spec.head_dim,
                               .n_rot = spec.n_rot,
                               .pairs = spec.rope_halves ? kernels::RopePairs::halves
                                                         : kernels::RopePairs::adjacent});
}

kernels::GpuPages GpuBackend::pages(u32 cache_layer, u32 row) const {
  return {.type = args_.kv_type,
          .page_tokens = args_.page_tokens,
          .head_dim = args_.spec->head_dim,
          .n_kv_heads = args_.spec->n_kv_heads,
          .groups = reinterpret_cast<u8* const*>(args_.groups + cache_layer),
          .table_stride = u64{args_.spec->n_cache_layers} * args_.pages_max,
          .group_stride = args_.spec->n_cache_layers,
          .page_stride = args_.page_bytes,
          .tables = state<u32>(state_.sessions) + row};
}

void GpuBackend::kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) {
  enqueue(args_.table->kv_append, kernels::GpuKvAppendArgs{.pages = pages(cache_layer, 0),
                                                           .k = k.data,
                                                           .k_stride = k.stride,
                                                           .v = v.data,
                                                           .v_stride = v.stride,
                                                           .slots = state<u32>(state_.slots),
                                                           .n_rows = count(batch.n_rows),
                                                           .rows_max = batch.n_rows});
}

void GpuBackend::attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) {
  const model::ModelSpec& spec = *args_.spec;
  const u64 d_out = u64{spec.n_heads} * spec.head_dim;
  const bool leaves_acts = spec.head_dim % kActBlock == 0 && acts_for(out, d_out).q != nullptr;
  if (streams()) return attend_streamed(batch, cache_layer, q, out, leaves_acts);
  for_launches(batch.n_rows, [&](u32 begin, u32 n_rows) {
    u32 attended_max = 0;
    for (u32 row = begin; row < begin + n_rows; ++row) {
      attended_max = std::max(attended_max, attended(row));
      traffic_.kv_bytes += attended(row) * token_bytes();
    }
    each_selecting(batch, [&](u32 row) {
      const bool is_here = row >= begin && row < begin + n_rows;
      if (is_here) gather_chosen(cache_layer, row, from_row(q, row).data);
    });
    kernels::GpuPages read = pages(cache_layer, begin);
    read.tables = state<u32>(state_.tables) + begin;
    attend_part({.pages = read,
                 .q = from_row(q, begin),
                 .out = from_row(out, begin),
                 .visible = state<u32>(state_.attended) + begin,
                 .quantized = leaves_acts ? acts_from(begin, d_out) : kernels::GpuQuantized{},
                 .n_rows = n_rows,
                 .n_spans = mode_ == Mode::capture ? graph_spans_ : plan::gpu_spans(attended_max)});
  });
}

void GpuBackend::attend_part(const Part& part) {
  const model::ModelSpec& spec = *args_.spec;
  enqueue(args_.table->attend,
          kernels::GpuAttnArgs{.pages = part.pages,
                               .q = part.q.data,
                               .q_stride = part.q.stride,
                               .out = part.out.data,
                               .out_stride = part.out.stride,
                               .quantized = part.quantized,
                               .visible = part.visible,
                               .n_rows = count(part.n_rows),
                               .rows_max = part.n_rows,
                               .n_group_heads = spec.n_heads / spec.n_kv_heads,
                               .spans_max = part.n_spans,
                               .scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim)),
                               .partial = args_.partial,
                               .span_begin = part.span_begin,
                               .states = part.states,
                               .visible_stride = part.visible_stride});
}

void GpuBackend::swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) {
  TARN_ASSERT(gate.stride == up.stride);
  enqueue(args_.table->swiglu, kernels::GpuSwigluArgs{.gate = gate.data,
                                                      .up = up.data,
                                                      .in_stride = gate.stride,
                                                      .out = out.data,
                                                      .out_stride = out.stride,
                                                      .quantized = acts_for(out, d),
                                                      .n_rows = count(n),
                                                      .rows_max = n,
                                                      .d = d});
}

void GpuBackend::gather(const step::Batch& batch, Rows x, u32 d, Rows out) {
  quantized_ = nullptr;
  const u32 n = static_cast<u32>(batch.logit_rows.size());
  enqueue(args_.table->gather, kernels::GpuGatherArgs{.x = x.data,
                                                      .x_stride = x.stride,
                                                      .rows = state<u32>(state_.logit_rows),
                                                      .out = out.data,
                                                      .out_stride = out.stride,
                                                      .n_rows = count(n),
                                                      .rows_max = n,
                                                      .d = d});
}

void GpuBackend::fetch(Rows from, u32 n, u64 d, Rows to) {
  mode_ = Mode::eager;
  TARN_ASSERT(from.stride == d);
  TARN_ASSERT(to.stride == d);
  args_.device->copy_out(std::as_writable_bytes(std::span(to.data, n * d)),
                         DevicePtr<f32>(from.data).as<std::byte>(), stream_);
}

void GpuBackend::summarize(Rows logits, u32 n, u32 d) {
  enqueue(args_.table->sample,
          kernels::GpuSampleArgs{.logits = logits.data,
                                 .stride = logits.stride,
                                 .n = d,
                                 .k = 0,
                                 .summary = args_.summaries,
                                 .top = nullptr,
                                 .n_rows = count(n) + (mode_ == Mode::eager ? 0 : 1),
                                 .rows_max = n});
  if (mode_ == Mode::capture) return;
  mode_ = Mode::eager;
  const std::span to(args_.host_summaries, u64{n} * kernels::gpu_sample_chunks(d));
  args_.device->copy_out(std::as_writable_bytes(to),
                         DevicePtr<kernels::GpuLogitsSummary>(args_.summaries).as<std::byte>(),
                         stream_);
}

kernels::LogitsSummary GpuBackend::summary(u32 row) const {
  const u32 n_chunks = kernels::gpu_sample_chunks(args_.spec->n_vocab);
  const kernels::GpuLogitsSummary of_row =
      kernels::merge_summaries(args_.host_summaries + u64{row} * n_chunks, n_chunks);
  return {.argmax = of_row.argmax, .max = of_row.max, .n_not_finite = of_row.n_not_finite};
}

Result<void> GpuBackend::finish() {
  if (mode_ == Mode::replay) return {};  // its logits are still to be fetched
  TARN_CHECK(progress_.finish(&usual_wait_ns_[static_cast<u32>(step_kind_)]));
  return args_.device->check();
}

Backend::Traffic GpuBackend::take_traffic() {
  const Traffic traffic = traffic_;
  traffic_ = {};
  return traffic;
}

}  // namespace tarn::engine
