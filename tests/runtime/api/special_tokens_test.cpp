// Goal    a file that adds BOS and EOS: a text that is fed has BOS in front and no EOS behind it,
//         on every path; tarn_tokenize adds both. BOS twice is told once.
// Method  a small random model whose file adds both; one table of what is fed, and its ids.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/tarn_chat.h"
#include "runtime/api/tarn_chunks.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"

namespace tarn::special_tokens_test {
namespace {

using test::Host;
using test::SmallModel;
using test::tokens_of;
using Ids = std::vector<u32>;

constexpr u32 kBos = 1, kEos = 2;
constexpr u32 kBoth = TARN_ADD_SPECIAL | TARN_PARSE_SPECIAL;

// Sets a boolean that the file has, or fails.
void set_true(const std::string& path, const std::string& key) {
  std::FILE* const file = std::fopen(path.c_str(), "r+b");
  REQUIRE(file != nullptr);
  std::string head(size_t{1} << 20, '\0');
  head.resize(std::fread(head.data(), 1, head.size(), file));
  const size_t at = head.find(key);
  REQUIRE(at != std::string::npos);
  const size_t value_at = at + key.size() + 4;  // behind the type
  std::fseek(file, static_cast<long>(value_at), SEEK_SET);
  std::fputc(1, file);
  std::fclose(file);
}

struct World {
  World() : model("llama", "f16") {
    set_true(model.path(), "tokenizer.ggml.add_bos_token");
    set_true(model.path(), "tokenizer.ggml.add_eos_token");
  }
  SmallModel model;
};

Ids encoded(const Host& host, std::string_view text, u32 flags) {
  Ids ids(1024);
  u64 n = 0;
  REQUIRE(tarn_tokenize(host.engine, text.data(), text.size(), flags, ids.data(), ids.size(), &n) ==
          TARN_OK);
  ids.resize(n);
  return ids;
}

u32 n_told(const Host& host) {
  u32 n = 0;
  for (size_t at = host.log.find("BOS twice"); at != std::string::npos; ++n)
    at = host.log.find("BOS twice", at + 1);
  return n;
}

Ids with(Ids before, const Ids& ids, const Ids& behind = {}) {
  before.insert(before.end(), ids.begin(), ids.end());
  before.insert(before.end(), behind.begin(), behind.end());
  return before;
}

tarn_part part(std::string_view text, bool is_chunk) {
  tarn_part own = TARN_INIT(tarn_part);
  own.is_chunk = is_chunk ? 1 : 0;
  own.text = text.data();
  own.text_bytes = text.size();
  return own;
}

TEST_CASE("what is fed has no EOS behind it, and tarn_tokenize adds what the file says") {
  const World world;
  Host host(world.model.path());
  const Ids words = encoded(host, "the baker", 0);
  CHECK(encoded(host, "the baker", TARN_ADD_SPECIAL) == with({kBos}, words, {kEos}));
  CHECK(encoded(host, "the baker", TARN_ADD_BOS) == with({kBos}, words));
  CHECK(encoded(host, "", TARN_ADD_SPECIAL) == Ids{kBos, kEos});
  CHECK(encoded(host, "", TARN_ADD_BOS) == Ids{kBos});

  struct Feed {
    const char* text;
    u32 flags;
    Ids want;
  };
  const Feed feeds[] = {
      {"the baker", 0, words},
      {"the baker", TARN_ADD_SPECIAL, with({kBos}, words)},
      {"the baker", TARN_ADD_BOS, with({kBos}, words)},
      {"the baker", TARN_ADD_SPECIAL | TARN_ADD_BOS, with({kBos}, words)},
      {"", TARN_ADD_SPECIAL, {kBos}},
      {"</s>", kBoth, {kBos, kEos}},  // the caller's own stays
  };
  for (const Feed& feed : feeds) {
    CAPTURE(feed.text);
    CAPTURE(feed.flags);
    tarn_session* const fed = host.session();
    REQUIRE(tarn_session_feed_text(fed, feed.text, std::string_view(feed.text).size(),
                                   feed.flags) == TARN_OK);
    CHECK(tokens_of(fed) == feed.want);
    tarn_session_destroy(fed);
  }
  for (const bool begins_with_chunk : {false, true}) {
    CAPTURE(begins_with_chunk);
    tarn_session* const fed = host.session();
    const tarn_part parts[] = {part("the baker", begins_with_chunk), part("the baker", true),
                               part("the baker", false)};
    REQUIRE(tarn_session_feed_parts(fed, parts, 3, 1, TARN_ADD_SPECIAL) == TARN_OK);
    CHECK(tokens_of(fed) == with(with({kBos}, words), words, words));
    tarn_session_destroy(fed);
  }
  CHECK(n_told(host) == 0);
}

TEST_CASE("BOS twice is told once, and the ids stay as they were written") {
  const World world;
  const char* const written = "<s>the baker";
  for (const bool as_parts : {false, true}) {
    CAPTURE(as_parts);
    Host host(world.model.path());
    const Ids words = encoded(host, "the baker", 0);
    CHECK(encoded(host, written, kBoth) == with({kBos, kBos}, words, {kEos}));
    CHECK(n_told(host) == 0);  // no prompt
    for (u32 round = 1; round <= 2; ++round) {
      tarn_session* const fed = host.session();
      const tarn_part parts[] = {part(written, false), part("the baker", true)};
      if (as_parts) {
        REQUIRE(tarn_session_feed_parts(fed, parts, 2, 1, kBoth) == TARN_OK);
      } else {
        REQUIRE(tarn_session_feed_text(fed, written, std::string_view(written).size(), kBoth) ==
                TARN_OK);
      }
      CHECK(tokens_of(fed)[0] == kBos);
      CHECK(tokens_of(fed)[1] == kBos);
      CHECK(tokens_of(fed)[2] != kBos);
      CHECK(n_told(host) == 1);
    }
  }
}

TEST_CASE("a template that writes BOS, or does not: one BOS, no EOS, nothing told") {
  const World world;
  const char* const messages = R"([{"role": "user", "content": "the baker"}])";
  for (const char* source :
       {"{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"}) {
    CAPTURE(source);
    Host host(world.model.path(), "kv.context_tokens = 512\n", source);
    tarn_session* const fed = host.session();
    REQUIRE(tarn_session_feed_chat(fed, messages, std::string_view(messages).size(), nullptr) ==
            TARN_OK);
    CHECK(tokens_of(fed) == with({kBos}, encoded(host, "the baker", 0)));
    CHECK(n_told(host) == 0);
  }
}

}  // namespace
}  // namespace tarn::special_tokens_test
