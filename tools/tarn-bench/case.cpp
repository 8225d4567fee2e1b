#include "tools/tarn-bench/case.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "runtime/lab/probe.h"
#include "tools/support/exit_code.h"
#include "tools/support/stepping.h"
#include "tools/tarn-bench/random_ids.h"
#include "tools/tarn-bench/recall.h"

namespace tarn::bench {
namespace {

using tools::value_of;

void add_step(const engine::StepTrace& trace, u64 now_ns, Sample& out) {
  const auto busy_ns = [&](engine::Phase kind) {
    return trace.phases[static_cast<u64>(kind)].busy_ns;
  };
  out.select_ns += busy_ns(engine::Phase::select);
  out.gather_ns += busy_ns(engine::Phase::gather);
  out.attend_ns += busy_ns(engine::Phase::attend);
  out.cluster_ns += busy_ns(engine::Phase::cluster) + busy_ns(engine::Phase::cluster_beside);
  out.n_slots_chosen += trace.n_slots_chosen;
  if (trace.n_tokens_out == 0) return;
  if (out.first_ns == 0) {
    out.first_ns = now_ns;
  } else if (out.second_ns == 0) {
    out.second_ns = now_ns - out.first_ns;
  }
}

// Steps until every generation has ended, and drops the events and text.
Sample run_to_end(engine::Engine& engine, const std::vector<engine::SessionIdx>& sessions) {
  size_t n_done = 0;
  Sample out;
  SystemClock clock;
  const engine::EngineCounters before = engine.status().counters;
  const u64 begin_ns = clock.now_ns();
  while (n_done < sessions.size()) {
    const engine::StepTrace& trace = tools::step(engine);
    add_step(trace, clock.now_ns() - begin_ns, out);
    for (const engine::SessionIdx session : sessions) {
      n_done += tools::drain(engine, session) ? 1u : 0u;
    }
  }
  out.ns = clock.now_ns() - begin_ns;
  out.weight_bytes = engine.status().counters.weight_bytes - before.weight_bytes;
  out.kv_bytes = engine.status().counters.kv_bytes - before.kv_bytes;
  const engine::DiskTrace& disk = engine.status().counters.disk;
  out.n_hits = disk.n_hits - before.disk.n_hits;
  out.n_waited = disk.n_waited - before.disk.n_waited;
  out.disk_bytes_read = disk.bytes_read - before.disk.bytes_read;
  out.n_far = disk.n_far_slots - before.disk.n_far_slots;
  out.n_cached = disk.n_cached_slots - before.disk.n_cached_slots;
  out.n_requests = disk.n_sector_reads - before.disk.n_sector_reads + disk.n_extent_reads -
                   before.disk.n_extent_reads;
  out.wait_ns = disk.wait_ns - before.disk.wait_ns;
  out.gathered_bytes = disk.bytes_sectors - before.disk.bytes_sectors;
  out.gathered_used_bytes = disk.bytes_of_slots - before.disk.bytes_of_slots;
  return out;
}

}  // namespace

std::string Case::name() const {
  std::string text;
  if (n_prompt > 0) text += "pp" + std::to_string(n_prompt);
  if (n_gen > 0) text += (n_prompt > 0 ? "+tg" : "tg") + std::to_string(n_gen);
  if (n_depth > 0) text += " @ d" + std::to_string(n_depth);
  if (n_parallel > 1) text += " x" + std::to_string(n_parallel);
  return text;
}

CaseRun::CaseRun(engine::Engine& engine, const Case& c, u64 seed, KvModel* kv_model,
                 const std::function<void(u32)>& on_depth)
    : engine_(engine), case_(c) {
  for (u32 i = 0; i < c.n_parallel; ++i) {
    sessions_.push_back(value_of(engine.sessions().create()));
    n_held_.push_back(0);
    if (c.n_depth == 0) continue;
    // One token more: the last one waits for the next call, and is measured with it.
    const std::vector<u32> ids = random_ids(seed + i, c.n_depth + 1, engine.spec().n_vocab);
    value_of(c.is_filled ? lab::Probe(engine).fill_kv(sessions_[i], ids, kv_model->source())
                         : engine.sessions().feed(sessions_[i], ids));
    n_held_[i] = c.n_depth + 1;
  }
  for (const engine::SessionIdx session : sessions_) {
    tools::compute_all(engine, session, [&] {
      if (on_depth) on_depth(engine.sessions().state(session).sequence.n_slots());
    });
  }
  if (c.is_filled) planter_ = kv_model->planter();
  lab::Probe(engine).watch_kv(planter_);  // extents follow the queries before them
  for (u32 i = 0; i < c.n_parallel; ++i) {
    if (c.n_depth > 0 && c.n_settle > 0) settle(sessions_[i]);
    n_held_[i] = engine.sessions().state(sessions_[i]).tokens.n_ids;
  }
  lab::Probe(engine).watch_kv({});
}

CaseRun::~CaseRun() {
  for (const engine::SessionIdx session : sessions_) engine_.sessions().destroy(session);
}

// Steps until a row of the session has selected, because then its index is in use.
void CaseRun::settle(engine::SessionIdx session) {
  for (u32 i = 0; i < case_.n_settle; ++i) {
    value_of(engine_.sessions().generate(session, {.max_tokens = 1, .ignore_end = true}));
    if (run_to_end(engine_, {session}).n_slots_chosen > 0) return;
  }
}

void CaseRun::cut_back() {
  for (u32 i = 0; i < sessions_.size(); ++i) {
    if (n_held_[i] == 0) {
      value_of(engine_.sessions().truncate(sessions_[i], 0));
      continue;
    }
    if (case_.n_settle > 0) {  // a generated token waits: its row selects, a fed one's would not
      value_of(engine_.sessions().truncate(sessions_[i], n_held_[i]));
      continue;
    }
    const u32 waiting = engine_.sessions().state(sessions_[i]).tokens.ids[n_held_[i] - 1];
    value_of(engine_.sessions().truncate(sessions_[i], n_held_[i] - 1));
    value_of(engine_.sessions().feed(sessions_[i], std::span(&waiting, 1)));
  }
}

Sample CaseRun::run(u64 seed) {
  for (u32 i = 0; i < case_.n_parallel; ++i) {
    // At depth one token of the prompt already waits; a generation without a prompt starts from one
    // token.
    const u32 n_waiting = case_.n_depth > 0 ? 1 : 0;
    const u32 n_fed = std::max(case_.n_prompt, 1u) - n_waiting;
    value_of(engine_.sessions().feed(sessions_[i],
                                     random_ids(seed + 100 + i, n_fed, engine_.spec().n_vocab)));
    // The prompt's last row gives the first token; a generation after a prompt decodes n_gen more.
    const u32 n_out = case_.n_prompt > 0 ? case_.n_gen + 1 : case_.n_gen;
    value_of(engine_.sessions().generate(
        sessions_[i],
        {.sampler = {.wants_logprob = false}, .max_tokens = n_out, .ignore_end = true}));
  }
  lab::Probe(engine_).watch_kv(planter_);
  const Sample sample = run_to_end(engine_, sessions_);
  lab::Probe(engine_).watch_kv({});
  cut_back();
  return sample;
}

f64 CaseRun::recall() {
  const f64 share = recall_against_oracle(engine_, sessions_.front(), planter_);
  cut_back();
  return share;
}

Statistics statistics_of(const std::vector<f64>& values) {
  Statistics out;
  for (const f64 value : values) out.mean += value / static_cast<f64>(values.size());
  if (values.size() < 2) return out;
  f64 squares = 0;
  for (const f64 value : values) squares += (value - out.mean) * (value - out.mean);
  out.deviation = std::sqrt(squares / static_cast<f64>(values.size() - 1));
  return out;
}

}  // namespace tarn::bench
