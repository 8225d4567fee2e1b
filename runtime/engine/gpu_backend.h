// runtime/engine/gpu_backend.h
//
// The ops of backend.h on a GPU: each enqueues kernels on the device's compute stream. begin_step()
// sends what they read of the step; nothing is waited for before finish().
//
//   graphs    a decode step, that is one row of each of at most 8 sequences, all of them logit
//             rows, is a graph, captured before READY for each bucket of rows and of spans. Such
//             a step launches it in begin_step() and its ops, up to fetch(), enqueue nothing.
//   memory    the plan's: the device's part and the host's part of it are lent, the backend owns an
//             event alone
//   products  a row's bits do not depend on what runs beside it: up to 8 rows by matvec, more of
//             quantised weights by matmat, which has its bits; of f16, 8 rows at a time
//   fused     where a product of quantised weights reads what a norm, an activation or attention
//             writes, those write the quantised form too; q and k turn in one launch; the output
//             and down products add to the residual stream themselves. 11 launches a layer
//   greedy    a step that takes the best of each row brings its summary, 12 bytes a 2,048 logits,
//             instead of the logits; a graph has that kernel too, with no rows where nobody asks
//   disk      rows of an embedding table that stays in the file are read by the host before the
//             step and sent with its state
//   state     of a step goes in one copy: rows, tokens, places, cos and sin
//   select    rows that select gather what they chose into groups of their own; attention finds it
//             by tables behind those of the sessions, and sees as many slots as were gathered. A
//             step of one such row is a graph too; several, or others beside them, are not
//   tables    where a session's groups lie, kept on both sides; only what changed is looked at and
//             sent
//   tiers     with KV over memory and disk (kv_stream.h) rows are written into frames of the host's
//             memory. Attention takes a layer in chunks that are copied from there; of a row that
//             selects the host chooses and gathers, and what it got is attended to. The host has
//             its part in every layer, so no step is a graph; bits are those of KV on the device
//   thread    the engine's
//   errors    finish() tells the device's first one. A GPU that gets no further for kGpuWaitNsMax
//             is taken for lost (platform/gpu/stream_progress.h), however slow one that does is not
#pragma once

#include <array>
#include <optional>
#include <span>

#include "kernels/gpu_table.h"
#include "platform/clock/clock.h"
#include "platform/gpu/device.h"
#include "platform/gpu/stream_progress.h"
#include "runtime/engine/backend.h"
#include "runtime/model/model_spec.h"
#include "runtime/plan/gpu_select_shape.h"
#include "runtime/plan/gpu_stream_shape.h"

namespace tarn::engine {

// A GPU that hangs is lost so long after it stopped: that is the longest that it may take for one
// graph, or for kStreamMarkCalls calls where a step is none. A slow power mode, a hot board and a
// neighbour on the GPU make these ten times longer, and it still has much room.
inline constexpr u64 kGpuWaitNsMax = 30'000'000'000;

class GpuMemory;
class KvStream;
class Selector;

// Of rows that select.
struct GpuSelectArgs {
  Selector* selector = nullptr;  // nullptr: none ever does
  SelectMethod method = SelectMethod::full;
  select::PqShape pq{};  // of method pq
  plan::GpuSelectShape shape{};
  u32 n_chosen_max = 0;
  // On the device.
  u8* indexes = nullptr;  // [sessions_max] of shape.table_bytes
  f32* lut = nullptr;
  f32* scores = nullptr;
  f32* weights = nullptr;
  u32* places = nullptr;  // [n_kv_heads, n_chosen_max]
  u8* gathered = nullptr;
};

// Of KV over memory and disk.
struct GpuStreamArgs {
  KvStream* kv = nullptr;        // nullptr: it is on the device
  Selector* selector = nullptr;  // of the host
  plan::GpuStreamShape shape{};
  const std::byte* frames = nullptr;  // where they begin, as the host sees it
  u64 frames_on_device = 0;           // and the device
  // On the device.
  f32* states = nullptr;
  u8* staged = nullptr;
  u8* gathered = nullptr;
  std::byte* tables = nullptr;
  const GpuMemory* memory = nullptr;  // where chunks stay
  // On the host.
  std::span<std::byte> kept{};
  std::byte* host_tables = nullptr;
  f32* host_query = nullptr;  // [n_heads, head_dim]
};

struct GpuBackendArgs {
  Device* device = nullptr;
  const kernels::GpuTable* table = nullptr;
  Clock* clock = nullptr;
  const model::ModelSpec* spec = nullptr;
  kernels::KvType kv_type = kernels::KvType::f16;
  u32 page_tokens = 0;
  u64 page_bytes = 0;
  u32 rows_max = 0;  // a multiple of kernels::kGpuMatvecRowsMax
  u32 sessions_max = 0;
  u32 pages_max = 0;  // of one cache layer of one session

