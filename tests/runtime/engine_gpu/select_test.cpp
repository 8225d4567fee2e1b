// Goal    a GPU that reads by selection reads what the CPU would choose from the same keys and
//         queries, step by step: before, at and after an index comes into use, for the token that
//         has just left the local window, after a rebuild; and launches as many kernels as
//         kernels/NAPKIN.md says, of which none is launched for the first time after READY.
// Method  the fake device and the emulated kernels. The oracle is the CPU's own index over the KV
//         in the fake device's memory, asked with the query that the kernels were given; the
//         places they chose and the slots they gathered are read where they lie.
#include <algorithm>
#include <utility>

#include "runtime/lab/probe.h"
#include "runtime/method/pq/pq_index.h"
#include "runtime/model/kv_type.h"
#include "tests/runtime/engine_gpu/select_gpu.h"

namespace tarn::test::select_test {
namespace {

using engine::SessionIdx;

// What was launched last, or captured: addresses of a step of one row, which stay.
struct Launched {
  kernels::GpuPqLutArgs lut;
  kernels::GpuGatherSlotsArgs gather;
};
Launched launched;
const kernels::GpuTable& watched_table() {
  static const kernels::GpuTable kTable = [] {
    kernels::GpuTable table = kernels::gpu_table_emulated();
    table.pq_lut = [](const kernels::GpuPqLutArgs& args, GpuStream* stream) {
      launched.lut = args;
      kernels::gpu_table_emulated().pq_lut(args, stream);
    };
    table.gather_slots = [](const kernels::GpuGatherSlotsArgs& args, GpuStream* stream) {
      launched.gather = args;
      kernels::gpu_table_emulated().gather_slots(args, stream);
    };
    return table;
  }();
  return kTable;
}

// The slots that a KV head of the last layer read in the last step.
std::vector<u32> slots_read(u32 kv_head) {
  const kernels::GpuSegments segments = *launched.gather.segments;
  const u32* places = launched.gather.places + kv_head * launched.gather.places_stride;
  std::vector<u32> slots;
  for (u32 i = 0; i < segments.n_sinks; ++i) slots.push_back(i);
  for (u32 i = 0; i < segments.n_places; ++i) slots.push_back(segments.n_sinks + places[i]);
  for (u32 i = segments.local_begin; slots.size() < segments.n_slots; ++i) slots.push_back(i);
  return slots;
}

// The CPU's index of one KV head of the last layer, over the KV that the engine has.
class Oracle {
 public:
  Oracle(const engine::Engine& engine, const Config& config, u32 kv_head)
      : engine_(engine),
        config_(config.select),
        kv_head_(kv_head),
        type_(model::kv_type(config)),
        shape_(method::pq_shape(config_, {engine.spec().head_dim, engine.spec().adjacent_dims()},
                                engine.plan().context_tokens)),
        region_(method::pq_layout(shape_).bytes / 64 + 1),
        scratch_(method::pq_train_scratch_bytes(shape_) / 64 + 1),
        life_(method::budget_rule(config_), config_.code_bits, config_.index_delay_tokens) {
    index_.init(shape_, bytes(region_));
  }

