// Goal    KV over the host's memory and a disk gives a GPU the bits of KV in its own memory: full
//         attention, in stripes, whatever the batch, forks and cuts; selection, whatever came from
//         caches and extents; KV that was filled in. A fault of the disk ends the generation that
//         needs it and no other, a GPU that is lost ends all, and memory is the plan's.
// Method  the fake device and the emulated kernels, whose copies and launches wait until an event
//         is asked; the same calls on an engine with all KV on the device and on one with frames
//         for a part of it, over a simulated disk; logits compared as bytes.
#include <array>
#include <cmath>
#include <optional>

#include "platform/gpu/gpu_errors.h"
#include "runtime/lab/methods.h"
#include "runtime/lab/probe.h"
#include "tests/runtime/engine_gpu/select_gpu.h"
#include "tests/support/logits.h"
#include "tests/support/sim_disk.h"
#include "tests/support/slow_build.h"

namespace tarn::test::stream_native_test {
namespace {

using engine::SessionIdx;

// Of GpuModel::usual in f16 or q8_0: a page of 32 slots, two KV heads of 32 elements.
constexpr u64 kGroupBytes = 8192;
constexpr u64 kRowElems = 64;
constexpr u32 kDepth = 4200;
constexpr u32 kPromptRows = 11;  // of two launches
constexpr u32 kCut = 6;          // tokens behind it, behind the index' first use

Config stream_config(Config config, u32 n_frames) {
  if (n_frames == 0) return config;
  config.kv_memory_bytes =
      n_frames * (config.kv_type == KvTypeChoice::q4_0 ? kGroupBytes / 2 : kGroupBytes);
  config.store.quota_bytes = kGiB;
  set_text(config.store.path, "store");
  return config;
}

struct StreamedGpu {
  explicit StreamedGpu(SimDisk& disk, const DeviceFacts& facts = kOrinFacts)
      : io(disk, clock, 64), gpu(facts) {
    gpu.lent_clock = &clock;
    gpu.store_io = &io;
  }
  void open(const std::string& path, const Config& config) {
    require_open(gpu, path, config);
    REQUIRE(lab::Probe::kv(gpu.engine).has_tiers());
  }

