// tarn calibrate: measures what work costs on this box with this model, fits it by least squares,
// and writes box.profile. Clustering and prefill of a layer: the formulas stand in
// runtime/method/pq/iterations.h; the rest: runtime/control/costs.h.
#include "tools/tarn/calibrate.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "platform/cpu/topology.h"
#include "platform/mem/reserve.h"
#include "platform/power/power.h"
#include "runtime/control/costs.h"
#include "runtime/engine/engine.h"
#include "runtime/lab/methods.h"
#include "runtime/lab/probe.h"
#include "tools/builtin/built_in_model.h"
#include "tools/support/bandwidth.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/least_squares.h"
#include "tools/support/model_file.h"
#include "tools/support/own_engine.h"
#include "tools/support/progress.h"
#include "tools/support/stepping.h"
#include "tools/support/utc.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {

void print_fitted(const char* what, f64 measured_s, f64 fitted_s) {
  std::printf("%-34s %10.3f %10.3f %+9.1f%%\n", what, 1e3 * measured_s, 1e3 * fitted_s,
              100 * (fitted_s / measured_s - 1));
}

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr u32 kContextDefault = 4096;
constexpr u64 kReadMax = 16'384;
constexpr u32 kLengths = 6;
constexpr std::array<u32, 2> kUpdates = {3, 9};  // as in PQCache's code
constexpr u32 kTokensContextMax = 32'768;        // for tokens, whose KV is filled in
constexpr f64 kFastPrefillS = 3;                 // a faster box reads four times as many tokens
constexpr u64 kDiskFileBytes = kGiB;
constexpr f64 kDiskSeconds = 0.3;  // for each size of reads

struct CalibrateCommand {
  EngineOptions engine;
  u32 share_percent = 3;
  std::string out_file;
};

// The time of one layer.
struct Prefill {
  u32 n_tokens;
  f64 seconds;
};
struct Clustering {
  u32 n_rows, n_sampled, n_updates;
  f64 seconds;
};
struct Measured {
  u32 rows_max = 0;         // of a step
  std::vector<f64> pieces;  // of the prompt; the minimum over all engines
  std::vector<Prefill> prefills;
  std::vector<Clustering> clusterings;
};

f64 seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<f64>(SteadyClock::now() - begin).count();
}

// A short one, of which what each step costs is a larger part, and evenly spaced ones, in whole
// slices if a slice is short enough.
std::vector<u32> lengths_of(const Config& config) {
  const u32 n_max = static_cast<u32>(config.context_tokens) - 1;
  u32 step = n_max / kLengths;
  if (step >= config.batch_rows_max) step -= step % config.batch_rows_max;
  std::vector<u32> lengths;
  if (config.batch_rows_max / 4 < step) lengths.push_back(config.batch_rows_max / 4);
  for (u32 i = 1; i <= kLengths; ++i) lengths.push_back(i * step);
  return lengths;
}

// An engine that clusters with one number of updates. It reads the longest prompt piece by piece,
// then clusters each of its prefixes, one layer per step without rows.
class Box {
 public:
  Box(const CalibrateCommand& command, Config config, u32 n_updates, Progress& progress)
      : config_(config), progress_(progress) {
    config_.select.iterations = n_updates;
    own_ = std::make_unique<OwnEngine>(command.engine.model, config_);
    session_ = value_of(engine().sessions().create());
  }

  u32 n_workers() { return engine().plan().n_workers; }
  KvGroups kv() {
    const kv::GroupShape& shape = engine().plan().group_shape;
    return {engine().spec().n_cache_layers, shape.page_tokens, shape.group_bytes()};
  }
  std::string device_name() {
    const engine::EngineStatus status = engine().status();
    return status.on_gpu ? status.gpu_name : cpu_topology().model_name.data();
  }

  void measure(const std::vector<u32>& lengths, Measured& measured) {
    const f64 n_layers = engine().spec().n_cache_layers;
    measured.pieces.resize(lengths.size(), std::numeric_limits<f64>::max());
    f64 seconds = 0;
    measured.prefills.clear();
    measured.rows_max = engine().plan().rows_max;
    for (u32 i = 0; i < lengths.size(); ++i) {
      f64& least = measured.pieces[i];
      least = std::min(least, read_up_to(lengths[i]) / n_layers);
      seconds += least;
      measured.prefills.push_back({lengths[i], seconds});
    }
    const SelectConfig& select = config_.select;
    for (u32 i = static_cast<u32>(lengths.size()); i-- > 0;) {
      const u32 n_rows = lengths[i] - select.n_sinks - select.n_local;
      if (lengths[i] < select.n_sinks + select.n_local || n_rows < 8u << select.code_bits) continue;
      const lab::ClusterWork work = lab::cluster_work(select, n_rows);
      measured.clusterings.push_back({n_rows, work.n_sampled, work.n_updates, cluster(lengths[i])});
    }
  }

