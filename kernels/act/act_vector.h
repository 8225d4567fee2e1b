// The bodies of act.h for one ISA's F32x (kernels/common/f32x_<isa>.h). Included by the ISA files
// alone.
#pragma once

#include "kernels/act/act.h"
#include "kernels/common/exp_vector.h"

namespace tarn::kernels {
namespace {

template <class F>
struct ActVector {
  using V = typename F::V;

  static void swiglu(const SwigluArgs& args) {
    const auto body = [](V gate, V up) {
      const V denominator = F::add(F::set(1.0f), exp_vector<F>(F::negate(gate)));
      return F::mul(F::div(gate, denominator), up);
    };
    for_each(args.gate, args.up, args.out, args.n, body);
  }
  static void add(const AddArgs& args) {
    for_each(args.x, args.y, args.x, args.n, [](V x, V y) { return F::add(x, y); });
  }
  static void exponential(const ExpArgs& args) {
    for_each(args.x, args.x, args.out, args.n, [](V x, V) { return exp_vector<F>(x); });
  }

 private:
  template <class Body>
  static void for_each(const f32* a, const f32* b, f32* out, u64 n, Body body) {
    u64 i = 0;
    for (; i + F::kLanes <= n; i += F::kLanes) {
      F::store(out + i, body(F::load(a + i), F::load(b + i)));
    }
    const u32 rest = static_cast<u32>(n - i);
    if (rest == 0) return;
    F::store_some(out + i, body(F::load_some(a + i, rest), F::load_some(b + i, rest)), rest);
  }
};

}  // namespace
}  // namespace tarn::kernels
