// The place of each tensor and the cuts of the staging region. weights.cpp adds up and
// weights_loader.cpp fills, from the same walk over the tensors. Private to both.
#pragma once

#include <algorithm>
#include <optional>

#include "platform/base/checked.h"
#include "runtime/model/model_tables.h"
#include "runtime/model/weights.h"

namespace tarn::model {

using kernels::kTileRows;

inline constexpr u64 kAlignment = 64;  // a cache line, and the widest vector

// With reads of about this size the sectors at their ends cost less than 1 %. A dozen in flight
// fill the disk's queue, and the workers have tiles meanwhile.
inline constexpr u64 kSlotBytes = 2 * kMiB;
inline constexpr u64 kSlotBytesMin = 64 * kKiB;
inline constexpr u64 kSlotsBytes = 32 * kMiB;
inline constexpr u32 kSlotsMax = kSlotsBytes / kSlotBytes;
// A sink has a quarter of that memory, in the four pieces of its ring.
inline constexpr u64 kSinkPieceBytes = 2 * kMiB;
inline constexpr u64 kSinkBytes = 4 * kSinkPieceBytes;
inline constexpr u64 kTensorsMax =
    static_cast<u64>(ModelTensor::count) + kLayersMax * static_cast<u64>(LayerTensor::count);

// A tensor and its target. Vectors are widened to f32, matrices tiled.
struct Item {
  const TensorRef* tensor = nullptr;
  std::byte* target = nullptr;
  bool is_vector = false;
  bool is_sent = false;     // goes to the sink; else the target is host memory
  bool is_checked = false;  // stays in the file: the target gets its rows' checksums
};
inline constexpr u64 kItemsBytesMax = align_up(kTensorsMax * sizeof(Item), kSectorBytes);

u64 items_bytes(const ModelSpec& spec);

// One tile of the widest rows that the table of hyper-parameters allows must fit into the slots, at
// any offset in a sector.
static_assert(kTileRows * tables::kRowElementsMax * sizeof(f32) + 2 * kSectorBytes <= kSlotsBytes);

// The most bytes of one read. Larger than usual only for a model with larger tiles; smaller for a
// model with few such pieces.
u64 slot_bytes_of(const ModelDescription& model);

inline u64 tile_bytes_of(const TensorRef& tensor) {
  return kernels::tiled_bytes(tensor.type, kTileRows, tensor.k);
}

// Hands out the region from front to back; without a region it only counts.
class Layout {
 public:
  explicit Layout(std::byte* region) : region_(region) {}
  std::byte* place(Checked n_bytes) {
    const auto begin = end_.get();
    end_ = (end_ + n_bytes).aligned_up(kAlignment);
    return region_ != nullptr && begin ? region_ + *begin : nullptr;
  }
  std::byte* place_checksums(Checked n_bytes) { return place(n_bytes); }
  std::optional<u64> bytes() const { return end_.get(); }

 private:
  std::byte* region_;
  Checked end_ = 0;
};

// Calls `visit(row, layer or kNoLayer, tensor, target)` for every existing tensor, in the order of
// the region. For the table that stays on disk, the target is the place of its checksums, which the
// host reads.
inline constexpr u32 kNoLayer = ~u32{0};
template <class Places, class Visit>
void lay_out(const ModelDescription& model, Places& layout, Visit&& visit) {
  const auto place = [&](const tables::TensorRow& row, u32 layer, const TensorRef& tensor) {
    if (!tensor.present()) return;
    const bool is_vector = row.n_rows == tables::Dim::one;
    const Checked rows = is_vector ? Checked(1) : Checked(tensor.n_rows).aligned_up(kTileRows);
    if (stays_on_disk(model, tensor)) {
      return visit(row, layer, tensor, layout.place_checksums(rows * sizeof(u32)));
    }
    const Checked row_bytes = is_vector ? Checked(tensor.k) * sizeof(f32)
                                        : Checked(kernels::row_bytes(tensor.type, tensor.k));
    visit(row, layer, tensor, layout.place(rows * row_bytes));
  };
  for (const tables::TensorRow& row : tables::kModelTensors) {
    place(row, kNoLayer, model.tensors.model[row.idx]);
  }
  for (u32 layer = 0; layer < model.spec.n_layers; ++layer) {
    for (const tables::TensorRow& row : tables::kLayerTensors) {
      place(row, layer, model.tensors.of(layer, static_cast<LayerTensor>(row.idx)));
    }
  }
}

}  // namespace tarn::model
