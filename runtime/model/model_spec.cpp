#include "runtime/model/model_spec.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/model/gguf_limits.h"
#include "runtime/model/gguf_types.h"
#include "runtime/model/model_tables.h"
#include "runtime/model/name_text.h"

namespace tarn::model {
namespace {

using tables::Dim;
using tables::Need;

Error invalid(const char* hint, std::string_view detail, Figure a = {}, Figure b = {},
              Figure c = {}) {
  return {.status = Status::invalid_model,
          .hint = hint,
          .detail = Detail(detail),
          .figures = {{a, b, c}}};
}

Error unsupported(const char* hint, std::string_view detail) {
  return {.status = Status::unsupported, .hint = hint, .detail = Detail(detail)};
}

NameText layer_name(u32 layer, std::string_view suffix) {
  NameText name;
  name += "blk.";
  name += layer;
  name += ".";
  name += suffix;
  return name;
}

class Describer {
 public:
  Describer(const GgufFile& file, Bump& memory) : file_(file), memory_(memory) {}

  Result<ModelDescription> describe() {
    TARN_CHECK(check_kind());
    TARN_CHECK(read_arch());
    TARN_CHECK(check_neutral_keys());
    TARN_CHECK(read_shape());
    TARN_CHECK(read_attention_shape());
    TARN_CHECK(read_rope());
    TARN_CHECK(find_tensors());
    TARN_CHECK(check_vocabulary());
    TARN_CHECK(check_tensors());
    for (u32 i = 0; i < spec_.n_layers; ++i) spec_.kv_source[i] = static_cast<u16>(i);
    spec_.n_cache_layers = spec_.n_layers;
    return out_;
  }

 private:
  Result<void> check_kind();
  Result<void> read_arch();
  Result<void> check_neutral_keys();
  Result<void> read_shape();
  Result<void> read_attention_shape();
  Result<void> read_rope();
  Result<void> find_tensors();
  Result<void> check_vocabulary();
  Result<void> check_tensors();

  NameText key_name(std::string_view suffix) const;
  Result<std::string_view> text(std::string_view key, std::string_view fallback);
  Result<std::optional<u64>> integer(tables::IntegerId id);
  Result<u64> required_integer(tables::IntegerId id);
  Result<std::optional<u64>> layers_integer(const GgufKey& key);
  Result<f64> real(tables::RealId id);
  bool mark_used(const GgufTensor* tensor);
  Result<void> find_tensor(std::string_view name, TensorRef& ref);
  Result<void> check_tensor(const tables::TensorRow& row, std::string_view name,
                            const TensorRef& ref);
  u64 dim(Dim d) const;
  Error unknown_tensor() const;

