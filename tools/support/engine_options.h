// tools/support/engine_options.h
//
// The options that every program with an engine has, and an engine that owns itself. Defaults, file
// and command line meet here: options go over the file, the file over the defaults.
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

namespace tarn::tools {

struct EngineOptions {
  std::string model;                      // empty: the built-in one (built_in_unless_named)
  std::vector<std::string> config_paths;  // a later file goes over an earlier one
  std::string budget = "auto";            // bytes, or auto: what is available minus a headroom
  std::optional<u64> context_tokens;
  std::optional<u32> n_threads;
  std::optional<std::string> kv_type, isa, device, io, lock, select;
  std::optional<u32> rows_max, sessions_max;
  std::string store_dir;  // empty: none
  bool verbose = false;

  // Adds the options to a command.
  void add_to(const Command& command);
  // The effective configuration. Throws Failure.
  Config config() const;
};

// A choice's names, for is_member().
std::vector<std::string> names_of(std::span<const char* const> names);

// A check of options whose value may come from a variable that nobody set: what is wrong, or "".
std::string is_not_empty(const std::string& value);

// Refuses a folder that is there and that an engine would refuse as its store. Throws Failure.
void check_store_folder(const std::string& folder);

// What `--select` names: a method, a preset, or compare-pqcache/METHOD. Lossy ones are all but
// "full".
SelectConfig select_named(SelectConfig select, const std::string& name);
// The names, where compare-pqcache stands for all that it compares.
std::vector<std::string> compared_select_names(const std::vector<std::string>& names);
std::vector<std::string> lossy_select_names();
std::vector<std::string> select_names();

// Memory that `--budget auto` allows: what is available now minus a headroom of a tenth, of at
// least 256 MiB where that is less than a quarter, and of what a GPU that shares it leaves free.
u64 automatic_budget_bytes(u64 available_bytes, const DeviceFacts& device);

// The configuration as a TOML text with every key.
std::string to_toml(const Config& config);

class EngineHandle {
 public:
  // Opens with log lines on standard error, and on a terminal the plan's total, before anything is
  // loaded, and progress; `verbose`: the whole plan, and all log lines. Throws Failure.
  EngineHandle(const std::string& model_path, const Config& config, bool verbose);
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
// The table of `tarn plan`, and of the first lines of `tarn run` without a prompt, or with -v.
std::string format_plan(const tarn_plan& plan);

}  // namespace tarn::tools
