#include "runtime/engine/model_file.h"

#include <algorithm>
#include <array>
#include <bit>

#include "platform/base/checked.h"
#include "platform/cpu/worker_pool.h"
#include "platform/io/private_folder.h"
#include "runtime/config/fixed_text.h"
#include "runtime/engine/engine_memory.h"
#include "runtime/exec/built_kernels.h"
#include "runtime/exec/gpu/support.h"
#include "runtime/kv/kv_cache.h"
#include "runtime/model/file_hash.h"
#include "runtime/text/tokenizer.h"

namespace tarn::engine {

IoKind io_kind(const Config& config) {
  const std::string_view name = config.io.data();
  if (name == "uring") return IoKind::uring;
  return name == "threads" ? IoKind::threads : IoKind::automatic;
}

ModelFile::~ModelFile() {
  if (io_.backend != nullptr) {
    if (file_.index >= 0) io_.backend->close(file_);
    io_backend_destroy(io_.backend);
  }
  if (!memory_.empty()) reserve_->release(memory_);
}

Result<void> ModelFile::open(const OpenArgs& args, model::GgufData data) {
  reserve_ = args.reserve;
  const u64 io_bytes = align_up(io_backend_bytes(), kSectorBytes);
  TARN_TRY(const ReserveOutcome outcome, reserve_->reserve({.name = "model directory",
                                                            .bytes = io_bytes + kDirectoryBytesMax,
                                                            .touch = false,
                                                            .huge_pages = false}));
  memory_ = outcome.bytes;
  TARN_TRY(io_, io_backend_create({.kind = io_kind(args.config)}, memory_.first(io_bytes)));
  TARN_TRY(file_, io_.backend->open({.path = args.model_path}));
  path_ = args.model_path;
  bump_ = Bump(memory_.subspan(io_bytes));
  TARN_TRY(gguf_, model::GgufFile::read(*io_.backend, file_, bump_, data));
  TARN_TRY(description_, model::describe_model(gguf_, bump_));
  TARN_TRY(templates_, chat::find_templates(args.chat_template, gguf_, bump_));
  description_.spec.embedding_on_disk =
      args.config.embedding == EmbeddingChoice::disk && !description_.spec.tied_output;
  return {};
}

FixedText<reuse::kManifestModelBytesMax> ModelFile::name() {
  FixedText<reuse::kManifestModelBytesMax> name;
  if (!path_.starts_with("/proc/")) {
    name << path_.substr(path_.rfind('/') + 1);
  } else if (const auto own = gguf_.get_string("general.name", bump_, 256); own && *own) {
    name << **own;
  }
  return name;
}

Result<bool> ModelFile::check_sha256(const OpenArgs& args, std::span<std::byte> window,
                                     const Log& log) {
  const char* const wanted = args.config.model_sha256.data();
  if (wanted[0] == '\0') return false;
  TARN_TRY(const Sha256::Text found,
           model::file_sha256({.io = &io(),
                               .file = file_,
                               .file_bytes = gguf_.file_bytes(),
                               .window = window,
                               .on_progress = args.on_progress,
                               .progress_context = args.progress_context}));
  if (is_same_sha256(wanted, found)) return true;
  log.error("the model's file has the SHA-256 %s, but model.sha256 is %s", found.data(), wanted);
  constexpr u64 kShownDigits = 16;  // an error has no room for all
  FixedText<sizeof(Detail)> both;
  both << "file " << std::string_view(found.data(), kShownDigits) << "..., key "
       << std::string_view(wanted, kShownDigits) << "...";
  return fail({.status = Status::invalid_model,
               .hint = "the model's file is another than model.sha256 says, or damaged: get it "
                       "again, or correct the key (the log has all digits of both)",
               .detail = Detail(both.view())});
}

Result<store::Cut> ModelFile::store_cut(const OpenArgs& args) {
  if (!args.config.store.sessions || args.target != nullptr) return store::Cut{};
  alignas(kSectorBytes) std::array<std::byte, store::kFramesBegin> sectors;
  const kv::StorePath path = kv::store_path(args.config.store.path.data(), kSessionsFile);
  IoBackend& disk = args.store_io != nullptr ? *args.store_io : *io_.backend;
  const auto cut = store::read_cut(disk, crc32c_ways()[0], path.data(), sectors);
  // Whether that is worth a refusal, the store's opening decides: it keeps what it cannot see.
  if (!cut && store::is_disk_failure(cut.error())) return store::Cut{};
  return cut;
}

WorkerCpus::WorkerCpus(const OpenArgs& args) {
  cpus = args.cpus;
  if (cpus.empty()) cpus = std::span<const u32>(topology.cpus).first(topology.n_cpus);
  const u32 wanted = args.config.n_threads != 0
                         ? args.config.n_threads
                         : std::min<u32>(topology.n_physical_cores, static_cast<u32>(cpus.size()));
  n = std::clamp(wanted, 1u, kWorkersMax);
}

namespace {

Result<void> check_cpus(std::span<const u32> cpus) {
  for (const u32 cpu : cpus) {
    if (process_may_run_on(cpu)) continue;
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .hint =
                     "the engine was given a CPU that this process may not run on: give it some "
                     "of those of the process, or none for all of them",
                 .figures = {{{"cpu", cpu}}}});
  }
  return {};
}

