// Runs the rows of a step: makes a batch of its slices, computes it, commits the KV of it, and
// samples. A session whose KV or embedding cannot be read ends what it does, or computes it again;
// the others go on.
//
//   thread   the engine's
#pragma once

#include <span>

#include "runtime/engine/current_step.h"
#include "runtime/engine/sessions/admission.h"
#include "runtime/step/schedule.h"

namespace tarn::engine {

class BatchRunner {
 public:
  BatchRunner(const Opened& opened, SessionKv& kv, Admission& admission, exec::Executor& executor,
              CurrentStep& current)
      : o_(opened), kv_(kv), admission_(admission), executor_(executor), current_(current) {}
  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  void init() { has_lost_model_ = false; }
  // Makes rows of the slices: each gets its slot in the KV, and its embedding where the table is in
  // the file.
  void collect(std::span<const step::Slice> slices);
  // Computes them. Returns what passed between memory and the kernels.
  exec::Backend::Traffic run();

  // Rows of the embedding could not be read, or are others by now.
  bool has_lost_model() const { return has_lost_model_; }

 private:
  void add_slice(const step::Slice& slice);
  void add_blended(const step::Slice& slice, u32 rows_max);
  void read_embeddings();
  void choose_selecting();
  bool run_layers(exec::Backend::Traffic* traffic);
  void drop_ended();
  bool run_logits();
  void commit_rows();
  void commit_part(const step::Run& run);
  void lose_run(const step::Run& run);
  void commit_run(const step::Run& run);
  void consume_logits(Session& session, u32 position, u32 logits_row);
  void accept_token(Session& session, Sampled sampled);
  Session& session_of(const step::Run& run) { return o_.sessions[run.session]; }

  const Opened& o_;
  SessionKv& kv_;
  Admission& admission_;
  exec::Executor& executor_;
  CurrentStep& current_;
  bool has_lost_model_ = false;
};

}  // namespace tarn::engine