  VirtualClock clock;
  SimIo io;
  GpuEngine gpu;
};

// Rows that differ in every element.
void write_rows(void*, const step::KvRows& rows) {
  for (u32 i = 0; i < rows.n; ++i) {
    for (u64 j = 0; j < kRowElems; ++j) {
      const f32 at = static_cast<f32>((rows.first_slot + i) * 31 + j * 7 + rows.cache_layer * 3);
      rows.k.data[i * rows.k.stride + j] = 3 * std::sin(at);
      rows.v.data[i * rows.v.stride + j] = std::cos(at * 0.7f);
    }
  }
}

SessionIdx filled(engine::Engine& engine, u32 n, u64 seed = 1) {
  const SessionIdx session = *engine.sessions().create();
  REQUIRE(lab::Probe(engine).fill_kv(session, random_ids(seed, n, GpuModel::kVocab),
                                     {&write_rows, nullptr}));
  return session;
}

struct Answers {
  std::vector<LogitsRecord> logits = std::vector<LogitsRecord>(3);
  std::vector<std::vector<u32>> tokens;
};

// Two sessions side by side, a cut within a page, and a fork.
Answers answers_of(GpuEngine& gpu) {
  engine::Engine& engine = gpu.engine;
  Answers answers;
  const SessionIdx a = filled(engine, 120, 1);
  const SessionIdx b = filled(engine, 200, 2);
  lab::Probe(engine).watch_logits(a, &LogitsRecord::on_logits, &answers.logits[0]);
  lab::Probe(engine).watch_logits(b, &LogitsRecord::on_logits, &answers.logits[1]);
  for (const SessionIdx session : {a, b}) {
    REQUIRE(engine.sessions().generate(session, {.max_tokens = 5, .ignore_end = true}).has_value());
  }
  for (const SessionIdx session : {a, b}) {
    answers.tokens.push_back(read_all(engine, session).tokens);
  }
  REQUIRE(engine.sessions().truncate(a, 75).has_value());
  REQUIRE(engine.sessions().feed(a, random_ids(3, 9, GpuModel::kVocab)).has_value());
  gpu.run();
  const Result<SessionIdx> c = engine.sessions().fork(b);
  REQUIRE(c.has_value());
  lab::Probe(engine).watch_logits(*c, &LogitsRecord::on_logits, &answers.logits[2]);
  REQUIRE(engine.sessions().feed(*c, random_ids(4, 3, GpuModel::kVocab)).has_value());
  REQUIRE(engine.sessions().feed(b, random_ids(5, 4, GpuModel::kVocab)).has_value());
  gpu.run();
  REQUIRE(engine.sessions().truncate(*c, 141).has_value());  // inside a group that b shares
  REQUIRE(engine.sessions().feed(*c, random_ids(6, 3, GpuModel::kVocab)).has_value());
  gpu.run();
  REQUIRE(!engine.device_lost());
  return answers;
}

void require_same(const Answers& want, const Answers& got) {
  CHECK(want.tokens == got.tokens);
  for (u32 i = 0; i < 3; ++i) {
    CAPTURE(i);
    require_same_bits(want.logits[i], got.logits[i]);
  }
}

Config full_config(KvTypeChoice kv_type) {
  Config config = small_config();
  config.context_tokens = 512;
  config.page_tokens = 32;
  config.batch_rows_max = 32;
  config.sessions_max = 3;
  config.kv_type = kv_type;
  return config;
}

TEST_CASE("KV over memory and a disk gives a GPU the bits of KV in its memory") {
  const GpuModel model("llama", "q8_0");
  // A slow build has the other one.
  for (const KvTypeChoice kv_type : {KvTypeChoice::f16, KvTypeChoice::q8_0, KvTypeChoice::q4_0}) {
    if (kSlowBuild != (kv_type == KvTypeChoice::q8_0)) continue;
    CAPTURE(kv_type);
    GpuEngine resident;
    require_open(resident, model.path(), full_config(kv_type));
    const Answers want = answers_of(resident);
    SimDisk disk(1);
    StreamedGpu streamed(disk, kv_type == KvTypeChoice::f16 ? kOrinFacts : kDiscreteFacts);
    streamed.open(model.path(), stream_config(full_config(kv_type), 20));
    require_same(want, answers_of(streamed.gpu));
    const kv::MoverStats& stats = lab::Probe::tiers(streamed.gpu.engine).mover.stats();
    CHECK(stats.n_loads > 15);
    CHECK(stats.n_spills > 5);
    CHECK(stats.n_lost == 0);
  }
}

// A depth of more than a stripe, filled in; a prompt behind it; tokens whose rows select from some
// on; a cut behind the index' first use and the same again, beside another session.
// Then a fork of it, and both at once.
struct Deep {
  LogitsRecord prompt, first, again;
  std::array<LogitsRecord, 2> forked;
};
template <class AnyEngine>
Deep deep_of(AnyEngine& gpu) {
  engine::Engine& engine = gpu.engine;
  Deep deep;
  const SessionIdx session = *engine.sessions().create();
  REQUIRE(lab::Probe(engine).fill_kv(session, random_ids(1, kDepth, GpuModel::kVocab),
                                     {&write_rows, nullptr}));
  lab::Probe(engine).watch_logits(session, &LogitsRecord::on_logits, &deep.prompt);
  REQUIRE(
      engine.sessions().feed(session, random_ids(2, kPromptRows, GpuModel::kVocab)).has_value());
  gpu.run();
  const std::vector<u32> tokens = random_ids(3, 9, GpuModel::kVocab);
  for (const bool is_again : {false, true}) {
    LogitsRecord& record = is_again ? deep.again : deep.first;
    lab::Probe(engine).watch_logits(session, &LogitsRecord::on_logits, &record);
    SessionIdx other = session;
    if (is_again) other = prompted(engine, random_ids(4, 40, GpuModel::kVocab));
    if (is_again) {
      REQUIRE(engine.sessions().truncate(session, kDepth + kPromptRows + kCut).has_value());
      REQUIRE(engine.sessions().generate(other, {.max_tokens = 4, .ignore_end = true}).has_value());
    }
    const std::span<const u32> forced = std::span(tokens).subspan(is_again ? kCut : 0);
    generate(engine, session, forced, [](u32, const engine::StepTrace&) {});
    if (is_again) CHECK(read_all(engine, other).tokens.size() == 4);
    lab::Probe(engine).watch_logits(session, nullptr, nullptr);
    if (is_again) engine.sessions().destroy(other);
  }
  const Result<SessionIdx> fork = engine.sessions().fork(session);
  if (!fork) FAIL(std::string(fork.error().hint));
  const SessionIdx both[] = {session, *fork};
  const std::vector<u32> next[] = {random_ids(7, 2, GpuModel::kVocab),
                                   random_ids(8, 2, GpuModel::kVocab)};
  for (u32 i = 0; i < 2; ++i) {
    lab::Probe(engine).watch_logits(both[i], &LogitsRecord::on_logits, &deep.forked[i]);
    REQUIRE(lab::Probe(engine).generate(both[i], {.max_tokens = 2, .ignore_end = true}, next[i]));
  }
  while (engine.has_work()) engine.step();
  for (const SessionIdx each : both) CHECK(read_all(engine, each).tokens.size() == 2);
  REQUIRE(!engine.device_lost());
  return deep;
}

Config deep_config(SelectMethod method, KvTypeChoice kv_type) {
  Config config = full_config(kv_type);
  config.context_tokens = 4608;
  config.batch_rows_max = 64;
  config.sessions_max = 2;
  config.select.method = method;
  config.select.code_bits = 3;
  config.select.n_sinks = 20;
  config.select.n_local = 70;
  config.select.iterations = 2;
  config.select.index_delay_tokens = 3;
  config.select.context_min = 1;
  return config;
}

TEST_CASE("stripes and chosen slots that come from a disk give the bits of KV on the device") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  struct Case {
    SelectMethod method;
    KvTypeChoice kv_type;
    u32 n_frames, k;
    bool has_extents;
    bool is_discrete;  // a stripe stays on the device
  };
  const Case cases[] = {{SelectMethod::full, KvTypeChoice::f16, 20, 64, false, false},
                        {SelectMethod::full, KvTypeChoice::f16, 20, 64, false, true},
                        {SelectMethod::pq, KvTypeChoice::f16, 20, 64, false, false},
                        {SelectMethod::pq, KvTypeChoice::q8_0, 130, 1000, true, true}};
  u64 n_loads_passing = 0;
  std::optional<Deep> want;  // of the case before, if its plan on the device is the same
  for (const Case& c : cases) {
    if (kSlowBuild && !c.is_discrete) continue;
    CAPTURE(static_cast<u32>(c.method));
    CAPTURE(c.n_frames);
    Config config = deep_config(c.method, c.kv_type);
    config.select.k = c.k;
    if (!want || c.method != SelectMethod::full) {
      GpuEngine resident;
      require_open(resident, model.path(), config);
      want = deep_of(resident);
    }
    SimDisk disk(1);
    StreamedGpu streamed(disk, c.is_discrete ? kDiscreteFacts : kOrinFacts);
    streamed.open(model.path(), stream_config(config, c.n_frames));
    const Deep got = deep_of(streamed.gpu);
    require_same_bits(want->prompt, got.prompt);
    require_same_bits(want->first, got.first);
    require_same_bits(want->again, got.again);
    for (u32 i = 0; i < 2; ++i) require_same_bits(want->forked[i], got.forked[i]);
    const kv::KvCache& kv = lab::Probe::kv(streamed.gpu.engine);
    CHECK(kv.tiers().mover.stats().n_loads > 30);
    CHECK(kv.tiers().mover.stats().n_lost == 0);
    CHECK((kv.tiers().mover.stats().bytes_gathered + kv.tiers().extents.stats().bytes_used > 0) ==
          (c.method != SelectMethod::full));
    CHECK((kv.tiers().extents.stats().n_reads > 0) == c.has_extents);
    CHECK(streamed.gpu.engine.plan().gpu.n_stripes == c.is_discrete);
    CHECK((streamed.gpu.engine.status().n_stripes_kept > 0) == c.is_discrete);
    if (c.method != SelectMethod::full || kSlowBuild) continue;
    CHECK((n_loads_passing > 5 * kv.tiers().mover.stats().n_loads) == c.is_discrete);
    if (!c.is_discrete) n_loads_passing = kv.tiers().mover.stats().n_loads;
  }
}

// |a - b| / |a| over the rows that were watched, each less its mean.
f64 apart(const LogitsRecord& a, const LogitsRecord& b) {
  REQUIRE(a.rows.size() == b.rows.size());
  std::vector<f64> first;
  std::vector<f32> second;
  for (u64 i = 0; i < a.rows.size(); ++i) {
    REQUIRE(a.rows[i].size() == b.rows[i].size());
    first.insert(first.end(), a.rows[i].begin(), a.rows[i].end());
    second.insert(second.end(), b.rows[i].begin(), b.rows[i].end());
  }
  return logits_distance(first, second, GpuModel::kVocab, 0).relative_l2;
}

TEST_CASE("over a disk the host chooses for a GPU by a method that it has no kernels for") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  Config config = deep_config(SelectMethod::pq, KvTypeChoice::f16);
  lab::set_method(config.select, "quest");
  // So many pages that some heads choose one that the sinks or the local window cut.
  config.select.k = 1504;
  {
    GpuEngine resident;
    set_text(config.device, "cuda");
    const Result<void> opened = resident.open(model.path(), config);
    REQUIRE(!opened.has_value());
    CHECK(std::string(opened.error().hint).find("--store DIR") != std::string::npos);
  }
  SimDisk disk(1), other_disk(1);
  StreamedGpu streamed(disk);
  streamed.open(model.path(), stream_config(config, 20));
  const Deep got = deep_of(streamed.gpu);
  CHECK(lab::Probe::tiers(streamed.gpu.engine).mover.stats().bytes_gathered > 0);
  VirtualClock clock;
  SimIo io(other_disk, clock, 64);
  set_text(config.device, "cpu");
  OpenEngine on_cpu(model.path(), stream_config(config, 20), &clock, &io);
  const Deep want = deep_of(on_cpu);
  lab::set_method(config.select, "full");
  OpenEngine full(model.path(), config);
  const Deep exact = deep_of(full);
  MESSAGE("apart from the CPU " << apart(want.first, got.first) << ", from full attention "
                                << apart(exact.first, got.first));
  CHECK(apart(want.first, got.first) < 1e-3);
  CHECK(apart(want.again, got.again) < 1e-3);
  for (u32 i = 0; i < 2; ++i) CHECK(apart(want.forked[i], got.forked[i]) < 1e-3);
  CHECK(apart(exact.first, got.first) > 0.01);
}