  const GgufFile& file_;
  Bump& memory_;
  ModelDescription out_{};
  ModelSpec& spec_ = out_.spec;
  std::span<u8> used_{};  // [tensors of the file], 1: belongs to the model
};

// Copies into the memory that read() of the directory left; the caller of describe_model keeps it.
Result<std::string_view> Describer::text(std::string_view key, std::string_view fallback) {
  TARN_TRY(const auto value, file_.get_string(key, memory_, tables::kKeyTextBytesMax));
  return value.value_or(fallback);
}

// What is no model at all is said before anything else is complained about.
Result<void> Describer::check_kind() {
  if (file_.tensors().empty()) {
    return fail(
        unsupported("the file holds a vocabulary but no weights; it can only tokenize", ""));
  }
  TARN_TRY(const auto kind, text("general.type", "model"));
  if (kind != "model") {
    return fail(unsupported(
        "the file is a part of a model (adapter, projector); give the model itself", kind));
  }
  TARN_TRY(const auto n_splits, file_.get_u64("split.count"));
  if (n_splits.value_or(1) > 1) {
    return fail(unsupported("the model is split over several files; join them (gguf-split --merge)",
                            "split.count"));
  }
  return {};
}

Result<void> Describer::read_arch() {
  if (file_.find_key("general.architecture") == nullptr) {
    return fail(invalid("the key is missing", "general.architecture"));
  }
  TARN_TRY(const auto name, text("general.architecture", ""));
  for (const Arch arch : {Arch::llama, Arch::qwen2, Arch::qwen3}) {
    if (name != arch_name(arch)) continue;
    spec_.arch = arch;
    return {};
  }
  return fail(
      unsupported("this architecture is not known here (known: llama, qwen2, qwen3)", name));
}

NameText Describer::key_name(std::string_view suffix) const {
  NameText name;
  name += arch_name(spec_.arch);
  name += ".";
  name += suffix;
  return name;
}

// A key that changes the mathematics in a way that we do not follow may only say what we do anyway.
Result<void> Describer::check_neutral_keys() {
  for (const tables::NeutralRow& row : tables::kNeutral) {
    const NameText name = key_name(row.suffix);
    const GgufKey* key = file_.find_key(name.view());
    if (key == nullptr) continue;
    f64 value = -1.0;
    if (key->type == GgufType::boolean) {
      TARN_TRY(const auto stored, file_.get_bool(name.view()));
      value = *stored ? 1.0 : 0.0;
    } else if (key->type == GgufType::f32 || key->type == GgufType::f64) {
      TARN_TRY(const auto stored, file_.get_f64(name.view()));
      value = *stored;
    } else if (key->type != GgufType::array && key->type != GgufType::string) {
      TARN_TRY(const auto stored, file_.get_u64(name.view()));
      value = static_cast<f64>(*stored);
    }
    if (value != row.neutral && value != row.neutral_too) {
      return fail(unsupported(row.hint, name.view()));
    }
  }
  return {};
}

// An array instead of a number gives each layer its value; we take it where all are equal.
Result<std::optional<u64>> Describer::layers_integer(const GgufKey& key) {
  const u64 mark = memory_.used_bytes();
  if (spec_.n_layers == 0 || key.count != spec_.n_layers) {
    return fail(invalid("the array has not one value for each layer", key.name,
                        {"count", key.count}, {"n_layers", spec_.n_layers}));
  }
  const auto values = memory_.alloc<i32>(key.count);
  if (!values) return fail(tables::out_of_memory(memory_));
  TARN_CHECK(file_.read_i32(key, *values));
  for (const i32 value : *values) {
    if (value != values->front()) {
      return fail(unsupported("the layers of this model differ from each other", key.name));
    }
  }
  const i32 value = values->front();
  memory_.rewind(mark);
  if (value < 0) return fail(invalid("the key's value is negative", key.name));
  return std::optional<u64>(static_cast<u64>(value));
}

Result<std::optional<u64>> Describer::integer(tables::IntegerId id) {
  const tables::IntegerRow& row = tables::kIntegers[static_cast<u64>(id)];
  TARN_DEBUG_ASSERT(row.id == id);
  const NameText name = key_name(row.suffix);
  const GgufKey* key = file_.find_key(name.view());
  std::optional<u64> value;
  if (key != nullptr && row.may_be_array && key->type == GgufType::array) {
    TARN_TRY(value, layers_integer(*key));
  } else {
    TARN_TRY(value, file_.get_u64(name.view()));
  }
  if (value && (*value < row.min || *value > row.max)) {
    return fail(invalid("the key's value is out of range", name.view(), {"value", *value},
                        {"min", row.min}, {"max", row.max}));
  }
  return value;
}

Result<u64> Describer::required_integer(tables::IntegerId id) {
  TARN_TRY(const auto value, integer(id));
  if (value) return *value;
  const NameText name = key_name(tables::kIntegers[static_cast<u64>(id)].suffix);
  return fail(invalid("the key is missing", name.view()));
}

Result<f64> Describer::real(tables::RealId id) {
  const tables::RealRow& row = tables::kReals[static_cast<u64>(id)];
  TARN_DEBUG_ASSERT(row.id == id);
  const NameText name = key_name(row.suffix);
  TARN_TRY(const auto value, file_.get_f64(name.view()));
  if (!value && row.need == Need::required) {
    return fail(invalid("the key is missing", name.view()));
  }
  const f64 number = value.value_or(row.fallback);
  if (number != row.fallback && !(number >= row.min && number <= row.max)) {
    return fail(invalid("the key's value is out of range", name.view()));
  }
  return number;
}

Result<void> Describer::read_shape() {
  using tables::IntegerId;
  TARN_TRY(const u64 n_layers, required_integer(IntegerId::block_count));
  spec_.n_layers = static_cast<u32>(n_layers);
  TARN_TRY(spec_.n_ctx_train, required_integer(IntegerId::context_length));
  TARN_TRY(const u64 d_model, required_integer(IntegerId::embedding_length));
  TARN_TRY(const u64 d_ff, required_integer(IntegerId::feed_forward_length));
  spec_.d_model = static_cast<u32>(d_model);
  spec_.d_ff = static_cast<u32>(d_ff);
  TARN_TRY(const f64 rms_eps, real(tables::RealId::rms_epsilon));
  spec_.rms_eps = static_cast<f32>(rms_eps);
  return {};
}

Result<void> Describer::read_attention_shape() {
  using tables::IntegerId;
  TARN_TRY(const u64 n_heads, required_integer(IntegerId::head_count));
  TARN_TRY(const auto n_kv_heads, integer(IntegerId::head_count_kv));
  TARN_TRY(const auto key_length, integer(IntegerId::key_length));
  TARN_TRY(const auto value_length, integer(IntegerId::value_length));
  spec_.n_heads = static_cast<u32>(n_heads);
  spec_.n_kv_heads = static_cast<u32>(n_kv_heads.value_or(n_heads));
  if (spec_.n_heads % spec_.n_kv_heads != 0) {
    return fail(invalid("the number of heads is no multiple of the number of KV heads",
                        key_name("attention.head_count_kv").view(), {"n_heads", spec_.n_heads},
                        {"n_kv_heads", spec_.n_kv_heads}));
  }
  if (!key_length && spec_.d_model % spec_.n_heads != 0) {
    return fail(invalid("the embedding length is no multiple of the number of heads",
                        key_name("attention.head_count").view(), {"d_model", spec_.d_model},
                        {"n_heads", spec_.n_heads}));
  }
  const u64 head_dim = key_length.value_or(spec_.d_model / spec_.n_heads);
  const tables::IntegerRow& range = tables::kIntegers[static_cast<u64>(IntegerId::key_length)];
  if (head_dim < range.min || head_dim > range.max || head_dim % 2 != 0) {
    return fail(
        unsupported("heads of this length are not supported (even numbers from 8 to 256 are)",
                    key_name("attention.key_length").view()));
  }
  if (value_length.value_or(head_dim) != head_dim) {
    return fail(unsupported("keys and values of different lengths are not supported",
                            key_name("attention.value_length").view()));
  }
  spec_.head_dim = static_cast<u32>(head_dim);
  return {};
}

Result<void> Describer::read_rope() {
  TARN_TRY(const auto n_rot, integer(tables::IntegerId::rope_dimensions));
  spec_.n_rot = static_cast<u32>(n_rot.value_or(spec_.head_dim));
  if (spec_.n_rot % 2 != 0 || spec_.n_rot > spec_.head_dim) {
    return fail(invalid("the rotated part of a head must be even and not longer than the head",
                        key_name("rope.dimension_count").view(), {"n_rot", spec_.n_rot},
                        {"head_dim", spec_.head_dim}));
  }
  spec_.rope_halves = spec_.arch != Arch::llama;
  TARN_TRY(spec_.rope_base, real(tables::RealId::rope_base));
  TARN_TRY(f64 factor, real(tables::RealId::rope_factor));
  if (factor == 0.0) {
    TARN_TRY(factor, real(tables::RealId::rope_factor_old));
  }
  const NameText scaling_key = key_name("rope.scaling.type");
  TARN_TRY(const auto scaling, text(scaling_key.view(), "linear"));
  if (scaling == "yarn") {
    return fail(
        unsupported("YaRN scaling is not supported; use the model's original file, without it, up "
                    "to its length",
                    scaling_key.view()));
  }
  if (scaling != "linear" && scaling != "none") {
    return fail(
        unsupported("this kind of RoPE scaling is not supported (none and linear are)", scaling));
  }
  // As llama.cpp reads it: no factor is no scaling, and the type "none" overrides the factor.
  spec_.rope_scale = factor == 0.0 || scaling == "none" ? 1.0 : 1.0 / factor;
  return {};
}

bool Describer::mark_used(const GgufTensor* tensor) {
  if (tensor == nullptr) return false;
  used_[static_cast<u64>(tensor - file_.tensors().data())] = 1;
  return true;
}

Result<void> Describer::find_tensor(std::string_view name, TensorRef& ref) {
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

// First everything that has a name we know, so that a tensor that we do not know is named as such
// before its absent counterpart is missed.
Result<void> Describer::find_tensors() {
  const auto layers =
      memory_.alloc<TensorRef>(spec_.n_layers * static_cast<u64>(LayerTensor::count));
  if (!layers) return fail(tables::out_of_memory(memory_));
  out_.tensors.layers = *layers;
  std::fill(layers->begin(), layers->end(), TensorRef{});
  const u64 mark = memory_.used_bytes();
  const auto used = memory_.alloc<u8>(file_.tensors().size());
  if (!used) return fail(tables::out_of_memory(memory_));
  used_ = *used;
  std::fill(used_.begin(), used_.end(), u8{0});
  for (const tables::TensorRow& row : tables::kModelTensors) {
    TARN_CHECK(find_tensor(row.name, out_.tensors.model[row.idx]));
  }
  for (u32 layer = 0; layer < spec_.n_layers; ++layer) {
    for (const tables::TensorRow& row : tables::kLayerTensors) {
      if (row.needs.of[static_cast<u64>(spec_.arch)] == Need::unknown) continue;
      const NameText name = layer_name(layer, row.name);
      const u64 idx = layer * static_cast<u64>(LayerTensor::count) + row.idx;
      TARN_CHECK(find_tensor(name.view(), (*layers)[idx]));
    }
  }
  if (std::find(used_.begin(), used_.end(), u8{0}) != used_.end()) return fail(unknown_tensor());
  memory_.rewind(mark);
  return {};
}

Error Describer::unknown_tensor() const {
  const u64 idx = static_cast<u64>(std::find(used_.begin(), used_.end(), u8{0}) - used_.begin());
  const std::string_view name = file_.tensors()[idx].name;
  for (const tables::UnknownRow& row : tables::kUnknown) {
    if (name.find(row.piece) != std::string_view::npos) return unsupported(row.hint, name);
  }
  return unsupported("a tensor that this architecture does not have would be left out", name);
}

// The embedding's rows are the vocabulary; the token list must agree, or else the key.
Result<void> Describer::check_vocabulary() {
  const TensorRef& embedding = out_.tensors.of(ModelTensor::token_embd);
  if (!embedding.present()) {
    return fail(invalid("a tensor of the model is missing", "token_embd.weight"));
  }
  if (embedding.n_rows > GgufLimits::kArrayElementsMax) {
    return fail(invalid("the vocabulary is larger than any real model's", "token_embd.weight",
                        {"n_vocab", embedding.n_rows}, {"limit", GgufLimits::kArrayElementsMax}));
  }
  spec_.n_vocab = static_cast<u32>(embedding.n_rows);
  TARN_TRY(const auto n_vocab, integer(tables::IntegerId::vocab_size));
  const GgufKey* tokens = file_.find_key("tokenizer.ggml.tokens");
  if (tokens != nullptr &&
      (tokens->type != GgufType::array || tokens->element != GgufType::string)) {
    return fail(invalid("the key has the wrong type; it must be an array of texts", tokens->name));
  }
  if (tokens != nullptr && tokens->count != spec_.n_vocab) {
    return fail(invalid("the token list is not as long as the embedding table", tokens->name,
                        {"n_tokens", tokens->count}, {"n_rows", spec_.n_vocab}));
  }
  if (tokens == nullptr && n_vocab && *n_vocab != spec_.n_vocab) {
    return fail(invalid("the vocabulary is not as large as the embedding table",
                        key_name("vocab_size").view(), {"n_vocab", *n_vocab},
                        {"n_rows", spec_.n_vocab}));
  }
  return {};
}

u64 Describer::dim(Dim d) const {
  switch (d) {
    case Dim::one:
      return 1;
    case Dim::d_model:
      return spec_.d_model;
    case Dim::d_ff:
      return spec_.d_ff;
    case Dim::d_q:
      return u64{spec_.n_heads} * spec_.head_dim;
    case Dim::d_kv:
      return u64{spec_.n_kv_heads} * spec_.head_dim;
    case Dim::head_dim:
      return spec_.head_dim;
    case Dim::n_vocab:
      return spec_.n_vocab;
    case Dim::half_rot:
      return spec_.n_rot / 2;
  }
  return 0;
}

Result<void> Describer::check_tensor(const tables::TensorRow& row, std::string_view name,
                                     const TensorRef& ref) {
  if (!ref.present()) {
    if (row.needs.of[static_cast<u64>(spec_.arch)] != Need::required) return {};
    return fail(invalid("a tensor of the model is missing", name));
  }
  const u64 k = dim(row.k);
  const u64 n_rows = dim(row.n_rows);
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
  spec_.n_params += k * n_rows;                // at most kElementsMax a tensor, kTensorsMax of them
  spec_.weights_file_bytes += ref.file_bytes;  // no two overlap: at most the file's length
  return {};
}

Result<void> Describer::check_tensors() {
  for (const tables::TensorRow& row : tables::kModelTensors) {
    TARN_CHECK(check_tensor(row, row.name, out_.tensors.model[row.idx]));
  }
  spec_.tied_output = !out_.tensors.of(ModelTensor::output).present();
  for (u32 layer = 0; layer < spec_.n_layers; ++layer) {
    for (const tables::TensorRow& row : tables::kLayerTensors) {
      const NameText name = layer_name(layer, row.name);
      const u64 idx = layer * static_cast<u64>(LayerTensor::count) + row.idx;
      TARN_CHECK(check_tensor(row, name.view(), out_.tensors.layers[idx]));
    }
    for (const auto bias :
         {LayerTensor::attn_q_bias, LayerTensor::attn_k_bias, LayerTensor::attn_v_bias}) {
      if (out_.tensors.of(layer, bias).present()) spec_.qkv_bias = true;
    }
  }
  spec_.qk_norm = out_.tensors.of(0, LayerTensor::attn_q_norm).present();
  return {};
}

}  // namespace

const char* arch_name(Arch arch) {
  switch (arch) {
    case Arch::llama:
      return "llama";
    case Arch::qwen2:
      return "qwen2";
    case Arch::qwen3:
      return "qwen3";
  }
  return "unknown";
}

Result<ModelDescription> describe_model(const GgufFile& file, Bump& memory) {
  const u64 mark = memory.used_bytes();
  auto description = Describer(file, memory).describe();
  if (!description) memory.rewind(mark);
  return description;
}

}  // namespace tarn::model
