// Streams the weights to their places: load_weights().
#include <algorithm>
#include <iterator>

#include "platform/base/assert.h"
#include "platform/cpu/crc32c.h"
#include "runtime/model/content_hash.h"
#include "runtime/model/file_cursor.h"
#include "runtime/model/weights_layout.h"

namespace tarn::model {
namespace {

// The least bytes of one tiling task: claiming a task costs about a microsecond.
constexpr u64 kTaskBytes = 64 * kKiB;
constexpr u64 kReapNs = 1'000'000'000;

// Where the address of a layer's tensor goes.
struct LayerField {
  constexpr LayerField(WeightMatrix LayerWeights::*field) : matrix(field) {}  // NOLINT: implicit
  constexpr LayerField(const f32* LayerWeights::*field) : vector(field) {}    // NOLINT: implicit
  WeightMatrix LayerWeights::*matrix = nullptr;
  const f32* LayerWeights::*vector = nullptr;
};
using L = LayerWeights;
constexpr LayerField kLayerFields[] = {  // by LayerTensor
    &L::attn_norm,   &L::attn_q,      &L::attn_k,      &L::attn_v,      &L::attn_output,
    &L::attn_q_bias, &L::attn_k_bias, &L::attn_v_bias, &L::attn_q_norm, &L::attn_k_norm,
    &L::ffn_norm,    &L::ffn_gate,    &L::ffn_up,      &L::ffn_down};
static_assert(std::size(kLayerFields) == static_cast<u64>(LayerTensor::count));

// The content of one read: a run of whole tiles of one tensor, or a vector.
struct Piece {
  const Item* item = nullptr;
  u64 row_begin = 0;
  u64 n_rows = 0;
  u64 read_offset = 0;  // of its first sector
  u64 lead_bytes = 0;   // of that sector before the piece
  u64 n_bytes = 0;      // of the piece itself
};

u64 tiles_of_task(const TensorRef& tensor) {
  return std::max<u64>(1, kTaskBytes / tile_bytes_of(tensor));
}
std::byte* target_of(const Piece& piece) {
  return piece.item->target + piece.row_begin / kTileRows * tile_bytes_of(*piece.item->tensor);
}

class Loader {
 public:
  explicit Loader(const LoadArgs& args) : args_(args), hash_(args.hash_with) {}

  Result<Weights> load() {
    resolve();
    plan_slots();
    args_.io->register_buffers({&slots_, 1});
    Result<void> done = stream();
    args_.io->register_buffers({});
    if (done && args_.sink != nullptr) done = args_.sink->finish();
    if (!done) return fail(done.error());
    if (weights_.rope_factors != nullptr) {
      TARN_CHECK(check_rope_factors({weights_.rope_factors, args_.model->spec.n_rot / 2}));
    }
    weights_.content_hash = hash_.value();
    return weights_;
  }

 private:
  void resolve();
  void plan_slots();
  Result<void> stream();
  Result<void> take(const IoCompletion& completion);
  std::optional<Piece> next_piece();
  bool submit_next();
  void hash_tiles(const Piece& piece, const std::byte* rows, u64 begin, u64 end);
  void tile(const Piece& piece, const std::byte* rows, u64 tile_begin, u64 n_tiles, std::byte* to);
  Result<void> send(const Piece& piece, const std::byte* rows);
  static void check_rows(const Piece& piece, const std::byte* rows);