// An engine of one layer with KV for 11 groups, of which 8 may be in memory.
Config short_config() {
  Config config = full_config(KvTypeChoice::f16);
  config.context_tokens = 320;
  config.sessions_max = 1;
  return config;
}

TEST_CASE("a part that cannot be read back ends its generation and no other") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  Config config = short_config();
  config.sessions_max = 2;
  config.context_tokens = 640;
  const engine::GenerateParams params{.max_tokens = 4, .ignore_end = true};
  std::vector<u32> want_other;
  {
    GpuEngine resident;
    require_open(resident, model.path(), config);
    const SessionIdx other = prompted(resident.engine, random_ids(8, 20, GpuModel::kVocab));
    REQUIRE(resident.engine.sessions().generate(other, params).has_value());
    want_other = read_all(resident.engine, other).tokens;
  }
  SimDisk disk(1);
  StreamedGpu streamed(disk);
  streamed.open(model.path(), stream_config(config, 10));
  engine::Engine& engine = streamed.gpu.engine;
  const SessionIdx session = filled(engine, 600);
  const SessionIdx other = prompted(engine, random_ids(8, 20, GpuModel::kVocab));
  disk.script.ppm[static_cast<u32>(SimFault::flipped_read)] = 1'000'000;
  for (const SessionIdx each : {session, other}) {
    REQUIRE(engine.sessions().generate(each, params).has_value());
  }
  while (lab::Probe::tiers(engine).mover.stats().n_lost == 0) {
    REQUIRE(engine.has_work());
    engine.step();
  }
  disk.script.ppm = {};
  const Said failed = read_all(engine, session);
  CHECK(failed.done.finish == engine::Finish::error);
  CHECK(failed.done.status == Status::io_failed);
  CHECK(failed.tokens.empty());
  CHECK(read_all(engine, other).tokens == want_other);
  // The remedy: it is computed anew.
  REQUIRE(engine.sessions().generate(session, params).has_value());
  CHECK(read_all(engine, session).done.finish == engine::Finish::length);
  CHECK(!engine.device_lost());
}

