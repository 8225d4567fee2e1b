#include "runtime/method/index_memory.h"

#include <new>

#include "platform/base/assert.h"

namespace tarn::method {

IndexSets IndexSets::carve(Carver& carver, const SelectShape& shape) {
  const u64 n_readers = u64{shape.n_sets} * shape.n_heads;
  return {.table = carver.take<Reader*>("table", n_readers),
          .readers = carver.rows<std::byte>("readers", n_readers, shape.reader_bytes),
          .regions = carver.rows<std::byte>("indexes", n_readers, shape.index_bytes),
          .sessions = carver.take<IndexSession>("sessions",
                                                shape.n_heads == 0 ? 0 : shape.in.sessions_max)};
}

WorkerScratch WorkerScratch::carve(Carver& carver, const SelectShape& shape) {
  const u64 n_host = shape.in.place == KvPlace::gpu ? 0 : 1;
  const u64 n_gathered = n_host * shape.gather_pages(), page_bytes = shape.in.group.page_bytes();
  const WorkerScratch mine{
      .search = carver.take<std::byte>("search", n_host * shape.search_bytes),
      .train = carver.take<std::byte>("train", shape.train_bytes),
      .slots = carver.take<u32>("slots", n_host * shape.in.context_tokens),
      .pages = carver.take<const u8*>("pages", shape.in.pages_max()).data(),
      .gathered = carver.take<u8>("gathered", n_gathered * page_bytes).data(),
      .gathered_pages = carver.take<const u8*>("their pages", n_gathered).data(),
      .state = carver.take<f32>("state", n_host * shape.state_bytes / sizeof(f32)).data()};
  for (u64 page = 0; page < n_gathered && carver.carves(); ++page) {
    mine.gathered_pages[page] = mine.gathered + page * page_bytes;
  }
  return mine;
}

SelectScratch SelectScratch::carve(Carver& carver, const SelectShape& shape) {
  const u64 n = shape.n_heads == 0 ? 0 : shape.in.n_workers;
  Carver worker, fetch;
  if (n > 0) WorkerScratch::carve(worker, shape);
  if (n > 0 && shape.in.place == KvPlace::tiers) FetchMemory::carve(fetch, shape);
  return {.workers = carver.rows<std::byte>("a worker's", n, worker.n_bytes().aligned_up(64)),
          .shared = carver.take<std::byte>("a layer's",
                                           std::max(shape.sample_bytes * shape.in.group.n_kv_heads,
                                                    fetch.n_bytes().get().value_or(0)))};
}

HeadFetch HeadFetch::carve(Carver& carver, const SelectShape& shape) {
  const u64 n = shape.n_chosen_max, n_pages = ceil_div(n, shape.in.group.page_tokens);
  const u64 page_bytes = shape.in.group.page_bytes();
  const HeadFetch head{.bytes = carver.take<u8>("K and V", n_pages * page_bytes).data(),
                       .pages = carver.take<const u8*>("pages", n_pages),
                       .slots = carver.take<u32>("slots", n),
                       .wanted = carver.take<kv::WantedSlot>("wanted", n),
                       .missing = carver.take<kv::WantedSlot>("missing", n),
                       .found = carver.take<kv::SlotCache::Found>("found", n),
                       .places = carver.take<kv::ExtentWant>("places", n)};
  for (u64 page = 0; page < head.pages.size(); ++page) {
    head.pages[page] = head.bytes + page * page_bytes;
  }
  return head;
}

FetchMemory FetchMemory::carve(Carver& carver, const SelectShape& shape) {
  const u64 n_heads = shape.in.group.n_kv_heads;
  const FetchMemory fetch{.heads = carver.take<HeadFetch>("heads", n_heads),
                          .wanted = carver.take<std::span<const kv::WantedSlot>>("table", n_heads),
                          .out = carver.take<u8*>("table", n_heads),
                          .readings = carver.take<kv::ExtentReading>("readings", n_heads)};
  for (u64 i = 0; i < n_heads; ++i) {
    const HeadFetch head = HeadFetch::carve(carver, shape);
    if (carver.carves()) fetch.heads[i] = head;
  }
  return fetch;
}

void IndexMemory::begin_fetch() {
  Carver shared(scratch_.shared);
  fetch_ = FetchMemory::carve(shared, *args.shape);
}

void IndexMemory::init(const SelectorArgs& new_args) {
  args = new_args;
  const SelectShape& shape = *args.shape;
  TARN_ASSERT(shape.n_heads > 0);
  Carver indexes(args.indexes), workers(args.scratch);
  sets_ = IndexSets::carve(indexes, shape);
  scratch_ = SelectScratch::carve(workers, shape);
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
  const Training* const training = method_of(*args.config).training;
  const bool has_order = training != nullptr && training->make_order != nullptr;
  order_ = has_order ? training->make_order(order_room_.data(), this) : &no_order_;
  init_caches();
}

const std::byte* IndexMemory::regions_of(Reader* const* set) const {
  return sets_.regions.data() + (set - sets_.table.data()) * i64(args.shape->index_bytes);
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
  Carver carver(args.caches);
  caches_ = carver.take<kv::SlotCache>("", n);
  for (kv::SlotCache& cache : caches_) {
    new (&cache) kv::SlotCache();
    Carver region(carver.take<std::byte>("", shape.head_bytes));
    cache.init(region, shape.n_slots, 2 * args.shape->in.group.vector_bytes);
  }
}

// Returns a session's caches; empty where there is none.
std::span<kv::SlotCache> IndexMemory::caches(u32 session) const {
  if (caches_.empty()) return {};
  const u64 n_heads = args.shape->n_heads;
  return caches_.subspan(session * n_heads, n_heads);
}

// Returns the memory of a session's caches, which are empty from now on.
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
  Carver carver(Carver::row(scratch_.workers, args.shape->in.n_workers, worker_idx));
  return WorkerScratch::carve(carver, *args.shape);
}

std::byte* IndexMemory::sample_of(u32 kv_head) const {
  return scratch_.shared.data() + kv_head * args.shape->sample_bytes;
}

// Keys of a window; `head` counts (cache layer, KV head) pairs.
KeyPages IndexMemory::key_pages(const kv::Sequence& sequence, u32 head, const KeyWindow& window,
                                const u8** pages) const {
  const u32 n_kv_heads = args.spec->n_kv_heads;
  const u32 n_groups = window.group_end - window.group_begin;
  args.device->pages(sequence, head / n_kv_heads, head % n_kv_heads, window.group_begin,
                     window.group_end, {pages + window.group_begin, n_groups});
  return {.type = args.shape->in.kv_type,
          .pages = pages,
          .page_tokens = args.shape->in.group.page_tokens,
          .head_dim = args.spec->head_dim};
}

void IndexMemory::tick() const {
  if (args.host != nullptr) args.device->tick(*args.host);
}

kv::Extents* IndexMemory::extents() const {
  if (args.kv == nullptr) return nullptr;
  kv::Extents& extents = args.kv->tiers().extents;
  return extents.is_on() ? &extents : nullptr;
}

}  // namespace tarn::method
