// Goal    tarn_chunks.h: parts as texts or ids, with the tokens that each has alone; placed and
//         computed tokens are told; a sentence for each bad input, which changes nothing.
// Method  a small random model; the same parts as text and as ids; a table of what is refused, and
//         of a word that the sentence must have.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/tarn_chat.h"
#include "runtime/api/tarn_chunks.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"

namespace tarn::chunks_test {
namespace {

using test::Host;
using test::SmallModel;
using test::tokens_of;

constexpr const char* kToml = "kv.context_tokens = 1024\nkv.page_tokens = 16\n";

tarn_part part(std::string_view text, bool is_chunk) {
  tarn_part own = TARN_INIT(tarn_part);
  own.is_chunk = is_chunk ? 1 : 0;
  own.text = text.data();
  own.text_bytes = text.size();
  return own;
}
tarn_part part(const std::vector<u32>& ids, bool is_chunk) {
  tarn_part own = TARN_INIT(tarn_part);
  own.is_chunk = is_chunk ? 1 : 0;
  own.ids = ids.data();
  own.n_ids = ids.size();
  return own;
}

std::vector<u32> encoded(const Host& host, std::string_view text, u32 flags) {
  std::vector<u32> ids(1024);
  u64 n = 0;
  REQUIRE(tarn_tokenize(host.engine, text.data(), text.size(), flags, ids.data(), ids.size(), &n) ==
          TARN_OK);
  ids.resize(n);
  return ids;
}

int32_t feed(tarn_session* session, const std::vector<tarn_part>& parts, float recompute,
             u32 flags = 0) {
  return tarn_session_feed_parts(session, parts.data(), static_cast<u32>(parts.size()), recompute,
                                 flags);
}

const std::string kFirst = "the baker's bread is in the oven, and the oven is hot as ever";
const std::string kSecond = "a river runs through the valley </s> to the sea, and never stops";

}  // namespace

TEST_CASE("parts have the tokens that each has alone, as text or as ids, and the same answer") {
  const SmallModel model("llama", "q8_0");
  Host host(model.path(), kToml);
  const auto bos = encoded(host, "", TARN_ADD_SPECIAL);
  const auto first = encoded(host, kFirst, 0), second = encoded(host, kSecond, 0);
  const auto question = encoded(host, "where?", 0);
  std::vector<u32> all = bos;
  for (const auto* each : {&first, &second, &question})
    all.insert(all.end(), each->begin(), each->end());
  for (const float recompute : {TARN_RECOMPUTE_AUTO, 0.0f, 0.3f, 1.0f}) {
    CAPTURE(recompute);
    const auto as_text = host.session(), as_ids = host.session();
    REQUIRE(feed(as_text, {part(kFirst, true), part(kSecond, true), part("where?", false)},
                 recompute, TARN_ADD_SPECIAL | TARN_PARSE_SPECIAL) == TARN_OK);
    REQUIRE(feed(as_ids,
                 {part(bos, false), part(first, true), part(second, true), part(question, false)},
                 recompute) == TARN_OK);
    CHECK(tokens_of(as_text) == all);
    CHECK(tokens_of(as_ids) == all);
    const test::Answer one = test::run(as_text, 6), other = test::run(as_ids, 6);
    CHECK(one.tokens == other.tokens);
    CHECK(one.logprobs == other.logprobs);
    const bool blends = recompute >= 0 && recompute < 1;
    const u64 n_placed = (second.size() + 1) / 16 * 16 - 1;  // the first stands at its own prefix
    CHECK(one.done.n_placed + one.done.n_recomputed == (blends ? n_placed : 0));
    CHECK(one.done.n_recomputed ==
          (blends ? static_cast<u32>(recompute * static_cast<float>(n_placed)) : 0));
    tarn_session_destroy(as_text);
    tarn_session_destroy(as_ids);
  }
}

TEST_CASE("chunks in a message have the tokens that they have elsewhere") {
  const SmallModel model("llama", "q8_0");
  Host host(model.path(), kToml, "chatml");
  const std::string begin = TARN_CHUNK_BEGIN, end = TARN_CHUNK_END;
  const auto messages = [](const std::string& content) {
    return R"([{"role": "user", "content": ")" + content + R"("}])";
  };
  const std::string two =
      messages("Read: " + begin + kFirst + end + "\\n" + begin + kSecond + end + "\\nWhere?");
  const auto feed_chat = [&](tarn_session* session, const std::string& json, int32_t has_chunks,
                             float recompute) {
    tarn_chat_options options = TARN_INIT(tarn_chat_options);
    options.has_chunks = has_chunks;
    options.recompute = recompute;
    return tarn_session_feed_chat(session, json.data(), json.size(), &options);
  };
  const auto first = encoded(host, kFirst, 0), second = encoded(host, kSecond, 0);
  const auto placed_of = [](const std::vector<u32>& ids) { return (ids.size() + 1) / 16 * 16 - 1; };
  tarn_session *const placed = host.session(), *const whole = host.session();
  REQUIRE(feed_chat(placed, two, 1, 0) == TARN_OK);
  REQUIRE(feed_chat(whole, two, 1, 1) == TARN_OK);
  const std::vector<u32> ids = tokens_of(placed);
  CHECK(ids == tokens_of(whole));
  for (const auto* chunk : {&first, &second})
    CHECK(std::search(ids.begin(), ids.end(), chunk->begin(), chunk->end()) != ids.end());
  const test::Answer answer = test::run(placed, 6);
  CHECK(answer.done.n_placed == placed_of(first) + placed_of(second));
  CHECK(test::run(whole, 6).done.n_placed == 0);

  // The next turn keeps what was blended, and blends what is new.
  const std::string more = two.substr(0, two.size() - 1) + R"(, {"role": "user", "content": ")" +
                           begin + kSecond + end + R"( again"}])";
  REQUIRE(feed_chat(placed, more, 1, 0) == TARN_OK);
  const test::Answer next = test::run(placed, 6);
  CHECK(next.done.reused_from_memory > placed_of(first) + placed_of(second));
  CHECK(next.done.n_placed == placed_of(second));

  // Of nothing but a mark, and of nothing, BOS is left.
  const Host plain(model.path(), kToml, "{{ messages[0].content }}");
  for (const std::string& content : {std::string(), end, end + "a", begin + kFirst + end}) {
    CAPTURE(content);
    tarn_session* const session = const_cast<Host&>(plain).session();
    const int32_t status = feed_chat(session, messages(content), 1, 0);
    if (content.empty()) {
      CHECK(status == TARN_INVALID_REQUEST);  // the template writes nothing
      continue;
    }
    REQUIRE(status == TARN_OK);
    const auto got = tokens_of(session);
    REQUIRE(!got.empty());
    CHECK(got.front() == encoded(host, "", TARN_ADD_SPECIAL).front());
  }

  // Without chunks the marks are characters.
  REQUIRE(feed_chat(whole, two, 0, 0) == TARN_OK);
  CHECK(tokens_of(whole).size() > ids.size());
  CHECK(feed_chat(whole, two, 1, 2) == TARN_INVALID_REQUEST);
  CHECK(std::string(tarn_error_text()).find("share") != std::string::npos);
}

