#include "runtime/method/read/quest.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::method {
namespace {

constexpr u32 kPage = kQuestPageTokens;

}  // namespace

QuestReader::QuestReader(const ReaderArgs& args)
    : ends_(reinterpret_cast<f32*>(args.region.data())),
      head_dim_(args.keys.head_dim),
      capacity_tokens_(args.capacity_tokens) {
  TARN_ASSERT(args.region.size() >= region_bytes(args.config, args.keys, args.capacity_tokens));
}

u64 QuestReader::region_bytes(const SelectConfig& /*config*/, const KeyDims& keys,
                              u32 capacity_tokens) {
  return align_up(ceil_div(capacity_tokens, kPage) * 2 * keys.head_dim * sizeof(f32), 64);
}

u32 QuestReader::n_taken(u32 slot_end) const { return std::min(n_slots_, slot_end); }

void QuestReader::take_in(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
                          std::span<std::byte> scratch) {
  TARN_ASSERT(slot_end <= capacity_tokens_ && keys.head_dim == head_dim_);
  f32* const row = reinterpret_cast<f32*>(scratch.data());
  for (; n_slots_ < slot_end; ++n_slots_) {
    keys.load(table, n_slots_, 1, row);
    f32* min = ends_ + u64{n_slots_ / kPage} * 2 * head_dim_;
    f32* max = min + head_dim_;
    const bool is_first = n_slots_ % kPage == 0;
    for (u32 i = 0; i < head_dim_; ++i) {
      min[i] = is_first ? row[i] : std::min(min[i], row[i]);
      max[i] = is_first ? row[i] : std::max(max[i], row[i]);
    }
  }
}

void QuestReader::truncate(u32 middle_end) {
  if (middle_end < n_slots_) n_slots_ = middle_end / kPage * kPage;
}

void QuestReader::copy_from(const Reader& source) {
  const auto& other = static_cast<const QuestReader&>(source);
  TARN_ASSERT(other.head_dim_ == head_dim_ && other.capacity_tokens_ == capacity_tokens_);
  n_slots_ = other.n_slots_;
  std::copy_n(other.ends_, ceil_div(n_slots_, kPage) * 2 * head_dim_, ends_);
}

u32 QuestReader::choose(const SelectionArgs& args, const KeyPages& /*keys*/) const {
  const TokenRanges& s = args.ranges;
  TARN_ASSERT(n_slots_ >= s.middle_end);
  const SelectionScratch scratch = carve_selection(args);
  if (s.n_middle() == 0) return compose_slots(args, nullptr, 0);
  const u32 first = s.middle_begin / kPage;
  const u32 n_pages = (s.middle_end + kPage - 1) / kPage - first;
  for (u32 h = 0; h < args.query.n_heads; ++h) {
    const f32* q = args.query.q + u64{h} * head_dim_;
    for (u32 p = 0; p < n_pages; ++p) {
      scratch.scores[u64{h} * n_pages + p] = bound(first + p, q) * args.query.scale;
    }
  }
  const u32 n_chosen = args.table.top_k({.values = rank_of(args, scratch, n_pages),
                                         .out = scratch.places,
                                         .scratch = scratch.radix,
                                         .n = n_pages,
                                         .k = args.k / kPage});
  return compose_blocks(args, kPage, first, {scratch.places, n_chosen});
}

f32 QuestReader::bound(u32 page, const f32* q) const {
  const f32* min = ends_ + u64{page} * 2 * head_dim_;
  const f32* max = min + head_dim_;
  f32 sum = 0.0f;
  for (u32 i = 0; i < head_dim_; ++i) sum += std::max(q[i] * min[i], q[i] * max[i]);
  return sum;
}

}  // namespace tarn::method
