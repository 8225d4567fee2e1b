#include "runtime/control/controller.h"

#include <utility>

namespace tarn::control {

void Controller::note_prefill_time(f64 took_s) {
  const f64 predicted_s = std::exchange(prefill_s_, 0.0);
  if (predicted_s > 0) seen_.prefill.add(predicted_s, took_s, took_s);
}

Decision Controller::decide_prompt(u32 n_tokens, u32 n_memory, u32 n_disk) {
  seen_.prompt = {.n_tokens = n_tokens,
                  .n_memory = n_memory,
                  .n_disk = n_disk,
                  .n_requests = n_pages(n_disk) * facts_.page_requests,
                  .n_bytes = n_pages(n_disk) * static_cast<f64>(facts_.page_bytes)};
  const u64 power = seen_.power;
  const Decision decision = decide(facts_.costs, std::exchange(seen_, Observation{}), state_);
  seen_.power = power;
  state_ = decision.state;
  return decision;
}

ChunkDecision Controller::decide_share(u32 n_tokens, u32 n_chunk_tokens, u32 n_on_disk,
                                       f64 least) const {
  const f64 pages = n_pages(facts_.is_adaptive ? n_on_disk : n_chunk_tokens);
  ChunkDecision decision = decide_chunks(facts_.costs,
                                         {.n_tokens = n_tokens,
                                          .n_requests = pages * facts_.page_requests,
                                          .n_bytes = pages * static_cast<f64>(facts_.page_bytes),
                                          .least = least},
                                         facts_.is_adaptive ? &state_ : nullptr);
  decision.n_chunk_tokens = n_chunk_tokens;
  decision.n_on_disk = n_on_disk;
  decision.is_adaptive = facts_.is_adaptive;
  return decision;
}

}  // namespace tarn::control
