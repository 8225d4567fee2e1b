#include "runtime/exec/gpu/support.h"
#include "runtime/method/method.h"

#include <bit>

#include "kernels/quant/gpu_tile.h"
#include "runtime/model/weights.h"

namespace tarn::exec {
namespace {

constexpr u32 kPageTokensMin = 32;  // a tile of attention lies in one page
constexpr u32 kHeadElements = 8;    // 16 bytes of f16
constexpr u32 kRowElements = 8;     // the same, of a row that a product reads

Result<void> tensor_runs(const model::TensorRef& tensor) {
  const bool is_matrix = tensor.n_rows > 1;  // else absent, or a vector, which is widened to f32
  if (is_matrix && !kernels::has_gpu_layout(tensor.type)) {
    return fail({.status = Status::unsupported,
                 .hint = "the GPU computes with f16, q8_0, q4_k and q6_k tensors alone: use "
                         "--device cpu, or quantize the model to one of them",
                 .detail = Detail({kernels::type_traits(tensor.type).name, " of ", tensor.name})});
  }
  if (is_matrix && tensor.k % kRowElements != 0) {
    return fail({.status = Status::unsupported,
                 .hint = "the GPU needs rows of a multiple of 8 elements: use --device cpu",
                 .detail = Detail(tensor.name),
                 .figures = {{{"row_elements", tensor.k}}}});
  }
  if (tensor.present() && !model::fits_sink(tensor)) {
    return fail({.status = Status::unsupported,
                 .hint = "the model's rows are too long for the way to the GPU: use --device cpu",
                 .detail = Detail(tensor.name),
                 .figures = {{{"row_elements", tensor.k}}}});
  }
  return {};
}

}  // namespace

Result<void> gpu_can_select(const SelectConfig& config) {
  const method::DeviceChoice choice = method::method_of(config).on_device;
  if (config.is_full() || choice != method::DeviceChoice::none) return {};
  return fail({.status = Status::unsupported,
               .hint = "of KV in its memory the GPU selects by pq and window alone: use --device "
                       "cpu, or another --select, or keep KV over memory and disk "
                       "(kv.memory_bytes, --store DIR)",
               .detail = Detail("select.method")});
}

Result<void> gpu_can_run(const model::ModelDescription& model, const Config& config) {
  for (const model::TensorRef& tensor : model.tensors.model) {
    // Rows of a table on disk are widened by the host, of whatever type they are.
    if (!model::stays_on_disk(model, tensor)) TARN_CHECK(tensor_runs(tensor));
  }
  for (const model::TensorRef& tensor : model.tensors.layers) TARN_CHECK(tensor_runs(tensor));
  if (model.spec.head_dim % kHeadElements != 0) {
    return fail({.status = Status::unsupported,
                 .hint = "the GPU needs heads of a multiple of 8 elements: use --device cpu",
                 .figures = {{{"head_dim", model.spec.head_dim}}}});
  }
  if (config.page_tokens < kPageTokensMin || !std::has_single_bit(config.page_tokens)) {
    return fail({.status = Status::invalid_config,
                 .hint = "the GPU needs pages of 32, 64, 128 or 256 tokens: set kv.page_tokens to "
                         "one of them, or use --device cpu",
                 .detail = Detail("kv.page_tokens"),
                 .figures = {{{"page_tokens", config.page_tokens}}}});
  }
  return {};
}

}  // namespace tarn::exec
