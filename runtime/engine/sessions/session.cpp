#include "runtime/engine/sessions/session.h"

#include <array>
#include <tuple>

namespace tarn::engine {

void Session::reset(const text::Tokenizer& tokenizer, u64 now) {
  state = SessionState::idle;
  cancel.store(false);
  tokens.reset();
  run.reset(now);
  load.reset();
  approx.reset();
  generation.begin({}, tokenizer);
  generation.fed_ns = 0;
  generation.reused = {};
  last_error = {};
  watch = {};
}

void Session::copy_from(const Session& source) {
  client = source.client;
  tokens.copy_from(source.tokens);
  run.copy_from(source.run);
  approx.copy_from(source.approx);
  saved.tenant = source.saved.tenant;
  last_error = source.last_error;
}

void Session::truncate(u32 n) {
  cut_tokens(n);
  tokens.n_settled = n;
  run.truncate(n);
  generation.reused.bound(n);
  saved.n_slots = std::min(saved.n_slots, n);
  saved.ask_more();
  last_error = {};
}

void Session::end_cancelled(Finish reason, const GenerationScratch& scratch) {
  if (generation.n_generated == 0 || state == SessionState::computing)
    cut_tokens(std::max(sequence.n_slots(), tokens.n_settled));
  if (state == SessionState::generating) finish(reason, nullptr, scratch);
  rest();
  cancel.store(false);
}

void Session::finish(Finish reason, const Error* error, const GenerationScratch& scratch) {
  generation.finish(reason, error, scratch);
  rest();
  saved.stop(/*has_answer=*/generation.n_generated > 0);
}

void Session::give_up(const Error& error, const Log& log, const GenerationScratch& scratch) {
  std::array<char, 512> text{};
  format_error(error, text.data(), text.size());
  log.warning("session %u: %s", idx, text.data());
  last_error = {error.status, error.reason, error.hint, error.figures};
  if (state == SessionState::generating) return finish(Finish::error, &error, scratch);
  rest();
  generation.fed_ns = 0;
}

bool comes_before(const Session& a, const Session& b) {
  const auto rank = [](const Session& s) {
    return std::tuple(s.client.priority, !s.has_begun(), s.run.order);
  };
  return rank(a) < rank(b);
}

}  // namespace tarn::engine
