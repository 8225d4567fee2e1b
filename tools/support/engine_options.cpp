#include "tools/support/engine_options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <sstream>
#include <string_view>

#include "platform/io/private_folder.h"
#include "platform/mem/reserve.h"
#include "runtime/lab/methods.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/model_file.h"
#include "tools/support/progress.h"

namespace tarn::tools {
namespace {

constexpr LockChoice kLockDefault = LockChoice::attempt;  // of programs; a library does not lock

// Sets a choice field by name; the command line has checked that the name is known.
struct ByName {
  std::string key, name;
  void operator()(const char*, auto&, u64, u64, const char*) {}
  void operator()(const char*, bool&, const char*) {}
  template <size_t n>
  void operator()(const char*, std::array<char, n>&, const char*) {}
  template <class Enum>
  void operator()(const char* k, Enum& field, ChoiceNames names, const char*) {
    if (k == key) assign(field, names);
  }
  template <class Enum>
  void assign(Enum& field, ChoiceNames names) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (name == names[i]) field = static_cast<Enum>(i);
    }
  }
  template <size_t n>
  void assign(std::array<char, n>& field, ChoiceNames) {
    field.fill('\0');
    std::copy_n(name.begin(), std::min(name.size(), n - 1), field.begin());
  }
};

void set_choice(Config& config, const char* key, const std::optional<std::string>& name) {
  if (name) config.visit(ByName{key, *name});
}

// Sets the quota to half of the disk's free space, unless the configuration has a quota.
void set_store(Config& config, const std::string& folder) {
  if (folder.size() >= config.store.path.size()) throw Failure{kExitUsage, "--store: too long"};
  config.store.path = {};
  std::copy(folder.begin(), folder.end(), config.store.path.begin());
  if (config.store.quota_bytes != 0) return;
  namespace fs = std::filesystem;
  const fs::path path = fs::absolute(folder);
  std::error_code error;
  const bool is_there = fs::exists(path, error);
  const fs::space_info space = fs::space(is_there ? path : path.parent_path(), error);
  if (error) throw Failure{kExitIo, "--store " + folder + ": " + error.message()};
  // The store's existing file counts as free space, and must never be made shorter.
  std::error_code absent;
  const u64 file_bytes = fs::file_size(path / kSessionsFile, absent);
  const u64 has_bytes = absent ? 0 : file_bytes;
  const u64 half = (space.available + has_bytes) / 2;
  config.store.quota_bytes = std::min<u64>(std::max(half, has_bytes), kStoreBytesMax);
}

struct TomlWriter {
  std::ostringstream& out;
  void operator()(const char* key, const auto& field, u64, u64, const char*) {
    out << key << " = " << field << "\n";
  }
  void operator()(const char* key, const bool& field, const char*) {
    out << key << " = " << (field ? "true" : "false") << "\n";
  }
  template <size_t n>
  void operator()(const char* key, const std::array<char, n>& text, const char*) {
    out << key << " = '" << text.data() << "'\n";
  }
  template <size_t n>
  void operator()(const char* key, const std::array<char, n>& field, ChoiceNames, const char*) {
    out << key << " = \"" << field.data() << "\"\n";
  }
  template <class Enum>
  void operator()(const char* key, const Enum& field, ChoiceNames names, const char*) {
    out << key << " = \"" << names[static_cast<size_t>(field)] << "\"\n";
  }
};

void print_log(void*, int32_t level, const char* text) {
  const char* names[] = {"debug", "info", "warning", "error"};
  std::fprintf(stderr, "tarn %s: %s\n", names[std::clamp(level, 0, 3)], text);
}

void on_fatal(void*, const char* condition, const char* file, uint32_t line) {
  exit_internal(condition, file, line);
}

int32_t show_loaded(void* progress, uint64_t done, uint64_t total) {
  static_cast<Progress*>(progress)->show_bytes("loading", done, total);
  return 0;
}

