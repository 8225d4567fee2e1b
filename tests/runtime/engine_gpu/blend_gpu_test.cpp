// Goal    chunks are blended in a GPU's memory as on a CPU. What is placed has the CPU's bytes. The
//         tokens whose V differs most are computed. A share of 1 is a prefill. Neighbours, slices,
//         selection, a second blend and KV over a disk change no token.
// Method  an emulated GPU, whose memory the host can read: a chunk's own pages, put through the
//         CPU's transplant_kv, beside the session's; the logits beside those of a CPU.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/rope/rope.h"
#include "runtime/reuse/blend/transplant.h"
#include "tests/runtime/engine_gpu/gpu_engine.h"
#include "tests/support/sim_disk.h"

namespace tarn::test::blend_gpu_test {
namespace {

using engine::Engine;
using engine::SessionIdx;
using reuse::ChunkSpan;

constexpr u32 kPage = 32, kBos = 1;

struct Prompt {
  std::vector<u32> ids{kBos};
  std::vector<ChunkSpan> chunks;
  void add(u64 seed, u32 n, bool is_chunk) {
    const u32 begin = static_cast<u32>(ids.size());
    const auto more = random_ids(seed, n);
    ids.insert(ids.end(), more.begin(), more.end());
    if (is_chunk) chunks.push_back({begin, begin + n});
  }
  // What is placed of a chunk: whole pages behind BOS.
  ChunkSpan placed(u32 idx) const {
    const ChunkSpan& chunk = chunks[idx];
    return {chunk.begin, chunk.begin + (chunk.end - chunk.begin + 1) / kPage * kPage - 1};
  }
};

Prompt usual_prompt() {
  Prompt prompt;
  prompt.add(1, 7, false);
  prompt.add(2, 34, true);
  prompt.add(3, 33, true);
  prompt.add(4, 5, false);
  return prompt;
}

Config config_of(KvTypeChoice type, u32 rows_max = 32) {
  Config config = small_config();
  config.context_tokens = 20 * kPage;
  config.page_tokens = kPage;
  config.sessions_max = 3;
  config.batch_rows_max = rows_max;
  config.kv_type = type;
  return config;
}

SessionIdx fed(Engine& engine, const Prompt& prompt, f32 recompute) {
  const auto session = engine.sessions().create();
  REQUIRE(session.has_value());
  REQUIRE(engine.sessions().feed(*session, prompt.ids, {prompt.chunks, recompute}).has_value());
  return *session;
}
SessionIdx fed(Engine& engine, const std::vector<u32>& ids) {
  const auto session = engine.sessions().create();
  REQUIRE(session.has_value());
  REQUIRE(engine.sessions().feed(*session, ids).has_value());
  return *session;
}

void run(Engine& engine) {
  while (engine.has_work()) engine.step();
  REQUIRE(!engine.device_lost());
}

// The logits behind the prompt.
std::vector<f32> last_logits(Engine& engine, SessionIdx session, Said* said = nullptr) {
  run(engine);
  LogitsRecord record;
  lab::Probe(engine).watch_logits(session, &LogitsRecord::on_logits, &record);
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 3, .ignore_end = true}).has_value());
  const Said own = read_all(engine, session);
  if (said != nullptr) *said = own;
  lab::Probe(engine).watch_logits(session, nullptr, nullptr);
  return record.rows[engine.sessions().state(session).tokens.n_ids - own.tokens.size() - 1];
}

const u8* slot_of(const Engine& engine, SessionIdx session, u32 layer, u32 head, u32 slot) {
  const kv::Sequence& sequence = engine.sessions().state(session).sequence;
  const kv::GroupShape& shape = lab::Probe::pool(engine).shape();
  const u8* page =
      reinterpret_cast<const u8*>(sequence.group_address(layer, slot / shape.page_tokens)) +
      head * shape.page_bytes();
  return page + u64{slot % shape.page_tokens} * 2 * shape.vector_bytes;
}

