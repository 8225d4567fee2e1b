// A host of the C API: an engine on a small model, and whole answers of a session.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "platform/base/types.h"
#include "runtime/api/tarn.h"

namespace tarn::test {

struct Host {
  explicit Host(const std::string& path, const char* toml = "kv.context_tokens = 512\n",
                const char* chat_template = nullptr) {
    tarn_options options = TARN_INIT(tarn_options);
    options.model_path = path.c_str();
    options.config_toml = toml;
    options.chat_template = chat_template;
    options.budget_bytes = 1ull << 30;
    options.log = [](void* self, int32_t, const char* line) {
      static_cast<Host*>(self)->log += std::string(line) + "\n";
    };
    options.log_context = this;
    options.log_level = 1;
    options.fatal = [](void* self, const char*, const char*, uint32_t) {
      ++static_cast<Host*>(self)->n_fatal;
    };
    options.fatal_context = this;
    const int32_t status = tarn_open(&options, &engine);
    if (status != TARN_OK) FAIL(std::string(tarn_error_text()));
  }
  ~Host() { tarn_close(engine); }
  tarn_session* session() {
    tarn_session* session = nullptr;
    REQUIRE(tarn_session_create(engine, nullptr, &session) == TARN_OK);
    return session;
  }
  tarn_engine* engine = nullptr;
  int n_fatal = 0;
  std::string log;  // written on the engine's thread
};

inline std::vector<u32> tokens_of(tarn_session* session) {
  std::vector<u32> ids(8192);
  u64 n = 0;
  REQUIRE(tarn_session_tokens(session, 0, ids.data(), ids.size(), &n) == TARN_OK);
  ids.resize(n);
  return ids;
}

struct Answer {
  std::vector<u32> tokens;
  std::vector<float> logprobs;
  std::string text;
  tarn_event done = TARN_INIT(tarn_event);
};

inline Answer run(tarn_session* session, u32 n_tokens, bool wants_logprobs = true) {
  Answer answer;
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = n_tokens;
  options.ignore_end = 1;
  options.no_logprobs = wants_logprobs ? 0 : 1;
  REQUIRE(tarn_session_run(
              session, &options,
              [](void* context, const tarn_event* event) -> int32_t {
                auto& a = *static_cast<Answer*>(context);
                if (event->type == TARN_EVENT_TOKEN) {
                  a.tokens.push_back(event->token);
                  a.logprobs.push_back(event->logprob);
                }
                if (event->type == TARN_EVENT_TEXT) {
                  a.text.append(event->text, event->text_bytes);
                }
                if (event->type == TARN_EVENT_DONE) a.done = *event;
                return 0;
              },
              &answer) == TARN_OK);
  return answer;
}

}  // namespace tarn::test