// Prints the plan; tarn_open reports a plan that is refused.
void say_plan(tarn_options options, bool whole) {
  options.log = nullptr;
  tarn_plan plan = TARN_INIT(tarn_plan);
  if (tarn_plan_memory(&options, &plan) != TARN_OK) return;
  if (whole) {
    std::fputs(format_plan(plan).c_str(), stderr);
    return;
  }
  u64 disk_bytes = 0;
  for (const tarn_region& region : std::span(plan.regions, plan.n_regions)) {
    if (std::string_view(region.space) == "disk") disk_bytes += region.bytes;
  }
  std::fprintf(stderr, "plan: %s of memory, budget %s, %s on disk\n",
               format_bytes(plan.total_bytes).c_str(), format_bytes(plan.budget_bytes).c_str(),
               format_bytes(disk_bytes).c_str());
}

}  // namespace

std::vector<std::string> names_of(std::span<const char* const> names) {
  return {names.begin(), names.end()};
}

std::string is_not_empty(const std::string& value) {
  return value.empty() ? "the value is empty: is a variable not set?" : "";
}

void check_store_folder(const std::string& folder) {
  std::error_code unknown;  // then the check reports it
  if (std::filesystem::symlink_status(folder, unknown).type() ==
      std::filesystem::file_type::not_found) {
    return;
  }
  value_of(check_private_folder(folder.c_str()));
}

SelectConfig select_named(SelectConfig select, const std::string& name) {
  const std::string preset_name = name.substr(0, name.find('/'));
  const std::string method_name = name.substr(std::min(name.size(), preset_name.size() + 1));
  SelectPreset preset = SelectPreset::none;
  ByName{"", preset_name}.assign(preset, ChoiceNames(kSelectPresetNames));
  if (preset != SelectPreset::none) select = with_preset(select, preset);
  // A method without a preset keeps the other settings of the configuration's preset.
  const std::string& method = preset == SelectPreset::none ? name : method_name;
  lab::set_method(select, method);
  if (select.is_full() && preset == SelectPreset::none) select.preset = preset;
  return select;
}

std::vector<std::string> compared_select_names(const std::vector<std::string>& names) {
  const std::string compare =
      kSelectPresetNames[static_cast<size_t>(SelectPreset::compare_pqcache)];
  std::vector<std::string> all;
  for (const std::string& name : names) {
    if (name != compare) {
      all.push_back(name);
      continue;
    }
    for (const char* method : {"oracle", "pq", "quest", "window", "random"}) {
      all.push_back(compare + "/" + method);
    }
  }
  return all;
}

std::vector<std::string> lossy_select_names() {
  std::vector<std::string> names = names_of(std::span(kSelectMethodNames).subspan(1));
  for (const method::Method& row : lab::methods()) names.push_back(row.name);
  const std::vector<std::string> presets = names_of(std::span(kSelectPresetNames).subspan(1));
  names.insert(names.end(), presets.begin(), presets.end());
  const std::vector<std::string> compared = compared_select_names({presets.back()});
  names.insert(names.end(), compared.begin(), compared.end());
  return names;
}

std::vector<std::string> select_names() {
  std::vector<std::string> names = lossy_select_names();
  names.insert(names.begin(), kSelectMethodNames[static_cast<u64>(SelectMethod::full)]);
  return names;
}

std::string default_of(const char* key) {
  Config config;
  config.lock = kLockDefault;
  const std::string lines = "\n" + to_toml(config);
  const std::string begin = "\n" + std::string(key) + " = ";
  const size_t at = lines.find(begin);
  TARN_ASSERT(at != std::string::npos);
  const size_t from = at + begin.size();
  std::string value = lines.substr(from, lines.find('\n', from) - from);
  std::erase_if(value, [](char c) { return c == '\'' || c == '"'; });
  return "(default " + value + ")";
}