// The slot of a chunk's own session, turned by the CPU.
std::vector<u8> turned(const GpuEngine& gpu, kernels::KvType type, const u8* source, u32 distance) {
  const model::ModelSpec& spec = gpu.engine.spec();
  std::vector<f64> inv_freq(spec.n_rot / 2);
  std::copy_n(lab::Probe(const_cast<Engine&>(gpu.engine)).rope_inv_freq(), inv_freq.size(),
              inv_freq.begin());
  std::vector<f32> cos(spec.n_rot / 2), sin(spec.n_rot / 2), scratch(spec.head_dim);
  kernels::rope_table({.positions = &distance,
                       .n_rows = 1,
                       .n_rot = spec.n_rot,
                       .inv_freq = inv_freq.data(),
                       .cos = cos.data(),
                       .sin = sin.data()});
  std::vector<u8> out(2 * kernels::kv_vector_bytes(type, spec.head_dim));
  u8* const slots[] = {out.data()};
  reuse::transplant_kv(
      {.table = *kernels::cpu_table_select("auto"),
       .type = type,
       .head_dim = spec.head_dim,
       .n_rot = spec.n_rot,
       .pairs = spec.rope_halves ? kernels::RopePairs::halves : kernels::RopePairs::adjacent,
       .cos = cos.data(),
       .sin = sin.data()},
      source, 0, slots, scratch);
  return out;
}

