#include "runtime/method/read/quest.h"

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::method {

static_assert(kQuestPageTokens == QuestIndex::kPageTokens);

u32 select_quest(const SelectionArgs& args, const QuestIndex& index) {
  constexpr u32 kPage = QuestIndex::kPageTokens;
  const TokenRanges& s = args.ranges;
  TARN_ASSERT(index.n_slots() >= s.middle_end);
  const SelectionScratch scratch =
      carve_selection(args, selection_shape(args, index.head_dim(), 0));
  if (s.n_middle() == 0) return compose_slots(args, nullptr, 0);
  const u32 first = s.middle_begin / kPage;
  const u32 n_pages = (s.middle_end + kPage - 1) / kPage - first;
  for (u32 h = 0; h < args.query.n_heads; ++h) {
    const f32* q = args.query.q + u64{h} * index.head_dim();
    for (u32 p = 0; p < n_pages; ++p) {
      scratch.scores[u64{h} * n_pages + p] = index.bound(first + p, q) * args.query.scale;
    }
  }
  const u32 n_chosen = args.table.top_k({.values = rank_of(args, scratch, n_pages),
                                         .out = scratch.places,
                                         .scratch = scratch.radix,
                                         .n = n_pages,
                                         .k = args.k / kPage});
  return compose_blocks(args, kPage, first, {scratch.places, n_chosen});
}

u64 QuestReader::region_bytes(const SelectConfig& /*config*/, const KeyDims& keys,
                              u32 capacity_tokens) {
  return align_up(QuestIndex::region_bytes(keys.head_dim, capacity_tokens), 64);
}

void QuestReader::take_in(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
                          std::span<std::byte> scratch) {
  f32* row = reinterpret_cast<f32*>(scratch.data());
  index_.append(table, keys, slot_end, {row, keys.head_dim});
}

}  // namespace tarn::method
