// Goal    KV that is filled in stands where a prefill would have put it: the same bits for the same
//         rows, the same bytes written, groups in the same states, hits at the same rate, of
//         groups and of a cache of slots; what fills it has the covariance and the locality of what
//         was recorded; and the engine finds of a step's slots the share that --overlap plants.
// Method  a prefill's own K and V, watched, filled into a second session, the next logits compared
//         as bytes; 4,096 tokens over a simulated disk with memory for an eighth of them, prefilled
//         and filled; moments of rows that were made with a covariance; 200 tokens decoded with
//         planted queries and a cache of just the slots of one step.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "runtime/lab/probe.h"
#include "tests/support/kv_invariants.h"
#include "tests/support/kv_recording.h"
#include "tests/support/open_engine.h"
#include "tests/support/sim_disk.h"
#include "tools/tarn-bench/kv_model.h"

namespace tarn::bench::fill_native_test {
namespace {

using test::KvRecording;
using test::LogitsRecord;
using test::OpenEngine;
using test::SmallModel;

constexpr u32 kPage = 16;

// Logits behind what the session holds.
std::vector<std::vector<f32>> next_logits(engine::Engine& engine, engine::SessionIdx session) {
  LogitsRecord record;
  lab::Probe(engine).watch_logits(session, &LogitsRecord::on_logits, &record);
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 4, .ignore_end = true}).has_value());
  test::read_all(engine, session);
  lab::Probe(engine).watch_logits(session, nullptr, nullptr);
  return record.rows;
}

TEST_CASE("rows that a prefill computed, filled in again, give its bits") {
  constexpr u32 kTokens = 150;
  for (const char* arch : {"llama", "qwen3"}) {
    for (const KvTypeChoice kv_type : {KvTypeChoice::f16, KvTypeChoice::q8_0}) {
      CAPTURE(arch);
      const SmallModel model(arch, "q8_0");
      Config config = test::small_config();
      config.kv_type = kv_type;
      config.page_tokens = kPage;
      config.sessions_max = 2;
      config.batch_rows_max = 48;
      OpenEngine opened(model.path(), config);
      engine::Engine& engine = opened.engine;
      const std::vector<u32> ids = test::random_ids(5, kTokens + 1);

      KvRecording recording(engine, kTokens);
      lab::Probe(engine).watch_kv({&KvRecording::take, &recording});
      const engine::SessionIdx computed = opened.session_with(ids);
      opened.run();
      lab::Probe(engine).watch_kv({});
      const engine::SessionIdx filled = *engine.sessions().create();
      REQUIRE(
          lab::Probe(engine).fill_kv(filled, ids, {&KvRecording::give, &recording}).has_value());

      CHECK(engine.sessions().state(filled).sequence.n_slots() == kTokens);
      CHECK(!engine.has_work());
      const auto expected = next_logits(engine, computed);
      const auto found = next_logits(engine, filled);
      REQUIRE(expected.size() == found.size());
      CHECK(expected == found);
      test::check_invariants(engine.sessions().state(filled).sequence, lab::Probe::pool(engine),
                             engine.spec().n_cache_layers);
    }
  }
}

// What 4,096 tokens left in memory and on disk, and how decode steps find it.
struct Outcome {
  f64 bytes_written = 0, hit_rate = 0;
  std::array<f64, kv::kWheres> groups{};
};

Outcome outcome_of(const SmallModel& model, bool is_filled) {
  constexpr u32 kTokens = 4096, kLayers = 2, kDecoded = 12;
  test::SimDisk disk(1);
  VirtualClock clock;
  test::SimIo io(disk, clock, 64);
  Config config = test::small_config();
  config.context_tokens = kTokens + 64;
  config.page_tokens = kPage;
  config.batch_rows_max = 64;
  config.sessions_max = 2;
  config.kv_memory_bytes = kLayers * kTokens / kPage / 8 * 8192;
  config.store.quota_bytes = kGiB;
  test::set_text(config.store.path, "store");
  Outcome out;
  OpenEngine opened(model.path(), config, &clock, &io);
  engine::Engine& engine = opened.engine;
  KvModel kv_model(KvModelKind::synthetic, 3);
  if (is_filled) kv_model.record(engine, 128);
  const std::vector<u32> ids = test::random_ids(5, kTokens + 1);
  const u64 before = lab::Probe::tiers(engine).mover.stats().bytes_spilled;
  const engine::SessionIdx session = *engine.sessions().create();
  REQUIRE((is_filled ? lab::Probe(engine).fill_kv(session, ids, kv_model.source())
                     : engine.sessions().feed(session, ids))
              .has_value());
  opened.run();
  const kv::MoverStats filled = lab::Probe::tiers(engine).mover.stats();
  out.bytes_written = static_cast<f64>(filled.bytes_spilled - before);
  for (u32 i = 0; i < kv::kWheres; ++i) {
    out.groups[i] = lab::Probe::tiers(engine).residency.stats().n(static_cast<kv::Where>(i));
  }
  REQUIRE(engine.sessions()
              .generate(session, {.max_tokens = kDecoded, .ignore_end = true})
              .has_value());
  test::read_all(engine, session);
  const kv::MoverStats& after = lab::Probe::tiers(engine).mover.stats();
  const f64 n_hits = static_cast<f64>(after.n_hits - filled.n_hits);
  out.hit_rate = n_hits / (n_hits + static_cast<f64>(after.n_waited - filled.n_waited));
  return out;
}

