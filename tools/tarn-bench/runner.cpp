#include "tools/tarn-bench/runner.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "kernels/quant/tensor_type.h"
#include "platform/cpu/topology.h"
#include "runtime/lab/methods.h"
#include "runtime/model/kv_type.h"
#include "tools/builtin/built_in_model.h"
#include "tools/support/bandwidth.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/memory_use.h"
#include "tools/support/model_file.h"
#include "tools/support/own_engine.h"
#include "tools/support/progress.h"
#include "tools/support/utc.h"
#include "tools/tarn-bench/record.h"
#include "tools/tarn-bench/value_list.h"

namespace tarn::bench {
namespace {

constexpr u32 kRecordTokens = 256;

// The settings of one engine.
struct Setup {
  std::string model;
  std::optional<std::string> kv_type, select;
  std::optional<u32> n_threads, n_ubatch;
};

// The values of an option; one empty value if it was not given.
template <class T>
std::vector<std::optional<T>> each_or_none(const std::vector<T>& values) {
  if (values.empty()) return {std::nullopt};
  return {values.begin(), values.end()};
}

std::vector<std::optional<u32>> each_or_none(const std::string& values) {
  return each_or_none(values.empty() ? std::vector<u32>{} : parse_values(values));
}

// The name of a configuration's selection, as in --select.
std::string select_text(const SelectConfig& select) {
  std::string method = method::method_of(select).name;
  if (select.is_full() || select.preset == SelectPreset::none) return method;
  const std::string preset = kSelectPresetNames[static_cast<u64>(select.preset)];
  if (select.preset == SelectPreset::compare_pqcache) return preset + "/" + method;
  return method == "pq" ? preset : method;
}

// "llama 8.03B q4_k", with the type that has most of the bytes.
std::string model_type(tools::ModelFile& file) {
  std::map<u32, u64> bytes_by_type;
  for (const model::GgufTensor& t : file.gguf().tensors()) bytes_by_type[t.type_id] += t.bytes;
  u32 type = 0;
  for (const auto& [id, bytes] : bytes_by_type) type = bytes > bytes_by_type[type] ? id : type;
  const model::ModelSpec& spec = file.description().spec;
  char text[64];
  std::snprintf(text, sizeof text, "%s %.2fB %s", model::arch_name(spec.arch),
                static_cast<f64>(spec.n_params) * 1e-9, kernels::type_traits(type)->name);
  return text;
}

void add_cases(const Options& options, u32 depth, bool is_filled, std::vector<Case>& cases) {
  for (const u32 parallel : parse_values(options.parallels)) {
    const auto add = [&](u32 n_prompt, u32 n_gen) {
      if (n_prompt + n_gen > 0) cases.push_back({n_prompt, n_gen, depth, parallel, is_filled});
    };
    for (const u32 n : parse_values(options.prompts)) add(n, 0);
    for (const u32 n : parse_values(options.gens)) add(0, n);
    for (const std::string& pair : options.prompt_gens) {
      const auto [n_prompt, n_gen] = parse_pair(pair);
      add(n_prompt, n_gen);
    }
  }
}

std::vector<Case> cases_of(const Options& options) {
  std::vector<Case> cases;
  const bool has_fills = !options.fills.empty();
  if (!options.depths.empty() || !has_fills) {
    const std::string& depths = options.depths.empty() ? "0" : options.depths;
    for (const u32 depth : parse_values(depths)) add_cases(options, depth, false, cases);
  }
  if (!has_fills) return cases;
  for (const u32 depth : parse_values(options.fills)) add_cases(options, depth, true, cases);
  return cases;
}

Config config_of(const Options& options, const Setup& setup, u64 context_tokens, u32 sessions_max) {
  tools::EngineOptions engine;
  engine.budget = options.budget;
  engine.isa = options.isa;
  engine.io = options.io;
  engine.device = options.device;
  engine.kv_type = setup.kv_type;
  engine.n_threads = setup.n_threads;
  engine.rows_max = setup.n_ubatch;
  engine.config_paths = options.config_paths;
  engine.select = setup.select;
  engine.store_dir = options.store_dir;
  engine.context_tokens = context_tokens;
  engine.sessions_max = sessions_max;
  Config config = engine.config();
  config.reuse.prefix = false;  // a repeated case would measure nothing
  if (options.k) config.select.k = *options.k;
  if (options.context_min) config.select.context_min = *options.context_min;
  if (!options.kv_memory.empty()) {
    config.kv_memory_bytes = tools::value_of(parse_bytes(options.kv_memory));
  }
  tools::value_of(config_validate(config));
  return config;
}

// Also sets the steps that each case needs before it can be measured.
Config config_of(const Options& options, const Setup& setup, std::vector<Case>& cases) {
  const SelectConfig select = config_of(options, setup, 0, 1).select;
  u64 context_tokens = 0;
  u32 sessions = 1;
  for (Case& c : cases) {
    // The first tokens at a depth wait for the index; only later ones are measured.
    if (!select.is_full() && c.n_prompt == 0) c.n_settle = select.index_delay_tokens + 2;
    context_tokens = std::max<u64>(context_tokens, c.context_tokens());
    if (c.is_filled) context_tokens = std::max<u64>(context_tokens, kRecordTokens + 2);
    sessions = std::max(sessions, c.n_parallel);
  }
  return config_of(options, setup, context_tokens, sessions);
}

// Each line, on a terminal or with --progress; else now and then.
class Teller {
 public:
  explicit Teller(const Options& options)
      : prefix_("tarn-bench: " + options.part),
        tells_all_(options.progress || isatty(STDERR_FILENO) != 0) {}
  void operator()(const std::string& text) {
    tells_all_ ? (void)std::fprintf(stderr, "%s%s\n", prefix_.c_str(), text.c_str())
               : progress_.show(prefix_ + text);
  }
  // For work that tells it often.
  void often(const std::string& text) { progress_.show(prefix_ + text); }
  void clear() { progress_.clear(); }