  const LoadArgs& args_;
  Weights weights_{};
  std::span<Item> items_{};  // by file offset
  std::span<std::byte> slots_{};
  u64 slot_bytes_ = 0;
  u32 n_slots_ = 0;
  std::array<Piece, kSlotsMax> pieces_{};  // by slot; reads in flight, without an item where free
  u32 n_busy_ = 0;
  u64 next_item_ = 0;
  u64 next_row_ = 0;
  u64 done_bytes_ = 0;
  ContentHash hash_;
};

// Gives every tensor its place and makes the list of reads, in the file's order.
void Loader::resolve() {
  const ModelDescription& model = *args_.model;
  const u64 table_bytes = items_bytes(model.spec);
  items_ = {reinterpret_cast<Item*>(args_.staging.data()), table_bytes / sizeof(Item)};
  const u64 staging_bytes = loader_staging_bytes(model, args_.sink != nullptr);
  slots_ = args_.staging.first(staging_bytes - (args_.sink != nullptr ? kSinkBytes : 0))
               .subspan(table_bytes);
  Carver carver(args_.region);
  const std::span<LayerWeights> layers = carver.take<LayerWeights>("layers", model.spec.n_layers);
  std::fill(layers.begin(), layers.end(), LayerWeights{});
  weights_.layers = layers;
  u64 n_items = 0;
  each_weight(model, [&](const tables::TensorRow& row, u32 layer, const TensorRef& tensor,
                         Checked n_bytes) {
    const bool is_layer = layer != tables::kNoLayer;
    const auto model_id = static_cast<ModelTensor>(row.idx);
    const bool is_factors = !is_layer && model_id == ModelTensor::rope_freqs;
    const bool is_checked = stays_on_disk(model, tensor);
    Item& item = items_[n_items++];
    item = {.tensor = &tensor,
            .is_vector = row.n_rows == tables::Dim::one,
            .is_sent = args_.sink != nullptr && !is_factors && !is_checked,
            .is_checked = is_checked};
    // With a sink the rope factors have a place in both: the host computes with them.
    if (args_.sink != nullptr && !is_checked) item.target = args_.sink->place(*n_bytes.get());
    if (!item.is_sent) item.target = carver.take<std::byte>("tensor", n_bytes).data();
    const auto* const vector = reinterpret_cast<const f32*>(item.target);
    const u32 k = static_cast<u32>(tensor.k);
    const WeightMatrix matrix{
        .type = tensor.type, .tiled = item.target, .n_out = tensor.n_rows, .k = k};
    if (is_checked) {
      weights_.token_embd_on_disk = {.type = tensor.type,
                                     .k = k,
                                     .file_offset = tensor.file_offset,
                                     .row_checksums = reinterpret_cast<const u32*>(item.target)};
    } else if (is_layer) {
      const LayerField& field = kLayerFields[row.idx];
      if (item.is_vector) layers[layer].*field.vector = vector;
      if (!item.is_vector) layers[layer].*field.matrix = matrix;
    } else if (item.is_vector) {
      (is_factors ? weights_.rope_factors : weights_.output_norm) = vector;
    } else {
      (model_id == ModelTensor::output ? weights_.output : weights_.token_embd) = matrix;
    }
  });
  if (weights_.output.tiled == nullptr) weights_.output = weights_.token_embd;
  items_ = items_.first(n_items);
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    return a.tensor->file_offset < b.tensor->file_offset;
  });
}

void Loader::plan_slots() {
  slot_bytes_ = slot_bytes_of(*args_.model);
  TARN_ASSERT(slot_bytes_ <= slots_.size());
  n_slots_ = static_cast<u32>(std::min<u64>(slots_.size() / slot_bytes_, kSlotsMax));
  n_slots_ = std::min(n_slots_, args_.io->in_flight_max());
}

std::optional<Piece> Loader::next_piece() {
  if (next_item_ == items_.size()) return std::nullopt;
  const Item& item = items_[next_item_];
  const TensorRef& tensor = *item.tensor;
  const u64 row_bytes = kernels::row_bytes(tensor.type, tensor.k);
  Piece piece{.item = &item, .row_begin = next_row_, .n_rows = tensor.n_rows - next_row_};
  const u64 rows_fit = (slot_bytes_ - 2 * kSectorBytes) / row_bytes;
  if (piece.n_rows > rows_fit) piece.n_rows = rows_fit / kTileRows * kTileRows;
  TARN_ASSERT(piece.n_rows > 0);
  const u64 offset = tensor.file_offset + piece.row_begin * row_bytes;
  piece.lead_bytes = offset % kSectorBytes;
  piece.read_offset = offset - piece.lead_bytes;
  piece.n_bytes = piece.n_rows * row_bytes;
  next_row_ += piece.n_rows;
  if (next_row_ == tensor.n_rows) {
    next_row_ = 0;
    ++next_item_;
  }
  return piece;
}

