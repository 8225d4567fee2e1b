// tools/tarnd/main.cpp: the daemon's command line. Exit codes: tools/support/exit_code.h.
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>

#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/standard_descriptors.h"
#include "tools/tarnd/daemon.h"
#include "tools/tarnd/descriptors.h"
#include "tools/tarnd/dropin.h"
#include "tools/tarnd/log.h"
#include "tools/tarnd/network_memory.h"

namespace tarn::daemon {
namespace {

constexpr const char* kExamples =
    "\nExamples:\n"
    "  tarnd --listen unix:///tmp/tarn.sock                the built-in model\n"
    "  tarnd -m model.gguf -c 16384 --store /var/lib/tarn --listen unix:///run/tarn/tarn.sock\n"
    "  tarnd --config /etc/tarn.toml --check-config        what it would do, and its memory\n"
    "  curl --unix-socket /tmp/tarn.sock http://localhost/v1/models\n"
    "\nSIGTERM ends running answers within daemon.drain_s, SIGHUP reads limits, keys and the log's "
    "level again. Exit codes: 0 ok, 64 usage, 70 internal error, 74 I/O failed, 75 GPU lost (start "
    "again), 78 model, configuration or budget refused.\n";

// Sessions where neither file nor option has a number: as many as may run and wait, so that whoever
// asks waits instead of being refused. Fewer where they do not fit into the budget.
constexpr u32 kSessionsMost = 128, kSessionsLeast = 16;

struct Options {
  tools::EngineOptions engine;
  std::vector<std::string> listen;
  std::string keys_file;
  bool insecure_no_key = false, checks = false, prints_dropin = false;
};

Settings settings_of(const Options& options) {
  Settings settings;
  for (const std::string& path : options.engine.config_paths) {
    struct stat facts {};
    // It is read more than once, and again at SIGHUP.
    if (stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode)) {
      throw tools::Failure{tools::kExitRefused, path + ": no plain file: give a TOML file"};
    }
    read_settings(tools::read_file(path, kConfigTextBytesMax), path, settings);
  }
  if (!options.listen.empty()) settings.listen = options.listen;
  if (!options.keys_file.empty()) settings.keys_file = options.keys_file;
  settings.insecure_no_key = options.insecure_no_key;
  check_settings(settings);
  return settings;
}

// The network's memory is a part of the budget.
Config engine_config(const Options& options, const Settings& settings) {
  Config config = options.engine.config();
  if (!options.engine.store_dir.empty()) config.store.sessions = true;
  if (config.budget_bytes <= settings.memory_bytes) {
    throw tools::Failure{tools::kExitRefused,
                         "daemon.memory_bytes is all of the budget: raise --budget"};
  }
  config.budget_bytes -= settings.memory_bytes;
  return config;
}

std::string name_of(const Options& options, const Settings& settings) {
  if (!settings.model_name.empty()) return settings.model_name;
  if (options.engine.model.empty()) return "built-in";
  return std::filesystem::path(options.engine.model).stem().string();
}

// Throws Failure if there is none. `why`: what to lower, if it does not fit.
tarn_plan plan_of(const DaemonSource& source, std::string* why) {
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = source.engine.model_path.c_str();
  options.config_toml = source.engine.config_toml.c_str();
  tarn_plan plan = TARN_INIT(tarn_plan);
  tools::check_api(tarn_plan_memory(&options, &plan));
  *why = plan.fits != 0 ? "" : tarn_error_text();
  return plan;
}

bool sets_sessions(Options& options, const Settings& settings) {
  for (const u32 other : {1u, 2u}) {
    options.engine.defaults.sessions_max = other;
    if (engine_config(options, settings).sessions_max != other) return true;
  }
  return false;
}

bool fits(const DaemonSource& source) {
  try {
    std::string why;
    return plan_of(source, &why).fits != 0;
  } catch (const tools::Failure&) {
    return false;  // such as too little kv.memory_bytes for a step of so many
  }
}

// Sets the engine's configuration, with as many sessions as may run and wait, or as fit.
// `most_toml` gets it with all of them: what is free differs from start to start.
Config choose_config(Options& options, DaemonSource& source, std::string* most_toml) {
  const bool is_set = sets_sessions(options, source.settings);
  Config config = engine_config(options, source.settings);
  if (!is_set) {
    config.sessions_max =
        std::min({config.running_max + config.waiting_max, kSessionsMost, config.batch_rows_max});
  }
  *most_toml = source.engine.config_toml = tools::to_toml(config);
  while (!is_set && config.sessions_max > kSessionsLeast && !fits(source)) {
    config.sessions_max = std::max(config.sessions_max / 2, kSessionsLeast);
    source.engine.config_toml = tools::to_toml(config);
  }
  return config;
}

// Prints what the sessions cost.
void print_sessions(DaemonSource source, Config config, const tarn_plan& plan) {
  u64 each_bytes = 0;
  if (config.sessions_max > 1) {
    const u32 n = config.sessions_max--;
    source.engine.config_toml = tools::to_toml(config);
    std::string why;
    each_bytes = plan.total_bytes - plan_of(source, &why).total_bytes;
    config.sessions_max = n;
  }
  std::printf(
      "%-14s %u open at a time (engine.sessions_max), %llu bytes each; by default as many "
      "as may run and wait, at most %u, and as fit\n",
      "sessions", config.sessions_max, static_cast<unsigned long long>(each_bytes), kSessionsMost);
}

// Prints the effective configuration and the plan. Throws Failure if it does not fit.
void check_config(const DaemonSource& source, const Config& config) {
  std::string why;
  const tarn_plan plan = plan_of(source, &why);
  std::printf("%s\n%s\n%s", settings_toml(source.settings).c_str(),
              source.engine.config_toml.c_str(), tools::format_plan(plan).c_str());
  print_sessions(source, config, plan);
  std::printf(
      "%-14s %-6s %-8s %12llu  daemon.memory_bytes, beside the engine's budget; %u "
      "connections and a body of %llu bytes need %llu\n",
      "network", "host", "io", static_cast<unsigned long long>(source.settings.memory_bytes),
      source.settings.connections_max,
      static_cast<unsigned long long>(source.settings.body_bytes_max),
      static_cast<unsigned long long>(network_bytes_least(source.settings)));
  if (!why.empty()) throw tools::Failure{tools::kExitRefused, why};
}

void print_dropin(DaemonSource source, const Config& config, const std::string& most_toml) {
  std::string why;
  DropinFacts facts{.plan = plan_of(source, &why),
                    .network_bytes = source.settings.memory_bytes,
                    .n_descriptors = descriptors_needed(source.settings.connections_max),
                    .stop_s = stop_seconds(source.settings),
                    .store_dir = config.store.path.data()};
  if (!why.empty()) throw tools::Failure{tools::kExitRefused, why};
  source.engine.config_toml = most_toml;
  facts.plan = plan_of(source, &why);
  for (u32 i = 0; i < facts.plan.n_regions; ++i) {
    const tarn_region& region = facts.plan.regions[i];
    facts.uses_gpu |= region.bytes > 0 && std::string_view(region.space) == "device";
  }
  for (const std::string& address : source.settings.listen) {
    if (address.starts_with("tcp://")) {
      facts.tcp_peers = source.settings.beyond_loopback ? "any" : "localhost";
    }
  }
  std::fputs(dropin_of(facts).c_str(), stdout);
}

int run(Options options) {
  DaemonSource source;
  source.settings = settings_of(options);
  source.model.name = name_of(options, source.settings);
  source.model.is_built_in = options.engine.model.empty();
  source.model.created_s = static_cast<u64>(std::time(nullptr));
  const auto built_in = tools::built_in_unless_named(options.engine.model);
  source.engine = {.model_path = options.engine.model,
                   .config_toml = {},
                   .chat_template = source.settings.chat_template};
  if (source.model.is_built_in && source.settings.chat_template.empty()) {
    source.engine.chat_template = "plain";
  }
  std::string most_toml;
  const Config config = choose_config(options, source, &most_toml);
  source.read_again = [options] { return settings_of(options); };
  if (options.checks) {
    check_config(source, config);
    return tools::kExitOk;
  }
  if (options.prints_dropin) {
    print_dropin(source, config, most_toml);
    return tools::kExitOk;
  }
  raise_descriptor_limit(source.settings.connections_max);
  NetworkMemory::install(source.settings.memory_bytes);
  return Daemon(std::move(source)).run();
}

int run_command_line(int argc, char** argv) {
  tools::CommandLine app("Serves a model to OpenAI clients, from one fixed memory budget.",
                         "tarnd");
  Options options;
  int code = tools::kExitOk;
  app.footer(kExamples);
  app.set_version_flag("tarnd " TARN_VERSION);
  options.engine.add_to(app);
  app.add_option(
         "--parallel", options.engine.sessions_max,
         "open sessions at a time (engine.sessions_max; default: as many as may run and wait)")
      .between(1u, 1024u);
  app.add_option("--listen", options.listen,
                 "unix:///path or tcp://address:port; may be repeated (daemon.listen)")
      .one_value_each();
  app.add_option("--keys-file", options.keys_file, "keys for TCP (daemon.keys_file)");
  app.add_flag("--insecure-no-key", options.insecure_no_key,
               "tcp://127.0.0.1 without a key: every user and program of this machine may ask");
  app.add_flag("--check-config", options.checks,
               "print the effective configuration and the memory plan, and end: 0, or 78 if it "
               "is refused");
  app.add_flag("--dropin", options.prints_dropin,
               "print a drop-in for toolchain/tarnd.service with the plan's limits, and end");
  app.callback([&] { code = run(options); });
  if (const auto parsed = app.parse(argc, argv)) return *parsed;
  return code;
}

int code_of(int argc, char** argv) {
  const std::string program = std::string(line_prefix(LogLevel::error)) + "tarnd";
  try {
    return run_command_line(argc, argv);
  } catch (const tools::Failure& failure) {
    tools::print_failure(program.c_str(), failure.text);
    return failure.code;
  } catch (const std::exception& error) {
    tools::print_failure(program.c_str(), error.what());
    return tools::kExitRefused;
  }
}

}  // namespace
}  // namespace tarn::daemon

int main(int argc, char** argv) {
  tarn::tools::fill_standard_descriptors();
  tarn::daemon::set_journal_prefixes(
      tarn::daemon::is_journal_stream(std::getenv("JOURNAL_STREAM")));
  std::signal(SIGXFSZ, SIG_IGN);  // a disk without room is an error of a write
  tarn::set_thread_fatal_sink(&tarn::tools::fatal_sink());
  return tarn::tools::code_after_output("tarnd", tarn::daemon::code_of(argc, argv));
}
