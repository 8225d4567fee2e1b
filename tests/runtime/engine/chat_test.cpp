// Goal    feeding a whole conversation computes what is new of it and nothing else. The tokens are
//         those of a session that read it at once. A refused feed leaves the session alone. The log
//         says once which message changed. (Cancels and neighbours: many_callers.)
// Method  conversations of one id a byte, made by hand, so that no template is needed; counted rows
//         of prefill; a pool that other sessions and forks hold.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/runtime/engine/saved_life.h"
#include "tests/support/open_engine.h"

namespace tarn::chat_test {
namespace {

using engine::SessionIdx;
using test::OpenEngine;
using test::random_ids;
using test::small_config;
using test::SmallModel;

// What chat::Conversation borrows.
struct Talk {
  std::vector<u32> ids;
  std::vector<u8> notes;
  chat::Conversation view() const { return {.ids = ids, .notes = notes}; }
};

Talk talk_of(std::vector<u32> ids) { return {.ids = std::move(ids), .notes = {}}; }

std::vector<u32> ids_of(const engine::Engine& engine, SessionIdx idx) {
  const engine::Session& s = engine.sessions().state(idx);
  return {s.tokens.ids.begin(), s.tokens.ids.begin() + s.tokens.n_ids};
}

std::vector<u32> joined(std::vector<u32> a, const std::vector<u32>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The tokens that a session of these ids says next.
std::vector<u32> answer(OpenEngine& open, SessionIdx idx, u32 n = 8) {
  REQUIRE(open.engine.sessions().generate(idx, {.max_tokens = n, .ignore_end = true}).has_value());
  return test::read_all(open.engine, idx).tokens;
}

TEST_CASE("each turn computes its new tokens alone, and says what one long prompt would") {
  const SmallModel model("llama", "q8_0");
  OpenEngine open(model.path(), small_config());
  Talk talk = talk_of({});
  const SessionIdx session = *open.engine.sessions().create();
  for (u32 turn = 0; turn < 12; ++turn) {
    CAPTURE(turn);
    // The answer comes back as its last token but one wrote it: a template need not agree.
    if (turn > 0) talk.ids.pop_back();
    talk.ids = joined(talk.ids, random_ids(turn, 5 + turn));
    const std::vector<u32> before = ids_of(open.engine, session);
    const u64 n_rows = open.engine.status().counters.n_prefill_rows;
    REQUIRE(open.engine.sessions().feed_chat(session, talk.view()).has_value());
    CHECK(ids_of(open.engine, session) == talk.ids);
    const std::vector<u32> got = answer(open, session);
    const u64 n_computed = open.engine.status().counters.n_prefill_rows - n_rows;
    const u64 n_common = before.empty() ? 0 : before.size() - 1;
    CHECK(n_computed == talk.ids.size() - n_common);
    const engine::Session& s = open.engine.sessions().state(session);
    CHECK(s.generation.reused.n_tokens() == n_common);

    OpenEngine other(model.path(), small_config());
    CHECK(answer(other, other.session_with(talk.ids)) == got);
    talk.ids = joined(talk.ids, got);
  }
}

TEST_CASE("a refused conversation leaves the session as it was") {
  const SmallModel model("llama", "f16");
  Config config = small_config();
  config.context_tokens = 256;
  config.sessions_max = 2;
  config.reuse.prefix = false;
  OpenEngine open(model.path(), config);
  const std::vector<u32> first = random_ids(1, 200);
  const SessionIdx session = open.session_with(first);
  open.run();
  const std::vector<u32> said = answer(open, session);
  const std::vector<u32> before = ids_of(open.engine, session);
  const u32 n_slots = open.engine.sessions().state(session).sequence.n_slots();
  const auto is_as_before = [&] {
    return ids_of(open.engine, session) == before &&
           open.engine.sessions().state(session).sequence.n_slots() == n_slots;
  };
  const auto refused = [&](const std::vector<u32>& ids) {
    const Result<void> fed = open.engine.sessions().feed_chat(session, talk_of(ids).view());
    REQUIRE_FALSE(fed.has_value());
    CHECK(is_as_before());
    return fed.error().status;
  };
  std::vector<u32> other = joined(random_ids(1, 50), random_ids(2, 150));
  CHECK(refused(random_ids(1, 257)) == Status::invalid_request);
  other[120] = 1u << 20;  // no token
  CHECK(refused(other) == Status::invalid_request);
  other[120] = 1;
  REQUIRE(
      open.engine.sessions().generate(session, {.max_tokens = 1, .ignore_end = true}).has_value());
  const Result<void> busy = open.engine.sessions().feed_chat(session, talk_of(other).view());
  CHECK(busy.error().status == Status::invalid_request);
  test::read_all(open.engine, session);
  REQUIRE(open.engine.sessions().feed_chat(session, talk_of(other).view()).has_value());
  CHECK(ids_of(open.engine, session) == other);
  REQUIRE(open.engine.sessions().feed_chat(session, talk_of(first).view()).has_value());
  CHECK(answer(open, session) == said);
}

struct Lines {
  std::vector<std::string> lines;
  Log log() {
    return Log(
        [](void* self, LogLevel, const char* text) {
          const std::string line = text;
          if (line.find("conversation") == std::string::npos) return;
          static_cast<Lines*>(self)->lines.push_back(line);
        },
        this, LogLevel::info);
  }
};

// A conversation that the vocabulary writes: one id a piece, "#" and a line's end of the template.
Talk written(OpenEngine& open, const std::vector<std::string>& messages) {
  std::string text;
  std::vector<u8> origins;
  for (u64 i = 0; i < messages.size(); ++i) {
    text += "#" + messages[i] + "\n";
    origins.push_back(chat::kFromTemplate);
    origins.insert(origins.end(), messages[i].size(), chat::origin_of_message(i));
    origins.push_back(chat::kFromTemplate);
  }
  const text::Encoder& encoder = open.engine.text();
  Talk talk;
  talk.ids.resize(encoder.ids_max(text.size()).value());
  const auto n_ids = encoder.encode_whole(text, {.add_special = true}, talk.ids);
  REQUIRE(n_ids.has_value());
  talk.ids.resize(*n_ids);
  talk.notes.resize(*n_ids);
  std::array<char, plan::kPieceBytesMax> piece;
  chat::note_origins({.text = text, .origins = origins}, talk.ids, encoder.tokenizer(), piece,
                     talk.notes);
  return talk;
}

TEST_CASE(
    "each token has its message; what the template wrote has the next one's, at last the last") {
  for (const char* arch : {"llama", "qwen2"}) {
    CAPTURE(std::string(arch));
    const SmallModel model(arch, "f16");
    OpenEngine open(model.path(), small_config());
    const std::vector<u8> origins = written(open, {"bakeri", "somu", "tel"}).notes;
    REQUIRE_FALSE(origins.empty());
    CHECK(origins.front() == chat::origin_of_message(0));
    CHECK(std::ranges::is_sorted(origins));
    CHECK(std::ranges::count(origins, chat::origin_of_message(1)) > 0);
    CHECK(origins.back() == chat::origin_of_message(2));
  }
}

TEST_CASE("the log says once a session which message changed") {
  struct Case {
    const char* name;
    std::vector<std::string> before, after;
    const char* says;  // nullptr: nothing
  };
  const Case cases[] = {
      {"grows", {"bakeri", "somu"}, {"bakeri", "somu", "tel"}, nullptr},
      {"first", {"bakeri", "somu", "tel"}, {"bakeru", "somu", "tel"}, "message 1 "},
      {"second", {"bakeri", "somu", "tel"}, {"bakeri", "xomu", "tel"}, "message 2 "},
      {"last", {"bakeri", "somu", "tel"}, {"bakeri", "somu", "bel"}, "message 3 "},
      {"one fell out", {"bakeri", "somu", "tel"}, {"bakeri", "tel"}, "message 2 "},
  };
  for (const char* arch : {"llama", "qwen2"}) {
    const SmallModel model(arch, "f16");
    Lines lines;
    OpenEngine open(model.path(), small_config(), nullptr, nullptr, lines.log());
    for (const Case& c : cases) {
      CAPTURE(std::string(arch));
      CAPTURE(c.name);
      lines.lines.clear();
      const SessionIdx session = *open.engine.sessions().create();
      const Talk before = written(open, c.before), after = written(open, c.after);
      REQUIRE(open.engine.sessions().feed_chat(session, before.view()).has_value());
      answer(open, session);
      REQUIRE(open.engine.sessions().feed_chat(session, after.view()).has_value());
      CHECK(lines.lines.size() == (c.says == nullptr ? 0 : 1));
      if (c.says != nullptr && !lines.lines.empty()) {
        CHECK(lines.lines[0].find(c.says) != std::string::npos);
      }
      REQUIRE(open.engine.sessions().feed_chat(session, before.view()).has_value());
      CHECK(lines.lines.size() <= 1);
      open.engine.sessions().destroy(session);
    }
  }
}

TEST_CASE("what is undone, cut or forked is no change, and does not use up the notice") {
  const SmallModel model("llama", "f16");
  Lines lines;
  OpenEngine open(model.path(), small_config(), nullptr, nullptr, lines.log());
  engine::Engine& engine = open.engine;
  const auto feed = [&](SessionIdx session, const std::vector<std::string>& messages) {
    REQUIRE(engine.sessions().feed_chat(session, written(open, messages).view()).has_value());
    open.run();
  };
  const std::vector<std::string> three{"bakeri", "somu", "tel"}, changed{"bakeri", "xomu"};
  const SessionIdx session = *engine.sessions().create();
  feed(session, three);
  feed(session, {"bakeri", "somu"});
  const u32 n_ids = engine.sessions().state(session).tokens.n_ids;
  CHECK(lines.lines.empty());

  feed(session, three);
  REQUIRE(engine.sessions().truncate(session, n_ids).has_value());
  REQUIRE(engine.sessions().feed(session, random_ids(1, 50)).has_value());
  feed(session, three);
  CHECK(lines.lines.empty());

  const SessionIdx fork = *engine.sessions().fork(session);
  feed(fork, changed);
  CHECK(lines.lines.size() == 1);
  feed(*engine.sessions().fork(fork), three);
  CHECK(lines.lines.size() == 1);
  feed(session, changed);
  CHECK(lines.lines.size() == 2);
}

// A wall clock that stands, beside the machine's own monotonic time.
class StandingClock final : public Clock {
 public:
  u64 now_ns() override { return system_.now_ns(); }
  u64 unix_s() override { return at_s; }
  u64 at_s = 0;

 private:
  SystemClock system_;
};

TEST_CASE("a template that asks for the date gets that of the clock, in UTC") {
  const SmallModel model("llama", "f16");
  StandingClock clock;
  // As Llama 3's templates ask.
  OpenEngine open(model.path(), small_config(), &clock, nullptr, {},
                  "{% if not date_string is defined %}{% if strftime_now is defined %}"
                  "{% set date_string = strftime_now('%d %b %Y') %}{% else %}"
                  "{% set date_string = '26 Jul 2024' %}{% endif %}{% endif %}"
                  "{{ date_string }}, {{ strftime_now('%Y-%m-%d %H:%M:%S %a') }}");
  struct Row {
    u64 at_s;
    const char* text;
  };
  const Row rows[] = {{1'709'251'199, "29 Feb 2024, 2024-02-29 23:59:59 Thu"},
                      {1'709'251'200, "01 Mar 2024, 2024-03-01 00:00:00 Fri"},
                      {1'798'761'599, "31 Dec 2026, 2026-12-31 23:59:59 Thu"}};
  for (const Row& row : rows) {
    clock.at_s = row.at_s;
    const auto rendered =
        open.engine.render_chat({.messages = R"([{"role": "user", "content": "Hi"}])"});
    REQUIRE(rendered.has_value());
    CHECK(rendered->text == row.text);
  }
  const auto given = open.engine.render_chat({.messages = R"([{"role": "user", "content": "Hi"}])",
                                              .arguments = R"({"date_string": "today"})"});
  REQUIRE(given.has_value());
  CHECK(given->text.starts_with("today, 2026"));
}

}  // namespace
}  // namespace tarn::chat_test
