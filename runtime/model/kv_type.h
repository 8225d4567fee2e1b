// The configuration's choice as the kernels name it.
#pragma once

#include "kernels/attn/attn.h"
#include "runtime/config/config.h"

namespace tarn::model {

inline kernels::KvType kv_type(const Config& config) {
  switch (config.kv_type) {
    case KvTypeChoice::q8_0:
      return kernels::KvType::q8_0;
    case KvTypeChoice::q4_0:
      return kernels::KvType::q4_0;
    default:
      return kernels::KvType::f16;
  }
}

}  // namespace tarn::model