constexpr const char* kNoGpuLent =
    "the engine was lent no GPU with its kernels: choose the device \"cpu\" or \"auto\"";

// Returns the GPU that the configuration wants and that has kernels here, or the CPU and on `log`
// why.
Result<DeviceFacts> wanted_device(const OpenArgs& args) {
  const std::string_view wanted = args.config.device.data();
  if (args.target != nullptr) return wanted == "cpu" ? DeviceFacts{} : *args.target;
  const bool has_kernels = args.gpu_kernels != nullptr;
  if (has_kernels && args.device != nullptr && wanted != "cpu") return args.device->facts();
  TARN_TRY(DeviceChoice choice, device_choose(args.config.device.data(), args.config.device_index));
  if (choice.facts.kind != DeviceKind::cpu && !has_kernels) {
    if (wanted == "cuda") return fail({.status = Status::unsupported, .hint = kNoGpuLent});
    TARN_TRY(choice, device_choose("cpu"));
    choice.why_cpu = kNoGpuLent;
  }
  // A build that has a GPU backend was made for a GPU, so its absence is worth a warning.
  if (choice.why_cpu != nullptr && choice.built) {
    args.log.warning("runs on the CPU: %s", choice.why_cpu);
  } else if (choice.why_cpu != nullptr) {
    args.log.info("runs on the CPU: %s", choice.why_cpu);
  }
  return choice.facts;
}

// Refuses what a GPU does not compute of this, or does not choose where the plan has KV in its
// memory.
Result<void> gpu_runs(const plan::Inputs& inputs) {
  TARN_CHECK(exec::gpu_can_run(*inputs.model, *inputs.config));
  const Result<void> can_select = exec::gpu_can_select(inputs.config->select);
  if (can_select) return {};
  const Result<plan::Plan> plan = plan::plan_memory(inputs);
  if (plan && plan->gpu.n_staged > 0) return {};
  return can_select;
}

// Returns where this model runs. "auto" is whatever works: what the GPU's kernels do not compute,
// the CPU does; "cuda" is refused with the reason.
Result<DeviceFacts> chosen_device(const plan::Inputs& inputs, const OpenArgs& args) {
  const DeviceFacts wanted = inputs.device;
  if (wanted.kind == DeviceKind::cpu) return wanted;
  const Result<void> can_run = gpu_runs(inputs);
  if (can_run) return wanted;
  if (std::string_view(args.config.device.data()) == "cuda") return fail(can_run.error());
  std::array<char, 256> why{};
  format_error(can_run.error(), why.data(), why.size());
  args.log.warning("runs on the CPU: %s", why.data());
  TARN_TRY(const DeviceChoice choice, device_choose("cpu"));
  return choice.facts;
}

}  // namespace