TEST_CASE("a GPU lost at any call, or hung, over a disk: no token and no step from then on") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  Config config = short_config();
  config.select = least_select(/*index_delay_tokens=*/1);
  // Rows that read all and rows that select, while `call` fails; 0: none, ~0: it does not answer.
  constexpr u32 kTokens = 3;
  constexpr u64 kHangs = ~u64{0};
  u64 n_calls = 0, n_chosen = 0;
  const auto run = [&](StreamedGpu& streamed, u64 call) {
    streamed.open(model.path(), stream_config(config, 8));
    engine::Engine& engine = streamed.gpu.engine;
    const SessionIdx session = filled(engine, 280);
    FakeDevice& device = streamed.gpu.device;
    const u64 n_before = device.n_calls();
    REQUIRE(engine.sessions()
                .generate(session, {.max_tokens = kTokens, .ignore_end = true})
                .has_value());
    if (call == kHangs) device.hang();
    if (call > 0 && call != kHangs) {
      device.fail_at({.call = n_before + call, .code = kGpuIllegalAddress, .for_ever = true});
    }
    n_chosen = 0;
    while (engine.has_work()) n_chosen += engine.step().n_slots_chosen;
    n_calls = device.n_calls() - n_before;
    return session;
  };
  {
    SimDisk disk(1);
    StreamedGpu streamed(disk);
    const SessionIdx session = run(streamed, 0);
    CHECK(read_all(streamed.gpu.engine, session).tokens.size() == kTokens);
    CHECK(n_chosen > 0);
    streamed.gpu.engine.close();
    CHECK(streamed.gpu.device.leaks() == "");
  }
  const u64 n_all = n_calls;
  MESSAGE(n_all << " calls");
  constexpr u64 kStride = kSlowBuild ? 23 : 7;
  for (u64 call = 1 + seed_from_environment() % kStride; call <= n_all + kStride; call += kStride) {
    CAPTURE(call);
    SimDisk disk(1);
    StreamedGpu streamed(disk);
    (void)run(streamed, call <= n_all ? call : kHangs);
    CHECK(streamed.gpu.engine.device_lost());
    CHECK(!streamed.gpu.engine.has_work());
    CHECK(streamed.gpu.engine.step().n_rows == 0);
    streamed.gpu.engine.close();
    CHECK(streamed.gpu.device.leaks() == "");
  }
}