  // The session has so many tokens: what its row chooses, or nothing where it reads everything.
  std::vector<u32> choose(SessionIdx session, u32 n_tokens, const f32* q) {
    const std::vector<u8> all = keys(session);
    const u8* first = all.data();
    const method::KeyPages pages{.type = type_,
                                 .pages = &first,
                                 .page_tokens = engine_.plan().context_tokens,
                                 .head_dim = shape_.head_dim,
                                 .stride_bytes = vector_bytes()};
    advance(n_tokens, pages);
    if (life_.is_dense()) return {};
    index_.take_in(table_, pages, life_.ranges().middle_end, bytes(scratch_));
    const model::ModelSpec& spec = engine_.spec();
    const u32 n_group = spec.n_heads / spec.n_kv_heads;
    std::vector<Line> search(method::selection_scratch_bytes({.n_group_heads = n_group,
                                                              .lut_elems = shape_.lut_elems(),
                                                              .middle_tokens_max = n_tokens}) /
                                 64 +
                             1);
    std::vector<u32> slots(n_tokens);
    const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim));
    slots.resize(
        index_.choose({.table = table_,
                       .query = {q + u64{kv_head_} * n_group * spec.head_dim, n_group, scale},
                       .ranges = life_.ranges(),
                       .k = life_.k(),
                       .scratch = bytes(search),
                       .slots = slots}));
    return slots;
  }
  u32 n_swaps() const { return n_swaps_; }
  u32 newest_of_middle() const { return life_.ranges().middle_end - 1; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static std::span<std::byte> bytes(std::vector<Line>& lines) {
    return {lines[0].bytes, lines.size() * 64};
  }
  u64 vector_bytes() const { return engine_.plan().group_shape.vector_bytes; }

  std::vector<u8> keys(SessionIdx session) const {
    const kv::Sequence& sequence = engine_.sessions().state(session).sequence;
    const kv::GroupShape& group = engine_.plan().group_shape;
    std::vector<u8> out;
    for (u32 slot = 0; slot < sequence.n_slots(); ++slot) {
      const u64 address =
          sequence.group_address(engine_.spec().n_cache_layers - 1, slot / group.page_tokens);
      const u8* page = reinterpret_cast<const u8*>(address) + kv_head_ * group.page_bytes();
      const u8* key = page + u64{slot % group.page_tokens} * 2 * vector_bytes();
      out.insert(out.end(), key, key + vector_bytes());
    }
    return out;
  }

  void advance(u32 n_tokens, const method::KeyPages& pages) {
    for (;;) {
      switch (life_.advance(n_tokens)) {
        case method::IndexEvent::none:
          return;
        case method::IndexEvent::build:
        case method::IndexEvent::rebuild:
          n_rows_ = life_.n_rows_clustering();
          break;
        case method::IndexEvent::activate:
          cluster(pages);
          break;
      }
    }
  }
  void cluster(const method::KeyPages& pages) {
    const u32 begin = life_.ranges().middle_begin;
    REQUIRE(method::pq_n_sample(shape_, n_rows_) == n_rows_);
    index_.start(begin);
    index_.begin_codebook(n_rows_);
    for (u32 m = 0; m < shape_.n_subspaces; ++m) {
      index_.train({table_, pages, begin, m, config_.iterations, bytes(scratch_)});
      index_.code({table_, pages, m, begin, begin + n_rows_, bytes(scratch_)});
    }
    index_.end_codebook();
    ++n_swaps_;
  }

  const engine::Engine& engine_;
  SelectConfig config_;
  u32 kv_head_;
  kernels::KvType type_;
  const kernels::CpuTable& table_ = *kernels::cpu_table_select("auto").value();
  method::PqShape shape_;
  std::vector<Line> region_, scratch_;
  method::IndexLife life_;
  method::PqIndex index_{};
  u32 n_rows_ = 0, n_swaps_ = 0;
};

struct Chosen {
  u32 n_steps = 0, n_dense = 0, n_newest = 0, n_swaps = 0;
};
Chosen compare_choices(GpuModelSize size, const Config& config, u32 n_tokens) {
  const GpuModel model("llama", "q8_0", size);
  GpuEngine gpu;
  gpu.kernels = &watched_table();
  require_open(gpu, model.path(), config);
  const u64 seed = seed_from_environment();
  const SessionIdx session = prompted(gpu.engine, random_ids(seed, kPrompt, GpuModel::kVocab));
  std::vector<Oracle> oracles;
  const u32 n_kv_heads = gpu.engine.spec().n_kv_heads;
  REQUIRE(n_kv_heads > 1);
  oracles.reserve(n_kv_heads);
  for (u32 h = 0; h < n_kv_heads; ++h) oracles.emplace_back(gpu.engine, config, h);
  Chosen seen;
  generate(gpu.engine, session, random_ids(seed + 1, n_tokens, GpuModel::kVocab),
           [&](u32 n, const engine::StepTrace& trace) {
             CAPTURE(n);
             u32 n_read = 0;
             for (u32 h = 0; h < n_kv_heads; ++h) {
               CAPTURE(h);
               const std::vector<u32> want = oracles[h].choose(session, n, launched.lut.q);
               REQUIRE((want.empty() ? 0 : 1) == (trace.n_slots_chosen > 0 ? 1 : 0));
               if (want.empty()) continue;
               REQUIRE(slots_read(h) == want);
               n_read += static_cast<u32>(want.size());
               seen.n_newest += std::ranges::binary_search(want, oracles[h].newest_of_middle());
             }
             if (n_read == 0) ++seen.n_dense;
             if (n_read > 0) ++seen.n_steps;
             CHECK(trace.n_slots_chosen == n_read * gpu.engine.spec().n_cache_layers);
           });
  seen.n_swaps = oracles[0].n_swaps();
  return seen;
}

TEST_CASE("each step reads what the CPU's index would choose, by pairs of codes") {
  const Chosen seen = compare_choices(GpuModelSize::one_layer, select_config(14), 28);
  CHECK(seen.n_dense == 3);  // the prompt's step, and those before the index' use
  CHECK(seen.n_steps == 25);
  CHECK(seen.n_newest > 0);  // a token that had just left the local window
  CHECK(seen.n_swaps == 2);  // a rebuild
}

TEST_CASE("in each of two layers") {
  CHECK(compare_choices(GpuModelSize::usual, select_config(5), 5).n_steps == 2);
}

TEST_CASE("and token by token, of q8_0 keys in packed codes") {
  Config config = select_config(5);
  config.select.n_subspaces = 4;
  config.select.code_format = CodeFormat::packed;
  config.kv_type = KvTypeChoice::q8_0;
  CHECK(compare_choices(GpuModelSize::one_layer, config, 5).n_steps == 2);
}

TEST_CASE("and by pairs of codes, of q4_0 keys") {
  Config config = select_config(5);
  config.kv_type = KvTypeChoice::q4_0;
  CHECK(compare_choices(GpuModelSize::one_layer, config, 5).n_steps == 2);
}

TEST_CASE("the host clusters while the GPU computes a step, and never beside its own prompt") {
  const GpuModel model("llama", "q8_0");
  for (const u32 index_delay_tokens : {1u, 4u}) {
    CAPTURE(index_delay_tokens);
    GpuEngine gpu;
    gpu.device.copies_first = true;
    Config config = select_config(5);
    config.select.index_delay_tokens = index_delay_tokens;
    require_open(gpu, model.path(), config);
    const SessionIdx session = prompted(gpu.engine, random_ids(3, kPrompt, GpuModel::kVocab));
    const u64 n_beside_before = gpu.device.copied().n_out_beside;
    u32 n_units = 0;
    generate(gpu.engine, session, random_ids(4, 6, GpuModel::kVocab),
             [&](u32 n, const engine::StepTrace& trace) {
               CAPTURE(n);
               const auto runs = [&](engine::Phase kind) {
                 return trace.phases[static_cast<u64>(kind)].n_runs;
               };
               n_units += trace.n_cluster_units;
               if (n == kPrompt) CHECK(trace.n_cluster_units == 0);
               CHECK((trace.n_slots_chosen > 0) == (n >= kPrompt + index_delay_tokens));
               CHECK(runs(engine::Phase::cluster_beside) == (trace.n_prefill_rows == 0 ? 1 : 0));
             });
    CHECK(n_units == gpu.engine.spec().n_cache_layers);
    // Keys come twice a layer, a group here. An index that is wanted at once is made before the
    // step that reads by it.
    CHECK(gpu.device.copied().n_out_beside - n_beside_before ==
          (index_delay_tokens > 1 ? 2 * n_units : 0));
  }
}

TEST_CASE("beside another's prompt the host clusters a layer a step, and as late as it may") {
  const GpuModel model("llama", "q8_0");
  Config config = select_config(5, 128, 2);
  config.select.index_delay_tokens = 4;
  config.batch_rows_max = 4;
  LogitsRecord alone, beside;
  for (LogitsRecord* logits : {&alone, &beside}) {
    const bool is_beside = logits == &beside;
    CAPTURE(is_beside);
    GpuEngine gpu;
    require_open(gpu, model.path(), config);
    const SessionIdx session = prompted(gpu.engine, random_ids(3, kPrompt, GpuModel::kVocab));
    lab::Probe(gpu.engine).watch_logits(session, &LogitsRecord::on_logits, logits);
    const SessionIdx other = *gpu.engine.sessions().create();
    if (is_beside) {
      REQUIRE(gpu.engine.sessions().feed(other, random_ids(5, 60, GpuModel::kVocab)).has_value());
    }
    std::vector<u32> n_units;
    generate(gpu.engine, session, random_ids(4, 8, GpuModel::kVocab),
             [&](u32, const engine::StepTrace& trace) {
               CHECK((trace.n_prefill_rows > 0) == (is_beside || n_units.empty()));
               n_units.push_back(trace.n_cluster_units);
               const u64 kind = static_cast<u64>(engine::Phase::cluster_beside);
               if (is_beside) CHECK(trace.phases[kind].n_runs == trace.n_cluster_units);
             });
    // Chosen by the index from the fifth step on.
    const std::vector<u32> late = {0, 0, 1, 1, 0, 0, 0, 0}, early = {0, 1, 1, 0, 0, 0, 0, 0};
    CHECK(n_units == (is_beside ? late : early));
  }
  require_same_bits(alone, beside);
}

TEST_CASE("the window reads the first tokens and the last ones") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  Config config = select_config(4);
  config.select.method = SelectMethod::window;
  GpuEngine gpu;
  gpu.kernels = &watched_table();
  require_open(gpu, model.path(), config);
  const SessionIdx session = prompted(gpu.engine, random_ids(3, kPrompt, GpuModel::kVocab));
  u32 n_seen = 0;
  generate(gpu.engine, session, random_ids(4, 5, GpuModel::kVocab),
           [&](u32 n, const engine::StepTrace& trace) {
             if (trace.n_slots_chosen == 0) return;
             std::vector<u32> want{0, 1, 2};
             for (u32 slot = n - 10; slot < n; ++slot) want.push_back(slot);
             CHECK(slots_read(0) == want);
             ++n_seen;
           });
  CHECK(n_seen == 2);
}

