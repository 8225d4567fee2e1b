#include "tools/tarn/generation.h"

#include <unistd.h>

#include <cstdio>

#include "tools/support/alloc_counter.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

// Says how far the prefill is, on a terminal.
void show_prefill(tarn_session* session) {
  tarn_session_info info = TARN_INIT(tarn_session_info);
  check_api(tarn_session_info_get(session, &info));
  std::fprintf(stderr, "\rreading %llu of %llu tokens ",
               static_cast<unsigned long long>(info.n_computed),
               static_cast<unsigned long long>(info.n_tokens));
}

void take(const tarn_event& event, bool stream, GenerationResult& result) {
  switch (event.type) {
    case TARN_EVENT_TOKEN:
      result.tokens.push_back(event.token);
      break;
    case TARN_EVENT_TEXT:
      result.text.append(event.text, event.text_bytes);
      if (!stream) break;
      std::fwrite(event.text, 1, event.text_bytes, stdout);
      std::fflush(stdout);
      break;
    default:
      result.finish = event.finish;
      result.prefill_s = static_cast<f64>(event.prefill_ns) * 1e-9;
      result.decode_s = static_cast<f64>(event.decode_ns) * 1e-9;
      break;
  }
}

void read_events(tarn_session* session, bool stream, GenerationResult& result) {
  constexpr int32_t kQuietMs = 500;  // a prefill that takes longer shows its progress
  const bool on_terminal = stream && isatty(STDERR_FILENO) != 0;
  bool shows_progress = false;
  tarn_event event = TARN_INIT(tarn_event);
  do {
    const int32_t status = tarn_session_poll(session, kQuietMs, &event);
    if (status == TARN_WOULD_BLOCK) {
      if (!on_terminal || !result.tokens.empty()) continue;
      shows_progress = true;
      show_prefill(session);
      continue;
    }
    check_api(status);
    if (shows_progress) std::fprintf(stderr, "\r%40s\r", "");
    shows_progress = false;
    take(event, stream, result);
  } while (event.type != TARN_EVENT_DONE);
  if (event.status != TARN_OK) {
    throw_ended_early(static_cast<Status>(event.status));
  }
}

}  // namespace

ApiSession::ApiSession(tarn_engine* engine) { check_api(tarn_session_create(engine, &session_)); }

ApiSession ApiSession::fork_of(const ApiSession& source) {
  tarn_session* copy = nullptr;
  check_api(tarn_session_fork(source.get(), &copy));
  return ApiSession(copy);
}

f64 GenerationResult::prefill_tokens_per_s() const {
  return prefill_s > 0 ? static_cast<f64>(n_prompt_tokens) / prefill_s : 0;
}

f64 GenerationResult::decode_tokens_per_s() const {
  return decode_s > 0 ? static_cast<f64>(tokens.size() - 1) / decode_s : 0;
}

GenerationResult generate(const ApiSession& session, const std::vector<u32>& prompt,
                          const tarn_generate_options& options, bool stream) {
  constexpr size_t kTextBytesATokenMax = 64;
  GenerationResult result;
  result.n_prompt_tokens = prompt.size();
  // Room for everything before the first token, so that what is counted below is the engine's.
  result.tokens.reserve(options.max_tokens);
  result.text.reserve(options.max_tokens * kTextBytesATokenMax);
  const AllocScope scope;
  check_api(tarn_session_feed(session.get(), prompt.data(), prompt.size()));
  check_api(tarn_session_generate(session.get(), &options));
  read_events(session.get(), stream, result);
  const AllocCounts counts = scope.so_far();  // before the counter is tried, which takes one itself
  if (alloc_counter_works()) result.n_allocations = counts.n_allocations + counts.n_maps;
  return result;
}

}  // namespace tarn::tools
