// The parts of a model's file that an engine reads while it is opened, and the plan that follows
// from them.
#pragma once

#include <span>

#include "platform/cpu/topology.h"
#include "runtime/chat/model_templates.h"
#include "runtime/config/fixed_text.h"
#include "runtime/engine/open_args.h"
#include "runtime/plan/plan.h"
#include "runtime/reuse/manifest.h"

namespace tarn::engine {

IoKind io_kind(const Config& config);

// The parts that are needed only until the weights are in: the file, its directory, the io backend.
// One reservation whose untouched part costs nothing; given back before READY.
class ModelFile {
 public:
  ModelFile() = default;
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  ~ModelFile();

  Result<void> open(const OpenArgs& args, model::GgufData data = model::GgufData::needed);
  // Compares the whole file with model.sha256, before anything is computed from its weights. False:
  // the key is not set.
  Result<bool> check_sha256(const OpenArgs& args, std::span<std::byte> window, const Log& log);
  // Returns how the file with kept sessions is cut, if there is one.
  Result<store::Cut> store_cut(const OpenArgs& args);

  IoBackend& io() { return *io_.backend; }
  const char* io_why_not() const { return io_.why_not; }
  IoFile file() const { return file_; }
  const model::GgufFile& gguf() const { return gguf_; }
  const model::ModelDescription& description() const { return description_; }
  const chat::TemplateSources& templates() const { return templates_; }
  // Returns the file's name without its folder; of a file that has none, a memory's, what the model
  // calls itself.
  FixedText<reuse::kManifestModelBytesMax> name();

 private:
  static constexpr u64 kDirectoryBytesMax = 64 * kMiB;

  Reserve* reserve_ = nullptr;
  std::span<std::byte> memory_{};
  IoBackendHandle io_{};
  IoFile file_{};
  std::string_view path_{};  // the caller's
  Bump bump_{};
  model::GgufFile gguf_{};
  model::ModelDescription description_{};
  chat::TemplateSources templates_{};
};

// The CPUs that workers run on: the host's, or those of the process, physical cores first.
struct WorkerCpus {
  CpuTopology topology = cpu_topology();
  std::span<const u32> cpus{};
  u32 n = 0;

  explicit WorkerCpus(const OpenArgs& args);
};

// Chooses the device that the model runs on: "auto" is whatever computes it.
Result<plan::Inputs> plan_inputs(ModelFile& file, const OpenArgs& args, u32 n_workers);

// Returns what the KV of this engine is of. What no later opening may find needs no hash of the
// model.
Result<reuse::KvIdentity> kv_identity(const model::LoadedModel& model, const plan::Plan& plan,
                                      u32 kv_type, u32 numerics_id);

}  // namespace tarn::engine
