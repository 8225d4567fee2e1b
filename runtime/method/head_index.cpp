#include "runtime/method/head_index.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::method {

u64 HeadIndex::region_bytes(const SelectConfig& config, const KeyDims& dims, u32 capacity_tokens) {
  if (config.method == SelectMethod::pq) {
    return PqIndex::region_bytes(pq_shape(config, dims, capacity_tokens));
  }
  if (config.method == SelectMethod::quest) {
    return align_up(QuestIndex::region_bytes(dims.head_dim, capacity_tokens), 64);
  }
  return 0;
}

void HeadIndex::init(const SelectConfig& config, const KeyDims& dims, u32 capacity_tokens,
                     std::span<std::byte> region) {
  if (config.method == SelectMethod::pq) {
    pq.init(pq_shape(config, dims, capacity_tokens), region);
  }
  if (config.method == SelectMethod::quest) quest.init(dims.head_dim, capacity_tokens, region);
}

void HeadIndex::truncate(const SelectConfig& config, u32 middle_end) {
  if (config.method == SelectMethod::quest) quest.truncate(middle_end);
  if (config.method != SelectMethod::pq || pq.n_clustered() == 0) return;
  pq.truncate(std::min(pq.n_tokens(), middle_end - pq.slot_begin()));
}

void HeadIndex::copy_from(const SelectConfig& config, const HeadIndex& source) {
  if (config.method == SelectMethod::pq) pq.copy_from(source.pq);
  if (config.method == SelectMethod::quest) quest.copy_from(source.quest);
}

u32 HeadIndex::n_taken(const SelectConfig& config, u32 slot_end) const {
  if (config.method == SelectMethod::pq) return pq.slot_begin() + pq.n_tokens();
  if (config.method == SelectMethod::quest) return std::min(quest.n_slots(), slot_end);
  return slot_end;
}

void HeadIndex::take_in(const SelectConfig& config, const kernels::CpuTable& table,
                        const KeyPages& keys, u32 slot_end, std::span<std::byte> scratch) {
  if (config.method == SelectMethod::pq) pq.encode(table, keys, slot_end, scratch);
  if (config.method != SelectMethod::quest) return;
  f32* row = reinterpret_cast<f32*>(scratch.data());
  quest.append(table, keys, slot_end, {row, keys.head_dim});
}

namespace {

// The chosen slots, each by its stand-in.
void misplace(const CodeControl& control, const Segments& segments, std::span<u32> slots) {
  for (u32& slot : slots) {
    slot = segments.middle_begin +
           control.instead_of(slot - segments.middle_begin, segments.n_middle());
  }
  std::sort(slots.begin(), slots.end());
}

}  // namespace

u32 HeadIndex::choose(const SelectConfig& config, const SelectionArgs& args, const KeyPages& keys,
                      u64 seed) const {
  switch (config.method) {
    case SelectMethod::pq: {
      SelectionArgs in_blocks = args;
      in_blocks.block_tokens = config.block_tokens;
      const u32 n = select_pq(in_blocks, pq);
      const Segments& s = args.segments;
      if (config.control != nullptr) {
        misplace(*config.control, s,
                 args.slots.subspan(s.n_sinks(), n - s.n_sinks() - s.n_local()));
      }
      return n;
    }
    case SelectMethod::oracle:
      return select_oracle(args, keys);
    case SelectMethod::quest:
      return select_quest(args, quest);
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

}  // namespace tarn::method
