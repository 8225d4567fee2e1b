#include "runtime/model/weights.h"

#include <algorithm>
#include <cmath>

#include "runtime/model/model_errors.h"
#include "runtime/model/weights_layout.h"

namespace tarn::model {

u64 items_bytes(const ModelSpec& spec) {
  const u64 n_tensors = static_cast<u64>(ModelTensor::count) +
                        u64{spec.n_layers} * static_cast<u64>(LayerTensor::count);
  return align_up(n_tensors * sizeof(Item), kSectorBytes);
}

u64 slot_bytes_of(const ModelDescription& model) {
  u64 tile_bytes_max = 0;
  each_weight(model, [&](const auto&, u32, const TensorRef& tensor, Checked) {
    const u64 row_bytes = kernels::row_bytes(tensor.type, tensor.k);
    tile_bytes_max = std::max(tile_bytes_max, row_bytes * std::min<u64>(tensor.n_rows, kTileRows));
  });
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
  return align_up(spec.n_layers * sizeof(LayerWeights), Carver::kAlignment) +
         align_up(spec.n_rot / 2 * sizeof(f32), Carver::kAlignment) + row_checksums_bytes(spec);
}

u64 row_checksums_bytes(const ModelSpec& spec) {
  if (!spec.embedding_on_disk) return 0;
  return align_up(align_up(spec.n_vocab, kTileRows) * sizeof(u32), Carver::kAlignment);
}

std::span<std::byte> sink_staging(std::span<std::byte> staging) { return staging.last(kSinkBytes); }

u64 sink_piece_bytes() { return kSinkPieceBytes; }

bool fits_sink(const TensorRef& tensor) {
  const u64 bytes = tensor.n_rows > 1 ? tile_bytes_of(tensor) : tensor.k * sizeof(f32);
  return bytes <= kSinkPieceBytes;
}

void each_weight_piece(const ModelDescription& model,
                       void (*on_piece)(void* context, Checked bytes), void* context) {
  each_weight(model, [&](const auto&, u32, const TensorRef& tensor, Checked n_bytes) {
    if (!stays_on_disk(model, tensor)) on_piece(context, n_bytes);
  });
}

Result<void> check_rope_factors(std::span<const f32> factors) {
  constexpr f32 kFactorMin = 1e-4f;
  for (u64 i = 0; i < factors.size(); ++i) {
    if (std::isfinite(factors[i]) && factors[i] >= kFactorMin) continue;
    return invalid("a RoPE frequency factor is not a number of 0.0001 or more", "rope_freqs.weight",
                   {"index", i});
  }
  return {};
}

Result<u64> weights_region_bytes(const ModelDescription& model) {
  Carver carver;
  carver.take<LayerWeights>("layers", model.spec.n_layers);
  each_weight(model, [&](const auto&, u32, const TensorRef&, Checked n_bytes) {
    carver.take<std::byte>("tensor", n_bytes);
  });
  if (const auto bytes = carver.n_bytes().aligned_up(Carver::kAlignment).get()) return *bytes;
  return fail({.status = Status::invalid_model,
               .hint = "the model's tensors add up to more than can be addressed"});
}

u64 loader_staging_bytes(const ModelDescription& model, bool with_sink) {
  const u64 slot_bytes = slot_bytes_of(model);
  const u64 n_slots = std::min<u64>(kSlotsBytes / slot_bytes, kSlotsMax);
  return items_bytes(model.spec) + (with_sink ? kSlotsBytes : n_slots * slot_bytes);
}

}  // namespace tarn::model
