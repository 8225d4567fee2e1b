// Goal    KV that is filled in on a GPU is what a CPU's engine fills in, byte for byte, in every
//         KV type; rows that a GPU computed, filled in again, give its next logits; who watches
//         rows sees them and changes no bit; a GPU that is lost meanwhile leaves nothing behind.
// Method  the fake device and the emulated kernels. Rows from a formula, in slices that end within
//         pages and at their ends; KV read where it lies. Each call to the GPU fails in turn.
#include <array>
#include <cmath>
#include <cstring>

#include "platform/gpu/gpu_errors.h"
#include "runtime/lab/probe.h"
#include "tests/runtime/engine_gpu/select_gpu.h"
#include "tests/support/kv_invariants.h"
#include "tests/support/kv_recording.h"

namespace tarn::test::fill_test {
namespace {

using engine::SessionIdx;

constexpr KvTypeChoice kKvTypes[] = {KvTypeChoice::f16, KvTypeChoice::q8_0, KvTypeChoice::q4_0};

// Rows that differ in every element, and know how wide they are.
struct Formula {
  u32 d = 0;
  static void write(void* context, const step::KvRows& rows) {
    const u32 d = static_cast<const Formula*>(context)->d;
    for (u32 i = 0; i < rows.n; ++i) {
      for (u32 j = 0; j < d; ++j) {
        const f32 at = static_cast<f32>((rows.first_slot + i) * 31 + j * 7 + rows.cache_layer * 3);
        rows.k.data[i * rows.k.stride + j] = 3 * std::sin(at);
        rows.v.data[i * rows.v.stride + j] = std::cos(at * 0.7f);
      }
    }
  }
};

std::vector<u8> kv_of(const engine::Engine& engine, SessionIdx session) {
  const kv::Sequence& sequence = engine.sessions().state(session).sequence;
  const kv::GroupShape& group = engine.plan().group_shape;
  const u64 slot_bytes = 2 * group.vector_bytes;
  std::vector<u8> out;
  for (u32 layer = 0; layer < engine.spec().n_cache_layers; ++layer) {
    for (u32 head = 0; head < engine.spec().n_kv_heads; ++head) {
      std::vector<const u8*> pages(sequence.n_groups());
      sequence.pages(layer, head, 0, sequence.n_groups(), pages);
      for (u32 slot = 0; slot < sequence.n_slots(); ++slot) {
        const u8* at = pages[slot / group.page_tokens] + slot % group.page_tokens * slot_bytes;
        out.insert(out.end(), at, at + slot_bytes);
      }
    }
  }
  return out;
}

Config fill_config(KvTypeChoice kv_type) {
  Config config = small_config();
  config.context_tokens = 256;
  config.page_tokens = 32;
  config.batch_rows_max = 24;
  config.sessions_max = 2;
  config.kv_type = kv_type;
  return config;
}

template <class AnyEngine>
std::vector<u8> filled(AnyEngine& opened, std::span<const u32> ids) {
  engine::Engine& engine = opened.engine;
  Formula formula{engine.spec().n_kv_heads * engine.spec().head_dim};
  const SessionIdx session = *engine.sessions().create();
  REQUIRE(lab::Probe(engine).fill_kv(session, ids, {&Formula::write, &formula}).has_value());
  CHECK(engine.sessions().state(session).sequence.n_slots() == ids.size() - 1);
  CHECK(!engine.has_work());
  check_invariants(engine.sessions().state(session).sequence, lab::Probe::pool(engine),
                   engine.spec().n_cache_layers);
  return kv_of(engine, session);
}

TEST_CASE("what a GPU fills in is what a CPU fills in") {
  for (const char* arch : {"llama", "qwen2", "qwen3"}) {
    for (const KvTypeChoice kv_type : kKvTypes) {
      CAPTURE(std::string(arch));
      const GpuModel model(arch, "q8_0");
      const Config config = fill_config(kv_type);
      OpenEngine on_cpu(model.path(), config);
      GpuEngine on_gpu;
      require_open(on_gpu, model.path(), config);
      for (const u32 n : {1u, 24u, 64u, 75u}) {
        CAPTURE(n);
        const std::vector<u32> ids = random_ids(n, n + 1, GpuModel::kVocab);
        const std::vector<u8> expected = filled(on_cpu, ids), found = filled(on_gpu, ids);
        REQUIRE(expected.size() == found.size());
        CHECK(std::memcmp(expected.data(), found.data(), expected.size()) == 0);
        on_cpu.engine.sessions().destroy(0);
        on_gpu.engine.sessions().destroy(0);
      }
    }
  }
}

// Three tokens more, and the logits behind the first two of them.
LogitsRecord go_on(engine::Engine& engine, SessionIdx session) {
  LogitsRecord record;
  const std::vector<u32> forced = {7, 8, 9};
  lab::Probe(engine).watch_logits(session, &LogitsRecord::on_logits, &record);
  generate(engine, session, forced, [](u32, const engine::StepTrace&) {});
  lab::Probe(engine).watch_logits(session, nullptr, nullptr);
  return record;
}

TEST_CASE("rows that a GPU computed are shown, and filled in again give its bits") {
  constexpr u32 kTokens = 20;
  for (const KvTypeChoice kv_type : kKvTypes) {
    const GpuModel model("llama", "q8_0");
    Config config = fill_config(kv_type);
    config.batch_rows_max = 16;
    GpuEngine gpu;
    require_open(gpu, model.path(), config);
    engine::Engine& engine = gpu.engine;
    const u32 n_layers = engine.spec().n_cache_layers;
    const std::vector<u32> ids = random_ids(seed_from_environment(), kTokens + 1, GpuModel::kVocab);
    KvRecording recording(engine, kTokens + 3);
    lab::Probe(engine).watch_kv({&KvRecording::take, &recording});
    const SessionIdx computed = prompted(engine, ids);
    CHECK(recording.n_rows == u64{kTokens} * n_layers);
    const SessionIdx again = *engine.sessions().create();
    REQUIRE(lab::Probe(engine).fill_kv(again, ids, {&KvRecording::give, &recording}).has_value());
    CHECK(recording.n_rows == u64{kTokens} * n_layers);  // a fill computes none
    CHECK(kv_of(engine, computed) == kv_of(engine, again));
    // The first decodes before eyes, row by row; the second in graphs.
    const LogitsRecord expected = go_on(engine, computed);
    CHECK(recording.n_rows == u64{kTokens + 3} * n_layers);
    lab::Probe(engine).watch_kv({});
    require_same_bits(expected, go_on(engine, again));
    CHECK(recording.n_rows == u64{kTokens + 3} * n_layers);
    CHECK(kv_of(engine, computed) == kv_of(engine, again));
  }
}

TEST_CASE("a session filled in on a GPU reads by selection as a computed one does") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  const Config config = select_config(8, 128, 2);
  GpuEngine gpu;
  require_open(gpu, model.path(), config);
  engine::Engine& engine = gpu.engine;
  const std::vector<u32> ids = random_ids(seed_from_environment(), kPrompt + 1, GpuModel::kVocab);
  KvRecording recording(engine, kPrompt);
  lab::Probe(engine).watch_kv({&KvRecording::take, &recording});
  const SessionIdx computed = prompted(engine, ids);
  lab::Probe(engine).watch_kv({});
  const SessionIdx again = *engine.sessions().create();
  REQUIRE(lab::Probe(engine).fill_kv(again, ids, {&KvRecording::give, &recording}).has_value());
  const std::vector<u32> forced = {1, 2, 3, 4, 5, 6, 7, 8};
  std::array<std::vector<u64>, 2> chosen;
  for (const SessionIdx session : {computed, again}) {
    generate(engine, session, forced, [&](u32, const engine::StepTrace& trace) {
      chosen[session].push_back(trace.n_slots_chosen);
    });
  }
  CHECK(chosen[0].back() > 0);
  CHECK(chosen[0] == chosen[1]);
  CHECK(kv_of(engine, computed) == kv_of(engine, again));
}

TEST_CASE("a GPU lost at any call of a fill: no slot counts from then on") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  const std::vector<u32> ids = random_ids(1, 40, GpuModel::kVocab);
  const auto fill = [&](GpuEngine& gpu, u64 call, u64* n_calls) {
    require_open(gpu, model.path(), fill_config(KvTypeChoice::f16));
    Formula formula{gpu.engine.spec().n_kv_heads * gpu.engine.spec().head_dim};
    const SessionIdx session = *gpu.engine.sessions().create();
    const u64 n_before = gpu.device.n_calls();
    if (call > 0) {
      gpu.device.fail_at({.call = n_before + call, .code = kGpuIllegalAddress, .for_ever = true});
    }
    const Result<void> done =
        lab::Probe(gpu.engine).fill_kv(session, ids, {&Formula::write, &formula});
    *n_calls = gpu.device.n_calls() - n_before;
    return done;
  };
  u64 n_all = 0;
  {
    GpuEngine gpu;
    REQUIRE(fill(gpu, 0, &n_all).has_value());
  }
  CHECK(n_all > 0);
  for (u64 call = 1; call <= n_all; ++call) {
    CAPTURE(call);
    GpuEngine gpu;
    u64 n_calls = 0;
    const Result<void> done = fill(gpu, call, &n_calls);
    REQUIRE(!done.has_value());
    CHECK(done.error().status == Status::device_lost);
    CHECK(gpu.engine.device_lost());
    CHECK(!gpu.engine.has_work());
    CHECK(gpu.engine.sessions().state(0).sequence.n_slots() < ids.size() - 1);
    gpu.engine.close();
    CHECK(gpu.device.leaks() == "");
  }
}

}  // namespace
}  // namespace tarn::test::fill_test
