// The training that makes a session's index: a job, a cache layer a unit. The layer's readers are
// trained over a sample of their keys, then over all of them. Over a disk a unit also lays out the
// layer's disk order, and where sessions are kept, saves its indexes.
//
//   spare set   a rebuild fills it while the session's own set serves. It belongs to the session
//               that came first, until its activation. A session that has not stepped twice loses
//               it to one that steps. A session without it at its activation fills its own set: no
//               row reads that any more, and the session's row waits
//   restoring   the index in use is made again: what lies on the disk is read, the rest trained
//               over the same rows. A job that was under way begins after that
//   thread      the engine's; tasks on all workers
//   errors      the disk's, where KV lies there
#pragma once

#include "runtime/method/saved_indexes.h"

namespace tarn::method {

class IndexJobs {
 public:
  IndexJobs(IndexMemory* memory, SavedIndexes* saved)
      : memory_(*memory), args_(memory->args), saved_(*saved) {}

  void init();
  u32 n_units() const;  // of a job; 0: the method trains nothing
  bool has_units_left(const IndexSession& s) const;
  // Returns whether the job has made the index of so many rows.
  bool is_made(const IndexSession& s, u32 n_rows) const;
  // Returns whether the job has begun to fill the set that the index in use stands in.
  bool overwrites(const IndexSession& s) const;

  void begin_step() { ++step_idx_; }
  void note_ready(IndexSession& s) const { s.step_idx = step_idx_; }
  void start_job(IndexSession& s, u32 n_rows);
  void drop_job(IndexSession& s);
  // Notes a clustering that was triggered, of which nothing was done.
  void await_clustering(IndexSession& s);
  void begin_restoring(IndexSession& s);
  // Takes the set that the job has filled into use.
  void take_over(IndexSession& s);

  // Returns whether the session's job has units left, and a set to fill.
  bool can_work(const IndexSession& s, bool is_due) const;
  u32 units_of_step(const IndexSession& s, u32 n_tokens, bool beside_prompt) const;
  Result<void> run_units(IndexSession& s, u32 n, bool is_due);
  u32 take_n_units() { return std::exchange(n_units_spent_, 0u); }

 private:
  Reader** free_set(const IndexSession& s, bool is_due) const;
  void begin_filling(IndexSession& s, Reader** target);
  void pass_found_layers(IndexSession& s) const;
  Result<void> make_layer(IndexSession& s, u32 cache_layer);
  Result<void> train_layer(IndexSession& s, u32 cache_layer);
  Result<void> take_sample(IndexSession& s, u32 cache_layer, u32 n_sample);

  IndexMemory& memory_;
  const SelectorArgs& args_;
  SavedIndexes& saved_;
  Reader** spare_ = nullptr;
  IndexSession* spare_user_ = nullptr;  // whose job has begun to fill it
  u64 step_idx_ = 0;
  u32 n_units_spent_ = 0;
};

}  // namespace tarn::method
