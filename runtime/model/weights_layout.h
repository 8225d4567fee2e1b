// The place of each tensor and the cuts of the staging region. weights.cpp adds up and
// weights_loader.cpp places, from the same walk over the tensors. Private to both.
#pragma once

#include "runtime/arena/carver.h"
#include "runtime/model/model_tables.h"
#include "runtime/model/weights.h"

namespace tarn::model {

using kernels::kTileRows;

// With reads of about this size the sectors at their ends cost less than 1 %. A dozen in flight
// fill the disk's queue, and the workers have tiles meanwhile.
inline constexpr u64 kSlotBytes = 2 * kMiB;
inline constexpr u64 kSlotBytesMin = 64 * kKiB;
inline constexpr u64 kSlotsBytes = 32 * kMiB;
inline constexpr u32 kSlotsMax = kSlotsBytes / kSlotBytes;
// A sink has a quarter of that memory, in the four pieces of its ring.
inline constexpr u64 kSinkPieceBytes = 2 * kMiB;
inline constexpr u64 kSinkBytes = 4 * kSinkPieceBytes;

// A tensor and its target. Vectors are widened to f32, matrices tiled.
struct Item {
  const TensorRef* tensor = nullptr;
  std::byte* target = nullptr;
  bool is_vector = false;
  bool is_sent = false;     // goes to the sink; else the target is host memory
  bool is_checked = false;  // stays in the file: the target gets its rows' checksums
};

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

// Calls visit(row, layer or tables::kNoLayer, tensor, its bytes in memory) for every tensor that
// the model has, in the order of the region. Of the table that stays on disk, these are the bytes
// of its checksums, which the host reads.
template <class Visit>
void each_weight(const ModelDescription& model, Visit&& visit) {
  tables::each_tensor(
      model.tensors, [&](const tables::TensorRow& row, u32 layer, const TensorRef& tensor) {
        if (!tensor.present()) return;
        const bool is_vector = row.n_rows == tables::Dim::one;
        const Checked rows = is_vector ? Checked(1) : Checked(tensor.n_rows).aligned_up(kTileRows);
        const Checked row_bytes = stays_on_disk(model, tensor) ? Checked(sizeof(u32))
                                  : is_vector                  ? Checked(tensor.k) * sizeof(f32)
                                              : Checked(kernels::row_bytes(tensor.type, tensor.k));
        visit(row, layer, tensor, rows * row_bytes);
      });
}

}  // namespace tarn::model
