#include "tests/support/seed.h"

#include <cmath>
#include <cstdlib>

namespace tarn::test {

u64 seed_from_environment() {
  const char* text = std::getenv("TARN_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 0x7A2Du;
}

u64 Random::next() {
  state_ += 0x9E3779B97F4A7C15ull;
  u64 z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

f32 Random::uniform(f32 low, f32 high) {
  const f64 unit = static_cast<f64>(next() >> 11) * 0x1.0p-53;
  return static_cast<f32>(low + (high - low) * unit);
}

f32 Random::normal() {
  const f64 u = (static_cast<f64>(next() >> 11) + 0.5) * 0x1.0p-53;
  const f64 v = static_cast<f64>(next() >> 11) * 0x1.0p-53;
  return static_cast<f32>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

}  // namespace tarn::test