void EngineOptions::add_to(const Command& command, const std::string& context_default) {
  command
      .add_option(
          "-m,--model", model,
          "the model: a GGUF file, or a name that toolchain/model has (default: the built-in one)")
      .check(is_not_empty);
  command.add_option("-c,--ctx-size", context_tokens,
                     "tokens of context to plan KV for (default: " + context_default + ")");
  command
      .add_option("--budget", budget,
                  "ceiling over all memory: bytes, 6GiB, 512MiB; auto: what is free, less a "
                  "tenth of it and 256 MiB at least")
      .capture_default_str();
  command.add_option("--device", device, "where the model runs " + default_of("device.kind"))
      .is_member(names_of(kDeviceNames));
  command.add_option("--kv-type", kv_type, "number format of K and V " + default_of("kv.type"))
      .is_member(names_of(kKvTypeNames));
  command
      .add_option("--select", select,
                  "which K and V a step reads: a method or a preset (default full, exact; "
                  "budgets: select.* of the configuration; compare-pqcache with a method alone)")
      .is_member(select_names());
  command
      .add_option("--store", store_dir,
                  "folder (mode 0700) for KV beyond the budget or kv.memory_bytes, and for kept "
                  "sessions; takes what -c needs, at most store.quota_bytes, or else half of the "
                  "disk's free space")
      .check(is_not_empty);
  command.add_option("-t,--threads", n_threads, "worker threads (default: one per physical core)");
  command.add_option("--isa", isa, "instruction set of the kernels " + default_of("cpu.isa"))
      .is_member(names_of(kIsaNames));
  command.add_option("--io", io, "how files are read " + default_of("io.backend"))
      .is_member(names_of(kIoNames));
  command
      .add_option("--lock", lock, "lock the memory against swapping " + default_of("memory.lock"))
      .is_member(names_of(kLockNames));
  command
      .add_option("--config", config_paths,
                  "configuration file (TOML; keys: configs/README.md); may be repeated, a later "
                  "file overrides an earlier one, and options override files")
      .one_value_each();
  foreign.add_to(command, ForeignOptions::Of::answers, "tarn warning: ");
  command.add_flag("-v,--verbose", verbose, "show the engine's messages while it starts");
}

u64 automatic_budget_bytes(u64 available_bytes, const DeviceFacts& device) {
  const u64 least = std::max(std::min(256 * kMiB, available_bytes / 4), device.headroom_bytes);
  const u64 headroom = std::max(available_bytes / 10, least);
  return available_bytes > headroom ? available_bytes - headroom : 0;
}

std::vector<ConfigFile> EngineOptions::read_config_files() const {
  std::vector<ConfigFile> files;
  for (const std::string& path : config_paths) {
    files.push_back({path, read_file(path, kConfigTextBytesMax)});
  }
  return files;
}

Config EngineOptions::config(const std::vector<ConfigFile>& files, Origins* origins) const {
  Config config = defaults;
  config.lock = kLockDefault;
  // A file is checked as a whole, and its keys may need the folder.
  if (!files.empty() && !store_dir.empty()) set_store(config, store_dir);
  for (const ConfigFile& file : files) {
    config = value_of(config_from_toml(file.text, config, origins));
  }
  if (context_tokens) config.context_tokens = *context_tokens;
  if (n_threads) config.n_threads = *n_threads;
  if (rows_max) config.batch_rows_max = *rows_max;
  if (sessions_max) config.sessions_max = *sessions_max;
  if (select) config.select = select_named(config.select, *select);
  if (!store_dir.empty()) set_store(config, store_dir);
  set_choice(config, "kv.type", kv_type);
  set_choice(config, "cpu.isa", isa);
  const bool on_cpu = foreign.wants_cpu() && !device;
  set_choice(config, "device.kind", on_cpu ? std::optional<std::string>("cpu") : device);
  set_choice(config, "io.backend", io);
  set_choice(config, "memory.lock", lock);
  if (budget != "auto") {
    config.budget_bytes = value_of(parse_bytes(budget));
  } else if (config.budget_bytes == 0) {
    // Without a usable GPU, opening the engine reports it.
    const auto choice = device_choose(config.device.data(), config.device_index);
    const DeviceFacts facts = choice ? choice->facts : DeviceFacts{};
    config.budget_bytes = automatic_budget_bytes(memory_available_bytes(), facts);
  }
  value_of(config_validate(config));
  return config;
}