TEST_CASE("a decode step that selects is one graph, of 3 launches a layer more and 1 around them") {
  struct Case {
    const char* arch;
    SelectMethod method;
    u32 n_subspaces;
    u64 launches_a_layer, launches_around;
  };
  const Case cases[] = {
      {"llama", SelectMethod::pq, 2, 11 + 3, 4 + 1},  // table, pairs, gather; codes of new keys
      {"llama", SelectMethod::pq, 4, 11 + 5, 4 + 1},  // table, scores, weights, top k, gather
      {"qwen3", SelectMethod::pq, 4, 13 + 4, 4 + 1},  // a q head a KV head: no weights
      {"llama", SelectMethod::window, 2, 11 + 1, 4},  // gather
  };
  for (const Case& c : cases) {
    CAPTURE(c.arch);
    CAPTURE(c.n_subspaces);
    const GpuModel model(c.arch, "q8_0");
    Config config = select_config(4);
    config.select.method = c.method;
    config.select.n_subspaces = c.n_subspaces;
    GpuEngine gpu;
    require_open(gpu, model.path(), config);
    CHECK(gpu.device.graph_work_max() ==
          gpu.engine.spec().n_layers * c.launches_a_layer + c.launches_around);
    const SessionIdx session = prompted(gpu.engine, random_ids(3, kPrompt, GpuModel::kVocab));
    u64 n_sent = 0, n_steps = 0;
    generate(gpu.engine, session, random_ids(4, 6, GpuModel::kVocab),
             [&](u32, const engine::StepTrace& trace) {
               const u64 n_before = std::exchange(n_sent, gpu.device.n_enqueued());
               if (trace.n_slots_chosen == 0 || ++n_steps == 1) return;  // 1: it brings the index
               // The step's state, a new group's address, the graph, what comes back, an event.
               CHECK(n_sent - n_before <= 5);
             });
    CHECK(n_steps == 3);
  }
}

