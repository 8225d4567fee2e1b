// Random weights, written directly as a tensor type's blocks: random codes and scales that vary
// from block to block, or a normal distribution's table for the float types. It is fast (a real
// file has 5 GB) and has a known spread, so that a model's activations can be scaled by
// calculation.
//
//   mean     0 in each type: a mean of only 0.1 of the rms adds up coherently over rows and layers,
//            and would dominate a deep model
//   seed     the same seed gives the same bytes, on every machine
#pragma once

#include <span>

#include "kernels/quant/tensor_type.h"

namespace tarn::synth {

// xoshiro256++ (Blackman and Vigna 2021, "Scrambled linear pseudorandom number generators").
class FastRandom {
 public:
  // Streams with different labels are independent.
  FastRandom(u64 seed, u64 label_a, u64 label_b);
  u64 next();
  void fill(std::span<u8> out);

 private:
  u64 state_[4];
};

// A standard normal's 4096 quantiles, scaled to variance 1 exactly.
std::span<const f32> normal_table();

// Fills `out`, whole blocks of `type`, with weights of root mean square `rms`.
void random_blocks(kernels::TensorType type, f32 rms, FastRandom& random, std::span<u8> out);

}  // namespace tarn::synth
