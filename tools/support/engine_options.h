// The options of every program with an engine, and a handle that owns an engine. Defaults, file and
// command line meet here: options override the file, the file overrides the defaults.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "platform/base/types.h"
#include "platform/gpu/device.h"
#include "runtime/api/tarn.h"
#include "runtime/config/config.h"
#include "tools/support/command_line.h"
#include "tools/support/foreign_options.h"

namespace tarn::tools {

struct ConfigFile {
  std::string path, text;
};

struct EngineOptions {
  Config defaults;                        // for what neither files nor options set
  std::string model;                      // empty: the built-in one (built_in_unless_named)
  std::vector<std::string> config_paths;  // a later file overrides an earlier one
  std::string budget = "auto";            // bytes, or auto: available memory minus a headroom
  std::optional<u64> context_tokens;
  std::optional<u32> n_threads;
  std::optional<std::string> kv_type, isa, device, io, lock, select;
  std::optional<u32> rows_max, sessions_max;
  std::string store_dir;  // empty: none
  bool verbose = false;
  ForeignOptions foreign;

  // Adds the options to a command. `context_default`: what -c is where it is not given.
  void add_to(const Command& command, const std::string& context_default = "the model's");
  // Reads each file once. Throws Failure.
  std::vector<ConfigFile> read_config_files() const;
  // Returns the effective configuration. Throws Failure.
  Config config() const { return config(read_config_files()); }
  // `origins` gets Origin::file for the keys that a file sets.
  Config config(const std::vector<ConfigFile>& files, Origins* origins = nullptr) const;
};

// "(default f16)": what a key of the configuration is where nothing sets it.
std::string default_of(const char* key);

// A choice's names, for is_member().
std::vector<std::string> names_of(std::span<const char* const> names);

// Checks an option whose value may be an unset shell variable: returns what is wrong, or "".
std::string is_not_empty(const std::string& value);

// Says that the folder of --store is of no use here.
void warn_of_unused_store(const std::string& store_dir, bool is_used);

// Refuses an existing folder that an engine would refuse as its store. Throws Failure.
void check_store_folder(const std::string& folder);

// Applies `--select`: a method, a preset, or compare-pqcache/METHOD. All but "full" are
// approximate.
SelectConfig select_named(SelectConfig select, const std::string& name);
// Expands compare-pqcache to all methods that it compares.
std::vector<std::string> compared_select_names(const std::vector<std::string>& names);
std::vector<std::string> lossy_select_names();
std::vector<std::string> select_names();

// The budget of `--budget auto`: available memory minus a headroom of a tenth. The headroom is at
// least 256 MiB (where that is less than a quarter), and at least the headroom of a GPU that shares
// the memory.
u64 automatic_budget_bytes(u64 available_bytes, const DeviceFacts& device);

// The configuration as a TOML text with every key.
// Throws Failure where a method of the lab was chosen, which no key names.
std::string to_toml(const Config& config);

class EngineHandle {
 public:
  // Opens an engine, with log lines on standard error; on a terminal also the plan's total before
  // loading, and progress; with `verbose` the whole plan and all log lines. `chat_template`: as in
  // tarn_options; "": the model's own. Throws Failure.
  EngineHandle(const EngineOptions& options, const Config& config,
               const std::string& chat_template = "");
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;
  ~EngineHandle() { tarn_close(engine_); }
  tarn_engine* get() const { return engine_; }
  tarn_engine_status status() const;
  tarn_plan plan() const;

 private:
  tarn_engine* engine_ = nullptr;
};

// "4.58 GiB"
std::string format_bytes(u64 bytes);
// The table of `tarn plan`; also printed by `tarn run -v`.
std::string format_plan(const tarn_plan& plan);

}  // namespace tarn::tools
