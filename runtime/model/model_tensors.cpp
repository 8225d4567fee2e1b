#include "runtime/model/model_tensors.h"

#include <algorithm>

#include "runtime/model/gguf_types.h"
#include "runtime/model/model_errors.h"
#include "runtime/model/model_tables.h"
#include "runtime/model/name_text.h"

namespace tarn::model {
namespace {

using tables::Dim;
using tables::Need;

NameText layer_name(u32 layer, std::string_view suffix) {
  NameText name;
  name += "blk.";
  name += layer;
  name += ".";
  name += suffix;
  return name;
}

class Finder {
 public:
  Finder(const GgufFile& file, Bump& memory, ModelDescription& out)
      : file_(file), memory_(memory), out_(out) {}
  Result<void> find_all();

 private:
  bool mark_used(const GgufTensor* tensor);
  Result<void> find(std::string_view name, TensorRef& ref);
  Error unknown_tensor() const;

  const GgufFile& file_;
  Bump& memory_;
  ModelDescription& out_;
  std::span<u8> used_{};  // [tensors of the file], 1: belongs to the model
};

bool Finder::mark_used(const GgufTensor* tensor) {
  if (tensor == nullptr) return false;
  used_[static_cast<u64>(tensor - file_.tensors().data())] = 1;
  return true;
}

Result<void> Finder::find(std::string_view name, TensorRef& ref) {
  const GgufTensor* tensor = file_.find_tensor(name);
  if (!mark_used(tensor)) return {};
  ref.name = tensor->name.data();
  if (tensor->dims[2] != 1 || tensor->dims[3] != 1) {
    return fail(invalid("the tensor has more dimensions than a matrix", name));
  }
  const kernels::TypeTraits* traits = kernels::type_traits(tensor->type_id);
  if (traits == nullptr) {
    NameText detail;
    detail += gguf_tensor_type_name(tensor->type_id);
    detail += " of ";
    detail += name;
    return fail(unsupported(
        "a tensor of a type that this build does not compute with; quantize the model to another",
        detail.view()));
  }
  ref.type = traits->type;
  ref.k = tensor->dims[0];
  ref.n_rows = tensor->dims[1];
  ref.file_offset = tensor->offset;
  ref.file_bytes = tensor->bytes;
  return {};
}

Result<void> Finder::find_all() {
  const auto layers =
      memory_.alloc<TensorRef>(out_.spec.n_layers * static_cast<u64>(LayerTensor::count));
  if (!layers) return fail(tables::out_of_memory(memory_));
  out_.tensors.layers = *layers;
  std::fill(layers->begin(), layers->end(), TensorRef{});
  const u64 mark = memory_.used_bytes();
  const auto used = memory_.alloc<u8>(file_.tensors().size());
  if (!used) return fail(tables::out_of_memory(memory_));
  used_ = *used;
  std::fill(used_.begin(), used_.end(), u8{0});
  for (const tables::TensorRow& row : tables::kModelTensors) {
    TARN_CHECK(find(row.name, out_.tensors.model[row.idx]));
  }
  for (u32 layer = 0; layer < out_.spec.n_layers; ++layer) {
    for (const tables::TensorRow& row : tables::kLayerTensors) {
      if (row.needs.of[static_cast<u64>(out_.spec.arch)] == Need::unknown) continue;
      const NameText name = layer_name(layer, row.name);
      const u64 idx = layer * static_cast<u64>(LayerTensor::count) + row.idx;
      TARN_CHECK(find(name.view(), (*layers)[idx]));
    }
  }
  if (std::find(used_.begin(), used_.end(), u8{0}) != used_.end()) return fail(unknown_tensor());
  memory_.rewind(mark);
  return {};
}

Error Finder::unknown_tensor() const {
  const u64 idx = static_cast<u64>(std::find(used_.begin(), used_.end(), u8{0}) - used_.begin());
  const std::string_view name = file_.tensors()[idx].name;
  for (const tables::UnknownRow& row : tables::kUnknown) {
    if (name.find(row.piece) != std::string_view::npos) return unsupported(row.hint, name);
  }
  return unsupported("a tensor that this architecture does not have would be ignored", name);
}

u64 dim_of(const ModelSpec& spec, Dim d) {
  switch (d) {
    case Dim::one:
      return 1;
    case Dim::d_model:
      return spec.d_model;
    case Dim::d_ff:
      return spec.d_ff;
    case Dim::d_q:
      return u64{spec.n_heads} * spec.head_dim;
    case Dim::d_kv:
      return u64{spec.n_kv_heads} * spec.head_dim;
    case Dim::head_dim:
      return spec.head_dim;
    case Dim::n_vocab:
      return spec.n_vocab;
    case Dim::half_rot:
      return spec.n_rot / 2;
  }
  return 0;
}

Result<void> check_tensor(const tables::TensorRow& row, std::string_view name, const TensorRef& ref,
                          ModelSpec& spec) {
  if (!ref.present()) {
    if (row.needs.of[static_cast<u64>(spec.arch)] != Need::required) return {};
    return fail(invalid("a tensor of the model is missing", name));
  }
  const u64 k = dim_of(spec, row.k);
  const u64 n_rows = dim_of(spec, row.n_rows);
  if (ref.k != k || ref.n_rows != n_rows) {
    return fail({.status = Status::invalid_model,
                 .hint = "the tensor's shape does not agree with the model's hyper-parameters",
                 .detail = Detail(name),
                 .figures = {{{"row", ref.k},
                              {"row_expected", k},
                              {"rows", ref.n_rows},
                              {"rows_expected", n_rows}}}});
  }
  const bool is_vector = row.n_rows == Dim::one;
  if (is_vector && kernels::type_traits(ref.type).block_elems != 1) {
    return fail(
        unsupported("a quantized norm, bias or factor; these must be f32, f16 or bf16", name));
  }
  spec.n_params += k * n_rows;                // at most kElementsMax a tensor, kTensorsMax of them
  spec.weights_file_bytes += ref.file_bytes;  // no two overlap: at most the file's length
  return {};
}

}  // namespace

Result<void> find_tensors(const GgufFile& file, Bump& memory, ModelDescription& out) {
  return Finder(file, memory, out).find_all();
}

Result<void> check_tensors(ModelDescription& out) {
  ModelSpec& spec = out.spec;
  for (const tables::TensorRow& row : tables::kModelTensors) {
    TARN_CHECK(check_tensor(row, row.name, out.tensors.model[row.idx], spec));
  }
  spec.tied_output = !out.tensors.of(ModelTensor::output).present();
  for (u32 layer = 0; layer < spec.n_layers; ++layer) {
    for (const tables::TensorRow& row : tables::kLayerTensors) {
      const NameText name = layer_name(layer, row.name);
      const u64 idx = layer * static_cast<u64>(LayerTensor::count) + row.idx;
      TARN_CHECK(check_tensor(row, name.view(), out.tensors.layers[idx], spec));
    }
    for (const auto bias :
         {LayerTensor::attn_q_bias, LayerTensor::attn_k_bias, LayerTensor::attn_v_bias}) {
      if (out.tensors.of(layer, bias).present()) spec.qkv_bias = true;
    }
  }
  spec.qk_norm = out.tensors.of(0, LayerTensor::attn_q_norm).present();
  return {};
}

}  // namespace tarn::model
