// Goal    with select.codebooks a conversation's second input gets centroids of its own: what came
//         before it keeps its codes, its own rows and the answer to it have the nearest of the new
//         ones; whatever is computed how, over forks, cuts, other sessions and a disk, bits agree,
//         and all chosen is full attention.
// Method  two turns on a small random model, an index of 2 bits; codes against all centroids by
//         brute force; logits of later tokens compared as bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "tests/runtime/engine/answer_bits.h"
#include "tests/runtime/engine/selected_answers.h"
#include "tests/support/sim_disk.h"

namespace tarn::engine {
namespace {

using test::OpenEngine;
using test::SmallModel;
using test_bits::selecting;

constexpr u32 kSinks = 4, kLocal = 8, kPrompt = 150, kFirst = 60, kInput = 80, kSecond = 40;

SelectConfig per_input(u32 k = 16, u32 swap_tokens = 16) {
  SelectConfig select;
  select.method = SelectMethod::pq;
  select.code_bits = 2;
  select.n_sinks = kSinks;
  select.n_local = kLocal;
  select.k = k;
  select.iterations = 3;
  select.swap_tokens = swap_tokens;
  select.codebooks = 2;
  return select;
}

struct Answer {
  std::vector<u32> tokens;
  test::LogitsRecord logits;
};

void say(Engine& engine, SessionIdx session, u32 n, std::vector<u32>* tokens) {
  REQUIRE(engine.generate(session, {.max_tokens = n, .ignore_end = true}).has_value());
  const std::vector<u32> said = test::read_all(engine, session).tokens;
  tokens->insert(tokens->end(), said.begin(), said.end());
}

// The second input, in two feeds, and the answer to it.
void second_turn(Engine& engine, SessionIdx session, Answer* answer) {
  const std::vector<u32> input = test::random_ids(8, kInput);
  REQUIRE(engine.feed(session, std::span(input).first(kInput - 5)).has_value());
  for (u32 i = 0; i < 20 && engine.has_work(); ++i) engine.step();
  REQUIRE(engine.feed(session, std::span(input).last(5)).has_value());
  engine.watch_logits(session, &test::LogitsRecord::on_logits, &answer->logits);
  say(engine, session, kSecond, &answer->tokens);
  engine.watch_logits(session, nullptr, nullptr);
}

Answer answer_of(OpenEngine& open, SessionIdx session) {
  Answer answer;
  say(open.engine, session, kFirst, &answer.tokens);
  second_turn(open.engine, session, &answer);
  return answer;
}

Answer answer_of(const SmallModel& model, const Config& config) {
  OpenEngine open(model.path(), config);
  return answer_of(open, open.session_with(test::random_ids(7, kPrompt)));
}

void require_same(const Answer& want, const Answer& got) {
  CHECK(want.tokens == got.tokens);
  test::require_same_bits(want.logits, got.logits);
}

// A row's squared distance from a centroid of one sub-space.
f64 distance(const select::PqIndex& index, u32 codebook, u32 m, const f32* key, u32 centroid) {
  const select::PqShape& shape = index.shape();
  const f32* columns = index.codebook(codebook).data() + u64{m} * shape.dims() * shape.n_padded();
  f64 sum = 0;
  for (u32 i = 0; i < shape.dims(); ++i) {
    const f64 way = f64{key[shape.dim_of(m, i)]} - columns[u64{i} * shape.n_padded() + centroid];
    sum += way * way;
  }
  return sum;
}

// Rows [begin, end) have codes of the nearest centroids of one codebook.
void check_nearest(OpenEngine& open, SessionIdx session, u32 head, u32 codebook, u32 begin,
                   u32 end) {
  const Engine& engine = open.engine;
  const select::PqIndex& index = engine.selector().pq_index(session, head);
  const kv::Sequence& sequence = engine.session_state(session).sequence;
  const u32 n_kv_heads = engine.spec().n_kv_heads;
  std::vector<const u8*> pages(sequence.n_groups());
  sequence.pages(head / n_kv_heads, head % n_kv_heads, pages);
  const select::KeyPages keys{kernels::KvType::f16, pages.data(),
                              engine.plan().group_shape.page_tokens, engine.spec().head_dim};
  std::vector<f32> key(engine.spec().head_dim);
  u32 n_wrong = 0;
  for (u32 row = begin; row < end; ++row) {
    keys.load(**kernels::cpu_table_select("auto"), kSinks + row, 1, key.data());
    for (u32 m = 0; m < index.shape().n_subspaces; ++m) {
      f64 least = std::numeric_limits<f64>::max();
      for (u32 c = 0; c < index.shape().n_centroids(); ++c) {
        least = std::min(least, distance(index, codebook, m, key.data(), c));
      }
      const f64 own = distance(index, codebook, m, key.data(), index.code(m, row));
      n_wrong += own > least * (1 + 1e-5);  // but for ties
    }
  }
  CHECK(n_wrong == 0);
}

std::vector<u8> codes_of(const select::PqIndex& index, u32 n_rows) {
  std::vector<u8> codes;
  for (u32 m = 0; m < index.shape().n_subspaces; ++m) {
    for (u32 row = 0; row < n_rows; ++row) codes.push_back(index.code(m, row));
  }
  return codes;
}

TEST_CASE("the first turn keeps its codes, the second one's rows have its own nearest centroids") {
  const SmallModel model("llama", "f16");
  OpenEngine open(model.path(), selecting(per_input()));
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
  Answer answer;
  say(engine, session, kFirst, &answer.tokens);
  const u32 n_heads = engine.spec().n_cache_layers * engine.spec().n_kv_heads;
  const u32 input_row = kPrompt + kFirst - kSinks;
  std::vector<std::vector<u8>> codes(n_heads);
  std::vector<std::vector<f32>> centroids(n_heads);
  std::vector<u32> n_coded(n_heads);
  for (u32 head = 0; head < n_heads; ++head) {
    const select::PqIndex& index = engine.selector().pq_index(session, head);
    REQUIRE(index.n_codebooks() == 1);
    n_coded[head] = index.n_tokens();
    REQUIRE(n_coded[head] > kPrompt);
    REQUIRE(n_coded[head] < input_row);
    codes[head] = codes_of(index, n_coded[head]);
    centroids[head].assign(index.codebook(0).begin(), index.codebook(0).end());
  }
  second_turn(engine, session, &answer);
  for (u32 head = 0; head < n_heads; ++head) {
    CAPTURE(head);
    const select::PqIndex& index = engine.selector().pq_index(session, head);
    REQUIRE(index.n_codebooks() == 2);
    CHECK(codes_of(index, n_coded[head]) == codes[head]);
    CHECK(std::ranges::equal(index.codebook(0), centroids[head]));
    CHECK_FALSE(std::ranges::equal(index.codebook(1), centroids[head]));
    REQUIRE(index.n_tokens() > input_row + kInput);  // of the answer, too
    check_nearest(open, session, head, 0, 0, input_row);
    check_nearest(open, session, head, 1, input_row, index.n_tokens());
  }
}

TEST_CASE("all chosen is full attention in both turns, in bytes and packed, before and after") {
  const SmallModel model("qwen3", "q4_k");
  const Answer want = answer_of(model, selecting({}));
  for (const CodeFormat format : {CodeFormat::bytes, CodeFormat::packed}) {
    for (const u32 swap_tokens : {1u, 16u}) {
      SelectConfig select = per_input(512, swap_tokens);
      select.code_format = format;
      require_same(want, answer_of(model, selecting(select)));
    }
  }
  CHECK_FALSE((answer_of(model, selecting(per_input())).tokens == want.tokens));
}

TEST_CASE("slices, threads, formats and other sessions' clusterings change no bit") {
  const SmallModel model("llama", "f16");
  const Answer want = answer_of(model, selecting(per_input()));
  SelectConfig one = per_input();
  one.codebooks = 1;
  CHECK_FALSE((answer_of(model, selecting(one)).tokens == want.tokens));  // else it has no say
  require_same(want, answer_of(model, selecting(per_input(), 7, 1)));
  SelectConfig packed = per_input();
  packed.code_format = CodeFormat::packed;
  require_same(want, answer_of(model, selecting(packed)));

  // All four begin their second turn at once: they share one spare set of indexes.
  OpenEngine open(model.path(), selecting(per_input()));
  std::vector<SessionIdx> sessions;
  for (u32 i = 0; i < 4; ++i) {
    sessions.push_back(open.session_with(test::random_ids(7, kPrompt)));
    Answer first;
    say(open.engine, sessions.back(), kFirst, &first.tokens);
    REQUIRE(open.engine.feed(sessions.back(), test::random_ids(8, kInput)).has_value());
  }
  for (const SessionIdx session : sessions) {
    REQUIRE(open.engine.generate(session, {.max_tokens = kSecond, .ignore_end = true}).has_value());
  }
  const std::vector<u32> last(want.tokens.begin() + kFirst, want.tokens.end());
  for (const SessionIdx session : sessions) {
    CHECK(test::read_all(open.engine, session).tokens == last);
  }
}

TEST_CASE("a fork and a cut go on as their source would, while the input is clustered and after") {
  const SmallModel model("llama", "f16");
  for (const u32 n_before : {1u, 5u, 15u, 16u, 30u}) {
    CAPTURE(n_before);
    OpenEngine open(model.path(), selecting(per_input()));
    Engine& engine = open.engine;
    const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
    std::vector<u32> said, want, got;
    say(engine, session, kFirst, &said);
    REQUIRE(engine.feed(session, test::random_ids(8, kInput)).has_value());
    say(engine, session, n_before, &said);
    const Result<SessionIdx> fork = engine.fork(session);
    REQUIRE(fork.has_value());
    say(engine, session, 40, &want);
    say(engine, *fork, 40, &got);
    CHECK(got == want);
    // Back behind the swap.
    const u32 n_tokens = kPrompt + kFirst + kInput;
    REQUIRE(engine.truncate(session, n_tokens + n_before + 20).has_value());
    got.clear();
    say(engine, session, 20, &got);
    CHECK(std::equal(got.begin(), got.end(), want.begin() + 20));
    // Before it: the index is made anew from all, as if all had been one input.
    REQUIRE(engine.truncate(session, n_tokens - 1).has_value());
    const std::vector<u32> input = test::random_ids(8, kInput);
    REQUIRE(engine.feed(session, std::span(input).last(1)).has_value());
    say(engine, session, 30, &got);
    CHECK(engine.selector().pq_index(session, 0).n_codebooks() == 1);
  }
}

// Its end is told again then, while what it triggered is under way: at the swap there are rows
// enough for a codebook behind it, which are none of an input.
TEST_CASE("an input that is answered again, after a cut to its end, gets no second codebook") {
  const SmallModel model("llama", "f16");
  constexpr u32 kSwap = 40, kAnswer = 100;  // an index of 2 bits takes 32 rows
  std::vector<u32> want;
  {
    OpenEngine open(model.path(), selecting(per_input(16, kSwap)));
    say(open.engine, open.session_with(test::random_ids(7, kPrompt)), kAnswer, &want);
  }
  for (const u32 n_before : {1u, kSwap / 2, kSwap + 5}) {  // the index is made, or in use
    CAPTURE(n_before);
    OpenEngine open(model.path(), selecting(per_input(16, kSwap)));
    Engine& engine = open.engine;
    const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
    std::vector<u32> got;
    say(engine, session, n_before, &got);
    REQUIRE(engine.truncate(session, kPrompt).has_value());
    got.clear();
    say(engine, session, kAnswer, &got);
    CHECK(engine.selector().pq_index(session, 0).n_codebooks() == 1);
    CHECK(got == want);
  }
}

TEST_CASE("over memory and disk, with little memory and with more, the bits are those of memory") {
  using test_selected::Memory;
  const SmallModel model("llama", "q8_0");
  const auto config = [](Memory memory, u32 codebooks) {
    Config out = test_selected::config_of(SelectMethod::pq, memory);
    out.select.codebooks = codebooks;
    return out;
  };
  const auto answer = [&](u32 codebooks) {
    OpenEngine resident(model.path(), config(Memory::whole, codebooks));
    return test_selected::answer_of(resident);
  };
  const test_selected::Answer want = answer(2);
  CHECK_FALSE((want.tokens == answer(1).tokens));
  for (const Memory memory : {Memory::little, Memory::ample}) {
    test::SimDisk disk(1);
    VirtualClock clock;
    test::SimIo io(disk, clock, 64);
    OpenEngine streamed(model.path(), config(memory, 2), &clock, &io);
    CHECK_FALSE(streamed.engine.plan().tiers.extents.is_on());  // they go by pairs of one codebook
    test_selected::require_same(want, test_selected::answer_of(streamed));
  }
}

}  // namespace
}  // namespace tarn::engine