 private:
  tools::Progress progress_;
  std::string prefix_;
  bool tells_all_;
};

PlantingArgs planting_of(const Options& options, const Config& config, const Case& c, bool on_gpu) {
  if (on_gpu) {  // watching queries would disable graphs
    throw tools::Failure{tools::kExitUsage,
                         "--overlap and --tail change queries, which works only on a CPU: use "
                         "--device cpu"};
  }
  if (kv_model_kind(options.kv_model) == KvModelKind::recorded) {
    throw tools::Failure{tools::kExitUsage, "--overlap and --tail need --kv-model synthetic"};
  }
  PlantingArgs args;
  if (options.overlap) args.overlap = *options.overlap;
  if (options.tail) args.tail = *options.tail;
  const SelectConfig& select = config.select;
  u32 k = select.k;
  if (select.context_divisor != 0) {  // half of that share of the tokens after the sinks
    const u32 n_far = c.n_depth - std::min(c.n_depth, select.n_sinks);
    k = std::min(n_far, std::max(select.tokens_min, n_far / select.context_divisor)) / 2;
  }
  args.chosen_share = static_cast<f64>(k) / c.n_depth;
  return args;
}

// All cases on one engine.
void run_setup(const Options& options, const Setup& setup, std::vector<Case> cases,
               std::vector<Row>& rows, Teller& tell) {
  Row base;
  {
    tools::ModelFile file(setup.model);
    base.model_type = model_type(file);
    base.model_bytes = file.description().spec.weights_file_bytes;
    base.n_params = file.description().spec.n_params;
  }
  const Config config = config_of(options, setup, cases);
  const u32 n_readers = config.n_threads != 0 ? config.n_threads : cpu_topology().n_physical_cores;
  bool has_limit = true;  // the CPU's bandwidth; a GPU has another limit
  const auto measure_bandwidth = [&](f64& best) {
    if (!has_limit || options.no_bandwidth ||
        memory_available_bytes() < 2 * tools::kBandwidthBufferBytes)
      return;
    best = std::max(best, tools::measure_read_bandwidth(n_readers));
    tools::reset_peak_rss();  // the figure is for the engine, without this buffer
  };
  measure_bandwidth(base.bandwidth_bytes_per_s);
  tell("loading " + tools::model_name(setup.model));
  tools::OwnEngine own(setup.model, config);
  engine::Engine& engine = own.get();
  has_limit = !engine.status().on_gpu;
  if (!has_limit) base.bandwidth_bytes_per_s = 0;
  base.model_path = tools::model_name(setup.model);
  base.cpu_info = cpu_topology().model_name.data();
  base.gpu_info = engine.status().gpu_name;
  base.isa = engine.status().isa;
  base.io = engine.status().io;
  base.kv_type = kKvTypeNames[static_cast<u64>(config.kv_type)];
  base.is_kv_type_given = setup.kv_type.has_value() || config.kv_type != KvTypeChoice::f16;
  base.commit = build_commit();
  base.has_store = engine.plan().tiers.is_on();
  base.select = setup.select.value_or(select_text(config.select));
  base.is_verified = engine.status().select_verified;
  base.n_batch = parse_values(options.batches).front();
  base.n_ubatch = config.batch_rows_max;
  base.n_threads = engine.plan().n_workers;
  base.n_heads_select = engine.spec().n_cache_layers * engine.spec().n_kv_heads;
  if (!config.select.is_full()) base.index_delay_tokens = config.select.index_delay_tokens;
  base.plan_bytes = engine.plan().total_bytes;
  base.driver_bytes = engine.status().driver_bytes;
  base.driver_limit_bytes = engine.plan().of(plan::RegionId::driver).bytes;
  std::optional<KvModel> kv_model;
  for (const Case& c : cases) {
    Row row = base;
    row.test = c;
    row.test_time = tools::utc_now();
    if (!options.no_warmup) {  // a small run of the same work
      Case warm = c;
      warm.n_depth = 0;
      warm.is_filled = false;
      warm.n_gen = std::min(c.n_gen, 1u);
      tell(c.name() + ": warm-up");
      CaseRun(engine, warm, 1, nullptr).run(1);
    }
    if (c.n_depth > 0) tell(c.name() + ": filling the depth");
    if (c.is_filled && !kv_model) {
      tell("recording " + std::to_string(kRecordTokens) + " tokens");
      kv_model.emplace(kv_model_kind(options.kv_model), 77);
      kv_model->record(engine, kRecordTokens);
    }
    if (c.is_filled && (options.overlap || options.tail)) {
      kv_model->plant(planting_of(options, config, c, engine.status().on_gpu), engine);
    }
    if (c.is_filled) row.kv = kv_model->name();
    CaseRun at_depth(engine, c, 1000, kv_model ? &*kv_model : nullptr, [&](u32 n) {
      tell.often(c.name() + ": filling the depth, " + std::to_string(n) + " tokens");
    });
    tell.clear();
    for (u32 i = 0; i < options.repetitions; ++i) {
      tell(c.name() + ": run " + std::to_string(i + 1) + " of " +
           std::to_string(options.repetitions));
      if (options.delay_s > 0) std::this_thread::sleep_for(std::chrono::seconds(options.delay_s));
      row.samples.push_back(at_depth.run(1000 + i));
      row.peak_rss_bytes = std::max(row.peak_rss_bytes, tools::peak_rss_bytes());
      // On a shared machine the bandwidth changes every few seconds; the limit is the best value
      // around the runs.
      measure_bandwidth(row.bandwidth_bytes_per_s);
    }
    const bool is_pq = method::method_of(config.select).name == std::string_view("pq");
    if (options.wants_recall && is_pq && c.n_depth > 0 && !base.has_store &&
        !engine.status().on_gpu) {
      tell(c.name() + ": recall");
      row.recall = at_depth.recall();
    }
    rows.push_back(std::move(row));
  }
}

}  // namespace

std::vector<Row> run_all(const Options& options) {
  const std::vector<Case> cases = cases_of(options);
  if (cases.empty())
    throw tools::Failure{tools::kExitUsage,
                         "there is nothing to measure: -p, -n and -pg are all 0"};
  if (options.repetitions == 0) throw tools::Failure{tools::kExitUsage, "-r must be at least 1"};
  const std::vector<std::string> selects = tools::compared_select_names(options.selects);
  std::vector<Row> rows;
  Teller tell(options);
  for (const std::string& model : options.models) {
    for (const auto& kv_type : each_or_none(options.kv_types)) {
      for (const auto& n_ubatch : each_or_none(options.ubatches)) {
        for (const auto& n_threads : each_or_none(options.threads)) {
          for (const auto& select : each_or_none(selects)) {
            run_setup(options, {model, kv_type, select, n_threads, n_ubatch}, cases, rows, tell);
          }
        }
      }
    }
  }
  return rows;
}

Planned plan_for(const Options& options, u32 context_tokens) {
  const Setup setup{options.models.front(), each_or_none(options.kv_types).front(),
                    each_or_none(options.selects).front(), each_or_none(options.threads).front(),
                    each_or_none(options.ubatches).front()};
  SystemReserve reserve;
  SystemClock clock;
  const Config config = config_of(options, setup, context_tokens, 1);
  const engine::PlanReport report = tools::value_of(engine::plan_model(
      {.model_path = setup.model.c_str(), .config = config, .reserve = &reserve, .clock = &clock}));
  return {.total_bytes = report.plan.total_bytes, .budget_bytes = report.plan.budget_bytes};
}

}  // namespace tarn::bench