// Every look at it takes a microsecond, so that whoever waits without a nap gets on.
class TickingClock final : public Clock {
 public:
  explicit TickingClock(VirtualClock& clock) : clock_(clock) {}
  u64 now_ns() override {
    clock_.advance_ns(1'000);
    return clock_.now_ns();
  }
  void nap_ns(u64 ns) override { clock_.nap_ns(ns); }

 private:
  VirtualClock& clock_;
};

TEST_CASE("a GPU that hangs within a layer over a disk is lost one window later") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  SimDisk disk(1);
  StreamedGpu streamed(disk);
  TickingClock clock(streamed.clock);
  streamed.gpu.lent_clock = &clock;
  streamed.open(model.path(), stream_config(short_config(), 8));
  engine::Engine& engine = streamed.gpu.engine;
  const SessionIdx session = filled(engine, 280);
  const engine::GenerateParams params{.max_tokens = 3, .ignore_end = true};
  REQUIRE(engine.sessions().generate(session, params).has_value());
  CHECK(read_all(engine, session).tokens.size() == 3);
  streamed.gpu.device.hang();
  const u64 begin_ns = streamed.clock.now_ns();
  REQUIRE(engine.sessions().generate(session, params).has_value());
  while (engine.has_work()) engine.step();
  CHECK(engine.device_lost());
  const u64 took_ns = streamed.clock.now_ns() - begin_ns;  // the disk's part is short
  CHECK(took_ns > exec::kGpuWaitNsMax);
  CHECK(took_ns < exec::kGpuWaitNsMax * 101 / 100);
}

