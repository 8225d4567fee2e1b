#include "tests/fuzz/gguf_model.h"

#include <algorithm>
#include <vector>

#include "platform/base/assert.h"
#include "runtime/model/model_spec.h"
#include "runtime/model/weights.h"
#include "runtime/plan/plan.h"
#include "tests/support/memory_io.h"

namespace tarn::test {
namespace {

constexpr u64 kMemoryBytes = 16 * kMiB;
constexpr u64 kRegionBytes = 4 * kMiB;  // files are at most 64 KiB; tiles pad each row to 16

alignas(4096) std::byte g_memory[kMemoryBytes];
alignas(4096) std::byte g_region[kRegionBytes];

// Reads every value of the file by every accessor; which of them fail is the file's business.
void read_values(const model::GgufFile& file, Bump& memory) {
  std::vector<f32> floats;
  std::vector<i32> integers;
  for (const model::GgufKey& key : file.keys()) {
    TARN_ASSERT(file.find_key(key.name) == &key);
    TARN_ASSERT(key.offset <= file.file_bytes() && key.bytes <= file.file_bytes() - key.offset);
    static_cast<void>(file.get_u64(key.name));
    static_cast<void>(file.get_f64(key.name));
    static_cast<void>(file.get_bool(key.name));
    const u64 mark = memory.used_bytes();
    static_cast<void>(file.get_string(key.name, memory, 4096));
    memory.rewind(mark);
    u64 n_strings = 0;
    const auto walked = file.each_string(
        key,
        [](void* context, u64 index, std::string_view text) -> Result<void> {
          auto* n = static_cast<u64*>(context);
          TARN_ASSERT(index == *n);
          u8 sum = 0;
          for (const char c : text) sum = static_cast<u8>(sum + static_cast<u8>(c));
          static_cast<void>(sum);
          ++*n;
          return {};
        },
        &n_strings);
    if (walked) TARN_ASSERT(n_strings == key.count);
    floats.resize(key.count);
    integers.resize(key.count);
    static_cast<void>(file.read_f32(key, floats));
    static_cast<void>(file.read_i32(key, integers));
  }
}

// The promises of gguf.h: every tensor inside the file, aligned, none over another.
void check_tensors(const model::GgufFile& file) {
  std::vector<std::pair<u64, u64>> extents;
  for (const model::GgufTensor& tensor : file.tensors()) {
    TARN_ASSERT(file.find_tensor(tensor.name) == &tensor);
    TARN_ASSERT(tensor.offset % file.alignment() == 0);
    TARN_ASSERT(tensor.offset >= file.data_offset());
    TARN_ASSERT(tensor.offset < file.file_bytes());
    TARN_ASSERT(tensor.bytes <= file.file_bytes() - tensor.offset);
    for (const u64 dim : tensor.dims) TARN_ASSERT(dim != 0);
    extents.emplace_back(tensor.offset, tensor.offset + std::max<u64>(tensor.bytes, 1));
  }
  std::sort(extents.begin(), extents.end());
  for (u64 i = 1; i < extents.size(); ++i) TARN_ASSERT(extents[i - 1].second <= extents[i].first);
}

void load(MemoryIo& io, IoFile handle, const model::ModelDescription& model) {
  static std::vector<std::byte> staging_memory(33 * kMiB + kSectorBytes);
  static WorkerPool workers;
  if (workers.n_workers() == 0) TARN_ASSERT(workers.start({.n_workers = 1}).has_value());
  Bump staging_bump{staging_memory};
  const auto staging =
      staging_bump.alloc_bytes(model::loader_staging_bytes(model, false), kSectorBytes);
  const auto region_bytes = model::weights_region_bytes(model);
  if (!region_bytes || *region_bytes > kRegionBytes) return;
  static_cast<void>(model::load_weights({.io = &io,
                                         .file = handle,
                                         .model = &model,
                                         .region = std::span(g_region).first(*region_bytes),
                                         .staging = *staging,
                                         .tile_rows = kernels::tile_rows_generic,
                                         .workers = &workers}));
}

}  // namespace

void use_gguf_file(std::span<const std::byte> bytes) {
  MemoryIo io;
  const IoFile handle = io.add(bytes);
  Bump memory{g_memory};
  const auto file = model::GgufFile::read(io, handle, memory);
  if (!file) {
    TARN_ASSERT(memory.used_bytes() == 0);
    return;
  }
  check_tensors(*file);
  read_values(*file, memory);
  model::Refusals all([](void*, const Error&) {}, nullptr);
  const bool runs = model::describe_model(*file, memory, all).has_value();
  const auto model = model::describe_model(*file, memory);
  TARN_ASSERT(runs == model.has_value());
  if (!model) return;
  Config config;
  for (const u64 budget_bytes : {u64{0}, kMiB}) {
    config.budget_bytes = budget_bytes;
    const plan::Inputs inputs{.model = &*model, .config = &config, .n_workers = 2};
    const auto plan = plan::plan_memory(inputs);
    if (plan && !plan->fits) static_cast<void>(plan::over_budget_error(*plan, inputs));
  }
  load(io, handle, *model);
}

}  // namespace tarn::test
