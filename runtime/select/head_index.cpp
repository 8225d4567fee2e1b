#include "runtime/select/head_index.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::select {

u64 HeadIndex::region_bytes(const SelectConfig& config, u32 head_dim, u32 capacity_tokens) {
  if (config.method == SelectMethod::pq) {
    return PqIndex::region_bytes(pq_shape(config, head_dim, capacity_tokens));
  }
  if (config.method == SelectMethod::quest) {
    return align_up(QuestIndex::region_bytes(head_dim, capacity_tokens), 64);
  }
  return 0;
}

void HeadIndex::init(const SelectConfig& config, u32 head_dim, u32 capacity_tokens,
                     std::span<std::byte> region) {
  if (config.method == SelectMethod::pq) {
    pq.init(pq_shape(config, head_dim, capacity_tokens), region);
  }
  if (config.method == SelectMethod::quest) quest.init(head_dim, capacity_tokens, region);
}

void HeadIndex::truncate(const SelectConfig& config, u32 middle_end) {
  if (config.method == SelectMethod::quest) quest.truncate(middle_end);
  if (config.method != SelectMethod::pq || pq.n_codebooks() == 0) return;
  pq.truncate(std::min(pq.n_tokens(), middle_end - pq.slot_begin()));
}

void HeadIndex::copy_from(const SelectConfig& config, const HeadIndex& source) {
  if (config.method == SelectMethod::pq) pq.copy_from(source.pq);
  if (config.method == SelectMethod::quest) quest.copy_from(source.quest);
}

u32 HeadIndex::choose(const SelectConfig& config, const SelectionArgs& args, const KeyPages& keys,
                      u64 seed, std::span<std::byte> train_scratch) {
  switch (config.method) {
    case SelectMethod::pq:
      pq.encode(args.table, keys, args.segments.middle_end, train_scratch);
      return select_pq(args, pq);
    case SelectMethod::oracle:
      return select_oracle(args, keys);
    case SelectMethod::quest: {
      f32* row = reinterpret_cast<f32*>(train_scratch.data());
      quest.append(args.table, keys, args.segments.middle_end, {row, keys.head_dim});
      return select_quest(args, quest);
    }
    case SelectMethod::window:
      return select_window(args);
    case SelectMethod::random:
      return select_random(args, seed);
    case SelectMethod::full:
      break;
  }
  TARN_ASSERT(config.method != SelectMethod::full);
  return 0;
}

}  // namespace tarn::select
