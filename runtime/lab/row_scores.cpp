#include "runtime/lab/row_scores.h"

#include "platform/base/random_at.h"

namespace tarn::lab {
namespace {

using reuse::Chunk;

void score_legolink(std::span<const Chunk> chunks, std::span<f32> deviation) {
  for (const Chunk& chunk : chunks) {
    for (u32 token = chunk.begin; token < chunk.end; ++token)
      deviation[token] = 1.0f / static_cast<f32>(1 + token - chunk.begin);
  }
}

void score_random(std::span<const Chunk> chunks, std::span<f32> deviation) {
  constexpr u64 kSeed = 20240526;
  constexpr u32 kShift = 40;  // what is left is exact in an f32
  for (const Chunk& chunk : chunks) {
    for (u32 token = chunk.begin; token < chunk.end; ++token)
      deviation[token] = static_cast<f32>(random_at(kSeed, token) >> kShift);
  }
}

constexpr RowScore kRowScores[] = {
    {"deviation", nullptr}, {"legolink", score_legolink}, {"random", score_random}};

}  // namespace

std::span<const RowScore> row_scores() { return kRowScores; }

}  // namespace tarn::lab
