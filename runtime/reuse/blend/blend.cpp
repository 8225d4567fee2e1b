#include "runtime/reuse/blend/blend.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::reuse {
namespace {

constexpr u32 kNoChunk = ~u32{0};
// Slots that are transplanted for each row that a step has room for: 16 takes less than a row.
constexpr u32 kSlotsARow = 16;

}  // namespace

u32 BlendSizes::check_layer() const {
  u32 layer = 0;
  while (layer < spec->n_layers && spec->kv_source[layer] == spec->kv_source[0]) ++layer;
  return layer;
}

u32 BlendSizes::n_check_cache_layers() const {
  const u32 layer = check_layer();
  return layer < spec->n_layers ? spec->kv_source[layer] : 1;
}

BlendMemory BlendMemory::carve(Carver& carver, const BlendSizes& sizes, u32 n) {
  const model::ModelSpec& spec = *sizes.spec;
  const u32 n_tokens = sizes.context_tokens, page_tokens = sizes.page_tokens;
  const auto tables = [&](const char* name, u32 n_layers) {
    return carver.rows<kv::GroupRef>(name, n,
                                     kv::Sequence::n_entries(n_layers, n_tokens, page_tokens));
  };
  return {.deviation = carver.rows<f32>("deviation", n, n_tokens),
          .source = tables("chunk", spec.n_cache_layers),
          .check = tables("check", sizes.n_check_cache_layers()),
          .slots = carver.take<u32>("slots", sizes.rows_max),
          .host = HostChunksMemory::carve(carver, spec, page_tokens, sizes.n_workers)};
}

BlendMemory BlendMemory::part(u32 n, u32 i) const {
  BlendMemory own = *this;
  own.deviation = Carver::row(deviation, n, i);
  own.source = Carver::row(source, n, i);
  own.check = Carver::row(check, n, i);
  return own;
}

void Blend::init(const Args& args) {
  args_ = args;
  const model::ModelSpec& spec = *args.sizes.spec;
  source_.init(&args.kv->pool(), spec.n_cache_layers, args.sizes.context_tokens,
               args.memory.source);
  check_.init(&args.kv->pool(), args.sizes.n_check_cache_layers(), args.sizes.context_tokens,
              args.memory.check);
  session_ = kNobody;
}

std::optional<Chunk> Blend::chunk_of(const ChunkSpan& part, u32 first_id, u32 n_ids) const {
  const bool is_at_prefix = part.begin == n_bos() && (!args_.bos || first_id == *args_.bos);
  const u32 n = std::min(part.end, n_ids - 1) - part.begin;  // the last token is computed
  const u32 n_whole = (n + n_bos()) / args_.sizes.page_tokens * args_.sizes.page_tokens;
  if (is_at_prefix || part.begin < n_bos() || n_whole <= n_bos()) return std::nullopt;
  return Chunk{.begin = part.begin, .end = part.begin + n_whole - n_bos()};
}

// ---- What comes next ----------------------------------------------------------------------------

bool Blend::begin(u32 session, std::span<const Chunk> chunks) {
  TARN_ASSERT(is_free() && !chunks.empty());
  session_ = session;
  std::copy(chunks.begin(), chunks.end(), chunks_.begin());
  n_chunks_ = static_cast<u32>(chunks.size());
  at_ = n_tokens_ = n_chosen_ = n_lost_ = 0;
  loaded_ = kNoChunk;
  for (const Chunk& chunk : chunks) n_tokens_ += chunk.n_tokens();
  const auto deviation = args_.memory.deviation.begin();
  std::fill(deviation + chunks.front().begin, deviation + chunks.back().end, 0.0f);
  const f32 share = chunks[0].recompute;
  const BlendSizes& sizes = args_.sizes;
  checks_ = share > 0 && share < 1 && sizes.check_layer() < sizes.spec->n_layers;
  const bool has_room = reserve();
  if (!checks_) choose();
  if (!has_room) end();
  return has_room;
}

bool Blend::reserve() {
  u32 n_source_max = 0;
  for (const Chunk& each : std::span(chunks_).first(n_chunks_))
    n_source_max = std::max(n_source_max, each.n_tokens() + n_bos());
  return kv::KvCache::reserve_slots(source_, n_source_max) &&
         (!checks_ || kv::KvCache::reserve_slots(check_, chunks_[n_chunks_ - 1].end));
}

void Blend::end() {
  source_.clear();
  check_.clear();
  session_ = kNobody;
}

void Blend::choose() {
  checks_ = false;
  at_ = 0;
  check_.clear();
  const auto chunks = std::span<const Chunk>(chunks_).first(n_chunks_);
  if (args_.score != nullptr) args_.score(chunks, args_.memory.deviation);
  n_chosen_ = choose_rows(chunks, args_.memory.deviation);
}

bool Blend::prepare(const BlendTarget& target) {
  const auto n_done = [&] { return checks_ ? check_.n_slots() : target.sequence->n_slots(); };
  while (at_ < n_chunks_ && n_done() >= chunk().end) {
    ++at_;
    if (checks_ && at_ == n_chunks_) choose();
  }
  if (at_ == n_chunks_) {
    end();
    return false;
  }
  load(target, at_);
  if (!reserve()) end();  // pages that others had too gave nothing back
  return !is_free();
}

