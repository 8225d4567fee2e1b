// runtime/plan/kv_type.h
//
// The configuration's choice as the kernels name it.
#pragma once

#include "kernels/attn/attn.h"
#include "runtime/config/config.h"

namespace tarn::plan {

inline kernels::KvType kv_type(const Config& config) {
  return config.kv_type == KvTypeChoice::q8_0 ? kernels::KvType::q8_0 : kernels::KvType::f16;
}

}  // namespace tarn::plan
