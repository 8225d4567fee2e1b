#include "runtime/exec/cpu/attention.h"

#include <cstring>
#include <utility>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::exec {

void CpuAttention::attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) {
  count_kv(batch);
  for (u64 begin = 0; begin < batch.runs.size();) {
    const std::span<step::Run> rest = batch.runs.subspan(begin);
    const std::span<step::Run> runs = rest.first(args_.parts->n_together(rest));
    attend_runs({batch, runs, cache_layer, q, out});
    begin += runs.size();
  }
}

// Counts what whole parts read; chosen slots are counted where they are chosen.
void CpuAttention::count_kv(const step::Batch& batch) {
  const u64 token_bytes =
      2 * kernels::kv_vector_bytes(args_.kv_type, args_.spec->head_dim) * args_.spec->n_kv_heads;
  for (const step::Run& run : batch.runs) {
    if (run.selects) continue;
    for (u32 begin = 0; begin < run.n_rows; begin += kernels::kAttnRowsMax) {
      const u32 last = std::min(begin + kernels::kAttnRowsMax, run.n_rows) - 1;
      kv_bytes_ += batch.visible[run.row_begin + last] * token_bytes;
    }
  }
}

void CpuAttention::attend_runs(const Attended& a) {
  kv::PartSource& source = *args_.parts;
  const u32 last_row = a.runs.back().row_begin + a.runs.back().n_rows - 1;
  u32 n_visible = 0;
  for (const step::Run& run : a.runs)
    n_visible = std::max(n_visible, a.batch.visible[run.row_begin + run.n_rows - 1]);
  const u32 n_groups = static_cast<u32>(ceil_div(n_visible, args_.page_tokens));
  source.begin(a.runs, a.cache_layer, from_row(a.q, last_row).data);
  for (step::KvPart part{};
       !tasks_.is_abandoned() && source.next(a.runs, a.cache_layer, n_groups, part);) {
    attend_part(a, part);
    source.give_back(a.runs, a.cache_layer, part);
  }
  for (const step::Run& run : a.runs) {
    if (run.state != step::RunState::failed) continue;
    for (u32 row = run.row_begin; row < run.row_begin + run.n_rows; ++row) {
      std::fill_n(from_row(a.out, row).data, u64{args_.spec->n_heads} * args_.spec->head_dim, 0.0f);
    }
  }
}

u32 CpuAttention::n_tasks(const step::Run& run, const step::KvPart& part) const {
  if (run.selects) return std::min(part.head_end, args_.spec->n_kv_heads) - part.head_begin;
  const u64 n_blocks = ceil_div(run.n_rows, kernels::kAttnRowsMax);
  return static_cast<u32>(n_blocks) * args_.spec->n_kv_heads;
}

void CpuAttention::attend_part(const Attended& a, const step::KvPart& part) {
  u32 n = 0;
  for (const step::Run& run : a.runs) n += n_tasks(run, part);
  tasks_.run(n, [&](u32 task_idx, u32 worker_idx) {
    if (tasks_.skips(worker_idx)) return;
    for (const step::Run& run : a.runs) {
      const u32 n_of_run = n_tasks(run, part);
      if (task_idx >= n_of_run) {
        task_idx -= n_of_run;
        continue;
      }
      if (run.selects) return attend_chosen(a, run, part.head_begin + task_idx, worker_idx);
      return attend_block(a, run, part, task_idx, worker_idx);
    }
  });
}

// Makes the arguments for all slots, with no pages yet.
kernels::AttnArgs CpuAttention::attn_args(const Attended& a, const step::Run& run, u32 kv_head,
                                          u32 block, u32 worker_idx) const {
  const model::ModelSpec& spec = *args_.spec;
  const u32 row = run.row_begin + block * kernels::kAttnRowsMax;
  const u32 n_group_heads = spec.n_heads / spec.n_kv_heads;
  const u64 head_offset = u64{kv_head} * n_group_heads * spec.head_dim;
  return {.type = args_.kv_type,
          .pages = nullptr,
          .page_tokens = args_.page_tokens,
          .head_dim = spec.head_dim,
          .q = from_row(a.q, row).data + head_offset,
          .q_stride = a.q.stride,
          .out = from_row(a.out, row).data + head_offset,
          .out_stride = a.out.stride,
          .n_rows = std::min(kernels::kAttnRowsMax, run.row_begin + run.n_rows - row),
          .n_group_heads = n_group_heads,
          .visible = a.batch.visible + row,
          .scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim)),
          .scratch = of_worker(args_.attention.tiles, worker_idx).data()};
}

