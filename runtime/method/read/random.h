// Random: k by a seeded hash of the slot: what a method that knows nothing reaches.
#pragma once

#include "runtime/method/method.h"
#include "runtime/method/random_at.h"

namespace tarn::method {

u32 select_random(const SelectionArgs& args, u64 seed);
// Where all heads draw from; head i, counted over all (cache layer, KV head), has random_at(it, i).
inline constexpr u64 kRandomSeed = 20240715;

class RandomReader final : public Reader {
 public:
  explicit RandomReader(const ReaderArgs& args) : seed_(random_at(kRandomSeed, args.head)) {}
  u32 choose(const SelectionArgs& args, const KeyPages& /*keys*/) const override {
    return select_random(args, seed_);
  }

 private:
  u64 seed_;
};

}  // namespace tarn::method