TEST_CASE("what is refused has a sentence, and leaves the session as it was") {
  const SmallModel model("llama", "q8_0");
  Host host(model.path(), kToml);
  tarn_session* const session = host.session();
  const std::vector<u32> bad_id = {5000}, none;
  const std::string long_text(8000, 'x');
  tarn_part later = part("a", true), unsized = part("a", true), no_text = part("a", true);
  later.struct_size = 0;
  unsized.struct_size = 3;
  no_text.text = nullptr;
  no_text.text_bytes = 3;
  struct Case {
    std::vector<tarn_part> parts;
    float recompute;
    u32 flags;
    const char* word;
  };
  const Case cases[] = {
      {{part("", true)}, 0.5f, 0, "empty"},
      {{part("a", false), part(none, true)}, 0.5f, 0, "empty"},
      {{part("a", true)}, 1.5f, 0, "share"},
      {{part("a", true)}, -0.5f, 0, "share"},
      {{part("a", true)}, std::nanf(""), 0, "share"},
      {{part("a", true)}, 0.5f, 64, "flags"},
      {{part(bad_id, true)}, 0.5f, 0, "vocabulary"},
      {{part(long_text, true)}, 0.5f, 0, "-c"},
      {{later}, 0.5f, 0, "TARN_INIT"},
      {{unsized}, 0.5f, 0, "TARN_INIT"},
      {{no_text}, 0.5f, 0, "NULL"},
  };
  REQUIRE(tarn_session_feed_text(session, "bread", 5, 0) == TARN_OK);
  const auto before = tokens_of(session);
  for (const Case& each : cases) {
    CAPTURE(each.word);
    CHECK(feed(session, each.parts, each.recompute, each.flags) == TARN_INVALID_REQUEST);
    const std::string text = tarn_error_text();
    CAPTURE(text);
    CHECK(text.find(each.word) != std::string::npos);
    CHECK(tokens_of(session) == before);
  }
  CHECK(tarn_session_feed_parts(session, nullptr, 2, 0.5f, 0) == TARN_INVALID_REQUEST);
  CHECK(tarn_session_feed_parts(session, nullptr, 0, 0.5f, 0) == TARN_OK);
}

TEST_CASE("more chunks than a session can have are refused by name") {
  const SmallModel model("llama", "q8_0");
  Host host(model.path(), "kv.context_tokens = 4096\nkv.page_tokens = 16\n");
  tarn_session* const session = host.session();
  const std::vector<u32> ids(20, 7);
  std::vector<tarn_part> parts(129, part(ids, true));
  CHECK(feed(session, parts, 0.5f) == TARN_INVALID_REQUEST);
  CHECK(std::string(tarn_error_text()).find("128") != std::string::npos);
  parts.pop_back();
  CHECK(feed(session, parts, 0.5f) == TARN_OK);
}

TEST_CASE("without prefix reuse chunks are computed, and a share of less than all is refused") {
  const SmallModel model("llama", "q8_0");
  Host host(model.path(), "kv.context_tokens = 512\nreuse.prefix = false\n");
  tarn_session* const session = host.session();
  CHECK(feed(session, {part("a", false), part(kFirst, true)}, 0.5f) == TARN_UNSUPPORTED);
  CHECK(std::string(tarn_error_text()).find("reuse.prefix") != std::string::npos);
  CHECK(feed(session, {part("a", false), part(kFirst, true)}, 1.0f) == TARN_OK);
  CHECK(feed(session, {part("a", false), part(kFirst, true)}, TARN_RECOMPUTE_AUTO) == TARN_OK);
}

}  // namespace tarn::chunks_test
