// tarn plan: prints the memory plan, without loading anything.
#include <cstdio>
#include <memory>

#include "kernels/cpu_table.h"
#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/json.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

struct PlanCommand {
  EngineOptions engine;
  bool json = false;
};

void print_plan_json(const tarn_plan& plan, u32 sessions_max) {
  Json json;
  json.begin_object();
  json.key("fits").boolean(plan.fits != 0);
  json.key("budget_bytes").number(plan.budget_bytes);
  json.key("total_bytes").number(plan.total_bytes);
  json.key("context_tokens").number(plan.context_tokens);
  json.key("sessions_max").number(sessions_max);
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

// Checks that an engine makes when it is opened, beside the plan's size.
void check_machine(const Config& config) {
  value_of(kernels::cpu_table_select(config.isa.data()));
  if (!config.store.is_off()) check_store_folder(config.store.path.data());
}

void run(PlanCommand& command) {
  const auto built_in = built_in_unless_named(command.engine.model);
  const Config config = command.engine.config();
  check_machine(config);
  const std::string toml = to_toml(config);
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = command.engine.model.c_str();
  options.config_toml = toml.c_str();
  tarn_plan plan = TARN_INIT(tarn_plan);
  check_api(tarn_plan_memory(&options, &plan));
  const std::string why_not = tarn_error_text();
  if (command.json) {
    print_plan_json(plan, config.sessions_max);
  } else {
    std::fputs(format_plan(plan).c_str(), stdout);
    print_sessions(config.sessions_max);
  }
  if (plan.fits == 0) throw Failure{kExitRefused, why_not};
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
      "  tarn plan -m model.gguf -c 8192 --sessions 1      the plan of tarn run\n");
  command->engine.add_to(sub);
  sub.add_option("--sessions", command->engine.sessions_max,
                 "open sessions at a time (engine.sessions_max; default 4)");
  sub.add_flag("--json", command->json, "one JSON object on standard output");
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