DeviceOpenArgs device_open_args(const Config& config) {
  return {.gpu_idx = config.device_index,
          .compute_priority = -static_cast<i32>(config.device_priority)};
}

Result<void> SystemGpu::open(OpenArgs* args) {
  TARN_ASSERT(device_ == nullptr);
  const kernels::GpuTable* gpu_kernels = exec::built_gpu_kernels();
  if (args->device != nullptr || gpu_kernels == nullptr) return {};
  TARN_TRY(const DeviceChoice choice,
           device_choose(args->config.device.data(), args->config.device_index));
  if (choice.facts.kind == DeviceKind::cpu) return {};
  const Result<Device*> opened = system_device_open(memory_, device_open_args(args->config));
  if (!opened && std::string_view(args->config.device.data()) == "auto") {
    std::array<char, 256> why{};
    format_error(opened.error(), why.data(), why.size());
    args->log.warning("runs on the CPU: %s", why.data());
    args->config.device = {"cpu"};
    return {};
  }
  if (!opened) return fail(opened.error());
  device_ = *opened;
  args->device = device_;
  args->gpu_kernels = gpu_kernels;
  return {};
}

void SystemGpu::close() {
  if (device_ != nullptr) system_device_close(device_);
  device_ = nullptr;
}

Result<plan::Inputs> plan_inputs(ModelFile& file, const OpenArgs& args, u32 n_workers) {
  TARN_CHECK(check_cpus(args.cpus));
  TARN_TRY(const DeviceFacts wanted, wanted_device(args));
  TARN_TRY(const u64 tokenizer_bytes, text::Tokenizer::memory_bytes(file.gguf()));
  TARN_TRY(const store::Cut store_cut, file.store_cut(args));
  plan::Inputs inputs{.model = &file.description(),
                      .config = &args.config,
                      .device = wanted,
                      .tokenizer_bytes = tokenizer_bytes,
                      .templates_bytes = file.templates().memory_bytes(),
                      .n_workers = n_workers,
                      .store_cut = store_cut,
                      .carve = &carve_region};
  TARN_TRY(inputs.device, chosen_device(inputs, args));
  return inputs;
}

Result<PlanReport> plan_model(OpenArgs args) {
  if (args.device == nullptr) args.gpu_kernels = exec::built_gpu_kernels();
  ModelFile file;
  TARN_CHECK(file.open(args, model::GgufData::may_miss));
  model::Refusals first;
  TARN_CHECK(text::Tokenizer::check_keys(file.gguf(), first));
  PlanReport report{.missing_bytes = file.gguf().missing_bytes()};
  const WorkerCpus workers(args);
  TARN_TRY(const plan::Inputs inputs, plan_inputs(file, args, workers.n));
  report.on_gpu = inputs.device.kind != DeviceKind::cpu;
  TARN_TRY(report.plan, plan::plan_memory(inputs));
  if (!report.plan.fits) report.why_not = plan::over_budget_error(report.plan, inputs);
  return report;
}

Result<reuse::KvIdentity> kv_identity(const model::LoadedModel& model, const plan::Plan& plan,
                                      u32 kv_type, u32 numerics_id) {
  const model::Weights& weights = model.weights;
  const u32 n_factors = weights.rope_factors != nullptr ? model.spec.n_rot / 2 : 0;
  std::array<u64, 2> content_hash = weights.content_hash;
  if (!plan.tiers.store.keeps) {
    std::array<u8, sizeof content_hash> random{};
    TARN_CHECK(fill_random(random));
    content_hash = std::bit_cast<std::array<u64, 2>>(random);
  }
  return reuse::kv_identity({.spec = &model.spec,
                             .content_hash = content_hash,
                             .rope_factors = {weights.rope_factors, n_factors},
                             .kv_type = kv_type,
                             .page_tokens = plan.group_shape.page_tokens,
                             .numerics_id = numerics_id});
}

}  // namespace tarn::engine
