// The memory of selection beside the KV: an index of every (cache layer, KV head) of every session,
// one set more for an index that is rebuilt while the old one serves, and scratch of every worker.
// The plan reserves it, the selector cuts it at the same places.
#pragma once

#include "kernels/attn/attn.h"
#include "platform/base/checked.h"
#include "runtime/config/select_config.h"
#include "runtime/kv/extents.h"
#include "runtime/method/device.h"
#include "runtime/method/method.h"
#include "runtime/model/model_spec.h"

namespace tarn::method {

// Where KV lies: in memory, over memory and disk, or in the memory of a GPU, which chooses and
// attends itself: the host only makes indexes then.
enum class KvPlace : u8 { memory, tiers, gpu };

// The inputs that the sizes follow from, beside model and configuration.
struct SelectInputs {
  u32 context_tokens = 0;  // whole pages
  u32 sessions_max = 0;
  u32 n_workers = 0;
  kv::GroupShape group{};
  kernels::KvType kv_type = kernels::KvType::f16;
  KvPlace place = KvPlace::memory;
  u32 pages_max() const { return context_tokens / group.page_tokens; }
};

struct SelectShape {
  SelectInputs in{};
  u32 n_heads = 0;         // (cache layer, KV head) pairs; 0: no selection
  u32 n_sets = 0;          // of indexes: a session each, and the spare one
  u64 reader_bytes = 0;    // of one pair: its reader,
  u64 index_bytes = 0;     // and its region
  DeviceCodes codes{};     // of a region, where a method has any
  u32 n_pairs = 0;         // of codes, where each chosen slot follows from its pair; else 0
  u64 codebook_bytes = 0;  // of a head's record of codes, of the whole context; 0: too large
  // A worker's scratch.
  u64 search_bytes = 0;   // of SelectionArgs; with a GPU none
  u64 train_bytes = 0;    // of a training, and of what is taken in
  u64 state_bytes = 0;    // of attention in parts; with a GPU none
  u32 n_train_parts = 0;  // of a head's training
  u32 n_sample = 0;       // keys of a head that are sampled at most
  u64 sample_bytes = 0;   // theirs, of a head
  u32 n_chosen_max = 0;   // slots that a head attends to
  u32 gather_pages() const {
    return static_cast<u32>(ceil_div(step::kGatherTokens, in.group.page_tokens));
  }
};

SelectShape select_shape(const model::ModelSpec& spec, const SelectConfig& config,
                         const SelectInputs& in);

// Chosen slots that are kept: the caches, then the extents' memory, counters and queries.
struct CachesShape {
  u32 n_slots = 0;  // of a head; 0: there are no caches
  u64 head_bytes = 0;
  u64 bytes = 0;  // of all caches
  kv::ExtentShape extents{};
};
// The memory of extents' orders, behind what extents have for themselves.
struct OrderMemory {
  std::span<u32> counters;  // [n_kv_heads, n_pairs], tokens of a layer's heads
  std::span<f32> queries;   // [sessions_max, n_cache_layers, n_heads * head_dim], asked last
  static OrderMemory carve(Carver& carver, const model::ModelSpec& spec, u32 sessions_max,
                           u32 n_pairs) {
    const u64 n_rows = u64{sessions_max} * spec.n_cache_layers;
    return {.counters = carver.rows<u32>("pairs", spec.n_kv_heads, n_pairs),
            .queries = carver.rows<f32>("queries", n_rows, u64{spec.n_heads} * spec.head_dim)};
  }
};

}  // namespace tarn::method
