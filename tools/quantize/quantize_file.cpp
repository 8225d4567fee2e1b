#include "tools/quantize/quantize_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <new>
#include <span>

#include "kernels/quant/dequant.h"
#include "tools/quantize/blocks.h"
#include "tools/quantize/quantizer.h"
#include "tools/support/exit_code.h"
#include "tools/support/gguf_write.h"
#include "tools/support/model_file.h"

namespace tarn::tools {
namespace {

using kernels::TensorType;
using model::GgufKey;
using model::GgufTensor;
using model::GgufType;

constexpr const char* kFileType = "general.file_type";
constexpr const char* kVersion = "general.quantization_version";
constexpr u32 kQuantizationVersion = 2;  // of the K types' layout; the only one in use

[[noreturn]] void refuse(std::string text) { throw Failure{kExitRefused, std::move(text)}; }

[[noreturn]] void fail_io(const std::string& path, const char* what) {
  throw Failure{kExitIo, path + ": " + what + ": " + std::strerror(errno)};
}

// Reads the input's bytes after its directory was checked; any thread.
class SourceFile {
 public:
  explicit SourceFile(const std::string& path) : path_(path) {
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) fail_io(path_, "cannot be opened");
  }
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;
  ~SourceFile() { ::close(fd_); }

  void read_at(u64 offset, std::span<u8> out) const {
    while (!out.empty()) {
      const auto n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_io(path_, "cannot be read");
      if (n == 0) throw Failure{kExitIo, path_ + ": became shorter while it was read; start again"};
      offset += static_cast<u64>(n);
      out = out.subspan(static_cast<u64>(n));
    }
  }

 private:
  std::string path_;
  int fd_ = -1;
};

// The output under another name until it is whole. The name is unused, because even the input could
// have the name that we would choose. It is in the same folder, because a rename does not cross
// file systems.
class PartFile {
 public:
  explicit PartFile(const std::string& path) : path_(path) {
    int fd = -1;
    for (u32 i = 0; fd < 0; ++i) {
      part_ = path + "." + std::to_string(i) + ".part";
      fd = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd < 0 && errno != EEXIST) fail_io(part_, "cannot be created");
    }
    ::close(fd);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    if (!renamed_) ::unlink(part_.c_str());
  }

  const std::string& path() const { return part_; }
  void rename_to_place() {
    const int fd = ::open(part_.c_str(), O_RDONLY | O_CLOEXEC);
    const bool synced = fd >= 0 && ::fsync(fd) == 0;
    if (fd >= 0) ::close(fd);
    if (!synced) fail_io(part_, "cannot be synced to disk");
    if (std::rename(part_.c_str(), path_.c_str()) != 0) fail_io(path_, "cannot be replaced");
    renamed_ = true;
  }

 private:
  std::string path_, part_;
  bool renamed_ = false;
};

void check_paths(const QuantizeOptions& options) {
  std::error_code ignored;  // opening the file reports that it does not exist
  if (std::filesystem::equivalent(options.in, options.out, ignored)) {
    throw Failure{kExitUsage, options.out + ": OUT is IN; name another file for OUT"};
  }
  if (std::filesystem::exists(options.out, ignored) &&
      !std::filesystem::is_regular_file(options.out, ignored)) {
    throw Failure{kExitUsage, options.out + ": OUT is a folder or a device; name a file"};
  }
}

// The conversion of one tensor.
struct TensorPlan {
  const GgufTensor* source = nullptr;
  TensorType from = TensorType::f32;
  TensorType to = TensorType::f32;
};

class Conversion {
 public:
  explicit Conversion(const QuantizeOptions& options)
      : options_(options), model_(options.in), source_(options.in) {
    const model::ModelSpec& spec = model_.description().spec;
    mix_ = {.n_layers = spec.n_layers,
            .n_heads = spec.n_heads,
            .n_kv_heads = spec.n_kv_heads,
            .tied_output = spec.tied_output};
    copy_keys();
    for (const GgufTensor& tensor : model_.gguf().tensors()) plan(tensor);
    check_requantize();
    finish_report();
  }

  const QuantizeReport& report() const { return report_; }

  void write() const {
    PartFile part(options_.out);
    try {
      writer_.write(
          part.path(), options_.n_threads, [this](const GgufSlab& slab) { fill(slab); },
          options_.progress);
    } catch (const std::runtime_error& error) {
      throw Failure{kExitIo, error.what()};
    } catch (const std::bad_alloc&) {
      refuse("memory ran out with " + std::to_string(options_.n_threads) +
             " threads; choose fewer (-t)");
    }
    part.rename_to_place();
  }

 private:
  void copy_keys();
  void plan(const GgufTensor& tensor);
  void check_requantize() const;
  void fill(const GgufSlab& slab) const;
  void check_values(const TensorPlan& plan, std::span<const f32> values) const;
  void finish_report();

  const QuantizeOptions& options_;
  ModelFile model_;
  SourceFile source_;
  MixModel mix_;
  GgufWriter writer_;
  std::vector<TensorPlan> plans_;  // in the file's order, which the output keeps
  QuantizeReport report_;
};