TEST_CASE("a session saved beside a GPU goes on beside another, and on a CPU from its tokens") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  Config config = short_config();
  const std::vector<u32> ids = random_ids(1, 70, GpuModel::kVocab);
  const std::vector<u32> more = random_ids(2, 9, GpuModel::kVocab);
  LogitsRecord want, got;
  {
    GpuEngine resident;
    require_open(resident, model.path(), config);
    const SessionIdx session = prompted(resident.engine, ids);
    lab::Probe(resident.engine).watch_logits(session, &LogitsRecord::on_logits, &want);
    REQUIRE(resident.engine.sessions().feed(session, more).has_value());
    resident.run();
  }
  config.store.sessions = true;
  config.store.quota_bytes = kGiB;
  set_text(config.store.path, "store");
  SimDisk disk(1);
  {
    StreamedGpu first(disk);
    first.open(model.path(), config);
    const SessionIdx session = prompted(first.gpu.engine, ids);
    REQUIRE(first.gpu.engine.sessions().save(session, "talk").has_value());
  }
  {
    StreamedGpu second(disk);
    second.open(model.path(), config);
    engine::Engine& engine = second.gpu.engine;
    const auto restored = engine.sessions().restore("talk");
    REQUIRE(restored.has_value());
    CHECK(engine.sessions().state(restored->idx).sequence.n_slots() == 69);
    lab::Probe(engine).watch_logits(restored->idx, &LogitsRecord::on_logits, &got);
    REQUIRE(engine.sessions().feed(restored->idx, more).has_value());
    second.gpu.run();
    CHECK(lab::Probe::tiers(engine).mover.stats().bytes_loaded > 0);
  }
  for (u32 i = 70; i < 78; ++i) {
    CAPTURE(i);
    REQUIRE(want.rows[i].size() == GpuModel::kVocab);
    CHECK(want.rows[i] == got.rows[i]);
  }
  VirtualClock clock;
  SimIo io(disk, clock, 64);
  OpenEngine on_cpu(model.path(), config, &clock, &io);
  const auto anew = on_cpu.engine.sessions().restore("talk");
  REQUIRE(anew.has_value());
  CHECK(anew->n_tokens == ids.size());
  CHECK(anew->n_computed == 0);
}

TEST_CASE("what a plan says of KV over a disk beside a GPU is what is taken") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  Config config = stream_config(deep_config(SelectMethod::pq, KvTypeChoice::f16), 20);
  config.select.k = 64;
  for (const DeviceFacts& facts : {kOrinFacts, kDiscreteFacts}) {
    SimDisk disk(1);
    StreamedGpu streamed(disk, facts);
    const Result<u64> before = streamed.gpu.device.memory_free_bytes();
    streamed.open(model.path(), config);
    const Result<u64> after = streamed.gpu.device.memory_free_bytes();
    const plan::Plan& plan = streamed.gpu.engine.plan();
    CHECK(*before - *after == plan.device_bytes - plan.of(plan::RegionId::driver).bytes);
    CHECK(streamed.gpu.device.graph_use().n_graphs == 0);
    CHECK(plan.of(plan::RegionId::kv_groups).space == RegionSpace::host);
    CHECK(plan.of(plan::RegionId::kv_groups).bytes == 20 * kGroupBytes);
    streamed.gpu.engine.close();
    CHECK(streamed.gpu.device.leaks() == "");
  }
}

TEST_CASE("KV over a disk passes through the driver's own memory where none can be registered") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  constexpr u32 kFrames = 8;
  const Config config = stream_config(short_config(), kFrames);
  struct Case {
    const char* name;
    bool host_register;
    u64 bytes_max;
    bool is_pinned;
  };
  const Case cases[] = {{"registered", true, ~u64{0}, false},
                        {"not supported", false, ~u64{0}, true},
                        {"refused at once", true, 0, true},
                        {"refused where it is much", true, kFrames * kGroupBytes - 1, true}};
  for (const DeviceFacts& box : {kDiscreteFacts, kOrinFacts}) {
    std::vector<u32> want;
    for (const Case& c : cases) {
      CAPTURE(c.name);
      DeviceFacts facts = box;
      facts.host_register = c.host_register;
      SimDisk disk(1);
      StreamedGpu streamed(disk, facts);
      streamed.gpu.device.registers_bytes_max = c.bytes_max;
      streamed.open(model.path(), config);
      engine::Engine& engine = streamed.gpu.engine;
      const u64 frame_bytes = engine.plan().of(plan::RegionId::kv_groups).bytes;
      CHECK((streamed.gpu.device.pinned_bytes() >= frame_bytes) == c.is_pinned);
      const SessionIdx session = filled(engine, 280, seed_from_environment());
      REQUIRE(
          engine.sessions().generate(session, {.max_tokens = 3, .ignore_end = true}).has_value());
      const std::vector<u32> tokens = read_all(engine, session).tokens;
      if (want.empty()) want = tokens;
      CHECK(tokens == want);
      CHECK(lab::Probe::tiers(engine).mover.stats().bytes_spilled > 0);
      engine.close();
      CHECK(streamed.gpu.device.leaks() == "");
    }
  }
}

}  // namespace
}  // namespace tarn::test::stream_native_test
