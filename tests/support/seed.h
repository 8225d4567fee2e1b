// Random inputs for tests. A failing check prints its seed (CAPTURE(random.seed())), and
// TARN_TEST_SEED repeats it.
#pragma once

#include "platform/base/types.h"

namespace tarn::test {

// TARN_TEST_SEED if it is set, else a fixed default, so that test runs are repeatable.
u64 seed_from_environment();

// splitmix64: small, well mixed, the same on every machine.
class Random {
 public:
  explicit Random(u64 seed) : seed_(seed), state_(seed) {}
  u64 seed() const { return seed_; }
  u64 next();
  u64 below(u64 n) { return next() % n; }  // the bias is irrelevant for tests
  f32 uniform(f32 low, f32 high);
  f32 normal();  // mean 0, variance 1

 private:
  u64 seed_;
  u64 state_;
};

}  // namespace tarn::test
