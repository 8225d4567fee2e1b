#include <algorithm>

#include "runtime/model/model_errors.h"
#include "runtime/model/model_tables.h"

namespace tarn::model {
namespace {

using tables::Dim;
using tables::Name;
using tables::Need;
using tables::TensorRow;

Name name_of(const TensorRow& row, u32 layer) {
  if (layer == tables::kNoLayer) return Name() << row.name;
  return Name() << "blk." << layer << "." << row.name;
}

Result<void> take(const GgufTensor& tensor, TensorRef& ref) {
  ref = {.n_rows = tensor.dims[1],
         .k = tensor.dims[0],
         .file_offset = tensor.offset,
         .file_bytes = tensor.bytes,
         .name = tensor.name.data()};
  // A type without kernels is refused by check_types().
  if (const kernels::TypeTraits* traits = kernels::type_traits(tensor.type_id)) {
    ref.type = traits->type;
  }
  if (tensor.dims[2] != 1 || tensor.dims[3] != 1) {
    return invalid("the tensor has more dimensions than a matrix", tensor.name);
  }
  return {};
}

Result<void> check_type(const GgufTensor& tensor) {
  if (kernels::type_traits(tensor.type_id) != nullptr) return {};
  const Name detail = Name() << gguf_tensor_type_name(tensor.type_id) << " of " << tensor.name;
  return unsupported(
      "a tensor of a type that this build does not compute with; quantize the model to another",
      detail.view(), {"type", tensor.type_id});
}

Unexpected unknown_tensor(std::string_view name) {
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

Result<void> check_tensor(const TensorRow& row, std::string_view name, const TensorRef& ref,
                          ModelSpec& spec) {
  if (!ref.present()) {
    if (row.needs.of[static_cast<u64>(spec.arch)] != Need::required) return {};
    return invalid("a tensor of the model is missing", name);
  }
  const u64 k = dim_of(spec, row.k) != 0 ? dim_of(spec, row.k) : ref.k;
  const u64 n_rows = dim_of(spec, row.n_rows) != 0 ? dim_of(spec, row.n_rows) : ref.n_rows;
  if (ref.k != k || ref.n_rows != n_rows) {
    return invalid("the tensor's shape does not agree with the model's hyper-parameters", name,
                   {"row", ref.k}, {"row_expected", k}, {"rows", ref.n_rows},
                   {"rows_expected", n_rows});
  }
  const bool is_vector = row.n_rows == Dim::one;
  if (is_vector && kernels::type_traits(ref.type).block_elems != 1) {
    return unsupported("a quantized norm, bias or factor; these must be f32, f16 or bf16", name);
  }
  spec.n_params += k * n_rows;                // at most kElementsMax a tensor, kTensorsMax of them
  spec.weights_file_bytes += ref.file_bytes;  // no two overlap: at most the file's length
  return {};
}

}  // namespace

Result<void> check_types(const GgufFile& file, Refusals& refusals) {
  const auto tensors = file.tensors();
  for (auto tensor = tensors.begin(); tensor != tensors.end(); ++tensor) {
    const Result<void> outcome = check_type(*tensor);
    if (outcome) continue;
    const auto first = std::find_if(tensors.begin(), tensor, [&](const GgufTensor& earlier) {
      return earlier.type_id == tensor->type_id;
    });
    if (first == tensor) TARN_CHECK(refusals.note(outcome));
  }
  return {};
}

Result<void> find_tensors(const GgufFile& file, Bump& memory, Refusals& refusals,
                          ModelDescription& out) {
  const u64 n_layer_tensors = out.spec.n_layers * static_cast<u64>(LayerTensor::count);
  const auto layers = memory.alloc<TensorRef>(n_layer_tensors);
  const u64 mark = memory.used_bytes();
  const auto used = memory.alloc<bool>(file.tensors().size());  // belongs to the model
  if (!layers || !used) return out_of_memory(tables::kTooSmall, memory);
  std::fill(layers->begin(), layers->end(), TensorRef{});
  std::fill(used->begin(), used->end(), false);
  out.tensors.layers = *layers;
  Result<void> done;
  tables::each_tensor(out.tensors, [&](const TensorRow& row, u32 layer, TensorRef& ref) {
    if (!done || row.needs.of[static_cast<u64>(out.spec.arch)] == Need::unknown) return;
    const GgufTensor* tensor = file.find_tensor(name_of(row, layer).view());
    if (tensor == nullptr) return;
    (*used)[static_cast<u64>(tensor - file.tensors().data())] = true;
    done = refusals.note(take(*tensor, ref));
  });
  for (u64 idx = 0; done && idx < used->size(); ++idx) {
    if (!(*used)[idx]) done = refusals.note(unknown_tensor(file.tensors()[idx].name));
  }
  if (done) memory.rewind(mark);
  return done;
}

Result<void> check_tensors(FileIs file_is, Refusals& refusals, ModelDescription& out) {
  ModelSpec& spec = out.spec;
  Result<void> done;
  tables::each_tensor(out.tensors, [&](const TensorRow& row, u32 layer, const TensorRef& ref) {
    if (file_is == FileIs::part && !ref.present()) return;
    if (done) done = refusals.note(check_tensor(row, name_of(row, layer).view(), ref, spec));
  });
  if (!done) return done;
  spec.tied_output = !out.tensors.of(ModelTensor::output).present();
  spec.qk_norm = out.tensors.of(0, LayerTensor::attn_q_norm).present();
  for (u32 layer = 0; layer < spec.n_layers; ++layer) {
    for (const auto bias :
         {LayerTensor::attn_q_bias, LayerTensor::attn_k_bias, LayerTensor::attn_v_bias}) {
      if (out.tensors.of(layer, bias).present()) spec.qkv_bias = true;
    }
  }
  return {};
}

}  // namespace tarn::model
