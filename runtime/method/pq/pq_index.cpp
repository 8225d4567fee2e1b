#include "runtime/method/pq/pq_index.h"

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/random_at.h"
#include "runtime/arena/carver.h"

namespace tarn::method {
namespace {

using kernels::CpuTable;

// Centroids, and half norms behind them. Rows are whole cache lines, so they have no gap.
static_assert(kernels::kPqLanes * sizeof(f32) == 64);
u64 codebook_elems(const PqShape& shape) {
  return u64{shape.head_dim + shape.n_subspaces} * shape.n_padded();
}

u64 n_pairs(const PqShape& shape) {
  return shape.has_pairs() ? u64{shape.n_padded()} * shape.n_padded() : 0;
}

kernels::PqCodeFormat kept_format(const PqShape& shape) {
  return kernels::pq_least_format(shape.code_bits);
}

// n distinct numbers below n_rows (Floyd 1987, in Bentley, CACM 30(9)).
void draw_rows(u64 n_rows, u32 n, u32* out) {
  for (u32 i = 0; i < n; ++i) {
    const u64 last = n_rows - n + i;
    const u32 drawn = static_cast<u32>(random_at(PqIndex::kSeed, i) % (last + 1));
    const bool taken = std::find(out, out + i, drawn) != out + i;
    out[i] = taken ? static_cast<u32>(last) : drawn;
  }
}

// The memory that train(), code() and take_in() work in.
struct TrainScratch {
  f32* tile;    // [kTileTokens, head_dim]
  f32* row;     // [head_dim]
  i64* sums;    // [n_centroids, dims]
  u32* counts;  // [n_centroids]
  u32* drawn;   // [n_centroids]
  u8* codes;    // [kTileTokens]
};

TrainScratch carve(Carver& carver, const PqShape& shape) {
  const u64 n_centroids = shape.n_centroids();
  return {.tile = carver.take<f32>("", u64{PqIndex::kTileTokens} * shape.head_dim).data(),
          .row = carver.take<f32>("", shape.head_dim).data(),
          .sums = carver.take<i64>("", n_centroids * shape.dims()).data(),
          .counts = carver.take<u32>("", n_centroids).data(),
          .drawn = carver.take<u32>("", n_centroids).data(),
          .codes = carver.take<u8>("", PqIndex::kTileTokens).data()};
}

// Orders the dims of a key, or of a query, by sub-space.
void place(const PqShape& shape, const f32* row, f32* out) {
  const u32 n = shape.adjacent_dims, half = n / 2;
  for (u32 i = 0; i < half; ++i) {
    out[i] = row[u64{2} * i];
    out[half + i] = row[u64{2} * i + 1];
  }
  std::copy(row + n, row + shape.head_dim, out + n);
}

void put_codes(kernels::PqCodeFormat format, u8* row, u64 first, std::span<const u8> codes) {
  for (u64 i = 0; i < codes.size(); ++i) kernels::pq_code_put(format, row, first + i, codes[i]);
}

// n keys to the tile, their dims in the order of places.
void load(const PqShape& shape, const CpuTable& table, const KeyPages& keys, u32 first, u32 n,
          const TrainScratch& scratch) {
  keys.load(table, first, n, scratch.tile);
  if (shape.adjacent_dims == 0) return;
  for (u32 i = 0; i < n; ++i) {
    f32* const key = scratch.tile + u64{i} * shape.head_dim;
    std::copy_n(key, shape.head_dim, scratch.row);
    place(shape, scratch.row, key);
  }
}

}  // namespace

PqShape pq_shape(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens) {
  static_assert(kSubspacesMax == kernels::kPqSubspacesMax);
  static_assert(kPackedCodeBitsMax == kernels::pq_bits_max(kernels::PqCodeFormat::packed6));
  return {.head_dim = keys.head_dim,
          .adjacent_dims = keys.adjacent_dims,
          .n_subspaces = config.n_subspaces,
          .code_bits = config.code_bits,
          .format = config.code_format == CodeFormat::bytes
                        ? kernels::PqCodeFormat::bytes
                        : kernels::pq_least_format(config.code_bits),
          .capacity_tokens = capacity_tokens};
}

PqLayout pq_layout(const PqShape& shape) {
  PqLayout at;
  at.half_norms = u64{shape.head_dim} * shape.n_padded() * sizeof(f32);
  at.codes = codebook_elems(shape) * sizeof(f32);
  at.counts =
      at.codes +
      align_up(shape.n_subspaces * kernels::pq_row_bytes(shape.format, shape.capacity_tokens), 64);
  at.bytes = at.counts + align_up(n_pairs(shape) * sizeof(u32), 64);
  return at;
}

u64 pq_train_scratch_bytes(const PqShape& shape) {
  Carver counted;
  carve(counted, shape);
  return *counted.n_bytes().get();
}

void PqIndex::init(const PqShape& shape, std::span<std::byte> region) {
  TARN_ASSERT(shape.code_bits >= 1 && shape.code_bits <= kernels::pq_bits_max(shape.format));
  TARN_ASSERT(shape.n_subspaces >= 1 && shape.n_subspaces <= kernels::kPqSubspacesMax);
  TARN_ASSERT(shape.head_dim % shape.n_subspaces == 0);
  TARN_ASSERT(shape.adjacent_dims % 2 == 0 && shape.adjacent_dims <= shape.head_dim);
  TARN_ASSERT(region.size() >= pq_layout(shape).bytes);
  shape_ = shape;
  row_bytes_ = kernels::pq_row_bytes(shape.format, shape.capacity_tokens);
  const PqLayout at = pq_layout(shape);
  centroids_ = reinterpret_cast<f32*>(region.data());
  half_norms_ = reinterpret_cast<f32*>(region.data() + at.half_norms);
  codes_ = reinterpret_cast<u8*>(region.data() + at.codes);
  counts_ = reinterpret_cast<u32*>(region.data() + at.counts);
  start(0);
}

void PqIndex::start(u32 slot_begin) {
  forget();
  slot_begin_ = slot_begin;
  // A block that is not full is scored whole, so codes stand behind the last row, too.
  std::memset(codes_, 0, shape_.n_subspaces * row_bytes_);
  std::fill_n(counts_, n_pairs(shape_), 0u);
}

void PqIndex::begin_codebook(u32 n_rows) {
  TARN_ASSERT(n_training_ == 0 && n_tokens_ == 0);
  TARN_ASSERT(n_rows >= shape_.n_centroids());
  TARN_ASSERT(n_rows <= shape_.capacity_tokens);
  n_training_ = n_rows;
}

// Finds the nearest centroids for keys out of load().
void PqIndex::assign(const CpuTable& table, u32 subspace, const f32* keys, u32 n, u8* codes) const {
  table.pq_assign({.x = keys + u64{subspace} * shape_.dims(),
                   .x_stride = shape_.head_dim,
                   .centroids = centroids(subspace).data(),
                   .half_norms = half_norms_ + u64{subspace} * shape_.n_padded(),
                   .codes = codes,
                   .n_rows = n,
                   .dims = shape_.dims(),
                   .n_padded = shape_.n_padded()});
}

u32 PqIndex::train(const Training& training) {
  TARN_ASSERT(n_training_ != 0 && training.subspace < shape_.n_subspaces);
  TARN_ASSERT(training.keys.head_dim == shape_.head_dim);
  Carver carver(training.scratch);
  const TrainScratch scratch = carve(carver, shape_);
  const CpuTable& table = training.table;
  const u32 dims = shape_.dims(), n_centroids = shape_.n_centroids();
  const u32 n_rows = pq_n_sample(shape_, n_training_);
  const std::span<f32> centroids = this->centroids(training.subspace);
  f32* norms = half_norms_ + u64{training.subspace} * shape_.n_padded();
  const f32* x = scratch.tile + u64{training.subspace} * dims;
  const auto load_rows = [&](u32 first, u32 n) {
    load(shape_, table, training.keys, training.first_slot + first, n, scratch);
  };
  std::ranges::fill(centroids, 0.0f);
  draw_rows(n_rows, n_centroids, scratch.drawn);
  for (u32 c = 0; c < n_centroids; ++c) {
    load_rows(scratch.drawn[c], 1);
    for (u32 i = 0; i < dims; ++i) centroids[u64{i} * shape_.n_padded() + c] = x[i];
  }
  kernels::pq_half_norms(centroids.data(), dims, n_centroids, norms);

  u32 n_updates = 0;
  for (f64 way = kTolerance + 1; n_updates < training.iterations && way > kTolerance; ++n_updates) {
    std::fill_n(scratch.sums, u64{n_centroids} * dims, 0);
    std::fill_n(scratch.counts, n_centroids, 0);
    for (u32 first = 0; first < n_rows; first += kTileTokens) {
      const u32 n = std::min(kTileTokens, n_rows - first);
      load_rows(first, n);
      assign(table, training.subspace, scratch.tile, n, scratch.codes);
      table.pq_accumulate(
          {x, shape_.head_dim, scratch.codes, scratch.sums, scratch.counts, n, dims});
    }
    way = kernels::pq_update(
        {scratch.sums, scratch.counts, centroids.data(), norms, dims, n_centroids});
  }
  return n_updates;
}

void PqIndex::code(const Coding& coding) const {
  TARN_ASSERT(n_training_ != 0 && coding.subspace < shape_.n_subspaces);
  TARN_ASSERT(coding.slot_begin >= slot_begin_ && coding.slot_end <= slot_begin_ + n_training_);
  Carver carver(coding.scratch);
  const TrainScratch scratch = carve(carver, shape_);
  for (u32 slot = coding.slot_begin; slot < coding.slot_end; slot += kTileTokens) {
    const u32 n = std::min(kTileTokens, coding.slot_end - slot);
    load(shape_, coding.table, coding.keys, slot, n, scratch);
    assign(coding.table, coding.subspace, scratch.tile, n, scratch.codes);
    put_codes(shape_.format, row(coding.subspace), slot - slot_begin_, {scratch.codes, n});
  }
}

void PqIndex::end_codebook() {
  TARN_ASSERT(n_training_ != 0);
  count_pairs(0, n_training_, 1);
  n_tokens_ = n_clustered_ = n_training_;
  n_training_ = 0;
}

// Centroids, their half norms, and codes in the least format, sub-space by sub-space: whatever they
// lie in here, so that what was kept with packed codes is read with bytes, too.
u64 PqIndex::codebook_bytes(const PqShape& shape, u32 n_rows) {
  return codebook_elems(shape) * sizeof(f32) +
         shape.n_subspaces * kernels::pq_row_bytes(kept_format(shape), n_rows);
}

void PqIndex::write_codebook(std::span<std::byte> out) const {
  TARN_ASSERT(n_clustered_ > 0 && out.size() >= codebook_bytes(shape_, n_clustered_));
  const u64 n_bytes = codebook_elems(shape_) * sizeof(f32);
  std::memcpy(out.data(), centroids_, n_bytes);
  const kernels::PqCodeFormat format = kept_format(shape_);
  const u64 row_bytes = kernels::pq_row_bytes(format, n_clustered_);
  auto* kept = reinterpret_cast<u8*>(out.data() + n_bytes);
  std::fill_n(kept, shape_.n_subspaces * row_bytes, u8{0});
  for (u32 m = 0; m < shape_.n_subspaces; ++m, kept += row_bytes) {
    for (u32 i = 0; i < n_clustered_; ++i) kernels::pq_code_put(format, kept, i, code(m, i));
  }
}

bool PqIndex::read_codebook(u32 n_rows, std::span<const std::byte> bytes) {
  if (bytes.size() < codebook_bytes(shape_, n_rows) || n_rows < shape_.n_centroids()) return false;
  if (n_rows > shape_.capacity_tokens) return false;
  const u64 n_bytes = codebook_elems(shape_) * sizeof(f32);
  const auto* kept = reinterpret_cast<const u8*>(bytes.data() + n_bytes);
  const kernels::PqCodeFormat format = kept_format(shape_);
  const u64 row_bytes = kernels::pq_row_bytes(format, n_rows);
  for (u32 m = 0; m < shape_.n_subspaces; ++m) {
    for (u32 i = 0; i < n_rows; ++i) {
      const u8 code = kernels::pq_code_get(format, kept + m * row_bytes, i);
      if (code >= shape_.n_centroids()) return false;
    }
  }
  begin_codebook(n_rows);
  std::memcpy(centroids_, bytes.data(), n_bytes);
  for (u32 m = 0; m < shape_.n_subspaces; ++m, kept += row_bytes) {
    for (u32 i = 0; i < n_rows; ++i) {
      kernels::pq_code_put(shape_.format, row(m), i, kernels::pq_code_get(format, kept, i));
    }
  }
  end_codebook();
  return true;
}

void PqIndex::truncate(u32 middle_end) {
  if (n_clustered_ == 0) return;
  const u32 n_rows = std::min(n_tokens_, middle_end - slot_begin_);
  TARN_ASSERT(n_rows >= n_clustered_);
  count_pairs(n_rows, n_tokens_, -1);
  n_tokens_ = n_rows;
}

void PqIndex::copy_from(const PqIndex& source) {
  TARN_ASSERT(source.row_bytes_ == row_bytes_);
  start(source.slot_begin_);
  n_tokens_ = source.n_tokens_;
  n_clustered_ = source.n_clustered_;
  if (n_clustered_ > 0) std::copy_n(source.centroids_, codebook_elems(shape_), centroids_);
  std::copy_n(source.counts_, n_pairs(shape_), counts_);
  const u64 n_bytes = kernels::pq_row_bytes(shape_.format, n_tokens_);
  for (u32 m = 0; m < shape_.n_subspaces; ++m) std::memcpy(row(m), source.row(m), n_bytes);
}

void PqIndex::take_in(const CpuTable& table, const KeyPages& keys, u32 slot_end,
                      std::span<std::byte> scratch) {
  TARN_ASSERT(n_clustered_ > 0 && n_training_ == 0);
  TARN_ASSERT(slot_end >= slot_begin_ + n_tokens_);
  TARN_ASSERT(slot_end - slot_begin_ <= shape_.capacity_tokens);
  Carver carver(scratch);
  const TrainScratch mine = carve(carver, shape_);
  while (slot_begin_ + n_tokens_ < slot_end) {
    const u32 first = slot_begin_ + n_tokens_, n = std::min(kTileTokens, slot_end - first);
    load(shape_, table, keys, first, n, mine);
    for (u32 m = 0; m < shape_.n_subspaces; ++m) {
      assign(table, m, mine.tile, n, mine.codes);
      put_codes(shape_.format, row(m), n_tokens_, {mine.codes, n});
    }
    count_pairs(n_tokens_, n_tokens_ + n, 1);
    n_tokens_ += n;
  }
}

void PqIndex::fill_lut(const CpuTable& table, const Query& query, f32* lut) const {
  f32* placed = lut + u64{query.n_heads} * shape_.n_subspaces * shape_.n_padded();
  for (u32 h = 0; h < query.n_heads; ++h) {
    place(shape_, query.q + u64{h} * shape_.head_dim, placed + u64{h} * shape_.head_dim);
  }
  table.pq_lut({.q = placed,
                .q_stride = shape_.head_dim,
                .codebook = centroids_,
                .lut = lut,
                .n_heads = query.n_heads,
                .n_subspaces = shape_.n_subspaces,
                .dims = shape_.dims(),
                .n_padded = shape_.n_padded()});
}

void PqIndex::score(const CpuTable& table, const Query& query, f32* lut, f32* scores,
                    u64 stride) const {
  fill_lut(table, query, lut);
  table.pq_score({.format = shape_.format,
                  .codes = codes_,
                  .codes_stride = row_bytes_,
                  .lut = lut,
                  .scores = scores,
                  .scores_stride = stride,
                  .n_tokens = n_tokens_,
                  .n_heads = query.n_heads,
                  .n_subspaces = shape_.n_subspaces,
                  .n_padded = shape_.n_padded(),
                  .scale = query.scale});
}

u32 PqIndex::choose_by_pairs(const CpuTable& table, const Query& query, u32 k, f32* lut,
                             void* scratch, u32* out) const {
  TARN_ASSERT(shape_.has_pairs() && n_clustered_ > 0);
  fill_lut(table, query, lut);
  return table.pq_pairs({.format = shape_.format,
                         .codes = codes_,
                         .codes_stride = row_bytes_,
                         .lut = lut,
                         .counts = counts_,
                         .scratch = scratch,
                         .out = out,
                         .n_tokens = n_tokens_,
                         .n_heads = query.n_heads,
                         .side = shape_.n_padded(),
                         .k = k,
                         .scale = query.scale});
}

u32 PqIndex::choose(const SelectionArgs& args) const {
  const u32 n = args.ranges.n_middle();
  TARN_ASSERT(slot_begin_ == args.ranges.middle_begin && n_tokens_ == n);
  const SelectionScratch scratch = carve_selection(args, shape_.lut_elems());
  if (shape_.has_pairs()) {
    const u32 n_places =
        choose_by_pairs(args.table, args.query, args.k, scratch.lut, scratch.radix, scratch.places);
    return compose_slots(args, scratch.places, n_places);
  }
  score(args.table, args.query, scratch.lut, scratch.scores, n);
  return choose_best(args, scratch, rank_of(args, scratch, n));
}

u8 PqIndex::code(u32 subspace, u32 row_idx) const {
  TARN_ASSERT(subspace < shape_.n_subspaces && row_idx < n_tokens_);
  return kernels::pq_code_get(shape_.format, row(subspace), row_idx);
}

std::span<f32> PqIndex::centroids(u32 subspace) const {
  const u64 n_elems = u64{shape_.dims()} * shape_.n_padded();
  return {centroids_ + subspace * n_elems, n_elems};
}

void PqIndex::count_pairs(u32 begin, u32 end, i32 step) const {
  if (!shape_.has_pairs()) return;
  for (u32 i = begin; i < end; ++i) {
    const u32 first = kernels::pq_code_get(shape_.format, row(0), i);
    counts_[first * shape_.n_padded() + kernels::pq_code_get(shape_.format, row(1), i)] +=
        static_cast<u32>(step);
  }
}

}  // namespace tarn::method