// Attends a block of rows to the part's slots, in pieces. Between two pieces it asks whether the
// step is still wanted.
void CpuAttention::attend_block(const Attended& a, const step::Run& run, const step::KvPart& part,
                                u32 task_idx, u32 worker_idx) {
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  const u32 n_blocks = static_cast<u32>(ceil_div(run.n_rows, kernels::kAttnRowsMax));
  const u32 kv_head = task_idx % n_kv_heads;
  // The last block sees the most slots: it goes first, so that the tasks end together.
  const u32 block = n_blocks - 1 - task_idx / n_kv_heads;
  kernels::AttnArgs attn = attn_args(a, run, kv_head, block, worker_idx);
  const u32 n_visible = attn.visible[attn.n_rows - 1];  // positions ascend
  const u32 group_end =
      std::min(part.group_end, static_cast<u32>(ceil_div(n_visible, args_.page_tokens)));
  if (part.group_begin >= group_end) return;  // it had its last part
  const AttentionMemory& memory = args_.attention;
  const std::span<const u8*> pages = of_worker(memory.pages, worker_idx);
  run.sequence->pages(a.cache_layer, kv_head, part.group_begin, group_end, pages);
  attn.pages = pages.data();
  const u32 piece_pages = kAttnPieceSlots / args_.page_tokens;
  const u32 piece_slots = piece_pages * args_.page_tokens;
  if (!memory.carried_states.empty()) {
    const u64 idx = u64{block} * n_kv_heads + kv_head;
    attn.state = Carver::row(memory.carried_states, memory.n_carried_states, idx).data();
  } else if (n_visible > piece_slots) {
    attn.state = of_worker(memory.states, worker_idx).data();
  }
  const u32 end = std::min(group_end * args_.page_tokens, n_visible);
  attn.slot_begin = part.group_begin * args_.page_tokens;
  for (; end - attn.slot_begin > piece_slots; attn.pages += piece_pages) {
    attn.slot_end = attn.slot_begin + piece_slots;
    args_.table->attn(attn);
    if (tasks_.skips(worker_idx)) return;
    attn.slot_begin = attn.slot_end;
  }
  attn.slot_end = end;
  args_.table->attn(attn);
}

// Chosen slots in ascending order, cut into tiles by rank: where they lie changes no bit.
void CpuAttention::attend_chosen(const Attended& a, const step::Run& run, u32 kv_head,
                                 u32 worker_idx) {
  kernels::AttnArgs attn = attn_args(a, run, kv_head, 0, worker_idx);
  const step::ChosenSlots chosen =
      args_.parts->choose({run, a.cache_layer, kv_head, attn.q}, worker_idx);
  const u32 n_slots = static_cast<u32>(chosen.slots.size());
  const u32 n_tile =
      static_cast<u32>(ceil_div(step::kGatherTokens, args_.page_tokens)) * args_.page_tokens;
  attn.visible = &n_slots;
  attn.state = chosen.state;
  Spent& spent = spent_[worker_idx];
  for (u32 begin = 0; begin < n_slots; begin += n_tile) {
    const u64 start_ns = args_.clock->now_ns();
    attn.pages = chosen.pages != nullptr
                     ? chosen.pages + begin / args_.page_tokens
                     : copy_tile(chosen, begin, std::min(n_tile, n_slots - begin));
    const u64 gathered_ns = args_.clock->now_ns();
    attn.slot_begin = begin;
    attn.slot_end = begin + n_tile;
    args_.table->attn(attn);
    spent.gather_ns += gathered_ns - start_ns;
    spent.attend_ns += args_.clock->now_ns() - gathered_ns;
  }
}

const u8* const* CpuAttention::copy_tile(const step::ChosenSlots& chosen, u32 begin, u32 n) const {
  constexpr u64 kAhead = 16;  // slots asked for before they are copied
  const u64 slot_bytes = 2 * kernels::kv_vector_bytes(args_.kv_type, args_.spec->head_dim);
  const u32 page_tokens = args_.page_tokens;
  const auto at = [&](u32 slot) {
    return chosen.groups[slot / page_tokens] + slot % page_tokens * slot_bytes;
  };
  const std::span<const u32> slots = chosen.slots.subspan(begin, n);
  u8* to = chosen.tile;
  for (u64 i = 0; i < n; ++i, to += slot_bytes) {
    if (i + kAhead < n) {
      const u8* next = at(slots[i + kAhead]);
      for (u64 byte = 0; byte < slot_bytes; byte += 64) __builtin_prefetch(next + byte);
    }
    std::memcpy(to, at(slots[i]), slot_bytes);
  }
  return chosen.tile_pages;
}

Backend::Traffic CpuAttention::take_traffic() {
  Backend::Traffic traffic{.kv_bytes = std::exchange(kv_bytes_, 0)};
  for (Spent& spent : spent_) {
    traffic.gather_ns += spent.gather_ns;
    traffic.attend_ns += spent.attend_ns;
    spent = {};
  }
  return traffic;
}

}  // namespace tarn::exec
