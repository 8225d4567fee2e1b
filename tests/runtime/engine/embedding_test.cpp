// Goal    an engine whose embedding table stays in the file says what one with the table in memory
//         says, bit for bit, in less memory; where the file is gone wrong, a generation ends with
//         an error, nothing wrong is said, and the next one goes on once the file is whole.
// Method  small random models, prompt and decode steps of two sessions; the file cut short under
//         the engine.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/quant/tensor_type.h"
#include "runtime/lab/probe.h"
#include "tests/support/open_engine.h"

namespace tarn::engine::embedding_test {
namespace {

using test::LogitsRecord;
using test::OpenEngine;
using test::SmallModel;

Config config_of(EmbeddingChoice embedding) {
  Config config = test::small_config();
  config.embedding = embedding;
  config.batch_rows_max = 48;
  return config;
}

u64 weights_bytes(const Engine& engine) { return engine.plan().of(plan::RegionId::weights).bytes; }

struct Case {
  std::string arch, type;
  u32 n_prompt, n_said;
};

// Returns the tokens of two sessions, and records the logits of the one whose prompt is as long as
// the case says.
std::vector<u32> said_by(OpenEngine& open, const Case& c, LogitsRecord& record) {
  Engine& engine = open.engine;
  const SessionIdx other = open.session_with(test::random_ids(2, c.n_prompt / 2));
  const SessionIdx session = *engine.sessions().create();
  lab::Probe(engine).watch_logits(session, LogitsRecord::on_logits, &record);
  REQUIRE(engine.sessions().feed(session, test::random_ids(1, c.n_prompt)).has_value());
  open.run();
  const GenerateParams params{.max_tokens = c.n_said, .ignore_end = true};
  REQUIRE(engine.sessions().generate(other, params).has_value());
  REQUIRE(engine.sessions().generate(session, params).has_value());
  std::vector<u32> said = test::read_all(engine, session).tokens;
  const std::vector<u32> others = test::read_all(engine, other).tokens;
  said.insert(said.end(), others.begin(), others.end());
  return said;
}

TEST_CASE("a table in the file gives the same bits in less memory, whatever its type") {
  std::vector<Case> cases = {{"llama", "q4_k_m", 130, 12}, {"qwen3", "f16", 130, 12}};
  for (const auto& traits : kernels::kTypeTraits) cases.push_back({"llama", traits.name, 40, 2});
  for (const Case& c : cases) {
    CAPTURE(c.arch);
    CAPTURE(c.type);
    const SmallModel model(c.arch, c.type);
    OpenEngine in_memory(model.path(), config_of(EmbeddingChoice::memory));
    OpenEngine on_disk(model.path(), config_of(EmbeddingChoice::disk));
    CHECK(weights_bytes(on_disk.engine) < weights_bytes(in_memory.engine));
    LogitsRecord records[2];
    const std::vector<u32> want = said_by(in_memory, c, records[0]);
    CHECK(want.size() == 2 * c.n_said);
    CHECK(said_by(on_disk, c, records[1]) == want);
    test::require_same_bits(records[0], records[1]);
  }
}

TEST_CASE("a tied table is the output's, and stays in memory") {
  const SmallModel model("qwen2", "q4_k_m");
  OpenEngine in_memory(model.path(), config_of(EmbeddingChoice::memory));
  OpenEngine on_disk(model.path(), config_of(EmbeddingChoice::disk));
  CHECK(weights_bytes(on_disk.engine) == weights_bytes(in_memory.engine));
}

TEST_CASE("a file that was cut ends what needs it, and nothing else") {
  const SmallModel model("llama", "f16");
  OpenEngine open(model.path(), config_of(EmbeddingChoice::disk));
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with(test::random_ids(1, 40));
  open.run();
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 8, .ignore_end = true}).has_value());
  const std::vector<u32> want = test::read_all(engine, session).tokens;
  REQUIRE(engine.sessions().truncate(session, 40).has_value());
  open.run();

  std::ifstream in(model.path(), std::ios::binary);
  const std::vector<char> whole((std::istreambuf_iterator<char>(in)), {});
  std::filesystem::resize_file(model.path(), 8192);
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 8, .ignore_end = true}).has_value());
  const test::Said cut = test::read_all(engine, session);
  CHECK(cut.tokens.empty());
  CHECK(cut.done.finish == Finish::error);
  CHECK(cut.done.status == Status::io_failed);
  const SessionIdx prompt = *engine.sessions().create();
  REQUIRE(engine.sessions().feed(prompt, test::random_ids(3, 100)).has_value());
  open.run();  // ends: what cannot be computed is not tried for ever
  CHECK(engine.sessions().state(prompt).sequence.n_slots() == 0);

  std::ofstream(model.path(), std::ios::binary | std::ios::in)
      .write(whole.data(), static_cast<std::streamsize>(whole.size()));
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 8, .ignore_end = true}).has_value());
  CHECK(test::read_all(engine, session).tokens == want);
  CHECK(engine.sessions().state(prompt).state == SessionState::idle);
  lab::Probe::pool(engine).check_invariants();
}

}  // namespace
}  // namespace tarn::engine::embedding_test