f64 distance_of(const std::vector<f32>& a, const std::vector<f32>& b) {
  f64 sum = 0;
  for (u64 i = 0; i < a.size(); ++i) sum += (f64{a[i]} - b[i]) * (f64{a[i]} - b[i]);
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("what a GPU places has the CPU's bytes, and what it computes differs most") {
  for (const KvTypeChoice choice : {KvTypeChoice::f16, KvTypeChoice::q4_0}) {
    CAPTURE(static_cast<int>(choice));
    const GpuModel model("llama", "q8_0");
    GpuEngine gpu, other;  // whose KV comes from nowhere else
    require_open(gpu, model.path(), config_of(choice));
    require_open(other, model.path(), config_of(choice));
    const model::ModelSpec& spec = gpu.engine.spec();
    const auto type = static_cast<kernels::KvType>(choice);
    const Prompt prompt = usual_prompt();
    constexpr f32 kShare = 0.25f;
    const SessionIdx blended = fed(gpu.engine, prompt, kShare);
    run(gpu.engine);
    const reuse::Blend& blend = lab::Probe::blends(gpu.engine)[0];
    std::vector<bool> is_chosen(prompt.ids.size());
    u32 n_placed = 0, n_chosen = 0;
    for (u32 c = 0; c < prompt.chunks.size(); ++c) {
      const ChunkSpan placed = prompt.placed(c);
      for (u32 token = placed.begin; token < placed.end; ++token, ++n_placed) {
        is_chosen[token] = blend.is_chosen(token);
        n_chosen += is_chosen[token];
      }
    }
    CHECK(n_chosen == static_cast<u32>(kShare * static_cast<f32>(n_placed)));
    const SessionIdx whole = fed(other.engine, prompt.ids);
    f64 least_chosen = HUGE_VAL, most_placed = 0;
    for (u32 c = 0; c < prompt.chunks.size(); ++c) {
      const ChunkSpan placed = prompt.placed(c);
      std::vector<u32> alone{kBos};
      alone.insert(alone.end(), prompt.ids.begin() + placed.begin, prompt.ids.begin() + placed.end);
      alone.push_back(7);  // computed with the next input
      const SessionIdx source = fed(other.engine, alone);
      run(other.engine);
      for (u32 token = placed.begin; token < placed.end; ++token) {
        const u32 own_slot = token - placed.begin + 1;
        f64 deviation = 0;
        for (u32 layer = 0; layer < spec.n_cache_layers; ++layer) {
          for (u32 head = 0; head < spec.n_kv_heads; ++head) {
            CAPTURE(token);
            CAPTURE(layer);
            const u8* from = slot_of(other.engine, source, layer, head, own_slot);
            const u8* is = slot_of(gpu.engine, blended, layer, head, token);
            const auto want = turned(gpu, type, from, placed.begin - 1);
            if (!is_chosen[token]) CHECK(std::memcmp(is, want.data(), want.size()) == 0);
            if (layer != 1) continue;
            const u64 at = kernels::kv_vector_bytes(type, spec.head_dim);
            std::vector<f32> a(spec.head_dim), b(spec.head_dim);
            kernels::dequantize_row(kernels::kv_tensor_type(type), from + at, spec.head_dim,
                                    a.data());
            kernels::dequantize_row(kernels::kv_tensor_type(type),
                                    slot_of(other.engine, whole, layer, head, token) + at,
                                    spec.head_dim, b.data());
            deviation += kv::squared_distance(a.data(), b.data(), spec.head_dim);
          }
        }
        if (is_chosen[token]) least_chosen = std::min(least_chosen, deviation);
        if (!is_chosen[token]) most_placed = std::max(most_placed, deviation);
      }
      other.engine.sessions().destroy(source);
    }
    // The prefill's V is stored rounded, so near ties may fall otherwise.
    if (choice == KvTypeChoice::f16) CHECK(least_chosen > 0.98 * most_placed);
    CHECK(least_chosen > 0.5 * most_placed);
  }
}

TEST_CASE("its logits are a CPU's, and a share of 1 is a prefill") {
  // Products with q8_0 round activations to 8 bits, and then a last bit can become a hundredth.
  const GpuModel model("llama", "f16");
  const Prompt prompt = usual_prompt();
  const auto on_gpu = [&](f32 recompute, u32 rows_max) {
    GpuEngine gpu;
    require_open(gpu, model.path(), config_of(KvTypeChoice::f16, rows_max));
    return last_logits(gpu.engine, fed(gpu.engine, prompt, recompute));
  };
  const auto on_cpu = [&](f32 recompute) {
    OpenEngine open(model.path(), config_of(KvTypeChoice::f16));
    return last_logits(open.engine, fed(open.engine, prompt, recompute));
  };
  GpuEngine gpu;
  require_open(gpu, model.path(), config_of(KvTypeChoice::f16));
  const std::vector<f32> whole = last_logits(gpu.engine, fed(gpu.engine, prompt.ids));
  const SessionIdx again = fed(gpu.engine, prompt, 1);
  CHECK(last_logits(gpu.engine, again) == whole);
  const std::vector<f32> none = on_gpu(0, 32), some = on_gpu(0.25f, 32);
  const f64 rounding = distance_of(whole, on_cpu(1));
  CAPTURE(rounding);
  CHECK(distance_of(none, on_cpu(0)) <= 4 * rounding);
  CHECK(distance_of(some, on_cpu(0.25f)) <= 4 * rounding);
  CHECK(distance_of(none, whole) > 10 * rounding);
  CHECK(distance_of(some, whole) < distance_of(none, whole));
  CHECK(on_gpu(0.25f, 16) == some);
}

TEST_CASE("beside a neighbour, and again with what is there, the answer is the same") {
  const GpuModel model("llama", "q8_0");
  const Prompt prompt = usual_prompt();
  GpuEngine gpu;
  require_open(gpu, model.path(), config_of(KvTypeChoice::f16));
  Said first;
  const auto logits = last_logits(gpu.engine, fed(gpu.engine, prompt, 0.25f), &first);
  const SessionIdx neighbour = fed(gpu.engine, random_ids(9, 50));
  REQUIRE(gpu.engine.sessions()
              .generate(neighbour, {.max_tokens = 12, .ignore_end = true})
              .has_value());
  gpu.engine.step();
  Said again;
  CHECK(last_logits(gpu.engine, fed(gpu.engine, prompt, 0.25f), &again) == logits);
  CHECK(again.tokens == first.tokens);
  const Said beside = read_all(gpu.engine, neighbour);
  GpuEngine alone;
  require_open(alone, model.path(), config_of(KvTypeChoice::f16));
  const SessionIdx same = fed(alone.engine, random_ids(9, 50));
  REQUIRE(
      alone.engine.sessions().generate(same, {.max_tokens = 12, .ignore_end = true}).has_value());
  CHECK(read_all(alone.engine, same).tokens == beside.tokens);
}

TEST_CASE("where rows select, a chunk and a check read their own KV") {
  const GpuModel model("llama", "q8_0");
  Prompt prompt;
  prompt.add(1, 7, false);
  prompt.add(2, 34, true);
  prompt.add(4, 5, false);
  const auto said = [&](SelectMethod method, u32 rows_max, std::vector<bool>* chosen) {
    Config config = config_of(KvTypeChoice::f16, rows_max);
    config.sessions_max = 8;
    config.select.method = method;
    config.select.n_sinks = 4;
    config.select.n_local = 8;
    config.select.k = 8;
    config.select.index_delay_tokens = 1;
    config.select.context_min = 1;
    GpuEngine gpu;
    require_open(gpu, model.path(), config);
    const SessionIdx session = fed(gpu.engine, prompt, 0.25f);
    run(gpu.engine);
    const ChunkSpan placed = prompt.placed(0);
    for (u32 token = placed.begin; token < placed.end; ++token)
      chosen->push_back(lab::Probe::blends(gpu.engine)[0].is_chosen(token));
    return last_logits(gpu.engine, session);  // of the prompt's last row, which reads everything
  };
  std::vector<bool> by_full, by_window, by_few_rows;
  const auto want = said(SelectMethod::full, 32, &by_full);
  CHECK(said(SelectMethod::window, 32, &by_window) == want);
  CHECK(by_window == by_full);
  // More tables than a step has rows.
  CHECK(said(SelectMethod::window, 8, &by_few_rows) == want);
  CHECK(by_few_rows == by_full);
}

TEST_CASE("over memory and a disk it has the bits of KV in its memory") {
  const GpuModel model("llama", "q8_0");
  const Prompt prompt = usual_prompt();
  GpuEngine here;
  require_open(here, model.path(), config_of(KvTypeChoice::f16));
  Said want;
  const auto logits = last_logits(here.engine, fed(here.engine, prompt, 0.25f), &want);
  CHECK(want.done.reused.n_placed > 0);
  Config config = config_of(KvTypeChoice::f16);
  set_text(config.store.path, "store");
  config.store.quota_bytes = kGiB;
  config.store.sessions = true;
  config.store.checkpoint_ms = 0;
  SimDisk disk(1);
  for (const bool is_stored : {false, true}) {
    CAPTURE(is_stored);
    VirtualClock clock;
    SimIo io(disk, clock, 32);
    GpuEngine there;
    there.store_io = &io;
    there.lent_clock = &clock;
    require_open(there, model.path(), config);
    REQUIRE(lab::Probe::kv(there.engine).has_tiers());
    Said got;
    CHECK(last_logits(there.engine, fed(there.engine, prompt, 0.25f), &got) == logits);
    CHECK(got.tokens == want.tokens);
    CHECK(got.done.reused.n_placed == want.done.reused.n_placed);
    CHECK((there.engine.status().counters.disk.bytes_read > 0) == is_stored);
    for (u32 c = 0; c < prompt.chunks.size() && !is_stored; ++c) {
      std::vector<u32> alone{kBos};
      alone.insert(alone.end(), prompt.ids.begin() + prompt.chunks[c].begin,
                   prompt.ids.begin() + prompt.chunks[c].end);
      const SessionIdx session = fed(there.engine, alone);
      run(there.engine);
      REQUIRE(there.engine.sessions().save(session, std::to_string(c)).has_value());
      there.engine.sessions().destroy(session);
    }
  }
}

}  // namespace tarn::test::blend_gpu_test
