#include "runtime/plan/step_shape.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::plan {
namespace {

constexpr u64 kPieceAlignment = 64;  // a cache line, and the widest vector

class Layout {
 public:
  explicit Layout(StepShape* shape) : shape_(shape) {}

  void add_rows(Piece& piece, Checked row_bytes) {
    add(piece, row_bytes * shape_->rows_max);
    row_bytes_ = row_bytes_ + row_bytes;
  }
  void add(Piece& piece, Checked bytes) {
    const Checked offset = end_.aligned_up(kPieceAlignment);
    end_ = offset + bytes;
    TARN_ASSERT(end_.valid());
    piece = {.offset_bytes = *offset.get(), .bytes = *bytes.get()};
  }
  void finish() {
    shape_->row_bytes = *row_bytes_.get();
    shape_->total_bytes = *end_.get();
  }

 private:
  StepShape* shape_;
  Checked end_ = 0;
  Checked row_bytes_ = 0;
};

}  // namespace

StepShape step_shape(const model::ModelSpec& spec, u32 rows_max) {
  StepShape shape;
  shape.rows_max = rows_max;
  shape.d_q = u64{spec.n_heads} * spec.head_dim;
  shape.d_qkv = (u64{spec.n_heads} + 2 * u64{spec.n_kv_heads}) * spec.head_dim;
  shape.k_max = align_up(std::max({u64{spec.d_model}, u64{spec.d_ff}, shape.d_q}), 32);

  Layout layout(&shape);
  layout.add_rows(shape.x, u64{spec.d_model} * sizeof(f32));
  layout.add_rows(shape.normed, u64{spec.d_model} * sizeof(f32));
  layout.add_rows(shape.qkv, shape.d_qkv * sizeof(f32));
  layout.add_rows(shape.attn_out, shape.d_q * sizeof(f32));
  layout.add_rows(shape.gate, u64{spec.d_ff} * sizeof(f32));
  layout.add_rows(shape.up, u64{spec.d_ff} * sizeof(f32));
  layout.add_rows(shape.act_q, shape.k_max * sizeof(i8));
  layout.add_rows(shape.act_scales, shape.k_max / 32 * sizeof(f32));
  layout.add_rows(shape.act_sums, shape.k_max / 16 * sizeof(i32));
  layout.add_rows(shape.rope_cos, u64{spec.n_rot} / 2 * sizeof(f32));
  layout.add_rows(shape.rope_sin, u64{spec.n_rot} / 2 * sizeof(f32));
  for (Piece* piece : {&shape.tokens, &shape.positions, &shape.visible, &shape.logit_rows}) {
    layout.add_rows(*piece, sizeof(u32));
  }
  layout.add_rows(shape.runs, kStepRunBytes);
  layout.add(shape.inv_freq, u64{spec.n_rot} / 2 * sizeof(f64));
  layout.finish();
  return shape;
}

}  // namespace tarn::plan
