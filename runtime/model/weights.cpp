#include "runtime/model/weights.h"

#include <algorithm>

#include "runtime/model/weights_layout.h"

namespace tarn::model {

u64 items_bytes(const ModelSpec& spec) {
  const u64 n_tensors = static_cast<u64>(ModelTensor::count) +
                        u64{spec.n_layers} * static_cast<u64>(LayerTensor::count);
  return align_up(n_tensors * sizeof(Item), kSectorBytes);
}

u64 slot_bytes_of(const ModelDescription& model) {
  u64 tile_bytes_max = 0;
  const auto look_at = [&](const TensorRef& tensor) {
    if (!tensor.present()) return;
    const u64 row_bytes = kernels::row_bytes(tensor.type, tensor.k);
    tile_bytes_max = std::max(tile_bytes_max, row_bytes * std::min<u64>(tensor.n_rows, kTileRows));
  };
  for (const TensorRef& tensor : model.tensors.model) look_at(tensor);
  for (const TensorRef& tensor : model.tensors.layers) look_at(tensor);
  const u64 share = align_up(model.spec.weights_file_bytes / 2 / kSlotsMax, kSectorBytes);
  return std::max(std::clamp(share, kSlotBytesMin, kSlotBytes),
                  align_up(tile_bytes_max, kSectorBytes) + 2 * kSectorBytes);
}

bool stays_on_disk(const ModelDescription& model, const TensorRef& tensor) {
  return model.spec.embedding_on_disk && &tensor == &model.tensors.of(ModelTensor::token_embd);
}

u64 weights_table_bytes(const ModelDescription& model) {
  return model.spec.n_layers * sizeof(LayerWeights);
}

u64 weights_host_bytes(const ModelSpec& spec) {
  return align_up(spec.n_layers * sizeof(LayerWeights), kAlignment) +
         align_up(spec.n_rot / 2 * sizeof(f32), kAlignment) + row_checksums_bytes(spec);
}

u64 row_checksums_bytes(const ModelSpec& spec) {
  if (!spec.embedding_on_disk) return 0;
  return align_up(align_up(spec.n_vocab, kTileRows) * sizeof(u32), kAlignment);
}

std::span<std::byte> sink_staging(std::span<std::byte> staging) { return staging.last(kSinkBytes); }

u64 sink_piece_bytes() { return kSinkPieceBytes; }

bool fits_sink(const TensorRef& tensor) {
  const u64 bytes = tensor.n_rows > 1 ? tile_bytes_of(tensor) : tensor.k * sizeof(f32);
  return bytes <= kSinkPieceBytes;
}

void each_weight_piece(const ModelDescription& model,
                       void (*on_piece)(void* context, Checked bytes), void* context) {
  struct Places {
    void (*on_piece)(void* context, Checked bytes);
    void* context;
    std::byte* place(Checked n_bytes) {
      on_piece(context, n_bytes);
      return nullptr;
    }
    static std::byte* place_checksums(Checked) { return nullptr; }
  } places{on_piece, context};
  lay_out(model, places, [](const tables::TensorRow&, u32, const TensorRef&, std::byte*) {});
}

Result<u64> weights_region_bytes(const ModelDescription& model) {
  Layout layout(nullptr);
  layout.place(weights_table_bytes(model));
  lay_out(model, layout, [](const tables::TensorRow&, u32, const TensorRef&, std::byte*) {});
  if (const auto bytes = layout.bytes()) return *bytes;
  return fail({.status = Status::invalid_model,
               .hint = "the model's tensors add up to more than can be addressed"});
}

u64 loader_staging_bytes(const ModelDescription& model, bool with_sink) {
  const u64 slot_bytes = slot_bytes_of(model);
  const u64 n_slots = std::min<u64>(kSlotsBytes / slot_bytes, kSlotsMax);
  return items_bytes(model.spec) + (with_sink ? kSlotsBytes : n_slots * slot_bytes);
}

u64 loader_staging_bytes_max() { return kItemsBytesMax + kSlotsBytes; }

}  // namespace tarn::model
