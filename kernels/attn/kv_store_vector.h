// The body of attn.h's append for one ISA's F32x (kernels/common/f32x_<isa>.h). Included by the ISA
// files alone.
#pragma once

#include <cstring>

#include "kernels/attn/attn.h"
#include "kernels/common/half.h"

namespace tarn::kernels {
namespace {

template <class F>
struct KvStoreVector {
  using V = typename F::V;

  static void store(const KvStoreArgs& args) {
    if (args.type == KvType::q4_0) return kv_store_generic(args);  // 1/1000 of a token's time
    u8* v_out = args.slot + kv_vector_bytes(args.type, args.head_dim);
    if (args.type == KvType::f16) {
      store_f16(args.k, args.head_dim, args.slot);
      store_f16(args.v, args.head_dim, v_out);
    } else {
      store_q8_0(args.k, args.head_dim, args.slot);
      store_q8_0(args.v, args.head_dim, v_out);
    }
  }

 private:
  static void store_f16(const f32* x, u32 head_dim, u8* out) {
    u32 i = 0;
    for (; i + F::kLanes <= head_dim; i += F::kLanes) F::store_f16(out + 2 * i, F::load(x + i));
    for (; i < head_dim; ++i) {
      const u16 half = f32_to_f16(x[i]);
      std::memcpy(out + 2 * i, &half, sizeof half);
    }
  }

  static void store_q8_0(const f32* x, u32 head_dim, u8* out) {
    constexpr u32 kBlock = 32;
    for (u32 begin = 0; begin < head_dim; begin += kBlock, out += 2 + kBlock) {
      typename F::Words bits = F::magnitude_bits(F::load(x + begin));
      for (u32 i = F::kLanes; i < kBlock; i += F::kLanes) {
        bits = F::max_words(bits, F::magnitude_bits(F::load(x + begin + i)));
      }
      const f32 d = F::max_magnitude(bits) / 127.0f;
      const u16 half = f32_to_f16(d);
      std::memcpy(out, &half, sizeof half);
      if (half == 0 || half >= 0x7c00) {
        std::memset(out + 2, 0, kBlock);
        continue;
      }
      const V inverse = F::set(1.0f / d);
      for (u32 i = 0; i < kBlock; i += F::kLanes) {
        F::store_i8(out + 2 + i, F::mul(F::load(x + begin + i), inverse));
      }
    }
  }
};

}  // namespace
}  // namespace tarn::kernels