TEST_CASE("what a driver takes for a step's graph, it took before READY") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  for (const SelectMethod method : {SelectMethod::pq, SelectMethod::window}) {
    CAPTURE(static_cast<u32>(method));
    Config config = select_config(4);
    config.select.method = method;
    GpuEngine small(kDiscreteFacts), gpu(kDiscreteFacts);
    small.device.launch_takes_bytes = gpu.device.launch_takes_bytes = 100 * kMiB;
    config.driver_limit_bytes = 200 * kMiB;  // not for two graphs
    const Result<void> refused = small.open(model.path(), config);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().status == Status::over_budget);
    config.driver_limit_bytes = 300 * kMiB;
    require_open(gpu, model.path(), config);
    const u64 free_bytes = *gpu.device.memory_free_bytes();
    const SessionIdx session = prompted(gpu.engine, random_ids(3, kPrompt, GpuModel::kVocab));
    u32 n_steps = 0;
    generate(gpu.engine, session, random_ids(4, 5, GpuModel::kVocab),
             [&](u32, const engine::StepTrace& trace) { n_steps += trace.n_slots_chosen > 0; });
    CHECK(n_steps == 2);
    CHECK(*gpu.device.memory_free_bytes() == free_bytes);
  }
}

}  // namespace
}  // namespace tarn::test::select_test
