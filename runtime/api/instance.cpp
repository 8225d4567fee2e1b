#include "runtime/api/instance.h"

#include <algorithm>
#include <new>

#include "platform/cpu/topology.h"

namespace tarn::api {
namespace {

using engine::OpenArgs;
using engine::PlanReport;

void forward_log(void* context, LogLevel level, const char* text) {
  const auto* options = static_cast<const tarn_options*>(context);
  const tarn_log_fn tell = options->log;
  tell(options->log_context, static_cast<i32>(level), text);
}

bool forward_progress(void* context, u64 done_bytes, u64 total_bytes) {
  const auto* options = static_cast<const tarn_options*>(context);
  return options->progress(options->progress_context, done_bytes, total_bytes) == 0;
}

void forward_fatal(void* context, const AssertSite& site) {
  const auto* options = static_cast<const tarn_options*>(context);
  if (options->fatal == nullptr) return;
  options->fatal(options->fatal_context, site.condition, site.file, site.line);
}

std::span<const u32> cpus_of(const tarn_options& options) {
  return {options.cpus, options.cpus != nullptr ? options.n_cpus : 0};
}

Result<Config> read_config(const tarn_options& options) {
  if (options.model_path == nullptr) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_field,
                 .key = "model_path",
                 .hint = "model_path is missing: name a GGUF file"});
  }
  if (cpus_of(options).size() > kMaskCpus) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_field,
                 .key = "n_cpus",
                 .hint = "n_cpus is larger than any machine: name each CPU once, or none",
                 .figures = {{{"n_cpus", options.n_cpus}, {"limit", kMaskCpus}}}});
  }
  Config config;
  if (options.config_toml != nullptr) {
    TARN_TRY(config, config_from_toml(options.config_toml, config));
  }
  if (options.budget_bytes != 0) config.budget_bytes = options.budget_bytes;
  TARN_CHECK(config_validate(config));
  return config;
}

}  // namespace

Result<Instance*> Instance::start(const tarn_options& options, const Lent& lent, OpenArgs* open) {
  SystemReserve system_reserve;
  Reserve* reserve = lent.reserve != nullptr ? lent.reserve : &system_reserve;
  TARN_TRY(const ReserveOutcome memory,
           reserve->reserve({.name = "engine", .bytes = sizeof(Instance), .huge_pages = false}));
  auto* instance = new (memory.bytes.data()) Instance();
  instance->memory_ = memory.bytes;
  instance->reserve_ = lent.reserve;
  instance->options_ = options;
  for (engine::SessionIdx idx = 0; idx < engine::kSessionsMax; ++idx) {
    instance->sessions[idx].instance = instance;
    instance->sessions[idx].idx = idx;
  }
  tarn_options* const hooks = &instance->options_;
  open->model_path = options.model_path;
  if (options.chat_template != nullptr) open->chat_template = options.chat_template;
  open->reserve = lent.reserve != nullptr ? lent.reserve : &instance->system_reserve_;
  open->clock = &instance->clock_;
  open->device = lent.device;
  open->gpu_kernels = lent.gpu_kernels;
  open->sink = instance->service.prepare(&forward_fatal, hooks);
  open->cpus = cpus_of(options);
  const auto log_least = static_cast<LogLevel>(std::clamp(options.log_level, 0, 3));
  if (options.log != nullptr) open->log = Log(&forward_log, hooks, log_least);
  if (options.progress != nullptr) {
    open->on_progress = &forward_progress;
    open->progress_context = hooks;
  }
  instance->service.at_end(&close_engine, instance);
  const Result<void> started = instance->service.start(&instance->engine, open->cpus);
  if (!started) {
    close(instance);
    return fail(started.error());
  }
  return instance;
}

Result<Instance*> Instance::open(const tarn_options& options, const Lent& lent) {
  OpenArgs open;
  TARN_TRY(open.config, read_config(options));
  if (open.config.budget_bytes == 0) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "memory.budget_bytes",
                 .hint = "no memory budget is set: set memory.budget_bytes (or budget_bytes of the "
                         "options) to the most that the engine may take"});
  }
  TARN_TRY(Instance* const instance, start(options, lent, &open));
  const Result<void> opened = instance->service.call([&]() -> Result<void> {
    TARN_CHECK(instance->gpu_.open(&open));
    TARN_CHECK(instance->engine.open(open));
    if (!instance->engine.status().on_gpu) instance->gpu_.close();
    return {};
  });
  if (!opened) {
    close(instance);
    return fail(opened.error());
  }
  return instance;
}

// On the engine's own thread: a host's thread keeps its current GPU and its own pending errors.
void Instance::close_engine(void* instance) {
  auto* self = static_cast<Instance*>(instance);
  self->engine.close();
  self->gpu_.close();
}

void Instance::close(Instance* instance) {
  if (!instance->service.stop() || instance->service.is_dead()) return;
  const std::span<std::byte> memory = instance->memory_;
  SystemReserve system_reserve;
  Reserve* reserve = instance->reserve_ != nullptr ? instance->reserve_ : &system_reserve;
  instance->~Instance();
  reserve->release(memory);
}

Result<PlanReport> Instance::plan(const tarn_options& options, const Lent& lent) {
  OpenArgs open;
  TARN_TRY(open.config, read_config(options));
  TARN_TRY(Instance* const instance, start(options, lent, &open));
  PlanReport report;
  const Result<void> planned = instance->service.call([&]() -> Result<void> {
    TARN_TRY(report, engine::plan_model(open));
    return {};
  });
  close(instance);
  if (!planned) return fail(planned.error());
  return report;
}

}  // namespace tarn::api