// Returns false if there is no free slot or nothing left to read.
bool Loader::submit_next() {
  if (n_busy_ == n_slots_) return false;
  const auto piece = next_piece();
  if (!piece) return false;
  const auto free_slot = std::ranges::find(pieces_, nullptr, &Piece::item);
  const u64 slot = static_cast<u64>(free_slot - pieces_.begin());
  const u64 read_bytes = align_up(piece->lead_bytes + piece->n_bytes, kSectorBytes);
  *free_slot = *piece;
  const bool submitted = args_.io->submit({.op = IoOp::read,
                                           .file = args_.file,
                                           .offset = piece->read_offset,
                                           .buffer = slots_.subspan(slot * slot_bytes_, read_bytes),
                                           .tag = slot});
  TARN_ASSERT(submitted);  // n_slots_ is at most the backend's, and no one else uses it
  ++n_busy_;
  return true;
}

// Keeps every slot reading; finished reads are tiled meanwhile.
Result<void> Loader::stream() {
  Result<void> result;
  while (submit_next()) {
  }
  while (n_busy_ > 0) {
    std::array<IoCompletion, kSlotsMax> completions;
    const u32 n = args_.io->reap(completions, 1, kReapNs);
    for (const IoCompletion& completion : std::span(completions).first(n)) {
      if (result) result = take(completion);
      pieces_[completion.tag] = {};
      --n_busy_;
      if (result) submit_next();  // after an error it only waits for reads in flight
    }
  }
  return result;
}

Result<void> Loader::take(const IoCompletion& completion) {
  const Piece& piece = pieces_[completion.tag];
  const u64 n_bytes_min = piece.lead_bytes + piece.n_bytes;
  if (completion.result < 0 || static_cast<u64>(completion.result) < n_bytes_min) {
    return fail(read_error(completion.result, piece.read_offset));
  }
  const std::byte* rows = slots_.data() + completion.tag * slot_bytes_ + piece.lead_bytes;
  if (piece.item->is_vector) {
    hash_.add(hash_.share_of(piece.read_offset + piece.lead_bytes, rows, piece.n_bytes));
  }
  if (piece.item->is_checked) {
    hash_tiles(piece, rows, 0, ceil_div(piece.n_rows, kTileRows));
    check_rows(piece, rows);
  } else if (piece.item->is_sent) {
    TARN_CHECK(send(piece, rows));
  } else if (piece.item->is_vector) {
    kernels::dequantize_row(piece.item->tensor->type, rows, piece.item->tensor->k,
                            reinterpret_cast<f32*>(piece.item->target));
  } else {
    tile(piece, rows, 0, ceil_div(piece.n_rows, kTileRows), target_of(piece));
  }
  done_bytes_ += piece.n_bytes;
  if (args_.on_progress != nullptr && !args_.on_progress(args_.progress_context, done_bytes_,
                                                         args_.model->spec.weights_file_bytes)) {
    return fail({.status = Status::cancelled, .hint = "loading the model was cancelled"});
  }
  return {};
}

void Loader::check_rows(const Piece& piece, const std::byte* rows) {
  const u64 row_bytes = kernels::row_bytes(piece.item->tensor->type, piece.item->tensor->k);
  const std::span<u32> checksums(reinterpret_cast<u32*>(piece.item->target) + piece.row_begin,
                                 piece.n_rows);
  const Crc32c& crc = crc32c_ways()[0];
  for (u64 row = 0; row < piece.n_rows; ++row) {
    checksums[row] = crc.bytes(rows + row * row_bytes, row_bytes);
  }
}

