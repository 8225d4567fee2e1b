// A CPU's rows lie with the host: they are made and watched in place.
#pragma once

#include "runtime/exec/host_rows.h"
#include "runtime/exec/step_memory.h"

namespace tarn::exec {

class CpuHostRows final : public HostRows {
 public:
  void open(const StepMemory& memory, u32 n_rows_max) {
    qkv_ = {memory.qkv.data(), memory.d_qkv};
    d_q_ = memory.d_q;
    rows_max_ = n_rows_max;
  }
  u32 rows_max(u64) const override { return rows_max_; }
  Made made(u32) const override {
    const u64 d_kv = (qkv_.stride - d_q_) / 2;
    const step::Rows k{qkv_.data + d_q_, qkv_.stride}, v{k.data + d_kv, qkv_.stride};
    return {.q = qkv_, .k = k, .v = v, .host_k = k, .host_v = v};
  }
  void hand_over(const Made&, u32) override {}
  step::KvWatch shown_to(const step::KvWatch& watch) override { return watch; }

 private:
  step::Rows qkv_{};
  u64 d_q_ = 0;
  u32 rows_max_ = 0;
};

}  // namespace tarn::exec