 private:
  engine::Engine& engine() { return own_->get(); }

  void tell(const std::string& doing) {
    progress_.show("layers, with " + std::to_string(config_.select.iterations) + " updates: " +
                   doing + " of " + std::to_string(config_.context_tokens) + " tokens");
  }

  f64 read_up_to(u32 n_tokens) {
    std::vector<u32> ids;
    for (; n_fed_ < n_tokens; ++n_fed_) {
      ids.push_back(static_cast<u32>(n_fed_ * 2'654'435'761ull % engine().spec().n_vocab));
    }
    value_of(engine().sessions().feed(session_, ids));
    const auto begin = SteadyClock::now();
    compute_all(engine(), session_, [&] {
      if (!progress_.is_due()) return;
      tell("read " + std::to_string(engine().sessions().state(session_).sequence.n_slots()));
    });
    return seconds_since(begin);
  }

  // The minimum over the layers, which other programs disturb least.
  f64 cluster(u32 n_tokens) {
    value_of(engine().sessions().truncate(session_, n_tokens));
    value_of(engine().sessions().generate(session_,
                                          {.sampler = {}, .max_tokens = 1, .ignore_end = true}));
    for (bool done = false; !done;) {
      step(engine());
      done = drain(engine(), session_);
    }
    std::vector<f64> seconds;
    while (engine().has_work()) {
      if (progress_.is_due()) tell("clustering " + std::to_string(n_tokens));
      const auto begin = SteadyClock::now();
      const u32 n_units = step(engine()).n_cluster_units;
      if (n_units > 0) seconds.push_back(seconds_since(begin) / n_units);
    }
    if (seconds.empty()) throw Failure{kExitInternal, "no clustering ran"};
    return *std::min_element(seconds.begin(), seconds.end());
  }

  Config config_;
  Progress& progress_;
  std::unique_ptr<OwnEngine> own_;
  engine::SessionIdx session_ = 0;
  u32 n_fed_ = 0;
};

f64 prefill_seconds(const Measured& measured, const LayerCost& cost, f64 from, f64 to) {
  return control::costs_of({.layer = cost}, /*n_layers=*/1, measured.rows_max).prefill_s(from, to);
}

f64 clustering_seconds(const LayerCost& cost, f64 n_rows, f64 n_sampled, f64 n_updates) {
  return static_cast<f64>(cost.job_ns) * 1e-9 + static_cast<f64>(cost.row_ps) * 1e-12 * n_rows +
         static_cast<f64>(cost.update_ps) * 1e-12 * n_sampled * n_updates;
}

LayerCost fit(const Measured& measured, u32 share_percent) {
  std::vector<std::vector<f64>> points;
  std::vector<f64> seconds;
  // By pieces, and errors as what each took: the sums alone would leave the short ones to chance.
  f64 begin = 0;
  for (u64 i = 0; i < measured.prefills.size(); ++i) {
    const f64 end = measured.prefills[i].n_tokens, root = std::sqrt(measured.pieces[i]);
    const f64 n_steps = std::ceil((end - begin) / measured.rows_max);
    points.push_back({n_steps / root, (end - begin) / root, (end * end - begin * begin) / root});
    seconds.push_back(root);
    begin = end;
  }
  const std::vector<f64> prefill = least_squares(points, seconds);
  points.clear();
  seconds.clear();
  for (const Clustering& c : measured.clusterings) {
    points.push_back({1, static_cast<f64>(c.n_rows), static_cast<f64>(c.n_sampled) * c.n_updates});
    seconds.push_back(c.seconds);
  }
  const std::vector<f64> cluster = least_squares(points, seconds);
  LayerCost cost{.job_ns = rounded(cluster[0] * 1e9),
                 .row_ps = rounded(cluster[1] * 1e12),
                 .update_ps = rounded(cluster[2] * 1e12),
                 .layer_ns = rounded(prefill[0] * 1e9),
                 .token_ps = rounded(prefill[1] * 1e12),
                 .squared_fs = rounded(prefill[2] * 1e15),
                 .share_percent = share_percent};
  if (cost.update_ps == 0) {
    throw Failure{kExitRefused,
                  "more updates took no longer: other programs disturbed the measurement; run it "
                  "again, or raise -c"};
  }
  return cost;
}

void print_layers(const Measured& measured, const SelectConfig& select) {
  const LayerCost& cost = select.cost;
  char what[64];
  std::printf("%-34s %10s %10s %10s\n", "of a layer", "measured", "fit, ms", "off by");
  f64 fitted_s = 0;
  u32 begin = 0;
  for (const Prefill& p : measured.prefills) {
    fitted_s += prefill_seconds(measured, cost, begin, p.n_tokens);
    begin = p.n_tokens;
    std::snprintf(what, sizeof what, "prefill of %u tokens", p.n_tokens);
    print_fitted(what, p.seconds, fitted_s);
  }
  for (const Clustering& c : measured.clusterings) {
    std::snprintf(what, sizeof what, "clustering %u rows, %u updates", c.n_rows, c.n_updates);
    print_fitted(what, c.seconds, clustering_seconds(cost, c.n_rows, c.n_sampled, c.n_updates));
  }
  std::printf("\n%8s %22s %8s %24s\n", "rows", "prefill of a layer, ms", "updates",
              "clustering of a layer, ms");
  for (u32 s = 2048; s <= 131'072; s *= 2) {
    const lab::ClusterWork work = lab::cluster_work(select, s);
    std::printf("%8u %22.2f %8u %24.2f\n", s, 1e3 * prefill_seconds(measured, cost, 0, s),
                work.n_updates, 1e3 * clustering_seconds(cost, s, work.n_sampled, work.n_updates));
  }
}

// The facts that a profile says of itself.
struct Origin {
  std::string device;
  u32 n_workers = 0;
  KvGroups kv{};
};

void write_profile(const CalibrateCommand& command, const Config& config, const Origin& origin) {
  const PowerState power = power_state();
  std::string text = "# tarn calibrate, " + utc_now() + ": " + model_name(command.engine.model) +
                     "\n# " + origin.device + ", " + std::to_string(origin.n_workers) +
                     " worker threads, power mode \"" + power.mode.data() + "\", " +
                     std::to_string(power.cpu_mhz) + " MHz, " + std::to_string(power.n_throttling) +
                     " devices throttling\n# Measured again where the box, its power mode, the "
                     "model or select.* change.\n";
  std::istringstream lines(to_toml(config));
  for (std::string line; std::getline(lines, line);) {
    const bool is_ours = line.starts_with("box.") || line.starts_with("select.iterations");
    if (is_ours || line.starts_with("select.subspaces") || line.starts_with("select.code_bits")) {
      text += line + "\n";
    }
  }
  if (command.out_file.empty()) {
    std::printf("\n%s", text.c_str());
  } else {
    write_file(command.out_file, text.data(), text.size());
  }
}

// Tokens behind long contexts: behind `longest`, or what the budget has room for.
std::vector<TokenTime> measure_long_tokens(const CalibrateCommand& command, Config config,
                                           u64 longest, Progress& progress) {
  const u64 shortest = std::min(config.context_tokens, longest);
  for (config.context_tokens = longest;; config.context_tokens /= 2) {
    try {
      return measure_tokens(command.engine.model, config, progress);
    } catch (const Failure& failure) {
      const bool may_fit = failure.code == kExitRefused && config.context_tokens / 2 >= shortest;
      if (!may_fit) throw;
    }
  }
}

void measure_layers(const CalibrateCommand& command, Config config, Progress& progress,
                    Measured* measured, Origin* origin) {
  SelectConfig& select = config.select;
  lab::set_method(select, "pq");
  select.n_local = 1;
  select.context_divisor = 0;
  select.context_min = 1;
  select.index_delay_tokens = 4096;  // no token waits for it
  const std::vector<u32> lengths = lengths_of(config);
  const u32 n_least = select.n_sinks + select.n_local + (8u << select.code_bits);
  if (lengths[kLengths - 2] < n_least) {
    throw Failure{kExitRefused, "an index of " + std::to_string(select.code_bits) +
                                    " bits is made from " + std::to_string(n_least) +
                                    " tokens on: raise -c to " + std::to_string(2 * n_least) +
                                    " or more"};
  }
  for (const u32 n_updates : kUpdates) {
    Box box(command, config, n_updates, progress);
    box.measure(lengths, *measured);
    *origin = {box.device_name(), box.n_workers(), box.kv()};
  }
}

void run(CalibrateCommand& command) {
  const auto built_in = built_in_unless_named(command.engine.model);
  check_output(command.out_file, {command.engine.model});
  Config config = command.engine.config();
  u64 n_ctx_train = 0;
  {
    ModelFile model(command.engine.model);
    n_ctx_train = model.description().spec.n_ctx_train;
  }
  const bool is_given = config.context_tokens != 0;
  if (!is_given) config.context_tokens = std::min<u64>(kContextDefault, n_ctx_train);
  config.sessions_max = 1;
  config.reuse.prefix = false;  // a prompt read again would take no time
  config.box = {};
  config.box_profile = {};
  const std::string store = config.store.path.data();
  const u64 quota_bytes = std::exchange(config.store.quota_bytes, u64{0});
  config.store.path = {};  // KV is in memory while the rest is measured
  if (!store.empty()) {    // the disk is measured last
    (void)mkdir(store.c_str(), 0700);
    check_output(store + "/" + kScratchName, {});
  }

  Measured measured;
  Origin origin;
  Progress progress;
  measure_layers(command, config, progress, &measured, &origin);
  const f64 prefill_s = measured.prefills.back().seconds * origin.kv.n_layers;
  const u64 longer = std::min({4 * config.context_tokens, n_ctx_train, kReadMax});
  if (!is_given && longer > config.context_tokens && prefill_s < kFastPrefillS) {
    Config more = config;
    more.context_tokens = longer;
    Measured again;
    try {
      measure_layers(command, more, progress, &again, &origin);
      measured = again;
    } catch (const Failure& failure) {  // no room: what was measured stands
      if (failure.code != kExitRefused) throw;
    }
  }
  Config profile = config;
  profile.select.iterations = 0;
  profile.box.layer = fit(measured, command.share_percent);
  profile.select.cost = profile.box.layer;
  progress.clear();
  print_layers(measured, profile.select);

  std::printf("\n%-34s %10s %10s %10s\n", "of all layers", "measured", "fit, ms", "off by");
  const u64 longest =
      is_given ? config.context_tokens : std::min<u64>(kTokensContextMax, n_ctx_train);
  const std::vector<TokenTime> tokens = measure_long_tokens(command, config, longest, progress);
  progress.clear();
  fit_tokens(tokens, &profile.box);
  print_tokens(tokens, profile.box);
  if (!store.empty()) {
    progress.show("the disk: writes a file and reads it");
    const std::vector<DiskReads> reads = measure_disk(
        store,
        config.io.data() == std::string_view("threads") ? IoKind::threads : IoKind::automatic,
        std::min(kDiskFileBytes, quota_bytes / 2), kDiskSeconds);
    progress.clear();
    fit_disk(reads, &profile.box);
    print_disk(reads, profile.box, origin.kv);
  }
  if (memory_available_bytes() > 2 * kBandwidthBufferBytes) {
    std::printf("the CPU reads %.1f GB/s of memory\n",
                measure_read_bandwidth(cpu_topology().n_physical_cores) * 1e-9);
  }
  profile.box.power_mode = power_state().mode;
  profile.box_profile = box_text(profile.box);
  profile.store.quota_bytes = quota_bytes;
  write_profile(command, profile, origin);
}

}  // namespace

void add_calibrate(const Command& app) {
  auto command = std::make_shared<CalibrateCommand>();
  const Command sub = app.add_subcommand(
      "calibrate", "measure what work costs on this box with this model: the box's profile");
  sub.footer(
      "\nExamples:\n"
      "  tarn calibrate -m model.gguf --store ~/tarn -o box.toml    reads 4096 tokens twice\n"
      "  tarn run -m model.gguf --select pq --config box.toml -f book.txt\n"
      "  tarn run -m model.gguf --config profile.toml --config box.toml -f book.txt\n"
      "\nWith its profile an engine decides from which length selection is faster, how many "
      "updates of its centroids a clustering makes (as fit into --share percent of the prefill's "
      "time, 3 to 300), how much of chunks is computed anew while their KV comes from the disk, "
      "and whether KV on a slow disk is read or computed. What changes a token depends only on "
      "length and profile, so the same prompt gives the same answer on a busy box.\n");
  command->engine.add_to(
      sub, "the model's, at most " + std::to_string(kContextDefault) + ", and more on fast boxes");
  sub.add_option("--share", command->share_percent,
                 "share of a layer's prefill time for its clustering, percent; 100 if other "
                 "hardware computes the prefill")
      .between(1u, 100u)
      .capture_default_str();
  sub.add_option("-o,--output", command->out_file,
                 "write the profile to this file instead of standard output")
      .type_name("FILE");
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
