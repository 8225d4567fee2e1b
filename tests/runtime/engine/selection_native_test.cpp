// Goal    decoding by selection: all chosen is full attention, to the bit, by every method; slices,
//         threads and ISA change no bit; a fork goes on as its source, and a cut as if no more had
//         been said; clustering stays out of the way of a first token; how often it updates
//         centroids is a number, or follows from costs and rows, and from no clock. (Cancels,
//         neighbours and the disk: sim/select_random.)
// Method  small random models; logits of every sampled row compared as bytes. Indexes of 2 bits, so
//         that short prompts get one.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "kernels/cpu_table.h"
#include "runtime/lab/probe.h"
#include "tests/runtime/engine/answer_bits.h"
#include "tests/support/slow_build.h"
#include "tests/support/temp_dir.h"

namespace tarn::engine::selection_native_test {
namespace {

using test::each_method;
using test::kMethodRows;
using test::MethodRow;
using test::OpenEngine;
using test::SmallModel;
using test_bits::Answer;
using test_bits::few;
using test_bits::read;

constexpr u32 kPrompt = 150;
constexpr u32 kGenerated = 60;

SelectConfig all(const char* method) {
  SelectConfig select = few(method, 1);
  select.k = 512;
  return select;
}

struct How {
  const char* isa = "auto";
  u32 rows_max = 64;
  u32 n_threads = 2;
};

Config config_of(const SelectConfig& select, const How& how = {}) {
  Config config = test_bits::selecting(select, how.rows_max, how.n_threads);
  test::set_text(config.isa, how.isa);
  return config;
}

void begin(Engine& engine, SessionIdx session, u32 n = kGenerated) {
  test_bits::begin(engine, session, n);
}

Answer answer_of(const std::string& path, const Config& config, u64 seed = 7) {
  OpenEngine open(path, config);
  const SessionIdx session = open.session_with(test::random_ids(seed, kPrompt));
  begin(open.engine, session);
  return read(open.engine, session);
}

TEST_CASE("everything chosen is full attention, by every method and of both KV types") {
  const SmallModel model("llama", "q4_k");
  for (const KvTypeChoice type : {KvTypeChoice::f16, KvTypeChoice::q8_0}) {
    Config full = config_of({});
    full.kv_type = type;
    const Answer want = answer_of(model.path(), full);
    for (const MethodRow& row : kMethodRows) {
      CAPTURE(std::string(row.name));
      Config config = config_of(all(row.name));
      config.kv_type = type;
      CHECK((answer_of(model.path(), config) == want));
      config.select.k = 16;
      CHECK_FALSE((answer_of(model.path(), config) == want));  // else nothing was chosen
    }
  }
}

TEST_CASE("below the length that selection begins at, every method is full attention") {
  const SmallModel model("llama", "q4_k");
  constexpr u32 kShort = 20, kContextMin = 2 * (4 + 8 + 16);  // twice what few() reads
  const auto answer = [&](const SelectConfig& select, u32 n) {
    OpenEngine open(model.path(), config_of(select));
    const SessionIdx session = open.session_with(test::random_ids(7, kShort));
    begin(open.engine, session, n);
    return read(open.engine, session);
  };
  // The last token's row is not read any more; the swap is a token behind the trigger.
  constexpr u32 kBefore = kContextMin - kShort + 1;
  const Answer want = answer({}, kBefore), longer = answer({}, 60);
  for (const MethodRow& row : kMethodRows) {
    CAPTURE(std::string(row.name));
    CHECK((answer(few(row.name, 1), kBefore) == want));
    CHECK_FALSE((answer(few(row.name, 1), 60) == longer));
  }
}

TEST_CASE(
    "all chosen equals full before, at and after each swap, while an index grows and renews") {
  const SmallModel model("llama", "f16");
  const std::vector<u32> prompt = test::random_ids(3, 20);
  const auto answer = [&](const SelectConfig& select) {
    OpenEngine open(model.path(), config_of(select));
    const SessionIdx session = open.session_with(prompt);
    begin(open.engine, session, 300);
    return read(open.engine, session);
  };
  const Answer want = answer({});
  SelectConfig select = all("pq");
  for (const u32 index_delay_tokens : {1u, 2u, 16u}) {
    select.index_delay_tokens = index_delay_tokens;
    CHECK((answer(select) == want));
  }
  select.code_format = CodeFormat::packed;
  CHECK((answer(select) == want));
}

TEST_CASE("slices, threads and ISA change no bit of what is read by selection") {
  const SmallModel model("qwen3", "q4_k");
  for (const MethodRow& row : kMethodRows) {
    if (!row.trains && row.name != std::string_view("oracle")) continue;
    CAPTURE(std::string(row.name));
    const SelectConfig select = few(row.name);
    const Answer want = answer_of(model.path(), config_of(select, {"generic", 1, 1}));
    bool is_first = true;
    for (const kernels::CpuTable& table : kernels::cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      // The kernels of an ISA have their own tests; slices and threads are the engine's.
      if (test::kSlowBuild && !std::exchange(is_first, false)) continue;
      for (const How& how : {How{table.isa, 7, 8}, How{table.isa, 512, 1}}) {
        CHECK((answer_of(model.path(), config_of(select, how)) == want));
      }
    }
    SelectConfig packed = select;
    packed.code_format = CodeFormat::packed;
    CHECK((answer_of(model.path(), config_of(packed)) == want));
  }
}

TEST_CASE("a fork goes on as its source would: dense, while it clusters, after, and rebuilding") {
  const SmallModel model("llama", "f16");
  // The first index is triggered at 60 tokens and used from 90 on; a rebuild is under way at 130.
  for (const MethodRow& row : kMethodRows) {
    for (const u32 n_before : {1u, 10u, 40u, 70u, 140u, 190u}) {
      CAPTURE(std::string(row.name));
      CAPTURE(n_before);
      if (!row.trains && n_before != 10 && n_before != 70) continue;
      OpenEngine open(model.path(), config_of(few(row.name, 30)));
      const SessionIdx session = open.session_with(test::random_ids(7, 60));
      begin(open.engine, session, n_before);
      read(open.engine, session);  // its job may be half done now
      const Result<SessionIdx> fork = open.engine.sessions().fork(session);
      REQUIRE(fork.has_value());
      while (n_before == 70 && open.engine.has_work()) open.engine.step();
      begin(open.engine, session);
      const Answer want = read(open.engine, session);
      begin(open.engine, *fork);
      CHECK((read(open.engine, *fork) == want));
    }
  }
}

TEST_CASE("an input that is taken back leaves what was generated before it as it was") {
  const SmallModel model("llama", "f16");
  each_method(&MethodRow::trains, [&](const char* method) {
    OpenEngine open(model.path(), config_of(few(method)));
    Engine& engine = open.engine;
    const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
    begin(engine, session);
    const Answer first = read(engine, session);
    const Result<SessionIdx> fork = engine.sessions().fork(session);
    REQUIRE(fork.has_value());
    begin(engine, *fork, 20);
    const Answer more = read(engine, *fork);
    const std::vector<u32> input = test::random_ids(8, 5);

    // By a cancel, before its first step.
    REQUIRE(engine.sessions().feed(session, input).has_value());
    engine.sessions().request_cancel(session);
    engine.step();
    REQUIRE(engine.sessions().state(session).tokens.n_ids == kPrompt + kGenerated);
    begin(engine, session, 20);
    CHECK((read(engine, session) == more));

    // By a cut into the answer before it.
    REQUIRE(engine.sessions().feed(session, input).has_value());
    while (engine.has_work()) engine.step();
    REQUIRE(engine.sessions().truncate(session, kPrompt + 30).has_value());
    begin(engine, session, kGenerated - 30);
    const Answer again = read(engine, session);
    CHECK(std::equal(again.tokens.begin(), again.tokens.end(), first.tokens.begin() + 30));
    CHECK(std::memcmp(again.logprobs.data(), first.logprobs.data() + 30,
                      again.logprobs.size() * sizeof(f32)) == 0);
  });
}

TEST_CASE("cut back behind its trigger, an index serves as before; before it, it is built anew") {
  const SmallModel model("llama", "f16");
  each_method(&MethodRow::trains, [&](const char* method) {
    OpenEngine open(model.path(), config_of(few(method, 1)));
    Engine& engine = open.engine;
    const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
    begin(engine, session);
    const Answer first = read(engine, session);
    // The tokens that it said up to here, and once more what it said from there on.
    REQUIRE(engine.sessions().truncate(session, kPrompt + 20).has_value());
    begin(engine, session, kGenerated - 20);
    const Answer again = read(engine, session);
    CHECK(std::equal(again.tokens.begin(), again.tokens.end(), first.tokens.begin() + 20));
    CHECK(std::memcmp(again.logprobs.data(), first.logprobs.data() + 20,
                      again.logprobs.size() * sizeof(f32)) == 0);
    // To the end of the prompt, where it was made: it comes into use again, as it is.
    REQUIRE(engine.sessions().truncate(session, kPrompt).has_value());
    begin(engine, session, 1);
    read(engine, session);
    u32 n_units = 0;
    while (engine.has_work()) n_units += engine.step().n_cluster_units;
    CHECK(n_units == 0);
    REQUIRE(engine.sessions().truncate(session, kPrompt).has_value());
    begin(engine, session);
    CHECK((read(engine, session) == first));
    REQUIRE(engine.sessions().truncate(session, kPrompt - 1).has_value());
    const std::vector<u32> prompt = test::random_ids(7, kPrompt);
    REQUIRE(engine.sessions().feed(session, std::span(prompt).last(1)).has_value());
    begin(engine, session);
    CHECK((read(engine, session) == first));
    lab::Probe::pool(engine).check_invariants();
  });
}

// At 1 ns a row and update a layer of prefill takes as long as `n_updates` of them, and half of one
// more.
SelectConfig by_cost(u32 n_updates) {
  constexpr u32 kRows = kPrompt - 4 - 8;
  SelectConfig select = few(SelectMethod::pq);
  select.iterations = 0;
  select.cost.update_ps = 1000;
  select.cost.layer_ns = kRows * n_updates + kRows / 2;
  return select;
}

// A clock that goes on by so much whenever anybody looks at it, workers too.
class SteppingClock final : public Clock {
 public:
  explicit SteppingClock(u64 step_ns) : step_ns_(step_ns) {}
  u64 now_ns() override { return now_ns_.fetch_add(step_ns_) + step_ns_; }

