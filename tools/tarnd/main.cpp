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
#include "tools/tarnd/sessions_choice.h"

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

struct Options {
  tools::EngineOptions engine;
  std::vector<std::string> listen;
  std::string keys_file;
  bool insecure_no_key = false, checks = false, prints_dropin = false;
};

Settings settings_of(const Options& options, const std::vector<tools::ConfigFile>& files) {
  Settings settings;
  for (const tools::ConfigFile& file : files) read_settings(file.text, file.path, settings);
  if (!options.listen.empty()) settings.listen = options.listen;
  if (!options.keys_file.empty()) settings.keys_file = options.keys_file;
  settings.insecure_no_key = options.insecure_no_key;
  check_settings(settings);
  return settings;
}

std::vector<tools::ConfigFile> read_files(const Options& options) {
  for (const std::string& path : options.engine.config_paths) {
    struct stat facts {};
    if (path != "-" && stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode)) {
      throw tools::Failure{
          tools::kExitRefused,
          path + ": no plain file, which SIGHUP could read again: give a TOML file"};
    }
  }
  return options.engine.read_config_files();
}

// At SIGHUP.
Settings read_again(const Options& options) {
  if (std::ranges::find(options.engine.config_paths, "-") != options.engine.config_paths.end()) {
    throw tools::Failure{tools::kExitRefused,
                         "--config -: standard input was read once; start with a file instead"};
  }
  return settings_of(options, read_files(options));
}

// The network's memory is a part of the budget.
Config engine_config(const Options& options, const std::vector<tools::ConfigFile>& files,
                     const Settings& settings, Origins* origins) {
  Config config = options.engine.config(files, origins);
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

// Prints the effective configuration and the plan. Throws Failure if it does not fit.
void check_config(const DaemonSource& source, const Config& config) {
  std::string why;
  const tarn_plan plan = plan_of(source.engine, &why);
  std::printf("%s\n%s\n%s", settings_toml(source.settings).c_str(),
              source.engine.config_toml.c_str(), tools::format_plan(plan).c_str());
  print_sessions(source.engine, config, plan);
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
  DropinFacts facts{.plan = plan_of(source.engine, &why),
                    .network_bytes = source.settings.memory_bytes,
                    .n_descriptors = descriptors_needed(source.settings.connections_max),
                    .stop_s = stop_seconds(source.settings),
                    .store_dir = config.store.path.data()};
  if (!why.empty()) throw tools::Failure{tools::kExitRefused, why};
  source.engine.config_toml = most_toml;
  facts.plan = plan_of(source.engine, &why);
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
  const std::vector<tools::ConfigFile> files = read_files(options);
  source.settings = settings_of(options, files);
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
  Origins origins{};
  Config config = engine_config(options, files, source.settings, &origins);
  const bool is_set = options.engine.sessions_max.has_value() ||
                      origins[key_idx("engine.sessions_max")] != Origin::built_in;
  std::string most_toml = tools::to_toml(config);
  source.engine.config_toml = most_toml;
  if (!is_set) most_toml = choose_sessions(config, source.engine);
  source.read_again = [options] { return read_again(options); };
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
