// Attention on the CPU as a fold over parts. A task is a block of rows and a KV head; of a run that
// reads chosen slots it is a KV head that chooses, copies a tile at a time where the slots lie
// apart, and attends to it.
#pragma once

#include <array>

#include "runtime/exec/cpu/tasks.h"

namespace tarn::exec {

class CpuAttention {
 public:
  CpuAttention(const CpuBackendArgs* args, CpuTasks* tasks) : args_(*args), tasks_(*tasks) {}

  void attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out);
  // Takes what was read and how long it took since the last call; its weight_bytes are 0.
  Backend::Traffic take_traffic();

 private:
  // Runs that have their parts together, and what their attention reads and writes.
  struct Attended {
    const step::Batch& batch;
    std::span<step::Run> runs;
    u32 cache_layer;
    Rows q, out;
  };
  void count_kv(const step::Batch& batch);
  void attend_runs(const Attended& a);
  u32 n_tasks(const step::Run& run, const step::KvPart& part) const;
  void attend_part(const Attended& a, const step::KvPart& part);
  template <class T>
  std::span<T> of_worker(std::span<T> all, u32 worker_idx) const {
    return Carver::row(all, args_.workers->n_workers(), worker_idx);
  }
  kernels::AttnArgs attn_args(const Attended& a, const step::Run& run, u32 kv_head, u32 block,
                              u32 worker_idx) const;
  void attend_block(const Attended& a, const step::Run& run, const step::KvPart& part, u32 task_idx,
                    u32 worker_idx);
  void attend_chosen(const Attended& a, const step::Run& run, u32 kv_head, u32 worker_idx);
  const u8* const* copy_tile(const step::ChosenSlots& chosen, u32 begin, u32 n) const;

  struct alignas(64) Spent {
    u64 gather_ns = 0, attend_ns = 0;
  };

  const CpuBackendArgs& args_;
  CpuTasks& tasks_;
  u64 kv_bytes_ = 0;
  std::array<Spent, kWorkersMax> spent_{};
};

}  // namespace tarn::exec