void Conversion::copy_keys() {
  bool has_file_type = false, has_version = false;
  for (const GgufKey& key : model_.gguf().keys()) {
    if (key.name == "general.alignment") continue;
    if (key.name == kFileType) {
      writer_.set_u32(key.name, file_type(options_.quant));
      has_file_type = true;
    } else if (key.name == kVersion) {
      writer_.set_u32(key.name, kQuantizationVersion);
      has_version = true;
    } else {
      // Before the first element an array has its element type and count, a text its length.
      const u64 head = key.type == GgufType::array ? 12 : key.type == GgufType::string ? 8 : 0;
      std::vector<u8> value(head + key.bytes);
      source_.read_at(key.offset - head, value);
      writer_.copy_value(key.name, static_cast<u32>(key.type), value);
    }
  }
  if (!has_file_type) writer_.set_u32(kFileType, file_type(options_.quant));
  if (!has_version) writer_.set_u32(kVersion, kQuantizationVersion);
}

void Conversion::plan(const GgufTensor& tensor) {
  const kernels::TypeTraits* traits = kernels::type_traits(tensor.type_id);
  if (traits == nullptr) refuse(std::string(tensor.name) + ": a type that this build cannot read");
  const auto wanted = wanted_type(options_.quant, mix_, tensor.name, tensor.n_dims);
  const TensorType to = wanted ? type_for_rows(*wanted, tensor.dims[0]) : traits->type;
  if (wanted && to != *wanted) ++report_.n_replaced;
  plans_.push_back({.source = &tensor, .from = traits->type, .to = to});
  writer_.add_tensor(std::string(tensor.name), to, {tensor.dims, tensor.dims + tensor.n_dims});
  if (traits->block_elems > 1) report_.quantized_in = traits->name;
}

void Conversion::check_requantize() const {
  if (options_.requantize == Requantize::accept) return;
  for (const TensorPlan& plan : plans_) {
    const bool rounds_again = kernels::type_traits(plan.from).block_elems > 1 &&
                              kernels::type_traits(plan.to).block_elems > 1 && plan.from != plan.to;
    if (!rounds_again) continue;
    refuse(options_.in + ": already quantised (" + std::string(plan.source->name) + " is " +
           kernels::type_traits(plan.from).name +
           "), and a second rounding adds its error to the first; start from the f32, f16 or bf16 "
           "file, or accept that with --requantize");
  }
}

void Conversion::check_values(const TensorPlan& plan, std::span<const f32> values) const {
  const bool wide = plan.to == TensorType::f32 || plan.to == TensorType::bf16;
  const f32 limit = wide ? std::numeric_limits<f32>::max() : kF16Max;
  for (const f32 value : values) {
    if (std::abs(value) <= limit) continue;
    const std::string where = options_.in + ": " + std::string(plan.source->name);
    if (!std::isfinite(value)) {
      refuse(where + " holds a value that is not a number; the file is damaged, get it again");
    }
    refuse(where + " holds a value beyond what f16 scales can express; choose bf16 or f32");
  }
}

// The slab's elements may begin and end within a block of the source.
void Conversion::fill(const GgufSlab& slab) const {
  const TensorPlan& plan = plans_[slab.tensor_idx];
  const kernels::TypeTraits& from = kernels::type_traits(plan.from);
  if (plan.from == plan.to) {
    return source_.read_at(plan.source->offset + slab.first_byte, slab.out);
  }
  const u64 first_block = slab.first_element / from.block_elems;
  const u64 end = slab.first_element + slab.n_elements;
  const u64 n_blocks = (end + from.block_elems - 1) / from.block_elems - first_block;
  std::vector<u8> bytes(n_blocks * from.block_bytes);
  source_.read_at(plan.source->offset + first_block * from.block_bytes, bytes);
  std::vector<f32> values(n_blocks * from.block_elems);
  kernels::dequantize_row(plan.from, bytes.data(), values.size(), values.data());
  const auto wanted = std::span<const f32>(values).subspan(
      slab.first_element - first_block * from.block_elems, slab.n_elements);
  check_values(plan, wanted);
  quantize_blocks(plan.to, wanted, slab.out);
}

void Conversion::finish_report() {
  report_.in_bytes = model_.gguf().file_bytes();
  report_.out_bytes = writer_.file_bytes();
  for (u64 t = 0; t < plans_.size(); ++t) {
    const GgufTensorInfo& made = writer_.tensors()[t];
    report_.tensors.push_back({.name = made.name,
                               .dims = made.dims,
                               .from = plans_[t].from,
                               .to = made.type,
                               .bytes = made.bytes});
  }
  u64 n_elements = 0, n_bytes = 0;
  for (const auto& traits : kernels::kTypeTraits) {
    QuantizeReport::PerType per_type{.type = traits.type};
    for (const GgufTensorInfo& tensor : writer_.tensors()) {
      if (tensor.type != traits.type) continue;
      ++per_type.n_tensors;
      per_type.bytes += tensor.bytes;
      n_elements += tensor.bytes / traits.block_bytes * traits.block_elems;
    }
    n_bytes += per_type.bytes;
    if (per_type.n_tensors > 0) report_.types.push_back(per_type);
  }
  report_.bits_per_weight = 8 * static_cast<f64>(n_bytes) / static_cast<f64>(n_elements);
}

}  // namespace

QuantizeReport quantize_file(const QuantizeOptions& options) {
  check_paths(options);
  const Conversion conversion(options);
  conversion.write();
  return conversion.report();
}

QuantizeReport plan_quantize(const QuantizeOptions& options) {
  check_paths(options);
  return Conversion(options).report();
}

}  // namespace tarn::tools
