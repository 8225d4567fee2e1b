// Goal    the same tokens give the same logits, bit for bit, however they are computed: slice
//         length, number of threads, the batch a sequence rides in, truncate and redo, fork, ISA.
// Method  the reference is one row at a time on one thread with the generic kernels; everything
//         else is compared with it as bytes, every position, every architecture and type. Random
//         cuts come from a printed seed (TARN_TEST_SEED). Where a build is slowed down, three types
//         stand for all: the kernels' own tests compare every type's bits there.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "kernels/cpu_table.h"
#include "runtime/lab/probe.h"
#include "tests/support/open_engine.h"
#include "tests/support/slow_build.h"

namespace tarn::engine::determinism_test {
namespace {

using test::LogitsRecord;
using test::OpenEngine;
using test::SmallModel;

constexpr u32 kTokens = 80;  // full pages and a part

struct How {
  const char* isa = "generic";
  u32 rows_max = 1;
  u32 n_threads = 1;
  const char* kv_type = "f16";
};

Config config_of(const How& how) {
  Config config = test::small_config();
  config.batch_rows_max = how.rows_max;
  config.sessions_max = 1;
  config.n_threads = how.n_threads;
  const auto* type =
      std::find(std::begin(kKvTypeNames), std::end(kKvTypeNames), std::string(how.kv_type));
  config.kv_type = static_cast<KvTypeChoice>(type - std::begin(kKvTypeNames));
  test::set_text(config.isa, how.isa);
  return config;
}

LogitsRecord logits_of(const std::string& path, const std::vector<u32>& ids, const How& how) {
  OpenEngine open(path, config_of(how));
  LogitsRecord record;
  const Result<SessionIdx> session = open.engine.sessions().create();
  REQUIRE(session.has_value());
  lab::Probe(open.engine).watch_logits(*session, &LogitsRecord::on_logits, &record);
  REQUIRE(open.engine.sessions().feed(*session, ids).has_value());
  open.run();
  return record;
}

std::vector<const char*> isas() {
  std::vector<const char*> names;
  for (const kernels::CpuTable& table : kernels::cpu_tables()) {
    if (table.runs_here()) names.push_back(table.isa);
  }
  return names;
}

TEST_CASE("slices, threads and ISA change no bit, for every architecture and type") {
  const std::vector<u32> ids = test::random_ids(7, kTokens);
  std::vector<std::string> types = {"f16", "q8_0", "q4_k"};
  if (!test::kSlowBuild) {
    types.insert(types.end(), {"f32", "bf16", "q4_0", "q5_0", "q5_k", "q6_k"});
  }
  for (const std::string arch : {"llama", "qwen2", "qwen3"}) {
    for (const std::string& type : types) {
      // Every type on one architecture, every architecture on one type.
      if (arch != "llama" && type != "q4_k") continue;
      CAPTURE(arch);
      CAPTURE(type);
      const SmallModel model(arch, type);
      const LogitsRecord want = logits_of(model.path(), ids, {});
      REQUIRE(want.rows.size() == kTokens);
      for (const char* isa : isas()) {
        CAPTURE(std::string(isa));
        require_same_bits(want, logits_of(model.path(), ids, {isa, 512, 2}));
        // An ISA's kernels are for many rows or for one; slices and threads are the engine's.
        const bool is_first = isa == std::string(isas().front());
        if (is_first) require_same_bits(want, logits_of(model.path(), ids, {isa, 7, 3}));
        if (test::kSlowBuild || isa == std::string("generic")) continue;
        require_same_bits(want, logits_of(model.path(), ids, {isa, 1, 2}));
      }
    }
  }
}

TEST_CASE("the same holds for quantised KV") {
  const std::vector<u32> ids = test::random_ids(8, kTokens);
  const SmallModel model("llama", "q8_0");
  LogitsRecord other = logits_of(model.path(), ids, {});
  for (const char* type : {"q8_0", "q4_0"}) {
    CAPTURE(type);
    if (test::kSlowBuild && std::string(type) == "q8_0") continue;
    const LogitsRecord want = logits_of(model.path(), ids, {.kv_type = type});
    for (const char* isa : isas()) {
      CAPTURE(std::string(isa));
      require_same_bits(want, logits_of(model.path(), ids, {isa, 64, 2, type}));
    }
    // Another KV type is another computation: equal bits would mean that it was ignored.
    CHECK(std::memcmp(want.rows.back().data(), other.rows.back().data(),
                      want.rows.back().size() * sizeof(f32)) != 0);
    other = want;
  }
}

TEST_CASE("a sequence's logits do not depend on what rides beside it") {
  const SmallModel model("llama", "q4_k");
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 round = 0; round < (test::kSlowBuild ? 3u : 6u); ++round) {
    const std::vector<u32> ids =
        test::random_ids(100 + round, 40 + static_cast<u32>(random.below(80)));
    const LogitsRecord want = logits_of(model.path(), ids, {});
    How how{isas().front(), 16 + static_cast<u32>(random.below(100)), 2};
    Config config = config_of(how);
    config.sessions_max = 8;
    config.context_tokens = 2048;
    OpenEngine open(model.path(), config);
    LogitsRecord record;
    const SessionIdx watched = *open.engine.sessions().create();
    lab::Probe(open.engine).watch_logits(watched, &LogitsRecord::on_logits, &record);
    std::vector<SessionIdx> others;
    for (u32 i = 0; i < 1 + random.below(7); ++i) {
      others.push_back(open.session_with(
          test::random_ids(random.next(), 3 + static_cast<u32>(random.below(60)))));
      REQUIRE(open.engine.sessions()
                  .generate(others.back(), {.max_tokens = 10, .ignore_end = true})
                  .has_value());
    }
    // Fed in random cuts, steps in between.
    for (size_t begin = 0; begin < ids.size();) {
      const size_t n = std::min<size_t>(1 + random.below(50), ids.size() - begin);
      REQUIRE(open.engine.sessions().feed(watched, std::span(ids).subspan(begin, n)).has_value());
      begin += n;
      for (u64 i = 0; i < random.below(4); ++i) open.engine.step();
    }
    open.run();
    require_same_bits(want, record);
  }
}

TEST_CASE("truncate and redo, and a fork, give the bits of a fresh run") {
  const SmallModel model("qwen3", "q6_k");
  const std::vector<u32> ids = test::random_ids(9, kTokens);
  const LogitsRecord want = logits_of(model.path(), ids, {});
  Config config = config_of({isas().front(), 64, 2});
  config.context_tokens = 1024;
  config.sessions_max = 2;
  OpenEngine open(model.path(), config);
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const SessionIdx session = open.session_with(ids);
  open.run();
  for (u32 round = 0; round < (test::kSlowBuild ? 4u : 12u); ++round) {
    const u32 cut = static_cast<u32>(random.below(kTokens));
    CAPTURE(cut);
    SessionIdx redone = session;
    if (round % 2 == 1) {
      const Result<SessionIdx> fork = open.engine.sessions().fork(session);
      REQUIRE(fork.has_value());
      redone = *fork;
    }
    LogitsRecord record;
    lab::Probe(open.engine).watch_logits(redone, &LogitsRecord::on_logits, &record);
    REQUIRE(open.engine.sessions().truncate(redone, cut).has_value());
    REQUIRE(open.engine.sessions().feed(redone, std::span(ids).subspan(cut)).has_value());
    open.run();
    REQUIRE(record.rows.size() == kTokens);
    for (u32 i = cut; i < kTokens; ++i) {
      CAPTURE(i);
      REQUIRE(std::memcmp(want.rows[i].data(), record.rows[i].data(),
                          want.rows[i].size() * sizeof(f32)) == 0);
    }
    lab::Probe(open.engine).watch_logits(redone, nullptr, nullptr);
    if (redone != session) open.engine.sessions().destroy(redone);
    lab::Probe::pool(open.engine).check_invariants();
  }
}

}  // namespace
}  // namespace tarn::engine::determinism_test
