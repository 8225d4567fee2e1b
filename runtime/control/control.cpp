#include "runtime/control/control.h"

#include <algorithm>
#include <cmath>

namespace tarn::control {
namespace {

constexpr f64 kWorthwhile = 1.1;  // the other one has to be better by so much

}  // namespace

void Learned::observe(const Spent& spent) {
  if (!(spent.predicted_s > 0 && spent.most_s > 0)) return;
  const f64 least = spent.least_s / spent.predicted_s, most_seen = spent.most_s / spent.predicted_s;
  const f64 seen = std::clamp(factor, std::min(least, most_seen), most_seen);
  const f64 share = std::max(kShare, 1.0 / (1 + n_seen));
  const f64 most = n_seen == 0 ? kRange * kRange : kMost;
  const f64 times_off = std::min(std::max(seen / factor, factor / seen), most);
  const f64 moved = 1 + share * (times_off - 1);
  factor = std::clamp(seen > factor ? factor * moved : factor / moved, 1 / kRange, kRange);
  n_seen += u32{2 * spent.least_s > spent.most_s};  // not a bound alone
}

Decision decide(const Costs& costs, const Observation& seen, const State& before) {
  Decision decision{.state = before, .prompt = seen.prompt};
  State& state = decision.state;
  if (seen.power != state.power) {
    state.power = seen.power;
    state.prefill.n_seen = std::min(state.prefill.n_seen, 1u);
    state.disk.n_seen = std::min(state.disk.n_seen, 1u);
  }
  state.prefill.observe(seen.prefill);
  state.disk.observe(seen.disk);

  const Prompt& prompt = seen.prompt;
  if (prompt.n_disk == 0 || !costs.has_prefill() || !costs.has_disk()) return decision;
  const u32 there = prompt.n_memory + prompt.n_disk;
  const f64 faster = state.prefill.factor;
  const f64 rest_s = faster * costs.prefill_s(there, std::max(there, prompt.n_tokens));
  const f64 read_s = state.disk.factor * costs.load_s(prompt.n_requests, prompt.n_bytes);
  decision.load_s = std::max(read_s, rest_s);  // a layer is read while the one before it computes
  decision.compute_s = faster * costs.prefill_s(prompt.n_memory, there) + rest_s;
  const f64 now_s = state.loads ? decision.load_s : decision.compute_s;
  const f64 other_s = state.loads ? decision.compute_s : decision.load_s;
  state.n_held = std::min(state.n_held + 1, State::kDecisionsHeld);
  if (other_s * kWorthwhile < now_s && state.n_held == State::kDecisionsHeld) {
    state.loads = !state.loads;
    state.n_held = 0;
  }
  decision.loads = state.loads;
  return decision;
}

ChunkDecision decide_chunks(const Costs& costs, const ChunkPrompt& prompt, const State* state) {
  if (!costs.has_prefill() || !costs.has_disk())
    return {.share = prompt.least, .least = prompt.least};
  const f64 disk = state != nullptr ? state->disk.factor : 1;
  const f64 compute = state != nullptr ? state->prefill.factor : 1;
  const f64 load_s = disk * costs.load_s(prompt.n_requests, prompt.n_bytes);
  const f64 prefill_s = compute * costs.prefill_s(0, prompt.n_tokens);
  return {.share = recompute_share(prompt.least, load_s, prefill_s),
          .least = prompt.least,
          .load_s = load_s,
          .prefill_s = prefill_s};
}

// A row anywhere in the prompt attends to half of it on average. Of a prompt's rows the last layer
// computes K and V alone, so each layer in front of it takes more than the average.
f64 blended_rows_s(const Costs& costs, const BlendPrompt& prompt) {
  const auto layer_s = [&](f64 n_rows) {
    const f64 n_steps = std::max<f64>(prompt.n_chunks, std::ceil(n_rows / costs.rows_max));
    return costs.layer_s * n_steps + n_rows * (costs.token_s + costs.squared_s * prompt.n_tokens);
  };
  const f64 n_layers = costs.n_layers, n_check_layers = prompt.n_check_layers;
  const f64 of_check = n_check_layers * n_layers / std::max(1.0, n_layers - 1);
  const u32 n_others = prompt.n_tokens - prompt.n_there - prompt.n_chunk_tokens;
  return of_check * layer_s(prompt.n_checked) +
         n_layers * layer_s(prompt.share * prompt.n_chunk_tokens + n_others);
}

}  // namespace tarn::control