// Pages that are missing are computed, by the next rows.
void Blend::load(const BlendTarget& target, u32 idx) {
  if (loaded_ != idx) source_.clear();
  loaded_ = idx;
  const bool is_at_page = source_.n_slots() % args_.sizes.page_tokens == 0;
  if (source_.n_slots() == n_bos() + chunks_[idx].n_tokens() || !is_at_page) return;
  with_source_ids(target, chunks_[idx], [&](std::span<const u32> ids) {
    static_cast<void>(args_.kv->prefixes().take(source_, target.root, ids));
  });
}

u32 Blend::n_ready(const BlendTarget& target) const {
  if (source_.n_slots() < n_source()) return n_source() - source_.n_slots();
  if (checks_) {
    const u32 layers = args_.sizes.check_layer() + 1;
    return static_cast<u32>(
        ceil_div(u64{chunk().end - check_.n_slots()} * layers, args_.sizes.spec->n_layers));
  }
  u32 n = 0;
  for (u32 slot = target.sequence->n_slots(); slot < chunk().end; ++slot) n += is_chosen(slot);
  return std::max(n, 1u);
}

Result<Blend::Rows> Blend::take(const BlendTarget& target, u32 n, u32 rows_max) {
  kv::KvCache& kv = *args_.kv;
  if (source_.n_slots() < n_source()) {
    n = std::min(n, n_source() - source_.n_slots());
    TARN_CHECK(kv.reserve_frames(source_, n));
    const u32 begin = chunk().begin + source_.n_slots() - n_bos();  // in front of it stands BOS
    Rows rows{step::RunPart::chunk, &source_, target.ids.subspan(begin, n), {}, {}};
    if (source_.n_slots() < n_bos()) rows.first_id = args_.bos;
    return rows;
  }
  if (checks_) {
    const BlendSizes& sizes = args_.sizes;
    n = std::max(n, n * sizes.spec->n_layers / (sizes.check_layer() + 1));
    n = std::min({n, rows_max, chunk().end - check_.n_slots()});
    TARN_CHECK(kv.reserve_frames(check_, n));
    return Rows{step::RunPart::check, &check_, target.ids.subspan(check_.n_slots(), n), {}, {},
                sizes.check_layer()};
  }
  const u32 begin = target.sequence->n_slots();
  const u32 n_slots_max = kSlotsARow * std::max(n, args_.sizes.page_tokens / kSlotsARow);
  u32 n_rows = 0, slot = begin;
  for (; slot < chunk().end && slot - begin < n_slots_max; ++slot) {
    if (!is_chosen(slot)) continue;
    if (n_rows == n) break;
    args_.memory.slots[n_rows++] = slot;
  }
  TARN_CHECK(kv.reserve_frames(*target.sequence, slot - begin));
  TARN_CHECK(transplant(target, std::max(begin, chunk().begin), slot));
  if (slot == chunk().end && at_ + 1 < n_chunks_) {
    load(target, at_ + 1);
    static_cast<void>(reserve());  // at once, or another session gets what the last chunk had
  }
  return Rows{step::RunPart::own,
              target.sequence,
              target.ids.subspan(begin, slot - begin),
              args_.memory.slots.first(n_rows),
              {}};
}

Result<void> Blend::commit(const BlendTarget& target, const step::Run& run, step::Rows v) {
  if (run.part == step::RunPart::check) {
    TARN_CHECK(compare(check_.n_slots(), run.n_rows, v));
    check_.commit(run.n_slots);
  }
  if (run.part != step::RunPart::chunk) return {};
  const u32 page_tokens = args_.sizes.page_tokens, begin = source_.n_slots() / page_tokens;
  source_.commit(run.n_slots);
  with_source_ids(target, chunk(), [&](std::span<const u32> ids) {
    args_.kv->prefixes().list(source_, target.root, ids, begin, source_.n_slots() / page_tokens);
  });
  return {};
}

// Gives a chunk up. Each time one page is lost at least, or there is another reason.
bool Blend::lose_chunk() {
  source_.abandon();
  args_.kv->cut_lost(source_, /*keeps_whole_pages=*/true);
  return ++n_lost_ <= n_tokens_ / args_.sizes.page_tokens + n_chunks_;
}

// ---- Check --------------------------------------------------------------------------------------

Result<void> Blend::compare(u32 first_token, u32 n, step::Rows v) {
  const BlendSizes& sizes = args_.sizes;
  const u32 begin = std::max(first_token, chunk().begin), end = first_token + n;
  if (begin >= end) return {};
  return args_.chunks->compare(source_,
                               {.cache_layer = sizes.spec->kv_source[sizes.check_layer()],
                                .first_slot = source_slot(begin),
                                .v = from_row(v, begin - first_token)},
                               args_.memory.deviation.subspan(begin, end - begin));
}

Result<void> Blend::transplant(const BlendTarget& target, u32 from, u32 to) {
  if (from >= to) return {};
  return args_.chunks->transplant({.source = &source_,
                                   .source_slot = source_slot(from),
                                   .target = target.sequence,
                                   .session = target.session,
                                   .slot = from,
                                   .n = to - from,
                                   .distance = chunk().begin - n_bos(),
                                   .deviation = args_.memory.deviation.data() + from});
}

}  // namespace tarn::reuse
