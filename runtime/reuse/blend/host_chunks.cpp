#include "runtime/reuse/blend/host_chunks.h"

#include <algorithm>
#include <array>

#include "platform/base/checked.h"
#include "runtime/reuse/blend/row_choice.h"

namespace tarn::reuse {
namespace {

constexpr u32 kPageTokensMax = 256;

}  // namespace

HostChunksMemory HostChunksMemory::carve(Carver& carver, const model::ModelSpec& spec,
                                         u32 page_tokens, u32 n_workers) {
  return {.scratch = carver.rows<f32>("keys", n_workers, u64{page_tokens} * spec.head_dim),
          .inv_freq = carver.take<f64>("inv_freq", spec.n_rot / 2),
          .cos = carver.take<f32>("cos", spec.n_rot / 2),
          .sin = carver.take<f32>("sin", spec.n_rot / 2)};
}

void HostChunks::init(const Args& args) {
  args_ = args;
  kernels::rope_frequencies(args.spec->rope_base, args.spec->rope_scale, args.spec->n_rot,
                            args.rope_factors, args.memory.inv_freq.data());
}

Result<void> HostChunks::compare(kv::Sequence& source, const kv::ChunkValues& values,
                                 std::span<f32> deviation) {
  const model::ModelSpec& spec = *args_.spec;
  const u32 page_tokens = args_.page_tokens, layer = values.cache_layer;
  const u32 end = values.first_slot + static_cast<u32>(deviation.size());
  u32 page = values.first_slot / page_tokens;
  const u32 page_end = static_cast<u32>(ceil_div(end, page_tokens));
  for (u32 slot = values.first_slot, n_pages = 0; slot < end; page += n_pages) {
    TARN_TRY(n_pages, args_.kv->pin(source, layer, page, page_end));
    for (; slot < end && slot / page_tokens < page + n_pages; ++slot) {
      const u32 row = slot - values.first_slot;
      f64 sum = 0;
      for (u32 h = 0; h < spec.n_kv_heads; ++h) {
        sum += value_deviation(args_.kv_type, spec.head_dim,
                               from_row(values.v, row).data + u64{h} * spec.head_dim,
                               args_.kv->pool().page(source.group(layer, slot / page_tokens), h),
                               slot % page_tokens, args_.memory.scratch);
      }
      deviation[row] = kv::deviation_of(sum);
    }
    args_.kv->unpin(source, layer, page, page + n_pages);
  }
  return {};
}

Result<void> HostChunks::transplant(const Move& move) {
  kernels::rope_table({.positions = &move.distance,
                       .n_rows = 1,
                       .n_rot = args_.spec->n_rot,
                       .inv_freq = args_.memory.inv_freq.data(),
                       .cos = args_.memory.cos.data(),
                       .sin = args_.memory.sin.data()});
  args_.kv->plan_step({}, move.source);
  for (u32 layer = 0; layer < args_.spec->n_cache_layers; ++layer) {
    TARN_CHECK(transplant_layer(move, layer));
  }
  return {};
}

Result<void> HostChunks::transplant_layer(const Move& move, u32 layer) {
  const u32 n_kv_heads = args_.spec->n_kv_heads, page_tokens = args_.page_tokens;
  const u32 page_end = static_cast<u32>(ceil_div(move.source_slot + move.n, page_tokens));
  u32 n = 0;
  for (u32 page = move.source_slot / page_tokens; page < page_end; page += n) {
    TARN_TRY(n, args_.kv->pin(*move.source, layer, page, page_end));
    args_.workers->run(n * n_kv_heads, [&](u32 task_idx, u32 worker_idx) {
      const Page own{layer, page + task_idx / n_kv_heads, task_idx % n_kv_heads};
      transplant_page(move, own, worker_idx);
    });
    args_.kv->unpin(*move.source, layer, page, page + n);
  }
  return {};
}

void HostChunks::transplant_page(const Move& move, Page page, u32 worker_idx) {
  const model::ModelSpec& spec = *args_.spec;
  const u32 page_tokens = args_.page_tokens;
  const u32 begin = std::max(page.idx * page_tokens, move.source_slot);
  const u32 end = std::min((page.idx + 1) * page_tokens, move.source_slot + move.n);
  std::array<u8*, kPageTokensMax> slots{};
  for (u32 at = begin; at < end; ++at) {
    const u32 n_before = at - move.source_slot;
    if (is_chosen(move.deviation[n_before])) continue;
    slots[at - begin] = move.target->slot_for_write(page.layer, page.kv_head, move.slot + n_before);
  }
  transplant_kv(
      {.table = args_.table,
       .type = args_.kv_type,
       .head_dim = spec.head_dim,
       .n_rot = spec.n_rot,
       .pairs = spec.rope_halves ? kernels::RopePairs::halves : kernels::RopePairs::adjacent,
       .cos = args_.memory.cos.data(),
       .sin = args_.memory.sin.data()},
      args_.kv->pool().page(move.source->group(page.layer, page.idx), page.kv_head),
      begin % page_tokens, std::span(slots).first(end - begin),
      Carver::row(args_.memory.scratch, args_.workers->n_workers(), worker_idx));
}

}  // namespace tarn::reuse
