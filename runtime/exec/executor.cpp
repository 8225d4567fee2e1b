#include "runtime/exec/executor.h"

#include <algorithm>

namespace tarn::exec {

void Executor::open(const ExecutorArgs& args) {
  args_ = args;
  const model::ModelSpec& spec = args.model->spec;
  const StepMemory& memory = args.setup.step;
  const StepRows& rows = args.setup.rows;
  batch_.tokens = rows.tokens.data();
  batch_.slots = batch_.positions = rows.positions.data();
  batch_.visible = rows.visible.data();
  logit_rows_ = rows.logit_rows;
  forward_ = {.backend = args.setup.backend,
              .spec = &spec,
              .weights = &args.model->weights,
              .buffers = {.x = {memory.x.data(), spec.d_model},
                          .normed = {memory.normed.data(), spec.d_model},
                          .qkv = {memory.qkv.data(), memory.d_qkv},
                          .attn_out = {memory.attn_out.data(), memory.d_q},
                          .gate = {memory.gate.data(), spec.d_ff},
                          .up = {memory.up.data(), spec.d_ff}},
              .batch = &batch_,
              .host_values = args.setup.host_values};
}

// V of all check runs lies together, without a gap between two rows.
Rows Executor::check_values(const step::Run& run) const {
  const auto first = std::ranges::find(batch_.runs, step::RunPart::check, &step::Run::part);
  const Rows fetched = forward_.host_values;
  const Rows all =
      fetched.data != nullptr ? fetched : exec::check_values(forward_, first->row_begin);
  return step::from_row(all, run.row_begin - first->row_begin);
}

void Executor::clear() {
  batch_.n_rows = 0;
  batch_.runs = {};
  batch_.logit_rows = {};
  batch_.check_layer = 0;
}

void Executor::add(step::Run run, std::span<const u32> tokens, u32 n_logit_rows) {
  const u32 n = static_cast<u32>(tokens.size()), first_slot = run.sequence->n_slots();
  run.n_slots = n;
  begin_run(run, n);
  u64 n_logits = batch_.logit_rows.size();
  for (u32 i = 0; i < n; ++i) {
    if (i + n_logit_rows >= n) logit_rows_[n_logits++] = batch_.n_rows;
    add_row(tokens[i], first_slot + i);
  }
  batch_.logit_rows = logit_rows_.first(n_logits);
}

void Executor::add_at(step::Run run, std::span<const u32> ids, std::span<const u32> slots) {
  const u32 first_slot = run.sequence->n_slots();
  run.n_slots = static_cast<u32>(ids.size());
  begin_run(run, static_cast<u32>(slots.size()));
  for (const u32 slot : slots) add_row(ids[slot - first_slot], slot);
}

void Executor::begin_run(step::Run run, u32 n_rows) {
  run.row_begin = batch_.n_rows;
  run.n_rows = n_rows;
  const u64 n_runs = batch_.runs.size();
  args_.setup.rows.runs[n_runs] = run;
  batch_.runs = args_.setup.rows.runs.first(n_runs + 1);
}

void Executor::add_row(u32 token, u32 slot) {
  const u32 row = batch_.n_rows++;
  batch_.tokens[row] = token;
  batch_.positions[row] = slot;
  batch_.visible[row] = slot + 1;
}

Result<void> Executor::read_embeddings() {
  model::EmbeddingFile& file = args_.model->embedding;
  if (!file.is_open() || batch_.n_rows == 0) return {};
  return file.read({batch_.tokens, batch_.n_rows}, args_.setup.embedded.data,
                   args_.setup.embedded.stride);
}

void Executor::run_layers(step::StepHost* host) {
  batch_.host = host;
  forward_layers(forward_);
}

u32 Executor::run_logits(u32 begin) {
  const u32 n_left = static_cast<u32>(batch_.logit_rows.size()) - begin;
  const u32 n = std::min(args_.logit_rows_max, n_left);
  const u32 n_vocab = args_.model->spec.n_vocab;
  forward_logits(forward_, begin, n, args_.setup.logits);
  if (batch_.takes_best) {
    forward_.backend->summarize(args_.setup.logits, n, n_vocab);
  } else {
    forward_.backend->fetch(args_.setup.logits, n, n_vocab, args_.host_logits);
  }
  return n;
}

}  // namespace tarn::exec
