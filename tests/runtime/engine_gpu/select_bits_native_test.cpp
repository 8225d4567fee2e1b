// Goal    rows that select on a GPU have full attention's bits where everything is chosen, and
//         their own alone, beside others, in a fork and behind a cut; memory is the plan's.
// Method  the fake device and the emulated kernels, sessions with forced tokens and their logits.
#include "platform/base/checked.h"
#include "runtime/lab/probe.h"
#include "tests/runtime/engine_gpu/select_gpu.h"

namespace tarn::test::select_bits_native_test {
namespace {

using engine::SessionIdx;

// Logits of forced tokens, of sessions that generate side by side.
std::vector<LogitsRecord> logits_beside(engine::Engine& engine,
                                        std::span<const SessionIdx> sessions,
                                        std::span<const u32> tokens) {
  std::vector<LogitsRecord> records(sessions.size());
  for (u64 i = 0; i < sessions.size(); ++i) {
    lab::Probe(engine).watch_logits(sessions[i], &LogitsRecord::on_logits, &records[i]);
    REQUIRE(lab::Probe(engine).generate(
        sessions[i], {.max_tokens = static_cast<u32>(tokens.size()), .ignore_end = true}, tokens));
  }
  while (engine.has_work()) engine.step();
  REQUIRE(!engine.device_lost());
  for (const SessionIdx session : sessions) {
    CHECK(read_all(engine, session).tokens.size() == tokens.size());
    lab::Probe(engine).watch_logits(session, nullptr, nullptr);
  }
  return records;
}

TEST_CASE("with everything chosen it is full attention, before, at and after the index' use") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  const std::vector<u32> ids = random_ids(seed_from_environment(), kPrompt, GpuModel::kVocab);
  const std::vector<u32> tokens = random_ids(seed_from_environment() + 1, 5, GpuModel::kVocab);
  LogitsRecord expected;
  for (const SelectMethod method : {SelectMethod::full, SelectMethod::pq, SelectMethod::window}) {
    CAPTURE(static_cast<u32>(method));
    Config config = select_config(1000);
    config.select.method = method;
    GpuEngine gpu;
    require_open(gpu, model.path(), config);
    const SessionIdx session[] = {prompted(gpu.engine, ids)};
    const LogitsRecord record = logits_beside(gpu.engine, session, tokens)[0];
    if (method == SelectMethod::full) expected = record;
    require_same_bits(expected, record);
  }
}

TEST_CASE("sessions that select give the same bits alone, beside others, forked and cut") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  const u64 seed = seed_from_environment();
  const std::vector<u32> ids = random_ids(seed, kPrompt, GpuModel::kVocab);
  const std::vector<u32> tokens = random_ids(seed + 1, 20, GpuModel::kVocab);
  GpuEngine gpu;
  require_open(gpu, model.path(), select_config(5, 64, 3));
  engine::Engine& engine = gpu.engine;
  const SessionIdx alone[] = {prompted(engine, ids)};
  const LogitsRecord expected = logits_beside(engine, alone, tokens)[0];

  // Two that select, of which one began after the other, and one that reads everything.
  const SessionIdx beside[] = {
      prompted(engine, random_ids(seed + 2, kPrompt + 3, GpuModel::kVocab)),
      prompted(engine, random_ids(seed + 3, 4, GpuModel::kVocab))};
  REQUIRE(engine.sessions().truncate(alone[0], kPrompt).has_value());
  const SessionIdx all[] = {beside[0], alone[0], beside[1]};
  require_same_bits(expected, logits_beside(engine, all, tokens)[1]);

  // A copy of a session that selects, then cut into what it generated: both go on as the first did.
  engine.sessions().destroy(beside[0]);
  engine.sessions().destroy(beside[1]);
  const SessionIdx copy = *engine.sessions().fork(alone[0]);
  // Counts of pairs that kept what was cut would find the k-th token too early.
  constexpr u32 kKept = kPrompt + 5;  // the index was in use
  for (const SessionIdx session : {alone[0], copy}) {
    REQUIRE(engine.sessions().truncate(session, kKept).has_value());
    const SessionIdx only[] = {session};
    const std::vector<u32> rest(tokens.begin() + 5, tokens.end());
    const LogitsRecord record = logits_beside(engine, only, rest)[0];
    REQUIRE(record.rows.size() == expected.rows.size());
    for (u64 i = kKept; i < expected.rows.size(); ++i) {
      CAPTURE(i);
      REQUIRE(record.rows[i] == expected.rows[i]);
    }
  }
}

TEST_CASE("memory of selection on a GPU is the plan's, and all of it is given back") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  for (const DeviceFacts& facts : {kOrinFacts, kDiscreteFacts}) {
    GpuEngine gpu(facts);
    const Result<u64> before = gpu.device.memory_free_bytes();
    require_open(gpu, model.path(), select_config(5, 64, 2));
    const Result<u64> after = gpu.device.memory_free_bytes();
    const plan::Plan& plan = gpu.engine.plan();
    const u64 ours = plan.device_bytes - plan.of(plan::RegionId::driver).bytes;
    CHECK(*before - *after == ours + gpu.device.graph_use().bytes);
    const u64 index_bytes = plan.select.n_heads * plan.select.index_bytes;
    CHECK(plan.of(plan::RegionId::select_device).bytes == 2 * align_up(index_bytes, 256));
    CHECK(plan.of(plan::RegionId::select_device).space == RegionSpace::device);
    // Two rows' chosen slots, 3 + 6 + 5 in a page of 32, are most of it.
    CHECK(plan.of(plan::RegionId::select_gather).bytes > 2 * plan.group_shape.group_bytes());
    gpu.engine.close();
    CHECK(gpu.device.leaks() == "");
  }
}

}  // namespace
}  // namespace tarn::test::select_bits_native_test
