#include "tools/tarn/generation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "runtime/api/tarn_chunks.h"
#include "tools/support/alloc_counter.h"
#include "tools/support/exit_code.h"
#include "tools/support/json.h"
#include "tools/support/shown_answer.h"

namespace tarn::tools {
namespace {

f64 now_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<f64>(now).count();
}

tarn_session_info info_of(tarn_session* session) {
  tarn_session_info info = TARN_INIT(tarn_session_info);
  check_api(tarn_session_info_get(session, &info));
  return info;
}

// Ends the last line of a streamed answer, also of one that fails.
class LineEnd {
 public:
  LineEnd(const GenerateHow& how, const std::string& text) : how_(how), text_(text) {}
  LineEnd(const LineEnd&) = delete;
  LineEnd& operator=(const LineEnd&) = delete;
  ~LineEnd() {
    if (how_.stream) end_line(text_, how_.ends_line);
  }

 private:
  const GenerateHow& how_;
  const std::string& text_;
};

void take(const tarn_event& event, bool stream, GenerationResult& result) {
  switch (event.type) {
    case TARN_EVENT_TOKEN:
      result.tokens.push_back(event.token);
      break;
    case TARN_EVENT_TEXT:
      result.text.append(event.text, event.text_bytes);
      if (stream) print_answer(std::string_view(event.text, event.text_bytes));
      break;
    default:
      result.finish = event.finish;
      result.prefill_s = seconds_of(event.prefill_ns);
      result.decode_s = seconds_of(event.decode_ns);
      result.n_select_steps = event.select_steps;
      result.kv_read_ratio = event.kv_read_ratio;
      result.n_reused_from_memory = event.reused_from_memory;
      result.n_reused_from_disk = event.reused_from_disk;
      result.n_placed = event.n_placed;
      result.n_recomputed = event.n_recomputed;
      break;
  }
}

std::vector<tarn_part> parts_of(const Passages& passages, const std::vector<u32>& prompt) {
  std::vector<tarn_part> parts;
  const auto add = [&](const std::vector<u32>& ids, bool is_chunk) {
    tarn_part part = TARN_INIT(tarn_part);
    part.is_chunk = is_chunk ? 1 : 0;
    part.ids = ids.data();
    part.n_ids = ids.size();
    parts.push_back(part);
  };
  if (!passages.begin.empty()) add(passages.begin, false);
  for (const auto& chunk : passages.chunks) add(chunk, true);
  if (!prompt.empty()) add(prompt, false);
  return parts;
}

void show_generated(Progress& progress, u64 n_tokens, u32 n_tokens_max) {
  if (n_tokens == 0 || !progress.is_due()) return;
  char text[64];
  int n = std::snprintf(text, sizeof text, "answering: %llu",
                        static_cast<unsigned long long>(n_tokens));
  if (n_tokens_max > 0) {
    n += std::snprintf(text + n, sizeof text - static_cast<size_t>(n), " of at most %u",
                       n_tokens_max);
  }
  std::snprintf(text + n, sizeof text - static_cast<size_t>(n), " tokens");
  progress.print(text);
}

void read_events(tarn_session* session, const GenerateHow& how, u32 n_tokens_max,
                 GenerationResult& result) {
  constexpr int32_t kLookMs = 100;
  PrefillProgress progress(info_of(session).n_computed);
  Progress answering;  // nothing else of an unstreamed answer is seen
  tarn_event event = TARN_INIT(tarn_event);
  do {
    if (how.stop != nullptr && how.stop()) {
      result.was_stopped = true;
      return;
    }
    const int32_t status = tarn_session_poll(session, kLookMs, &event);
    if (status == TARN_WOULD_BLOCK) {
      if (result.tokens.empty()) progress.show(info_of(session));
      continue;
    }
    check_api(status);
    progress.clear();
    take(event, how.stream, result);
    if (!how.stream) show_generated(answering, result.tokens.size(), n_tokens_max);
  } while (event.type != TARN_EVENT_DONE);
  if (event.status != TARN_OK) {
    throw_ended_early(static_cast<Status>(event.status));
  }
}

// Ends like a generation at max_tokens.
void only_read(const ApiSession& session, const GenerateHow& how, GenerationResult& result) {
  const f64 begin_s = now_s();
  result.was_stopped = !wait_computed(session, how.stop);
  result.finish = TARN_FINISH_LENGTH;
  result.prefill_s = now_s() - begin_s;
}

}  // namespace