  // On the device.
  kernels::GpuQuantized acts{};  // [rows_max, k_max]
  bool quantizes = false;        // some layer's product reads them
  std::byte* state = nullptr;    // a step's, by plan::gpu_state_shape()
  u32* counts = nullptr;         // [rows_max + 1]: 0, 1, 2, ..., where kernels read how many rows
  f32* embedded = nullptr;       // [rows_max, d_model]: where a step's rows begin
  u64* groups = nullptr;         // [tables, pages_max, n_cache_layers] addresses: of the sessions,
                                 // then of what rows gather
  f32* partial = nullptr;        // attention's, of 8 rows
  kernels::GpuLogitsSummary* summaries = nullptr;  // [logit_rows_max, chunks]

  // On the host, the other end of the copies.
  const f64* inv_freq = nullptr;       // [n_rot / 2]
  std::byte* host_state = nullptr;     // as state, and the counts behind it
  const f32* host_embedded = nullptr;  // as embedded; nullptr: embed() looks them up
  kernels::GpuLogitsSummary* host_summaries = nullptr;
  u64* host_groups = nullptr;  // zeros

  GpuSelectArgs select{};
  GpuStreamArgs stream{};
};

class GpuBackend final : public Backend {
 public:
  GpuBackend() = default;
  GpuBackend(const GpuBackend&) = delete;
  GpuBackend& operator=(const GpuBackend&) = delete;
  ~GpuBackend() override { close(); }

  Result<void> open(const GpuBackendArgs& args);
  void close();

  // Captures a decode step's graph: begin_graph(), the ops of such a step of `n_rows` rows (a
  // bucket), end_graph(). A graph serves up to that many rows and `n_spans` spans of slots.
  static constexpr u32 kRowBuckets = 4;  // 1, 2, 4, 8 rows
  Result<void> begin_graph(u32 n_rows, u32 n_spans);
  // The same of a step of one row that selects.
  Result<void> begin_selecting_graph();
  Result<void> end_graph();
  // Launches each graph over no rows, which leave nothing, and waits for it.
  Result<void> warm_graphs();

