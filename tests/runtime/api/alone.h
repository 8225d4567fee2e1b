// The oracle of many callers: an engine with room for all, and one session at a time.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/api/tarn_chat.h"
#include "tests/runtime/api/host.h"
#include "tests/runtime/api/told_tokens.h"

namespace tarn::test {

class Alone {
 public:
  Alone(const std::string& model, const std::string& toml) : host_(model, toml.c_str(), "chatml") {}

  // What the same history says, as far as the answer went.
  bool says_the_same(const Heard& answer) {
    tarn_session* const session = host_.session();
    REQUIRE(tarn_session_feed(session, answer.base.data(), answer.base.size()) == TARN_OK);
    tarn_generate_options options = answer.options;
    options.deadline_ms = 0;
    const int32_t finish = answer.done.finish;
    const bool ends_by_itself = finish == TARN_FINISH_END || finish == TARN_FINISH_STOP;
    if (!ends_by_itself) options.max_tokens = answer.done.n_tokens;
    Heard alone;
    const int32_t status = tarn_session_run(session, &options, take, &alone);
    tarn_session_destroy(session);
    CHECK(status == TARN_OK);
    CHECK(alone.done.finish == (ends_by_itself ? finish : TARN_FINISH_LENGTH));
    CHECK(alone.text == answer.text);
    CHECK(alone.logprobs == answer.logprobs);
    return alone.tokens == answer.tokens;
  }
  std::vector<u32> ids_of_text(const std::string& text, u32 flags) {
    std::vector<u32> ids(1024);
    u64 n = 0;
    REQUIRE(tarn_tokenize(host_.engine, text.data(), text.size(), flags, ids.data(), ids.size(),
                          &n) == TARN_OK);
    ids.resize(n);
    return ids;
  }
  std::vector<u32> ids_of_chat(const std::string& messages) {
    std::vector<u32> ids(1024);
    std::string text(4096, ' ');
    u64 n = 0, n_text = 0;
    REQUIRE(tarn_chat_render(host_.engine, messages.data(), messages.size(), nullptr, text.data(),
                             text.size(), &n_text, ids.data(), ids.size(), &n) == TARN_OK);
    ids.resize(n);
    return ids;
  }
  tarn_engine* engine() { return host_.engine; }

 private:
  static int32_t take(void* context, const tarn_event* event) {
    static_cast<Heard*>(context)->take(*event);
    return 0;
  }
  Host host_;
};

}  // namespace tarn::test
