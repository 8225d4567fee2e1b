// The memory of a GPU's steps, on the device and on the host. Each region's struct has one carve().
// It counts for the plan, and carves the device's addresses or the mirror's bytes.
//
//   KV      all of it in the GPU's memory; or over memory and disk (n_staged). Then groups pass
//           through frames of the host's memory, which the GPU writes new rows into. Attention
//           copies one layer's slots in stripes of kGpuMergeSlots. Between two stripes attention's
//           state is one vector a head and row
//   mirror  the host's end of the copies; it is registered with the driver
#pragma once

#include "kernels/attn/attn_gpu.h"
#include "kernels/sample/sample_gpu.h"
#include "platform/gpu/slabs.h"
#include "runtime/arena/carver.h"
#include "runtime/exec/gpu/state.h"
#include "runtime/exec/step_memory.h"
#include "runtime/kv/group_pool.h"
#include "runtime/kv/stripe_cache.h"
#include "runtime/method/device.h"
#include "runtime/model/weights.h"
#include "runtime/step/batch.h"

namespace tarn::exec {

inline constexpr u32 kGpuStripesMax = 256;  // stripes that stay on the device; 1M tokens
// Rows that one launch of attention takes.
inline constexpr u32 kGpuAttnRowsMax = kernels::kGpuMatvecRowsMax;
inline constexpr u64 kKeyCopyBytes = 4 * kMiB;  // a copy's start costs little of it on any link

constexpr u32 gpu_spans(u64 context_tokens) {
  return static_cast<u32>(ceil_div(context_tokens, kernels::kGpuSpanSlots));
}

struct GpuSizes {
  u32 rows_max = 0;  // of a step, whole buckets
  u32 sessions_max = 0;
  u32 context_tokens = 0;
  u32 logit_rows_max = 0;
  kv::GroupShape group{};
  u32 n_chosen_max = 0;         // slots that a head attends to by selection; 0: no row selects
  method::DeviceCodes codes{};  // that rows choose by; none: they read the last slots
  u64 index_bytes = 0;          // of a session, likewise
  u32 n_choosing = 0;           // rows of a launch of attention that may choose here; 0: none does
  u32 attended_max = 0;         // slots that a launch of attention takes of a sequence at most
  u32 n_staged = 0;             // stripes on their way at a time; 0: KV lies on the device
  u32 n_stripe_groups = 0;      // groups of a stripe
  u32 n_stripes = 0;            // stripes of every layer that stay on the device
  bool blends = false;          // KV of prompts' chunks is transplanted (reuse/blend/blend.h)

  u32 pages_max() const { return context_tokens / group.page_tokens; }
  u32 choosing_rows() const { return n_choosing; }
  u32 n_selecting() const { return n_choosing > 0 ? sessions_max : 0; }
  // Counts the pages of a row and KV head.
  u32 gathered_pages() const { return static_cast<u32>(ceil_div(n_chosen_max, group.page_tokens)); }
  // Counts the groups of KV that come to the host at a time, to be clustered; 0: nothing is.
  u32 key_groups() const {
    if (n_choosing == 0 || !codes.exist()) return 0;
    return static_cast<u32>(
        std::min(std::max<u64>(kKeyCopyBytes / group.group_bytes(), 1), u64{pages_max()}));
  }
  u64 table_bytes() const { return align_up(index_bytes, kDevicePieceAlignment); }
  u32 stripe_groups() const { return n_stripe_groups; }
  u64 stripe_bytes() const { return stripe_groups() * group.group_bytes(); }
  kv::StripeShape kept(const model::ModelSpec& spec) const {
    return {n_stripes, spec.n_cache_layers, stripe_groups(), group.page_tokens};
  }
  // In the table of addresses: a stripe's groups, a head's gathered pages, the kept stripes'
  // groups.
  u64 kept_at() const { return u64{stripe_groups()} + gathered_pages(); }
  u64 n_addresses(const model::ModelSpec& spec) const {
    return n_staged * (kept_at() + u64{n_stripes} * spec.n_cache_layers * stripe_groups());
  }
  // Tables of groups' addresses: of every session, of what rows gather, and of what a blend
  // computes beside its session.
  u32 source_table() const { return sessions_max + n_choosing; }
  u32 check_table() const { return source_table() + 1; }
  u32 n_tables() const { return source_table() + (blends ? 2 : 0); }
  u32 table_of(const step::Run& run) const {
    return run.part == step::RunPart::own     ? run.session
           : run.part == step::RunPart::chunk ? source_table()
                                              : check_table();
  }
  Checked n_groups(const model::ModelSpec& spec) const {
    return Checked(n_tables()) * spec.n_cache_layers * pages_max();
  }
  u64 n_counts() const { return u64{std::max(rows_max, n_tables())} + 1; }
  u64 n_values(const model::ModelSpec& spec) const {
    return blends ? u64{rows_max} * spec.n_kv_heads * spec.head_dim : 0;
  }
  u64 n_summaries(const model::ModelSpec& spec) const {
    return u64{logit_rows_max} * kernels::gpu_sample_chunks(spec.n_vocab);
  }
  u64 state_bytes(const model::ModelSpec& spec) const {
    return GpuState::bytes(spec, rows_max, n_selecting());
  }
};

// Pieces that kernels read by wide loads.
template <class T>
std::span<T> take_on_device(Carver& carver, const char* name, Checked n) {
  return carver.take<T>(name, n, kDevicePieceAlignment);
}

// Region activations.
struct GpuStepMemory {
  StepMemory step;
  std::span<std::byte> state;
  std::span<u32> counts;  // 0, 1, 2, ..., where kernels read how many rows there are, or a table