  const char* isa() const override { return args_.table->name; }
  void begin_step(const step::Batch& batch) override;
  void embed(const model::WeightMatrix& table, const step::Batch& batch, Rows out) override;
  void rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) override;
  void rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) override;
  void project(Rows x, u32 n, std::span<const Projection> projections) override;
  void project_add(const ResidualProjection& projection, u32 n) override;
  void rope(Rows q, Rows k, u32 n) override;
  void kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) override;
  void attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) override;
  void swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) override;
  void gather(const step::Batch& batch, Rows x, u32 d, Rows out) override;
  void fetch(Rows from, u32 n, u64 d, Rows to) override;
  void summarize(Rows logits, u32 n, u32 d) override;
  kernels::LogitsSummary summary(u32 row) const override;
  // Of a run that reads everything: groups from the first on that stay on the device.
  u32 n_kept_groups(const step::Run& run) const;
  u64 n_chunks_kept() const { return n_chunks_kept_; }  // that attention found there

  // Of the compute stream. Whoever enqueues on it beside the backend notes it here.
  StreamProgress& progress() { return progress_; }
  Result<void> finish() override;
  Traffic take_traffic() override;

 private:
  enum class Mode : u8 { eager, capture, replay };
  template <class Args>
  void enqueue(kernels::GpuLauncher<Args>* kernel, const Args& args) {
    if (mode_ == Mode::replay) return;
    kernel(args, stream_);
    if (mode_ == Mode::eager) progress_.note();
  }
  GpuGraph*& graph(u32 n_rows, u32 n_spans);
  Result<void> warm_graph(GpuGraph* graph, u32 n_rows);
  u32 attended(u32 row) const;
  bool launch_graph(const step::Batch& batch);
  template <class T>
  void send(T* to, const T* from, u64 n) {
    args_.device->copy_in(DevicePtr<T>(to).template as<std::byte>(),
                          std::as_bytes(std::span(from, n)), stream_);
    progress_.note();
  }
  void place_state(u32 n_rows);
  template <class T>
  T* state(u64 offset) const {
    return reinterpret_cast<T*>(args_.state + offset);
  }
  void write_state(const step::Batch& batch);
  void send_groups(const step::Run& run);
  const u32* count(u32 n) const;
  kernels::GpuQuantized acts_for(Rows x, u64 k);
  kernels::GpuQuantized acts_from(u32 row, u64 k) const;
  void quantize(Rows x, u32 k, u32 n);
  void multiply(Rows x, u32 n, std::span<const Projection> projections, kernels::Store store);
  kernels::GpuPages pages(u32 cache_layer, u32 row) const;

  // gpu_backend_select.cpp
  bool may_select() const { return args_.select.selector != nullptr; }
  template <class Fn>
  void each_selecting(const step::Batch& batch, Fn&& fn) const;
  void place_gathered();
  void write_choices(const step::Batch& batch);
  kernels::GpuPqIndex pq_index(u32 cache_layer, u32 row) const;
  void code_new_keys(u32 row);
  void choose(u32 cache_layer, u32 row, const f32* q);
  void gather_chosen(u32 cache_layer, u32 row, const f32* q);

  // What a launch of attention works with: all slots of its rows, or with states a part of them.
  struct Part {
    kernels::GpuPages pages{};
    Rows q{}, out{};
    const u32* visible = nullptr;
    u32 visible_stride = 0;
    kernels::GpuQuantized quantized{};
    f32* states = nullptr;
    u32 n_rows = 0;
    u32 span_begin = 0, n_spans = 0;
  };
  void attend_part(const Part& part);
  u64 token_bytes() const {  // of K and V, all heads
    return args_.page_bytes * args_.spec->n_kv_heads / args_.page_tokens;
  }

  // gpu_backend_stream.cpp
  // What one attention reads and leaves.
  struct Attended {
    const step::Run& run;
    u32 cache_layer;
    Rows q, out;
    bool leaves_acts;
  };
  bool streams() const { return args_.stream.kv != nullptr; }
  void place_stream();
  void send_tails(const step::Batch& batch, const step::Run& run);
  void attend_streamed(const step::Batch& batch, u32 cache_layer, Rows q, Rows out,
                       bool leaves_acts);
  void attend_run(const step::Batch& batch, const Attended& a);
  // A chunk of a layer: groups [begin, end), to be attended to at `memory`, whose addresses stand
  // in the table from table_at on.
  struct Chunk {
    u32 begin, end;
    u8* memory;
    u64 table_at;
    std::optional<u32> kept;  // the piece that it may stay in
  };
  Chunk chunk_of(const step::Run& run, u32 cache_layer, u32 begin, u32 n_groups);
  bool stage(const step::Run& run, u32 cache_layer, const Chunk& chunk);
  void attend_fetched(const Attended& a);
  void attend_gathered(const Attended& a, std::span<const u32> n_slots);
  bool bring_query(const Attended& a);
  kernels::GpuPages pages_at(u64 table_at, u32 cache_layer, u32 row) const;
  bool wait_for_host_part();

  GpuBackendArgs args_{};
  GpuStream* stream_ = nullptr;
  StreamProgress progress_{};
  GpuEvent* host_part_ = nullptr;  // with tiers: what the host waits for within a step
  kv::KeptChunks kept_{};
  u64 n_chunks_kept_ = 0;
  Mode mode_ = Mode::eager;
  plan::GpuStateShape state_{};           // of the step, or of the graph that is captured
  const f32* quantized_ = nullptr;        // the rows whose quantised form is in acts; nullptr: none
  u32 graph_rows_ = 0, graph_spans_ = 0;  // of the one that is captured
  bool graph_selects_ = false;
  static constexpr u32 kSpanBuckets = 24;  // 1, 2, 4, ... spans
  std::array<std::array<GpuGraph*, kSpanBuckets>, kRowBuckets> graphs_{};
  GpuGraph* selecting_graph_ = nullptr;
  Traffic traffic_{};

  // Steps of up to 8 rows, which wait for memory, and of more, which wait for arithmetic.
  enum class StepKind : u8 { few_rows, many_rows };
  std::array<u64, 2> usual_wait_ns_{};  // wait_done()'s
  StepKind step_kind_ = StepKind::few_rows;
};

}  // namespace tarn::engine
