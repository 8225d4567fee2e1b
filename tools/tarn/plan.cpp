// tarn plan: prints the memory plan of this box or of another one, without loading anything.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/cpu_table.h"
#include "runtime/api/border.h"
#include "runtime/engine/engine.h"
#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/json.h"
#include "tools/support/model_file.h"
#include "tools/support/target_box.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

struct PlanCommand {
  EngineOptions engine;
  std::string target;  // empty: this box
  bool json = false;
};

// The reads of full attention from the disk for a token behind a full context; 0: nothing.
struct DiskCost {
  u64 bytes = 0;
  f64 seconds = 0;  // with the profile's figures; 0: no profile was loaded
};

DiskCost disk_cost(const plan::Plan& plan, const Config& config) {
  if (!plan.tiers.is_on()) return {};
  const u64 n_layers = plan.kv.n_cache_layers;
  const u64 n_groups = plan.pages_max * n_layers;
  const u64 n_on_gpu =
      plan.gpu.n_stripes > 0 ? u64{plan.gpu.n_stripes} * plan.gpu.stripe_groups() * n_layers : 0;
  const u64 n_in_memory = std::min(n_groups, plan.tiers.n_frames + n_on_gpu);
  const u64 n_read = n_groups - n_in_memory;
  const u64 bytes = n_read * plan.group_shape.group_bytes();
  const f64 request_s = static_cast<f64>(n_read * config.box.disk_request_ns) * 1e-9;
  return {.bytes = bytes,
          .seconds = config.box.disk_byte_fs == 0
                         ? 0
                         : std::max(request_s, static_cast<f64>(bytes) * 1e-15 *
                                                   static_cast<f64>(config.box.disk_byte_fs))};
}