void PrefillProgress::show(const tarn_session_info& info) {
  constexpr u64 kTellsFromNs = 10'000'000'000;
  const u64 n_done = info.n_computed - std::min(info.n_computed, n_computed_at_start_);
  if (n_done == 0 || info.prefill_left_ns == 0) return;
  const bool tells = !is_told_ && n_done >= kTimeToldTokens && info.prefill_left_ns >= kTellsFromNs;
  is_told_ = is_told_ || n_done >= kTimeToldTokens;
  if (!tells && !progress_.is_due()) return;
  char text[96];
  std::snprintf(text, sizeof text, "reading %llu of %llu tokens, %.0f s left",
                static_cast<unsigned long long>(info.n_computed),
                static_cast<unsigned long long>(info.n_tokens),
                static_cast<f64>(info.prefill_left_ns) * 1e-9);
  progress_.print(text);
}

bool wait_computed(const ApiSession& session, bool (*stop)()) {
  constexpr int32_t kLookMs = 20;
  PrefillProgress progress(info_of(session.get()).n_computed);
  for (;;) {
    const int32_t status = tarn_session_wait(session.get(), kLookMs);
    if (status == TARN_OK) return true;
    if (status != TARN_WOULD_BLOCK) check_api(status);
    if (stop != nullptr && stop()) return false;
    progress.show(info_of(session.get()));
  }
}

ApiSession::ApiSession(tarn_engine* engine) {
  check_api(tarn_session_create(engine, nullptr, &session_));
}

ApiSession ApiSession::fork_of(const ApiSession& source) {
  tarn_session* copy = nullptr;
  check_api(tarn_session_fork(source.get(), &copy));
  return ApiSession(copy);
}

f64 GenerationResult::prefill_tokens_per_s() const {
  const u64 n_reused = n_reused_from_memory + n_reused_from_disk;
  const bool timed = n_prompt_tokens > n_reused && prefill_s > 0;
  return timed ? static_cast<f64>(n_prompt_tokens - n_reused) / prefill_s : NAN;
}

u64 Passages::n_tokens() const {
  u64 n = begin.size();
  for (const auto& chunk : chunks) n += chunk.size();
  return n;
}

f64 GenerationResult::decode_tokens_per_s() const {
  const bool timed = tokens.size() > 1 && decode_s > 0;
  return timed ? static_cast<f64>(tokens.size() - 1) / decode_s : NAN;
}

void cancel(const ApiSession& session) {
  check_api(tarn_session_cancel(session.get()));
  tarn_event event = TARN_INIT(tarn_event);
  while (event.type != TARN_EVENT_DONE) check_api(tarn_session_poll(session.get(), -1, &event));
}

GenerationResult generate(const ApiSession& session, const std::vector<u32>& prompt,
                          const tarn_generate_options& options, const GenerateHow& how) {
  constexpr size_t kTextBytesATokenMax = 64;
  GenerationResult result;
  result.n_prompt_tokens = prompt.size();
  if (how.passages != nullptr) {
    result.n_prompt_tokens += how.passages->n_tokens();
    result.recompute = how.passages->recompute;
  }
  // Reserves all room before the first token, so that the count below is the engine's.
  result.tokens.reserve(options.max_tokens);
  result.text.reserve(options.max_tokens * kTextBytesATokenMax);
  const auto parts =
      how.passages != nullptr ? parts_of(*how.passages, prompt) : std::vector<tarn_part>{};
  const AllocScope scope;
  if (how.passages != nullptr) {
    check_api(tarn_session_feed_parts(session.get(), parts.data(), static_cast<u32>(parts.size()),
                                      how.passages->recompute, 0));
  } else if (!prompt.empty()) {
    check_api(tarn_session_feed(session.get(), prompt.data(), prompt.size()));
  }
  if (how.only_reads) {
    only_read(session, how, result);
  } else {
    tarn_generate_options silent = options;
    silent.no_logprobs = 1;  // nothing here prints them
    check_api(tarn_session_generate(session.get(), &silent));
    const LineEnd line_end(how, result.text);
    read_events(session.get(), how, options.max_tokens, result);
  }
  check_api(tarn_session_explain(session.get(), &result.explanation));
  const AllocCounts counts = scope.so_far();  // before the test of the counter, which allocates
  if (alloc_counter_works()) result.n_allocations = counts.n_allocations + counts.n_maps;
  return result;
}

}  // namespace tarn::tools