// A sink's piece may be too small for a whole read, so its tiles are sent in parts.
Result<void> Loader::send(const Piece& piece, const std::byte* rows) {
  const TensorRef& tensor = *piece.item->tensor;
  TARN_ASSERT(fits_sink(tensor));
  if (piece.item->is_vector) {
    TARN_TRY(const std::span<std::byte> window, args_.sink->next());
    kernels::dequantize_row(tensor.type, rows, tensor.k, reinterpret_cast<f32*>(window.data()));
    args_.sink->send(piece.item->target, tensor.k * sizeof(f32));
    return {};
  }
  const u64 tile_bytes = tile_bytes_of(tensor);
  const u64 n_tiles = ceil_div(piece.n_rows, kTileRows);
  const u64 n_fit = kSinkPieceBytes / tile_bytes;
  for (u64 tile_begin = 0; tile_begin < n_tiles; tile_begin += n_fit) {
    const u64 n_now = std::min(n_fit, n_tiles - tile_begin);
    TARN_TRY(const std::span<std::byte> window, args_.sink->next());
    tile(piece, rows, tile_begin, n_now, window.data());
    args_.sink->send(target_of(piece) + tile_begin * tile_bytes, n_now * tile_bytes);
  }
  return {};
}

// Hashes tile by tile, so that the hash does not depend on the size of the slots.
void Loader::hash_tiles(const Piece& piece, const std::byte* rows, u64 begin, u64 end) {
  if (!hash_.is_wanted()) return;
  const u64 row_bytes = kernels::row_bytes(piece.item->tensor->type, piece.item->tensor->k);
  ContentHash::Share sum{};
  for (u64 tile = begin; tile < end; ++tile) {
    const u64 row_begin = tile * kTileRows;
    const u64 row_end = std::min(piece.n_rows, row_begin + kTileRows);
    const ContentHash::Share share =
        hash_.share_of(piece.read_offset + piece.lead_bytes + row_begin * row_bytes,
                       rows + row_begin * row_bytes, (row_end - row_begin) * row_bytes);
    for (u64 i = 0; i < sum.size(); ++i) sum[i] += share[i];
  }
  hash_.add(sum);
}

// Writes tiles [tile_begin, tile_begin + n_tiles) of a piece to `to`.
void Loader::tile(const Piece& piece, const std::byte* rows, u64 tile_begin, u64 n_tiles,
                  std::byte* to) {
  const TensorRef& tensor = *piece.item->tensor;
  const u64 row_bytes = kernels::row_bytes(tensor.type, tensor.k);
  const u64 tile_bytes = tile_bytes_of(tensor);
  const u64 tiles_per_task = tiles_of_task(tensor);
  args_.workers->run(static_cast<u32>(ceil_div(n_tiles, tiles_per_task)), [&](u32 task, u32) {
    const u64 task_begin = task * tiles_per_task;
    const u64 task_end = std::min(n_tiles, task_begin + tiles_per_task);
    hash_tiles(piece, rows, tile_begin + task_begin, tile_begin + task_end);
    for (u64 tile = task_begin; tile < task_end; ++tile) {
      const u64 row = (tile_begin + tile) * kTileRows;
      args_.tile_rows({.type = tensor.type,
                       .rows = rows + row * row_bytes,
                       .n_rows = static_cast<u32>(std::min<u64>(kTileRows, piece.n_rows - row)),
                       .k = tensor.k,
                       .tile = to + tile * tile_bytes});
    }
  });
}

}  // namespace

Result<Weights> load_weights(const LoadArgs& args) {
  TARN_TRY(u64 region_bytes, weights_region_bytes(*args.model));
  if (args.sink != nullptr) region_bytes = weights_host_bytes(args.model->spec);
  TARN_ASSERT(args.region.size() >= region_bytes);
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(args.region.data()) % Carver::kAlignment == 0);
  TARN_ASSERT(args.staging.size() >= loader_staging_bytes(*args.model, args.sink != nullptr));
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(args.staging.data()) % kSectorBytes == 0);
  return Loader(args).load();
}

}  // namespace tarn::model