  static GpuStepMemory carve(Carver& carver, const model::ModelSpec& spec, const GpuSizes& sizes) {
    return {.step = StepMemory::carve(carver, spec, sizes.rows_max),
            .state = carver.take<std::byte>("state", sizes.state_bytes(spec)),
            .counts = carver.take<u32>("counts", sizes.n_counts())};
  }
};

// Region attention.
struct GpuAttentionMemory {
  std::span<f32> partial;  // results of spans, of a launch
  std::span<u64> groups;   // [tables, pages_max, n_cache_layers] addresses
  // Only with stripes.
  std::span<f32> states;     // of attention over a part, a step's rows
  std::span<u8> staged;      // a stripe
  std::span<u8> gathered;    // of one row, a KV head behind the other
  std::span<u64> addresses;  // of groups in all
  std::span<u32> n_chosen;   // slots, of every KV head

  static GpuAttentionMemory carve(Carver& carver, const model::ModelSpec& spec,
                                  const GpuSizes& sizes) {
    const u64 partial_bytes = kernels::gpu_attn_partial_bytes(
        kGpuAttnRowsMax, spec.n_heads, gpu_spans(sizes.attended_max), spec.head_dim);
    const u64 state_elems = u64{spec.n_heads} * (u64{spec.head_dim} + 2);
    return {
        .partial = take_on_device<f32>(carver, "partial", partial_bytes / sizeof(f32)),
        .groups = take_on_device<u64>(carver, "tables", sizes.n_groups(spec)),
        .states = take_on_device<f32>(carver, "states",
                                      u64{sizes.n_staged} * sizes.rows_max * state_elems),
        .staged = take_on_device<u8>(carver, "stripe", sizes.stripe_bytes()),
        .gathered = take_on_device<u8>(
            carver, "gathered",
            u64{sizes.n_staged} * sizes.gathered_pages() * sizes.group.payload_bytes()),
        .addresses = take_on_device<u64>(carver, "addresses", sizes.n_addresses(spec)),
        .n_chosen = take_on_device<u32>(carver, "chosen", u64{sizes.n_staged} * spec.n_kv_heads)};
  }
};

// Region logits.
struct GpuLogitsMemory {
  std::span<f32> logits;                           // [logit_rows_max, n_vocab]
  std::span<kernels::GpuLogitsSummary> summaries;  // [logit_rows_max, chunks]

  static GpuLogitsMemory carve(Carver& carver, const model::ModelSpec& spec,
                               const GpuSizes& sizes) {
    return {
        .logits = carver.rows<f32>("logits", sizes.logit_rows_max, spec.n_vocab),
        .summaries = carver.take<kernels::GpuLogitsSummary>("summaries", sizes.n_summaries(spec))};
  }
};

// Region select_device: the indexes that rows choose by. A session's heads have theirs as the host
// has them (method::DeviceCodes).
struct GpuIndexMemory {
  std::span<u8> bytes;  // [sessions_max, table_bytes()]

