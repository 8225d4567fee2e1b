#include "runtime/exec/executor.h"

#include <algorithm>

namespace tarn::exec {

Result<void> Executor::open(const ExecutorArgs& args) {
  args_ = args;
  forward_.spec = &args.model->spec;
  forward_.weights = &args.model->weights;
  forward_.batch = &batch_;
  if (args.on_gpu) return open_gpu();
  open_cpu();
  return {};
}

void Executor::close() {
  gpu_.close();
  forward_ = {.backend = &cpu_};
}

void Executor::place_buffers(const StepMemory& memory) {
  const model::ModelSpec& spec = args_.model->spec;
  forward_.buffers = {.x = {memory.x.data(), spec.d_model},
                      .normed = {memory.normed.data(), spec.d_model},
                      .qkv = {memory.qkv.data(), memory.d_qkv},
                      .attn_out = {memory.attn_out.data(), memory.d_q},
                      .gate = {memory.gate.data(), spec.d_ff},
                      .up = {memory.up.data(), spec.d_ff}};
}

void Executor::place_rows(const StepRows& rows) {
  batch_.tokens = rows.tokens.data();
  batch_.slots = batch_.positions = rows.positions.data();
  batch_.visible = rows.visible.data();
  logit_rows_ = rows.logit_rows;
  runs_ = rows.runs;
}

void Executor::open_cpu() {
  const model::ModelSpec& spec = args_.model->spec;
  Carver carver(args_.activations);
  const auto memory = CpuStepMemory::carve(carver, spec, args_.cpu.rows_max);
  place_buffers(memory.step);
  place_rows(memory.rows);
  embedded_ = forward_.buffers.x;
  logits_ = args_.host_logits;
  kernels::rope_frequencies(spec.rope_base, spec.rope_scale, spec.n_rot,
                            args_.model->weights.rope_factors, memory.rows.inv_freq.data());
  args_.cpu.memory = memory;
  cpu_.init(args_.cpu);
}

Result<void> Executor::open_gpu() {
  const u64 d_model = args_.model->spec.d_model;
  forward_.backend = &gpu_.backend();
  place_buffers(gpu_.memory().regions().step.step);
  place_rows(gpu_.host().rows);
  logits_ = {gpu_.memory().regions().logits.logits.data(), args_.model->spec.n_vocab};
  embedded_ = {gpu_.host().embedded.data(), d_model};
  const u64 d_kv = u64{args_.model->spec.n_kv_heads} * args_.model->spec.head_dim;
  forward_.host_values = {gpu_.host().values.data(), d_kv};
  return gpu_.open_backend(args_.model->weights);
}

Result<void> Executor::capture_graphs() {
  return gpu_.capture_graphs(forward_, logit_rows_, logits_);
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
  runs_[n_runs] = run;
  batch_.runs = runs_.first(n_runs + 1);
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
  return file.read({batch_.tokens, batch_.n_rows}, embedded_.data, embedded_.stride);
}

void Executor::note_kept_groups() {
  if (!on_gpu()) return;
  for (step::Run& run : batch_.runs) {
    if (!run.selects) run.offloaded_end = gpu_.backend().parts().n_kept_groups(run);
  }
}

void Executor::run_layers(step::StepHost* host) {
  batch_.host = host;
  forward_layers(forward_);
}

u32 Executor::run_logits(u32 begin) {
  const u32 n_left = static_cast<u32>(batch_.logit_rows.size()) - begin;
  const u32 n = std::min(args_.logit_rows_max, n_left);
  const u32 n_vocab = args_.model->spec.n_vocab;
  forward_logits(forward_, begin, n, logits_);
  if (batch_.takes_best) {
    forward_.backend->summarize(logits_, n, n_vocab);
  } else {
    forward_.backend->fetch(logits_, n, n_vocab, args_.host_logits);
  }
  return n;
}

Result<void> Executor::finish() {
  TARN_CHECK(forward_.backend->finish());
  return args_.watched != nullptr ? args_.watched->check() : Result<void>{};
}

}  // namespace tarn::exec
