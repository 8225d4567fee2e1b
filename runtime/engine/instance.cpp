#include "runtime/engine/instance.h"

#include <new>

#include "platform/cpu/topology.h"
#include "runtime/exec/built_kernels.h"

namespace tarn::engine {
namespace {

void forward_log(void* context, LogLevel level, const char* text) {
  const auto* hooks = static_cast<const HostHooks*>(context);
  hooks->on_log(hooks->log_context, static_cast<i32>(level), text);
}

bool forward_progress(void* context, u64 done_bytes, u64 total_bytes) {
  const auto* hooks = static_cast<const HostHooks*>(context);
  return hooks->progress(hooks->progress_context, done_bytes, total_bytes) == 0;
}

void forward_fatal(void* context, const AssertSite& site) {
  const auto* hooks = static_cast<const HostHooks*>(context);
  if (hooks->fatal == nullptr) return;
  hooks->fatal(hooks->fatal_context, site.condition, site.file, site.line);
}

Result<Config> read_config(const InstanceArgs& args) {
  if (args.model_path == nullptr) {
    return fail(
        {.status = Status::invalid_config, .hint = "model_path is missing: name a GGUF file"});
  }
  if (args.cpus.size() > kMaskCpus) {
    return fail({.status = Status::invalid_config,
                 .hint = "n_cpus is larger than any machine: name each CPU once, or none",
                 .figures = {{{"n_cpus", args.cpus.size()}, {"limit", kMaskCpus}}}});
  }
  Config config;
  if (args.config_toml != nullptr) {
    TARN_TRY(config, config_from_toml(args.config_toml, config));
  }
  if (args.budget_bytes != 0) config.budget_bytes = args.budget_bytes;
  TARN_CHECK(config_validate(config));
  return config;
}

}  // namespace

OpenArgs Instance::open_args(const InstanceArgs& args, const Config& config) {
  hooks_ = args.hooks;
  reserve_ = args.reserve != nullptr ? args.reserve : &system_reserve_;
  OpenArgs open{.model_path = args.model_path,
                .config = config,
                .reserve = reserve_,
                .clock = &clock_,
                .device = args.device,
                .gpu_kernels = args.gpu_kernels,
                .sink = thread.prepare(&forward_fatal, &hooks_),
                .cpus = args.cpus};
  if (hooks_.on_log != nullptr) open.log = Log(&forward_log, &hooks_, hooks_.log_least);
  if (hooks_.progress != nullptr) {
    open.on_progress = &forward_progress;
    open.progress_context = &hooks_;
  }
  return open;
}

Result<Instance*> Instance::start(const InstanceArgs& args, const Config& config, OpenArgs* open) {
  SystemReserve system_reserve;
  Reserve* reserve = args.reserve != nullptr ? args.reserve : &system_reserve;
  TARN_TRY(const ReserveOutcome memory,
           reserve->reserve({.name = "engine", .bytes = sizeof(Instance), .huge_pages = false}));
  auto* instance = new (memory.bytes.data()) Instance();
  instance->memory_ = memory.bytes;
  for (SessionIdx idx = 0; idx < kSessionsMax; ++idx) {
    instance->sessions[idx].instance = instance;
    instance->sessions[idx].idx = idx;
  }
  *open = instance->open_args(args, config);
  instance->thread.at_end(&close_engine, instance);
  const Result<void> started = instance->thread.start(&instance->engine, args.cpus);
  if (!started) {
    close(instance);
    return fail(started.error());
  }
  return instance;
}

Result<Instance*> Instance::open(const InstanceArgs& args) {
  TARN_TRY(const Config config, read_config(args));
  if (config.budget_bytes == 0) {
    return fail({.status = Status::invalid_config,
                 .hint = "no memory budget is set: set memory.budget_bytes (or budget_bytes of the "
                         "options) to the most that the engine may take"});
  }
  OpenArgs open;
  TARN_TRY(Instance* const instance, start(args, config, &open));
  const Result<void> opened = instance->thread.call([&]() -> Result<void> {
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
  if (!instance->thread.stop() || instance->thread.dead()) return;
  const std::span<std::byte> memory = instance->memory_;
  SystemReserve system_reserve;
  Reserve* reserve =
      instance->reserve_ == &instance->system_reserve_ ? &system_reserve : instance->reserve_;
  instance->~Instance();
  reserve->release(memory);
}

Result<PlanReport> Instance::plan(const InstanceArgs& args) {
  TARN_TRY(const Config config, read_config(args));
  OpenArgs open;
  TARN_TRY(Instance* const instance, start(args, config, &open));
  PlanReport report;
  if (open.device == nullptr)
    open.gpu_kernels = exec::built_gpu_kernels();  // planning takes no device
  const Result<void> planned = instance->thread.call([&]() -> Result<void> {
    TARN_TRY(report, plan_model(open));
    return {};
  });
  close(instance);
  if (!planned) return fail(planned.error());
  return report;
}

}  // namespace tarn::engine