  static GpuIndexMemory carve(Carver& carver, const model::ModelSpec&, const GpuSizes& sizes) {
    return {.bytes = carver.rows<u8>("index", sizes.sessions_max, sizes.table_bytes())};
  }
};

// Region select_gather: a row's choice, and what the rows of a launch chose.
struct GpuSelectMemory {
  std::span<f32> lut;
  std::span<f32> scores, weights;  // where the choice is not by pairs of codes
  std::span<u32> places;           // [n_kv_heads, n_chosen_max]
  std::span<u8> gathered;          // [choosing rows, gathered_pages] groups

  static GpuSelectMemory carve(Carver& carver, const model::ModelSpec& spec,
                               const GpuSizes& sizes) {
    const u64 n_rows = sizes.n_choosing;
    const u64 if_codes = n_rows > 0 && sizes.codes.exist() ? 1 : 0;
    const u64 n_scores = if_codes > 0 && sizes.codes.counts_at == 0 ? sizes.context_tokens : 0;
    const u64 n_lut = if_codes * spec.n_heads * sizes.codes.n_subspaces * sizes.codes.n_padded;
    return {.lut = take_on_device<f32>(carver, "table", n_lut),
            .scores = take_on_device<f32>(carver, "scores", spec.n_heads * n_scores),
            .weights = take_on_device<f32>(carver, "weights", spec.n_kv_heads * n_scores),
            .places = take_on_device<u32>(carver, "places",
                                          if_codes * spec.n_kv_heads * sizes.n_chosen_max),
            .gathered = take_on_device<u8>(
                carver, "gathered",
                n_rows * sizes.gathered_pages() * spec.n_kv_heads * sizes.group.page_bytes())};
  }
};

// All that lies on the device beside weights and KV.
struct GpuRegions {
  GpuStepMemory step{};
  GpuAttentionMemory attention{};
  GpuLogitsMemory logits{};
  GpuIndexMemory indexes{};
  GpuSelectMemory select{};
};

// Region mirror, before what the engine samples from.
struct GpuHostMemory {
  std::span<std::byte> weights;  // of the loader
  StepRows rows;
  std::span<f32> embedded;  // [rows_max, d_model], where they are read from disk
  std::span<std::byte> state;
  std::span<kernels::GpuLogitsSummary> summaries;
  std::span<u64> groups;
  std::span<std::byte> keys;  // key_groups
  std::span<std::byte> kept;  // kv::StripeCache'
  std::span<u64> addresses;
  std::span<u32> n_chosen;
  std::span<f32> query;                  // [n_heads, head_dim]
  std::span<f32> values, source_values;  // [rows_max, n_kv_heads, head_dim] of a check, of a chunk

  static GpuHostMemory carve(Carver& carver, const model::ModelSpec& spec, const GpuSizes& sizes) {
    Carver kept;
    kv::StripeCache().init(kept, sizes.kept(spec));
    return {
        .weights = carver.take<std::byte>("weights", model::weights_host_bytes(spec)),
        .rows = StepRows::carve(carver, spec, sizes.rows_max),
        .embedded =
            carver.rows<f32>("embedded", sizes.rows_max, spec.embedding_on_disk ? spec.d_model : 0),
        .state = carver.take<std::byte>("state", sizes.state_bytes(spec)),
        .summaries = carver.take<kernels::GpuLogitsSummary>("summaries", sizes.n_summaries(spec)),
        .groups = carver.take<u64>("tables", sizes.n_groups(spec)),
        .keys = carver.take<std::byte>("keys", sizes.key_groups() * sizes.group.group_bytes()),
        .kept = carver.take<std::byte>("kept", kept.n_bytes()),
        .addresses = carver.take<u64>("addresses", sizes.n_addresses(spec)),
        .n_chosen = carver.take<u32>("chosen", u64{sizes.n_staged} * spec.n_kv_heads),
        .query = carver.take<f32>("query", u64{sizes.n_staged} * spec.n_heads * spec.head_dim),
        .values = carver.take<f32>("values", sizes.n_values(spec)),
        .source_values = carver.take<f32>("values", sizes.n_values(spec))};
  }
};

}  // namespace tarn::exec
