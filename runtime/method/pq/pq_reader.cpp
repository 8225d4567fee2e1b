#include "runtime/method/pq/pq_reader.h"

#include "runtime/method/pq/codebook_record.h"
#include "runtime/method/pq/iterations.h"
#include "runtime/method/pq/pq_order.h"

namespace tarn::method {
namespace {

DeviceCodes device_codes(const PqShape& pq) {
  const PqLayout at = pq_layout(pq);
  return {.format = pq.format,
          .n_subspaces = pq.n_subspaces,
          .dims = pq.dims(),
          .adjacent_dims = pq.adjacent_dims,
          .n_padded = pq.n_padded(),
          .capacity_tokens = pq.capacity_tokens,
          .head_bytes = at.bytes,
          .half_norms_at = at.half_norms,
          .codes_at = at.codes,
          .counts_at = pq.has_pairs() ? at.counts : 0};
}

}  // namespace

const Training kPqTraining = {.needs = pq_train_needs,
                              .make_order = PqOrder::make,
                              .order_scratch_bytes = PqOrder::scratch_bytes};

TrainNeeds pq_train_needs(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens) {
  const PqShape shape = pq_shape(config, keys, capacity_tokens);
  TrainNeeds needs{.n_parts = shape.n_subspaces,
                   .sample_rows_max = kPqSampleRows * shape.n_centroids(),
                   .scratch_bytes = pq_train_scratch_bytes(shape),
                   .lut_elems = shape.lut_elems(),
                   .codes = device_codes(shape)};
  if (!shape.has_pairs()) return needs;
  needs.n_pairs = shape.n_padded() * shape.n_padded();
  needs.saved_bytes = codebook_record_bytes(shape, capacity_tokens, kv::kExtentOrdersMax);
  return needs;
}

PqReader::PqReader(const ReaderArgs& args) : config_(args.config) {
  index_.init(pq_shape(args.config, args.keys, args.capacity_tokens), args.region);
}

u64 PqReader::region_bytes(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens) {
  return pq_layout(pq_shape(config, keys, capacity_tokens)).bytes;
}

Result<void> PqReader::check(const model::ModelSpec& spec, const SelectConfig& config) {
  if (spec.head_dim % config.n_subspaces == 0) return {};
  return fail({.status = Status::invalid_config,
               .hint = "a key's parts are equal: set select.subspaces to a divisor of head_dim",
               .detail = Detail("select.subspaces"),
               .figures = {{{"head_dim", spec.head_dim}, {"subspaces", config.n_subspaces}}}});
}

void PqReader::copy_from(const Reader& source) { index_.copy_from(pq_of(&source)); }

void PqReader::begin_training(u32 slot_begin, u32 n_rows) {
  index_.start(slot_begin);
  index_.begin_codebook(n_rows);
  n_updates_ = iterations(config_, n_rows);
}

void PqReader::train(const TrainUnit& unit) {
  if (unit.what == TrainUnit::Keys::sample) {
    index_.train({.table = unit.table,
                  .keys = unit.keys,
                  .first_slot = unit.begin,
                  .subspace = unit.part,
                  .iterations = n_updates_,
                  .scratch = unit.scratch});
    return;
  }
  index_.code({.table = unit.table,
               .keys = unit.keys,
               .subspace = unit.part,
               .slot_begin = unit.begin,
               .slot_end = unit.end,
               .scratch = unit.scratch});
}

u64 PqReader::saved_bytes() const {
  if (!index_.shape().has_pairs()) return 0;
  return codebook_record_bytes(index_.shape(), index_.n_clustered(), 0);
}

void PqReader::save(std::span<std::byte> out) const {
  const u32 side = index_.shape().n_padded();
  write_codebook_record({.n_rows = index_.n_clustered(), .n_pairs = side * side}, index_, {}, out);
}

bool PqReader::load(u32 slot_begin, u32 n_rows, std::span<const std::byte> bytes) {
  index_.start(slot_begin);
  return read_codebook_record(bytes, n_rows, index_).has_value();
}

}  // namespace tarn::method
