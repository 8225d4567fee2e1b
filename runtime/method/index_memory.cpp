#include "runtime/method/index_memory.h"

#include <new>

#include "platform/base/assert.h"
#include "runtime/method/select_shape.h"

namespace tarn::method {
namespace {

constexpr u64 kAlignment = Carver::kAlignment;

// Elements of a row, so that each row begins at a cache line.
template <class T>
constexpr u64 whole(u64 n) {
  return align_up(n * sizeof(T), kAlignment) / sizeof(T);
}

// The worker's, or the head's, of a piece of rows.
template <class T>
std::span<T> row_of(std::span<T> rows, u64 n_rows, u64 row) {
  const u64 n = rows.size() / n_rows;
  return rows.subspan(row * n, n);
}

}  // namespace

IndexSets IndexSets::carve(Carver& carver, const SelectShape& shape) {
  const u64 n_readers = u64{shape.n_sets} * shape.n_heads;
  return {.table = carver.take<Reader*>("table", n_readers),
          .readers = carver.rows<std::byte>("readers", n_readers, shape.reader_bytes),
          .regions = carver.rows<std::byte>("indexes", n_readers, shape.index_bytes),
          .sessions = carver.take<IndexSession>("sessions",
                                                shape.n_heads == 0 ? 0 : shape.in.sessions_max)};
}

SelectScratch SelectScratch::carve(Carver& carver, const SelectShape& shape) {
  const u64 n = shape.n_heads == 0 ? 0 : shape.in.n_workers;
  const u64 n_host = shape.in.place == KvPlace::gpu ? 0 : n;
  const u64 n_pages = shape.gather_pages(), page_bytes = shape.in.group.page_bytes();
  Carver fetch;
  if (n > 0 && shape.in.place == KvPlace::tiers) FetchMemory::carve(fetch, shape);
  return {.search = carver.rows<std::byte>("search", n_host, shape.search_bytes),
          .train = carver.rows<std::byte>("train", n, shape.train_bytes),
          .slots = carver.rows<u32>("slots", n_host, whole<u32>(shape.in.context_tokens)),
          .pages = carver.rows<const u8*>("pages", n, whole<u8*>(shape.in.pages_max())),
          .gathered = carver.rows<u8>("gathered", n_host, whole<u8>(n_pages * page_bytes)),
          .gathered_pages = carver.rows<const u8*>("their pages", n_host, whole<u8*>(n_pages)),
          .states = carver.rows<f32>("state", n_host, shape.state_bytes / sizeof(f32)),
          .shared = carver.take<std::byte>("a layer's",
                                           std::max(shape.sample_bytes * shape.in.group.n_kv_heads,
                                                    fetch.n_bytes().get().value_or(0)))};
}

FetchMemory FetchMemory::carve(Carver& carver, const SelectShape& shape) {
  const u64 n_heads = shape.in.group.n_kv_heads, n = shape.n_chosen_max;
  const u64 n_pages = ceil_div(n, shape.in.group.page_tokens);
  using Found = kv::SlotCache::Found;
  const u64 page_bytes = shape.in.group.page_bytes();
  return {
      .n_pages = n_pages,
      .page_bytes = page_bytes,
      .bytes = carver.rows<u8>("K and V", n_heads, whole<u8>(n_pages * page_bytes)),
      .pages = carver.rows<const u8*>("pages", n_heads, whole<u8*>(n_pages)),
      .slots = carver.rows<u32>("slots", n_heads, whole<u32>(n)),
      .wanted_slots = carver.rows<kv::WantedSlot>("wanted", n_heads, whole<kv::WantedSlot>(n)),
      .missing_slots = carver.rows<kv::WantedSlot>("missing", n_heads, whole<kv::WantedSlot>(n)),
      .found_slots = carver.rows<Found>("found", n_heads, align_up(n, 16)),
      .places = carver.rows<kv::ExtentWant>("places", n_heads, whole<kv::ExtentWant>(n)),
      .n_chosen = carver.take<u32>("counts", n_heads),
      .n_missing = carver.take<u32>("counts", n_heads),
      .found = carver.take<std::span<const Found>>("table", n_heads),
      .wanted = carver.take<std::span<const kv::WantedSlot>>("table", n_heads),
      .out = carver.take<u8*>("table", n_heads),
      .readings = carver.take<kv::ExtentReading>("readings", n_heads)};
}

HeadFetch FetchMemory::head(u32 kv_head) const {
  const u64 n_heads = n_chosen.size();
  u8* const first = row_of(bytes, n_heads, kv_head).data();
  const u8** const table = row_of(pages, n_heads, kv_head).data();
  for (u64 page = 0; page < n_pages; ++page) table[page] = first + page * page_bytes;
  return {.bytes = first,
          .pages = table,
          .slots = row_of(slots, n_heads, kv_head),
          .wanted = row_of(wanted_slots, n_heads, kv_head),
          .missing = row_of(missing_slots, n_heads, kv_head),
          .found = row_of(found_slots, n_heads, kv_head),
          .places = row_of(places, n_heads, kv_head)};
}

void IndexMemory::init(const SelectorArgs& new_args) {
  args = new_args;
  const SelectShape& shape = *args.shape;
  TARN_ASSERT(shape.n_heads > 0);
  Carver indexes(args.indexes), workers(args.scratch);
  sets_ = IndexSets::carve(indexes, shape);
  scratch_ = SelectScratch::carve(workers, shape);
  fetch_ = {};
  if (shape.in.place == KvPlace::tiers) {
    Carver shared(scratch_.shared);
    fetch_ = FetchMemory::carve(shared, shape);
  }
  for (u64 i = 0; i < sets_.table.size(); ++i) {
    sets_.table[i] =
        method_of(*args.config)
            .make(&sets_.readers[i * shape.reader_bytes],
                  {.config = *args.config,
                   .keys = {args.spec->head_dim, args.spec->adjacent_dims()},
                   .capacity_tokens = shape.in.context_tokens,
                   .head = static_cast<u32>(i % shape.n_heads),
                   .region = sets_.regions.subspan(i * shape.index_bytes, shape.index_bytes)});
  }
  for (u64 idx = 0; idx < sets_.sessions.size(); ++idx) {
    auto* s = new (&sets_.sessions[idx]) IndexSession();
    s->life = IndexLife(budget_rule(*args.config), args.config->code_bits,
                        args.config->index_delay_tokens);
    s->heads = &sets_.table[idx * shape.n_heads];
  }
  for (u32 worker = 0; worker < shape.in.n_workers && args.device == nullptr; ++worker) {
    const WorkerScratch mine = scratch(worker);
    for (u64 page = 0; page < shape.gather_pages(); ++page) {
      mine.gathered_pages[page] = mine.gathered + page * shape.in.group.page_bytes();
    }
  }
  init_caches();
}

Reader** IndexMemory::spare_set() const {
  const u64 begin = sets_.sessions.size() * args.shape->n_heads;
  return begin < sets_.table.size() ? &sets_.table[begin] : nullptr;
}

void IndexMemory::init_caches() {
  const CachesShape& shape = args.caches_shape;
  caches_ = {};
  if (shape.n_slots == 0) return;
  const u64 n = u64{args.shape->in.sessions_max} * args.shape->n_heads;
  const bool is_lru = args.config->cache_policy == CachePolicy::lru;
  const u32 keep_shift = is_lru ? kv::SlotCache::kKeepShift : kv::SlotCache::kKeepShiftLong;
  Carver carver(args.caches);
  caches_ = carver.take<kv::SlotCache>("", n);
  for (kv::SlotCache& cache : caches_) {
    new (&cache) kv::SlotCache();
    Carver region(carver.take<std::byte>("", shape.head_bytes));
    cache.init(region, shape.n_slots, 2 * args.shape->in.group.vector_bytes, keep_shift);
  }
}

// Of a session; empty where there is none.
std::span<kv::SlotCache> IndexMemory::caches(u32 session) const {
  if (caches_.empty()) return {};
  const u64 n_heads = args.shape->n_heads;
  return caches_.subspan(session * n_heads, n_heads);
}

// The memory of a session's caches, which are empty from now on.
std::span<std::byte> IndexMemory::borrow_caches(u32 session) {
  const CachesShape& shape = args.caches_shape;
  const u64 n_heads = args.shape->n_heads;
  for (kv::SlotCache& cache : caches(session)) cache.clear();
  const u64 table_bytes = align_up(caches_.size_bytes(), Carver::kAlignment);
  const u64 begin =
      align_up(table_bytes + session * n_heads * shape.head_bytes, store::kSectorBytes);
  const u64 end = table_bytes + (session + u64{1}) * n_heads * shape.head_bytes;
  return args.caches.subspan(begin, end - std::min(begin, end));
}

std::span<std::byte> IndexMemory::extents_memory() const {
  if (args.config == nullptr || !args.caches_shape.extents.is_on()) return {};
  return args.caches.subspan(args.caches_shape.bytes);
}

WorkerScratch IndexMemory::scratch(u32 worker_idx) const {
  const u64 n = args.shape->in.n_workers;
  WorkerScratch out{};
  out.train = row_of(scratch_.train, n, worker_idx);
  out.pages = row_of(scratch_.pages, n, worker_idx).data();
  if (args.device != nullptr) return out;
  out.search = row_of(scratch_.search, n, worker_idx);
  out.slots = row_of(scratch_.slots, n, worker_idx);
  out.gathered = row_of(scratch_.gathered, n, worker_idx).data();
  out.gathered_pages = row_of(scratch_.gathered_pages, n, worker_idx).data();
  out.state = row_of(scratch_.states, n, worker_idx).data();
  return out;
}

std::byte* IndexMemory::sample_of(u32 kv_head) const {
  return scratch_.shared.data() + kv_head * args.shape->sample_bytes;
}

// Keys of a window; `head` counts (cache layer, KV head) pairs.
KeyPages IndexMemory::key_pages(const kv::Sequence& sequence, u32 head, const KeyWindow& window,
                                const u8** pages) const {
  const u32 n_kv_heads = args.spec->n_kv_heads;
  const u32 n_groups = window.group_end - window.group_begin;
  if (args.device == nullptr) {
    sequence.pages(head / n_kv_heads, head % n_kv_heads, window.group_begin, window.group_end,
                   {pages + window.group_begin, n_groups});
  } else {
    const kv::GroupShape& group = args.shape->in.group;
    const u8* page = args.device->window() + head % n_kv_heads * group.page_bytes();
    for (u32 i = 0; i < n_groups; ++i) {
      pages[window.group_begin + i] = page + i * group.group_bytes();
    }
  }
  return {.type = args.shape->in.kv_type,
          .pages = pages,
          .page_tokens = args.shape->in.group.page_tokens,
          .head_dim = args.spec->head_dim};
}

// Rows on a device count as they begin, so nobody is told of an end there.
void IndexMemory::tick() const {
  const bool may_drop = args.host != nullptr && args.device == nullptr;
  if (may_drop) (void)args.host->tick(step::Pause::within_op);
}

kv::Extents* IndexMemory::extents() const {
  if (args.kv == nullptr || !args.kv->has_tiers()) return nullptr;
  kv::Extents& extents = args.kv->tiers().extents;
  return extents.is_on() ? &extents : nullptr;
}

}  // namespace tarn::method
