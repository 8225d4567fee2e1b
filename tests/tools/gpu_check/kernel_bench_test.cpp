// Goal    the kernel bench runs every kernel of a decode step in memory that is its own, walks
//         through its pool, counts calls, kernels and bytes as they are, takes times from the
//         device's events, and leaves nothing on the device, also where a call fails.
// Method  a tiny model on the fake device, whose reads take virtual time, and the emulated kernels;
//         the fake calls an address that it does not have an error.
#include "tools/gpu_check/kernel_bench.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "kernels/quant/gpu_tile.h"
#include "runtime/engine/engine.h"
#include "tests/support/fake_device.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_file.h"
#include "tools/gpu_check/bench.h"
#include "tools/support/exit_code.h"
#include "tools/synth/synth.h"

namespace tarn::gpu_check::kernel_bench_test {
namespace {

using test::FakeDevice;

BenchShape tiny() {
  return {.d_model = 256,
          .n_ff = 512,
          .n_heads = 4,
          .n_kv_heads = 2,
          .head_dim = 64,
          .n_layers = 3,
          .n_layers_more_bits = 1,
          .n_vocab = 320,
          .weight_bytes_min = 10'000,
          .pool_bytes_min = 128 * kKiB,
          .depths = {100, 600},
          .prompt_rows = {40},
          .step_depth = 70,
          .select_depths = {100, 300},
          .n_sinks = 4,
          .n_local = 8,
          .k = 20,
          .pair_bits = 2,
          .token_subspaces = 4,
          .token_bits = 3,
          .calls_per_graph = 2,
          .repetitions = 1};
}

DeviceFacts small_l2() {
  DeviceFacts facts = test::kOrinFacts;
  facts.l2_bytes = 16 * kKiB;
  return facts;
}

std::vector<Figure> of_group(const std::vector<Figure>& figures, const std::string& group) {
  std::vector<Figure> some;
  std::ranges::copy_if(figures, std::back_inserter(some),
                       [&](const Figure& f) { return f.group == group; });
  return some;
}

const Figure& find(const std::vector<Figure>& figures, const std::string& name, u32 rows,
                   u32 depth) {
  CAPTURE(name);
  const auto found = std::ranges::find_if(figures, [&](const Figure& f) {
    return f.name == name && f.rows == rows && f.depth == depth;
  });
  REQUIRE(found != figures.end());
  return *found;
}

// Kernels of a token.
u64 n_launches(const std::vector<Figure>& figures) {
  u64 n = 0;
  for (const Figure& f : figures) n += u64{f.calls} * f.launches;
  return n;
}

TEST_CASE("every kernel is run, and its bytes are those of its matrices and pages") {
  FakeDevice device(small_l2());
  SystemClock clock;
  BenchShape shape = tiny();
  shape.select_depths = {};
  const std::vector<Figure> figures = bench_kernels({.device = &device,
                                                     .table = &kernels::gpu_table_emulated(),
                                                     .clock = &clock,
                                                     .shape = shape});
  CHECK(device.leaks().empty());
  CHECK(of_group(figures, "kernel").size() == 4 * 3 + 2 * 3);
  for (const u32 rows : {1u, 4u, 8u}) {
    const Figure& q4_k = find(figures, "matvec q4_k", rows, 0);
    CHECK(q4_k.weight_bytes == 5 * kernels::gpu_tile_bytes(kernels::TensorType::q4_k, 256));
    CHECK(q4_k.weight_bytes >= 10'000);
  }
  // matmat of three types, f16 is none for it; the dense way of four; f16 as the engine does it.
  std::string names;
  for (const Figure& prompt : of_group(figures, "prompt")) {
    names += prompt.name + ", ";
    CHECK(prompt.rows == 40);
    CHECK(prompt.ops == 2 * 40 * 512 * 256);
  }
  CHECK(names ==
        "matmat q4_k, matmat q6_k, matmat q8_0, matmul q4_k, matmul q6_k, matmul q8_0, "
        "matvec f16, matmul f16, ");
  const Figure& deep = find(figures, "attend f16", 1, 600);
  CHECK(deep.bytes == 600 * 2 * 2 * 64 * 2);  // slots, heads, K and V, head_dim, f16
  CHECK(deep.weight_bytes == 0);
  CHECK(find(figures, "attend q8_0", 1, 100).bytes == 100 * 2 * 2 * 68);
}

// The k places that a KV head chose ascend, and are the middle's.
void check_places(const u32* places, const u32* n_tokens, const u32* k) {
  for (u32 i = 0; i < *k; ++i) {
    CHECK(places[i] < *n_tokens);
    if (i > 0) CHECK(places[i - 1] < places[i]);
  }
}

TEST_CASE("selection is timed over whole indexes, and bytes are what it reads and writes") {
  kernels::GpuTable table = kernels::gpu_table_emulated();
  static u32 n_checks;
  n_checks = 0;
  table.pq_pairs = [](const kernels::GpuPqPairsArgs& args, GpuStream* stream) {
    kernels::gpu_table_emulated().pq_pairs(args, stream);
    stream->take(nullptr, [args] {
      for (u32 h = 0; h < 2; ++h) {
        check_places(args.out + h * args.out_stride, args.n_tokens, args.k);
        const u8* head = args.index.heads + h * args.index.head_stride;
        const auto* counts = reinterpret_cast<const u32*>(head + args.index.counts_at);
        CHECK(std::accumulate(counts, counts + 16 * 16, 0u) == *args.n_tokens);
      }
      ++n_checks;
    });
  };
  table.top_k = [](const kernels::GpuTopKArgs& args, GpuStream* stream) {
    kernels::gpu_table_emulated().top_k(args, stream);
    stream->take(nullptr, [args] {
      for (u32 h = 0; h < 2; ++h) check_places(args.out + h * args.out_stride, args.n, args.k);
      ++n_checks;
    });
  };
  table.gather_slots = [](const kernels::GpuGatherSlotsArgs& args, GpuStream* stream) {
    const u32 n = args.segments->local_begin;
    for (u32 h = 0; h < 2; ++h) {
      check_places(args.places + h * args.places_stride, &n, &args.segments->n_places);
    }
    kernels::gpu_table_emulated().gather_slots(args, stream);
    ++n_checks;
  };
  FakeDevice device(small_l2());
  SystemClock clock;
  BenchShape shape = tiny();
  shape.depths = {};
  shape.prompt_rows = {};
  const std::vector<Figure> figures =
      bench_kernels({.device = &device, .table = &table, .clock = &clock, .shape = shape});
  const u32 n_runs = shape.calls_per_graph * (1 + shape.repetitions);
  CHECK(n_checks == 2 * (2 * n_runs + shape.calls_per_graph));

  CHECK(of_group(figures, "select").size() == 2 * (4 + 5));
  const auto bytes_of = [&](const char* name, u32 depth) {
    return find(figures, name, 1, depth).bytes;
  };
  // 4 heads, 2 KV heads of 64 dims; 16 centroids of a sub-space, padded; 88 or 288 tokens to choose
  // 20 from, 32 are read.
  CHECK(bytes_of("pq_lut 2x2", 100) == 4 * (2 * 64 * 16 + 4 * 64 + 4 * 2 * 16));
  CHECK(bytes_of("pq_pairs 2x2", 300) == 2 * 2 * 288 + 4 * (2 * 256 + 4 * 2 * 16 + 2 * 20));
  CHECK(bytes_of("gather_slots f16", 300) == 2 * 32 * 2 * 2 * 128 + 2 * 20 * 4);
  CHECK(bytes_of("pq_assign 2x2", 100) == 3 * 2 * (4 * (64 * 16 + 2 * 16) + 128));
  CHECK(bytes_of("pq_score 4x3", 100) == 2 * 4 * 88 + 4 * (4 * 4 * 16 + 4 * 88));
  CHECK(bytes_of("pq_weigh", 100) == 4 * (2 * 4 * 88 + 2 * 88));
  CHECK(bytes_of("top_k", 300) == 4 * 2 * (288 + 20));
  CHECK(bytes_of("pq_assign 4x3", 300) == 3 * 2 * (4 * (64 * 16 + 4 * 16) + 128));
}

TEST_CASE("times are the device's own") {
  FakeDevice device;  // reads 100 bytes a ns
  SystemClock clock;
  {
    Bench bench({.device = &device, .clock = &clock});
    const DeviceBytes memory = bench.reserve_random(64 * kKiB);
    for (const bool in_graph : {true, false}) {
      u32 n_enqueued = 0;
      const f64 ns =
          bench.ns_per_call({.n_calls = 4, .repetitions = 3, .in_graph = in_graph}, [&](u32 i) {
            ++n_enqueued;
            device.read(memory, (i + 1) * u64{10'000}, bench.stream());
          });
      CHECK(ns == (100 + 200 + 300 + 400) / 4);
      CHECK(n_enqueued == (in_graph ? 4 : 4 * (1 + 3)));
    }
  }
  CHECK(device.leaks().empty());
}

TEST_CASE("what fills the pool is finite in every format") {
  FakeDevice device;
  SystemClock clock;
  Bench bench({.device = &device, .clock = &clock});
  const DeviceBytes memory = bench.reserve_random(9 * kMiB);  // more than is sent at once
  const u16* halves = memory.as<u16>().raw();
  const f32* floats = memory.as<f32>().raw();
  u64 n_not_finite = 0, n_set = 0;
  for (u64 i = 0; i < 9 * kMiB / 4; ++i) {
    n_not_finite += std::isfinite(floats[i]) ? 0u : 1u;
    n_set += floats[i] != 0 ? 1u : 0u;
  }
  for (u64 i = 0; i < 9 * kMiB / 2; ++i) n_not_finite += (halves[i] & 0x7c00) == 0x7c00 ? 1u : 0u;
  CHECK(n_not_finite == 0);
  CHECK(n_set > 9 * kMiB / 4 / 2);
}

// What the engine launches for a token that reads so: the longest of its graphs.
u64 launches_of_engine(u32 n_layers, SelectMethod method = SelectMethod::full) {
  synth::SynthShape shape{.name = "gpu",
                          .n_layers = n_layers,
                          .d_model = 64,
                          .d_ff = 64,
                          .head_dim = 32,
                          .n_vocab = 1024};
  const test::TempFile file("gpu_launches.gguf");
  synth::synth_write(shape, *synth::parse_quant("q8_0"), 1, file.path(), 1);
  Config config = test::small_config();
  config.context_tokens = 64;
  config.page_tokens = 32;
  config.sessions_max = 1;
  config.select.method = method;
  FakeDevice device;
  SystemReserve reserve;
  SystemClock clock;
  engine::Engine engine;
  REQUIRE(engine
              .open({.model_path = file.path().c_str(),
                     .config = config,
                     .reserve = &reserve,
                     .clock = &clock,
                     .device = &device,
                     .gpu_kernels = &kernels::gpu_table_emulated()})
              .has_value());
  const u64 n = device.graph_work_max();
  engine.close();
  return n;
}

TEST_CASE("the bench's token is the engine's: as many kernels, 356 for Llama 3.1 8B") {
  FakeDevice device(small_l2());
  SystemClock clock;
  BenchShape shape = tiny();
  shape.depths = {};
  shape.select_depths = {100};
  const std::vector<Figure> figures = bench_kernels({.device = &device,
                                                     .table = &kernels::gpu_table_emulated(),
                                                     .clock = &clock,
                                                     .shape = shape});
  // What the stream counted is what the figures say: `launches` is no guess.
  u64 of_step = 0;
  for (const Figure& kernel : of_group(figures, "step")) of_step += kernel.launches;
  const u64 n_calls = shape.calls_per_graph;
  const u64 of_products = (4 * 3 + 3) * n_calls;
  const u64 n_eager = n_calls * (1 + shape.repetitions);
  const u64 of_nothing = n_calls + n_eager;
  const u64 of_dense = (4 * 3 + 40 / 8) * n_eager;
  const u64 of_selection = (4 + 5) * n_calls + 2;  // scores and weights once more
  CHECK(device.stream(StreamId::compute)->n_launches ==
        of_step * n_calls + of_products + of_nothing + of_dense + of_selection);

  const u64 of_one = launches_of_engine(1), of_two = launches_of_engine(2);
  const u64 of_layer = of_two - of_one;
  CHECK(n_launches(of_group(figures, "step")) == of_one + (shape.n_layers - 1) * of_layer);
  const u64 of_8b = of_one + (BenchShape{}.n_layers - 1) * of_layer;
  CHECK(of_8b == 356);
  MESSAGE("kernels of a token of Llama 3.1 8B: ", of_8b);
}

TEST_CASE("the bench's token that selects is the engine's: 453 kernels for Llama 3.1 8B") {
  const u64 of_one = launches_of_engine(1, SelectMethod::pq);
  const u64 of_two = launches_of_engine(2, SelectMethod::pq);
  const u64 of_8b = of_one + (BenchShape{}.n_layers - 1) * (of_two - of_one);
  CHECK(of_8b == 453);
  FakeDevice device(small_l2());
  SystemClock clock;
  BenchShape shape = tiny();
  shape.n_layers = 2;
  shape.depths = {};
  shape.prompt_rows = {};
  shape.select_depths = {100};
  const std::vector<Figure> figures = bench_kernels({.device = &device,
                                                     .table = &kernels::gpu_table_emulated(),
                                                     .clock = &clock,
                                                     .shape = shape});
  CHECK(n_launches(figures) == of_two);
  MESSAGE("of one that selects: ", of_8b);
}

TEST_CASE("a call that fails ends the bench with the device's word, and nothing is left") {
  FakeDevice counting(small_l2());
  SystemClock clock;
  const auto run = [&](FakeDevice& device) {
    BenchShape shape = tiny();
    shape.depths = {100};
    shape.select_depths = {100};
    shape.prompt_rows = {};
    shape.calls_per_graph = 1;
    bench_kernels({.device = &device,
                   .table = &kernels::gpu_table_emulated(),
                   .clock = &clock,
                   .shape = shape});
  };
  run(counting);
  const u64 n_calls = counting.n_calls();
  CHECK(n_calls > 100);
  for (u64 call = 1; call <= n_calls; call += 1 + call / 2) {
    CAPTURE(call);
    FakeDevice device(small_l2());
    device.fail_at({.call = call, .code = kGpuIllegalAddress, .for_ever = true});
    CHECK_THROWS_AS(run(device), tools::Failure);
    CHECK(device.leaks().empty());
  }
}

}  // namespace
}  // namespace tarn::gpu_check::kernel_bench_test
