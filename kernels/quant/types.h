// The quantised tensor types, a row each: its struct, in its file. Everything that depends on a
// type is instantiated from this list. Files of an instruction set may include it: what it holds
// beside data are templates, which they instantiate with classes of their own.
#pragma once

#include "kernels/quant/types/iq4_nl.h"
#include "kernels/quant/types/iq4_xs.h"
#include "kernels/quant/types/mxfp4.h"
#include "kernels/quant/types/q2_k.h"
#include "kernels/quant/types/q3_k.h"
#include "kernels/quant/types/q4_0.h"
#include "kernels/quant/types/q4_1.h"
#include "kernels/quant/types/q4_k.h"
#include "kernels/quant/types/q5_0.h"
#include "kernels/quant/types/q5_1.h"
#include "kernels/quant/types/q5_k.h"
#include "kernels/quant/types/q6_k.h"
#include "kernels/quant/types/q8_0.h"

namespace tarn::kernels {

template <class... Types>
struct TypeList {
  static constexpr u32 kCount = sizeof...(Types);
  // Calls f(Type()) for the type of that id; false: it is none of the list.
  template <class F>
  static bool visit(TensorType id, const F& f) {
    return ((Types::kTraits.type == id && (f(Types()), true)) || ...);
  }
};

using QuantTypes = TypeList<Q8_0, Q4_0, Q4_1, Q5_0, Q5_1,  //
                            Q2K, Q3K, Q4K, Q5K, Q6K,       //
                            IQ4NL, IQ4XS, MXFP4>;

}  // namespace tarn::kernels