void print_plan_json(const PlanCommand& command, const Config& config,
                     const engine::PlanReport& report, const tarn_plan& plan) {
  const DiskCost cost = disk_cost(report.plan, config);
  Json json;
  json.begin_object();
  json.key("fits").boolean(plan.fits != 0);
  json.key("budget_bytes").number(plan.budget_bytes);
  json.key("total_bytes").number(plan.total_bytes);
  json.key("context_tokens").number(plan.context_tokens);
  json.key("sessions_max").number(config.sessions_max);
  json.key("target");
  command.target.empty() ? json.null() : json.text(command.target);
  json.key("on_gpu").boolean(report.on_gpu);
  json.key("missing_bytes").number(report.missing_bytes);
  json.key("full_attention_disk_bytes_per_token").number(cost.bytes);
  json.key("full_attention_disk_s_per_token");
  cost.seconds > 0 ? json.real(cost.seconds) : json.null();
  json.key("regions").begin_array();
  for (uint32_t i = 0; i < plan.n_regions; ++i) {
    const tarn_region& region = plan.regions[i];
    json.begin_object();
    json.key("name").text(region.name);
    json.key("space").text(region.space);
    json.key("kind").text(region.kind);
    json.key("bytes").number(region.bytes);
    json.key("formula").text(region.formula);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  print_json(json);
}

// An engine of this configuration has this many sessions; commands that need one plan for one.
void print_sessions(u32 sessions_max) {
  std::printf("%-14s %u open at a time%s\n", "sessions", sessions_max,
              sessions_max > 1 ? "; tarn run opens one: plan for it with --sessions 1" : "");
}

void print_disk_cost(const plan::Plan& plan, const Config& config) {
  const DiskCost cost = disk_cost(plan, config);
  if (cost.bytes == 0 || !config.select.is_full()) return;
  std::printf("%-14s behind a full context, full attention reads %s from the disk for each token",
              "store", format_bytes(cost.bytes).c_str());
  if (cost.seconds > 0) {
    std::printf(": %.2f s with this profile's disk\n", cost.seconds);
  } else {
    std::printf(" (in seconds with the profile of tarn calibrate); --select pq reads less\n");
  }
}

void print_target(const TargetBox& box, const engine::PlanReport& report) {
  std::printf("%-14s %s: %s; %s. From data sheets, not measured on such a box\n", "target",
              box.name, box.what, report.on_gpu ? "runs on its GPU" : "runs on its CPU");
}

// A box with a card has two memories, each with its own budget.
void print_budgets(const plan::Plan& plan) {
  if (plan.one_budget) return;
  std::printf("%-14s %s of %s on the GPU, %s of %s on the host\n", "budgets",
              format_bytes(plan.device_bytes).c_str(),
              format_bytes(plan.device_budget_bytes).c_str(), format_bytes(plan.host_bytes).c_str(),
              plan.budget_bytes == 0 ? "no bound" : format_bytes(plan.budget_bytes).c_str());
}

void print_missing(u64 missing_bytes) {
  if (missing_bytes == 0) return;
  std::printf(
      "%-14s the last %s of the tensors' data are missing: a plan needs none of them, "
      "tarn run needs all\n",
      "model file", format_bytes(missing_bytes).c_str());
}

// Checks that an engine makes when it is opened, beside the plan's size.
void check_machine(const Config& config) {
  value_of(kernels::cpu_table_select(config.isa.data()));
  if (!config.store.is_off()) check_store_folder(config.store.path.data());
}

// The configuration on that box: its disk is not here, so the store may be as large as it needs.
Config config_for(EngineOptions options, const TargetBox& box) {
  set_defaults(box, &options.defaults);
  const std::string store_dir = std::exchange(options.store_dir, "");
  StoreConfig& store = options.defaults.store;
  if (store_dir.size() >= store.path.size()) throw Failure{kExitUsage, "--store: too long"};
  std::copy(store_dir.begin(), store_dir.end(), store.path.begin());
  if (!store_dir.empty()) store.quota_bytes = kStoreBytesMax;
  return options.config();
}

void print_warning(void*, LogLevel, const char* text) {
  std::fprintf(stderr, "tarn warning: %s\n", text);
}

void run(PlanCommand& command) {
  const auto built_in = built_in_unless_named(command.engine.model);
  const TargetBox* const target = command.target.empty() ? nullptr : &target_box(command.target);
  const Config config =
      target == nullptr ? command.engine.config() : config_for(command.engine, *target);
  if (target == nullptr) check_machine(config);
  to_toml(config);  // refuses methods for measurements
  SystemReserve reserve;
  SystemClock clock;
  const std::string& path = command.engine.model;
  const engine::PlanReport report =
      value_of_open(engine::plan_model({.model_path = path.c_str(),
                                        .config = config,
                                        .reserve = &reserve,
                                        .clock = &clock,
                                        .target = target == nullptr ? nullptr : &target->gpu,
                                        .log = Log(&print_warning, nullptr, LogLevel::warning)}),
                    path);
  tarn_plan plan = TARN_INIT(tarn_plan);
  api::describe_plan(report.plan, &plan);
  if (command.json) {
    print_plan_json(command, config, report, plan);
  } else {
    std::fputs(format_plan(plan).c_str(), stdout);
    print_sessions(config.sessions_max);
    print_budgets(report.plan);
    print_disk_cost(report.plan, config);
    if (target != nullptr) print_target(*target, report);
    print_missing(report.missing_bytes);
  }
  if (plan.fits == 0) throw_failure(report.why_not);
}

}  // namespace

void add_plan(const Command& app) {
  auto command = std::make_shared<PlanCommand>();
  const Command sub =
      app.add_subcommand("plan", "print the memory plan; exit 0 if it fits, 78 if not");
  sub.footer(
      "\nExamples:\n"
      "  tarn plan -m model.gguf -c 8192 --budget 6GiB     does it fit\n"
      "  tarn plan -m model.gguf -c 32768 --kv-type q8_0   17/32 of the bytes for KV\n"
      "  tarn plan -m model.gguf -c 131072 --store ~/kv    the rest on disk\n"
      "  tarn plan -m model.gguf -c 8192 --sessions 1      the plan of tarn run\n"
      "  tarn plan -m model.gguf --target orin-nano-8gb    the plan of another box\n\n"
      "The first 20 MB of a model's file suffice for a plan.\n");
  command->engine.add_to(sub);
  sub.add_option(
      "--sessions", command->engine.sessions_max,
      "open sessions at a time (engine.sessions_max) " + default_of("engine.sessions_max"));
  sub.add_option("--target", command->target,
                 "plan for this box instead, with figures of data sheets (none is measured): " +
                     target_names())
      .check(is_not_empty);
  sub.add_flag("--json", command->json, "one JSON object on standard output");
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