std::string to_toml(const Config& config) {
  if (config.select.lab_method != nullptr) {
    throw Failure{kExitUsage, "--select " + std::string(config.select.lab_method->name) +
                                  " is for measurements: tarn eval, tarn verify and tarn-bench "
                                  "take it; here name pq, quest, window or full"};
  }
  std::ostringstream out;
  out.imbue(std::locale::classic());
  config.visit(TomlWriter{out});
  return out.str();
}

void warn_of_unused_store(const std::string& store_dir, bool is_used) {
  if (is_used || store_dir.empty()) return;
  std::fprintf(stderr,
               "tarn warning: --store is not used: all KV has room in memory, and no session is "
               "kept or read\n");
}

EngineHandle::EngineHandle(const EngineOptions& given, const Config& config,
                           const std::string& chat_template) {
  const std::string toml = to_toml(config);
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = given.model.c_str();
  options.config_toml = toml.c_str();
  if (!chat_template.empty()) options.chat_template = chat_template.c_str();
  options.log = print_log;
  options.log_level = given.verbose ? 0 : 2;
  options.fatal = on_fatal;
  const bool on_terminal = isatty(STDERR_FILENO) != 0;
  if (on_terminal || given.verbose) say_plan(options, given.verbose);
  Progress progress;
  options.progress = show_loaded;
  options.progress_context = &progress;
  check_open(tarn_open(&options, &engine_), given.model);
  progress.clear();
  warn_of_unused_store(given.store_dir, status().store != std::string_view("none"));
}

tarn_engine_status EngineHandle::status() const {
  tarn_engine_status status = TARN_INIT(tarn_engine_status);
  check_api(tarn_engine_status_get(engine_, &status));
  return status;
}

tarn_plan EngineHandle::plan() const {
  tarn_plan plan = TARN_INIT(tarn_plan);
  check_api(tarn_engine_plan(engine_, &plan));
  return plan;
}

std::string format_bytes(u64 bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  f64 value = static_cast<f64>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit < 4) {
    value /= 1024.0;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

std::string format_plan(const tarn_plan& plan) {
  std::string out;
  char line[256];
  std::snprintf(line, sizeof line, "%-14s %-6s %-8s %12s  %s\n", "region", "space", "kind", "bytes",
                "formula");
  out += line;
  for (uint32_t i = 0; i < plan.n_regions; ++i) {
    const tarn_region& r = plan.regions[i];
    if (r.bytes == 0) continue;
    std::snprintf(line, sizeof line, "%-14s %-6s %-8s %12llu  ", r.name, r.space, r.kind,
                  static_cast<unsigned long long>(r.bytes));
    out += line;
    out += r.formula;
    out += '\n';
  }
  std::snprintf(
      line, sizeof line, "%-14s %-6s %-8s %12llu  %s for %llu tokens of context; budget %s\n",
      "total", "", "", static_cast<unsigned long long>(plan.total_bytes),
      format_bytes(plan.total_bytes).c_str(), static_cast<unsigned long long>(plan.context_tokens),
      plan.budget_bytes == 0 ? "not set" : format_bytes(plan.budget_bytes).c_str());
  out += line;
  u64 memory = 0, disk = 0;
  for (uint32_t i = 0; i < plan.n_regions; ++i) {
    const tarn_region& r = plan.regions[i];
    if (std::string_view(r.kind) != "kv") continue;
    (std::string_view(r.space) == "disk" ? disk : memory) += r.bytes;
  }
  std::snprintf(line, sizeof line, "%-14s %s in memory, %s on disk\n", "kv",
                format_bytes(memory).c_str(), format_bytes(disk).c_str());
  return out + line;
}

}  // namespace tarn::tools