constexpr u32 kChosen = 256;

// How the tokens come to be there, and what a step looks for among them.
struct Context {
  bool is_filled = false;
  f64 overlap = 0;  // 0: whatever the model looks for
  u32 cache_tokens = 2 * kChosen;
  u64 draw = 0;  // of the tokens and of the filled rows
};

// Of the slots that selection wants, the share that it finds in its cache.
f64 cache_rate_of(const std::string& model_path, const Context& context) {
  constexpr u32 kTokens = 4096, kLayers = 2, kDecoded = 200;
  test::SimDisk disk(1);
  VirtualClock clock;
  test::SimIo io(disk, clock, 64);
  Config config = test::small_config();
  config.context_tokens = kTokens + 256;
  config.page_tokens = kPage;
  config.batch_rows_max = 64;
  config.sessions_max = 1;
  config.select.method = SelectMethod::pq;
  config.select.n_local = 64;
  config.select.k = kChosen;
  config.select.cache_tokens = context.cache_tokens;
  config.kv_memory_bytes = kLayers * kTokens / kPage / 2 * 8192;
  config.store.quota_bytes = kGiB;
  test::set_text(config.store.path, "store");
  OpenEngine opened(model_path, config, &clock, &io);
  engine::Engine& engine = opened.engine;
  KvModel kv_model(KvModelKind::synthetic, 3 + context.draw);
  if (context.is_filled) kv_model.record(engine, 256);  // as tarn-bench does
  if (context.overlap > 0) {
    kv_model.plant({.overlap = context.overlap, .tail = 1, .chosen_share = f64{kChosen} / kTokens},
                   engine);
  }
  const std::vector<u32> ids = test::random_ids(5 + context.draw, kTokens + 1);
  const engine::SessionIdx session = *engine.sessions().create();
  REQUIRE((context.is_filled ? lab::Probe(engine).fill_kv(session, ids, kv_model.source())
                             : engine.sessions().feed(session, ids))
              .has_value());
  opened.run();
  lab::Probe(engine).watch_kv(kv_model.planter());
  const u64 n_far = engine.status().counters.disk.n_far_slots;
  const u64 n_cached = engine.status().counters.disk.n_cached_slots;
  REQUIRE(engine.sessions()
              .generate(session, {.max_tokens = kDecoded, .ignore_end = true})
              .has_value());
  test::read_all(engine, session);
  lab::Probe(engine).watch_kv({});
  const f64 wanted = static_cast<f64>(engine.status().counters.disk.n_far_slots - n_far);
  CHECK(wanted > 10'000);
  return static_cast<f64>(engine.status().counters.disk.n_cached_slots - n_cached) / wanted;
}

TEST_CASE("selection finds as much of filled KV in its cache as of computed KV") {
  const SmallModel model("llama", "q8_0");
  constexpr u64 kDraws = 2;  // their ratio scatters by 7 %, a mean's by 5
  f64 computed = 0, filled = 0;
  for (u64 draw = 0; draw < kDraws; ++draw) {
    computed += cache_rate_of(model.path(), {.draw = draw}) / kDraws;
    filled += cache_rate_of(model.path(), {.is_filled = true, .draw = draw}) / kDraws;
  }
  MESSAGE("slots found in the cache: " << computed << " of computed KV, " << filled
                                       << " of filled KV");
  CHECK(computed > 0.1);
  CHECK(std::abs(filled / computed - 1) < 0.1);
}

// Of such a head RoPE hardly turns 16 dims within 4,352 tokens, as of an 8B's: room to plant in.
class SlowlyTurned {
 public:
  SlowlyTurned() {
    const synth::SynthShape shape{.name = "slowly turned", .n_vocab = 1024, .rope_base = 500000};
    synth::synth_write(shape, *synth::parse_quant("q8_0"), 1, file_.path(), 1);
  }
  const std::string& path() const { return file_.path(); }

 private:
  test::TempFile file_{"slowly_turned.gguf"};
};

TEST_CASE("a cache of one step's slots finds of the next the overlap that was planted") {
  const SlowlyTurned model;
  for (const f64 overlap : {0.3, 0.6, 0.9}) {
    const f64 rate = cache_rate_of(
        model.path(), {.is_filled = true, .overlap = overlap, .cache_tokens = kChosen});
    MESSAGE("slots found in the cache: " << rate << " at overlap " << overlap);
    CHECK(std::abs(rate - overlap) < 0.06);
  }
}

TEST_CASE("4,096 tokens filled in lie where a prefill leaves them") {
  const SmallModel model("llama", "q8_0");
  const Outcome computed = outcome_of(model, false), filled = outcome_of(model, true);
  CHECK(computed.bytes_written > 0);
  CHECK(filled.bytes_written == doctest::Approx(computed.bytes_written).epsilon(0.1));
  CHECK(std::abs(filled.hit_rate / computed.hit_rate - 1) < 0.1);
  const auto n = [](const Outcome& outcome, kv::Where where) {
    return outcome.groups[static_cast<u32>(where)];
  };
  for (const kv::Where where : {kv::Where::writing, kv::Where::lost}) {
    CHECK(n(filled, where) == n(computed, where));
  }
  for (const kv::Where where : {kv::Where::disk, kv::Where::free}) {
    CAPTURE(test::where_name(where));
    CHECK(n(filled, where) == doctest::Approx(n(computed, where)).epsilon(0.1));
  }
  const auto in_memory = [&](const Outcome& outcome) {
    return n(outcome, kv::Where::memory) + n(outcome, kv::Where::both);
  };
  CHECK(in_memory(filled) == doctest::Approx(in_memory(computed)).epsilon(0.1));
  MESSAGE("written " << computed.bytes_written << " and " << filled.bytes_written << ", hits "
                     << computed.hit_rate << " and " << filled.hit_rate << ", on disk "
                     << n(computed, kv::Where::disk) << " and " << n(filled, kv::Where::disk));
}

// Second moments of one head's dimensions, and how alike neighbours are, of [n, d] rows.
struct Moments {
  std::vector<f64> covariance;
  f64 lag = 0;
};

Moments moments_of(const std::vector<f32>& rows, u32 n, u32 d) {
  std::vector<f64> mean(d);
  for (u64 i = 0; i < rows.size(); ++i) mean[i % d] += f64{rows[i]} / n;
  Moments out;
  out.covariance.resize(u64{d} * d);
  f64 own = 0, next = 0;
  for (u32 t = 0; t < n; ++t) {
    const f32* row = &rows[u64{t} * d];
    for (u32 i = 0; i < d; ++i) {
      const f64 x = row[i] - mean[i];
      for (u32 j = 0; j < d; ++j) out.covariance[u64{i} * d + j] += x * (row[j] - mean[j]) / n;
      own += x * x;
      if (t + 1 < n) next += x * (row[d + i] - mean[i]);
    }
  }
  out.lag = next / own;
  return out;
}

TEST_CASE("synthetic rows have the recorded covariance and locality") {
  constexpr u32 kRecorded = 3000, kFilled = 32768, kDim = 12;
  constexpr f32 kAlike = 0.9f;
  std::vector<f32> rows(u64{kRecorded} * kDim), v(rows.size());
  test::Random random(test::seed_from_environment());
  std::vector<f32> state(kDim);
  for (u32 t = 0; t < kRecorded; ++t) {  // dimension i + 1 follows dimension i, one larger
    f32 carried = 0;
    for (u32 i = 0; i < kDim; ++i) {
      carried = 0.6f * carried + random.normal() * static_cast<f32>(i + 1);
      state[i] = kAlike * state[i] + std::sqrt(1 - kAlike * kAlike) * carried;
      rows[u64{t} * kDim + i] = state[i] + 2;
    }
  }
  KvModel recorded(KvModelKind::recorded, 9), synthetic(KvModelKind::synthetic, 9);
  for (KvModel* kv_model : {&recorded, &synthetic}) {
    kv_model->begin(1, kRecorded, kDim);
    const step::KvWatch recorder = kv_model->recorder();
    recorder.rows(recorder.context,
                  {.n = kRecorded, .k = {rows.data(), kDim}, .v = {v.data(), kDim}});
    kv_model->end();
  }
  const auto keys_of = [](KvModel& kv_model, u32 first, u32 n) {
    std::vector<f32> k(u64{n} * kDim), values(k.size());
    const step::KvWatch source = kv_model.source();
    source.rows(source.context,
                {.first_slot = first, .n = n, .k = {k.data(), kDim}, .v = {values.data(), kDim}});
    return k;
  };
  const Moments a = moments_of(rows, kRecorded, kDim);
  const Moments b = moments_of(keys_of(synthetic, 0, kFilled), kFilled, kDim);
  f64 difference = 0, size = 0;
  for (u64 i = 0; i < a.covariance.size(); ++i) {
    difference += std::pow(a.covariance[i] - b.covariance[i], 2);
    size += std::pow(a.covariance[i], 2);
  }
  MESSAGE("covariance off by " << std::sqrt(difference / size) << ", neighbours alike by " << a.lag
                               << " and " << b.lag);
  CHECK(std::sqrt(difference / size) < 0.1);
  CHECK(a.lag > 0.8);
  CHECK(std::abs(a.lag - b.lag) < 0.05);
  // The mixed ones never repeat, the recorded ones do; both are the same whenever asked.
  constexpr u32 kPeriod = kRecorded - KvModel::kSinkTokens;
  CHECK(keys_of(synthetic, 1000, 8) == keys_of(synthetic, 1000, 8));
  CHECK(keys_of(synthetic, 1000, 8) != keys_of(synthetic, 1000 + kPeriod, 8));
  CHECK(keys_of(recorded, 1000, 8) == keys_of(recorded, 1000 + kPeriod, 8));
}

}  // namespace
}  // namespace tarn::bench::fill_native_test
