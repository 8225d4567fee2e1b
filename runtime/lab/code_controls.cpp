#include "runtime/lab/code_controls.h"

#include <numeric>

#include "kernels/rope/rope.h"

namespace tarn::lab {
namespace {

// Turns a key back by its position, which is its slot in a sequence that begins at 0.
class KeysBeforeRope final : public NamedControl {
 public:
  explicit KeysBeforeRope(u32 first_position) : first_position_(first_position) {}
  void set_model(const model::ModelSpec& spec, const f64* inv_freq, u32 n_slots) override {
    spec_ = spec;
    std::vector<u32> positions(n_slots);
    std::iota(positions.begin(), positions.end(), first_position_);
    cos_.resize(u64{n_slots} * spec.n_rot / 2);
    sin_.resize(cos_.size());
    kernels::rope_table(
        {positions.data(), n_slots, spec.n_rot, inv_freq, cos_.data(), sin_.data()});
    for (f32& s : sin_) s = -s;
  }
  void change(u32 slot, f32* key) const override {
    const u64 at = u64{slot} * spec_.n_rot / 2;
    kernels::rope_generic(
        {.x = key,
         .x_stride = spec_.head_dim,
         .cos = cos_.data() + at,
         .sin = sin_.data() + at,
         .n_rows = 1,
         .n_heads = 1,
         .head_dim = spec_.head_dim,
         .n_rot = spec_.n_rot,
         .pairs = spec_.rope_halves ? kernels::RopePairs::halves : kernels::RopePairs::adjacent});
  }

 private:
  u32 first_position_;
  model::ModelSpec spec_{};
  std::vector<f32> cos_, sin_;  // of turning back, [n_slots, n_rot / 2]
};

class ShuffledCodes final : public NamedControl {
 public:
  // A stride without a common factor visits every place once; the golden ratio's scatters them.
  u32 instead_of(u32 place, u32 n) const override {
    u32 stride = static_cast<u32>(0.618 * n) | 1u;
    while (std::gcd(stride, n) != 1) stride += 2;
    return static_cast<u32>((u64{place} * stride + n / 3) % n);
  }
};

}  // namespace

std::unique_ptr<NamedControl> code_control(const std::string& name, u32 first_position) {
  if (name == kCodeControls[0]) return std::make_unique<ShuffledCodes>();
  if (name == kCodeControls[1]) return std::make_unique<KeysBeforeRope>(first_position);
  return nullptr;
}

}  // namespace tarn::lab