 private:
  u64 step_ns_;
  std::atomic<u64> now_ns_ = 0;
};

TEST_CASE("without a number a clustering makes the updates that costs allow, whatever the clock") {
  const SmallModel model("llama", "f16");
  SelectConfig fixed = few(SelectMethod::pq);
  std::vector<Answer> want;  // of 3 updates and more
  for (fixed.iterations = 3; fixed.iterations < 6; ++fixed.iterations) {
    want.push_back(answer_of(model.path(), config_of(fixed)));
  }
  REQUIRE_FALSE((want[1] == want[0]));  // else the number has no say
  REQUIRE_FALSE((want[1] == want[2]));
  for (const u64 step_ns : {u64{0}, u64{1}, u64{1'000'000'000}}) {
    CAPTURE(step_ns);
    SteppingClock clock(step_ns);
    OpenEngine open(model.path(), config_of(by_cost(4)), &clock);
    const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
    begin(open.engine, session);
    CHECK((read(open.engine, session) == want[1]));
  }
  CHECK((answer_of(model.path(), config_of(by_cost(5))) == want[2]));
  CHECK((answer_of(model.path(), config_of(by_cost(1))) == want[0]));  // 3 at least
}

TEST_CASE("the mark of settings is the same wherever an index begins to serve, and no other") {
  const SmallModel model("llama", "f16");
  const auto mark = [&](const SelectConfig& select) {
    OpenEngine open(model.path(), config_of(select));
    return open.engine.status().select_mark;
  };
  CHECK((mark(few(SelectMethod::pq, 1)) == mark(few(SelectMethod::pq, 4))));
  CHECK_FALSE((mark(by_cost(4)) == mark(by_cost(5))));
}

TEST_CASE("the mark of settings tells types of KV apart, wherever the KV lies") {
  const SmallModel model("llama", "f16");
  const auto mark = [&](KvTypeChoice type, const std::string& folder) {
    Config config = config_of(few(SelectMethod::pq));
    config.kv_type = type;
    config.select.verified = {"none"};  // a mark is wanted, so the weights are hashed
    test::set_text(config.store.path, folder);
    config.store.sessions = !folder.empty();
    config.store.quota_bytes = kGiB;
    OpenEngine open(model.path(), config);
    return open.engine.status().select_mark;
  };
  constexpr KvTypeChoice kTypes[] = {KvTypeChoice::f16, KvTypeChoice::q8_0, KvTypeChoice::q4_0};
  for (const KvTypeChoice type : kTypes) {
    for (const KvTypeChoice other : kTypes) {
      const test::TempDir folder("select_mark");
      CHECK((mark(type, "") == mark(other, "")) == (type == other));
      CHECK((mark(type, "") == mark(other, folder.path())) == (type == other));
    }
  }
}

TEST_CASE("no clustering before a first token; from then on a part a step, done in time") {
  const SmallModel model("llama", "f16");
  constexpr u32 kSwap = 32;
  OpenEngine open(model.path(), config_of(few(SelectMethod::pq, kSwap)));
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
  begin(engine, session);
  u32 n_tokens = 0, n_units = 0, n_units_max = 0;
  while (n_tokens < kSwap + 4) {
    const StepTrace& trace = engine.step();
    if (n_tokens == 0) CHECK(trace.n_cluster_units == 0);
    n_tokens += trace.n_tokens_out;
    n_units += trace.n_cluster_units;
    n_units_max = std::max(n_units_max, trace.n_cluster_units);
    // The row of the first token is the trigger's; the swap's is kSwap later.
    CHECK((trace.n_slots_chosen > 0) == (n_tokens > kSwap));
  }
  CHECK(n_units_max == 1);  // of two layers, in 31 steps
  const u32 n_heads = engine.spec().n_cache_layers * engine.spec().n_kv_heads;
  CHECK(n_units == engine.spec().n_cache_layers);
  const StepTrace& trace = engine.step();
  CHECK(trace.n_slots_chosen == u64{n_heads} * (4 + 8 + 16));
  CHECK(trace.phases[static_cast<u64>(Phase::select)].busy_ns > 0);
  CHECK(trace.phases[static_cast<u64>(Phase::gather)].kv_bytes ==
        trace.n_slots_chosen * 2 * engine.spec().head_dim * 2);
}

// Against what each step says that its heads attended to. Several sessions, cut and kept apart.
TEST_CASE(
    "an answer's end says how many of its steps selected, and what share of the KV they read") {
  const SmallModel model("llama", "f16");
  constexpr u32 kSwap = 20;
  for (const char* method : {"full", "pq", "oracle", "window", "random"}) {
    CAPTURE(std::string(method));
    Config config = config_of(few(method, kSwap));
    if (config.select.is_full()) config.select = {};
    OpenEngine open(model.path(), config);
    Engine& engine = open.engine;
    const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
    begin(engine, session);
    const u64 n_heads = u64{engine.spec().n_cache_layers} * engine.spec().n_kv_heads;
    KvReads want;
    Event event{};
    std::array<char, 256> text;
    while (event.type != EventType::done) {
      const u32 n_slots = engine.sessions().state(session).sequence.n_slots();
      const StepTrace& trace = engine.step();
      const u64 n_chosen = trace.n_slots_chosen / n_heads;
      if (trace.n_decode_rows == 1) {
        want.add(n_chosen > 0 ? static_cast<u32>(n_chosen) : n_slots + 1, n_slots + 1,
                 n_chosen > 0);
      }
      while (engine.sessions().take_event(session, &event, text)) {
      }
    }
    const KvReads& got = event.done.kv_reads;
    const bool selects = !config.select.is_full();
    CHECK(got.n_select_steps == want.n_select_steps);
    CHECK(got.n_select_steps == (selects ? kGenerated - 1 - kSwap + 1 : 0));
    CHECK(got.n_read == want.n_read);
    CHECK(got.n_visible == want.n_visible);
    CHECK((got.ratio() < 1.0) == selects);
    CHECK(engine.status().counters.kv_reads.n_read == want.n_read);
    // The next answer counts for itself.
    REQUIRE(engine.sessions().feed(session, test::random_ids(8, 2)).has_value());
    REQUIRE(engine.sessions().generate(session, {.max_tokens = 1, .ignore_end = true}).has_value());
    const test::Said said = test::read_all(engine, session);
    CHECK(said.done.kv_reads.n_visible == 0);
    CHECK(said.done.kv_reads.ratio() == 1.0);
  }
}

}  // namespace
}  // namespace tarn::engine::selection_native_test
