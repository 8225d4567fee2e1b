#include "runtime/model/model_spec.h"

#include "platform/base/assert.h"
#include "runtime/model/model_errors.h"
#include "runtime/model/model_tables.h"

namespace tarn::model {
namespace {

using tables::Name;
using tables::Need;

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
    TARN_CHECK(find_tensors(file_, memory_, out_));
    TARN_CHECK(check_vocabulary());
    TARN_CHECK(check_tensors(out_));
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
  Result<void> check_vocabulary();

  Name key_name(std::string_view suffix) const;
  Result<std::string_view> text(std::string_view key, std::string_view fallback);
  Result<std::optional<u32>> integer(tables::IntegerId id);
  Result<u32> required_integer(tables::IntegerId id);
  Result<std::optional<u64>> layers_integer(const GgufKey& key);
  Result<f64> real(tables::RealId id);

  const GgufFile& file_;
  Bump& memory_;
  ModelDescription out_{};
  ModelSpec& spec_ = out_.spec;
};

// Copies into the memory that is left after read() of the directory; the caller of describe_model
// owns it.
Result<std::string_view> Describer::text(std::string_view key, std::string_view fallback) {
  TARN_TRY(const auto value, file_.get_string(key, memory_, tables::kKeyTextBytesMax));
  return value.value_or(fallback);
}

// Files that are no models are refused before any other check.
Result<void> Describer::check_kind() {
  if (file_.tensors().empty()) {
    return unsupported("the file holds a vocabulary but no weights; it can only tokenize", "");
  }
  TARN_TRY(const auto kind, text("general.type", "model"));
  if (kind != "model") {
    return unsupported("the file is a part of a model (adapter, projector); give the model itself",
                       kind);
  }
  TARN_TRY(const auto n_splits, file_.get_u64("split.count"));
  if (n_splits.value_or(1) > 1) {
    return unsupported("the model is split over several files; join them (gguf-split --merge)",
                       "split.count");
  }
  return {};
}

Result<void> Describer::read_arch() {
  if (file_.find_key("general.architecture") == nullptr) {
    return invalid("the key is missing", "general.architecture");
  }
  TARN_TRY(const auto name, text("general.architecture", ""));
  for (u64 arch = 0; arch < std::size(tables::kArchs); ++arch) {
    if (name != tables::kArchs[arch]) continue;
    spec_.arch = static_cast<Arch>(arch);
    return {};
  }
  return unsupported("this architecture is not known here (known: llama, qwen2, qwen3)", name);
}

Name Describer::key_name(std::string_view suffix) const {
  return Name() << arch_name(spec_.arch) << "." << suffix;
}

// A key that changes the mathematics in an unsupported way may only have its neutral value.
Result<void> Describer::check_neutral_keys() {
  for (const tables::NeutralRow& row : tables::kNeutral) {
    const Name name = key_name(row.suffix);
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
      return unsupported(row.hint, name.view());
    }
  }
  return {};
}

// An array instead of a number has a value for each layer; it is accepted if all are equal.
Result<std::optional<u64>> Describer::layers_integer(const GgufKey& key) {
  const u64 mark = memory_.used_bytes();
  if (spec_.n_layers == 0 || key.count != spec_.n_layers) {
    return invalid("the array does not have one value for each layer", key.name,
                   {"count", key.count}, {"n_layers", spec_.n_layers});
  }
  const auto values = memory_.alloc<i32>(key.count);
  if (!values) return out_of_memory(tables::kTooSmall, memory_);
  TARN_CHECK(file_.read_i32(key, *values));
  for (const i32 value : *values) {
    if (value != values->front()) {
      return unsupported("the layers of this model differ from each other", key.name);
    }
  }
  const i32 value = values->front();
  memory_.rewind(mark);
  if (value < 0) return invalid("the key's value is negative", key.name);
  return std::optional<u64>(static_cast<u64>(value));
}

Result<std::optional<u32>> Describer::integer(tables::IntegerId id) {
  const tables::IntegerRow& row = tables::kIntegers[static_cast<u64>(id)];
  TARN_DEBUG_ASSERT(row.id == id);
  const Name name = key_name(row.suffix);
  const GgufKey* key = file_.find_key(name.view());
  std::optional<u64> value;
  if (key != nullptr && row.may_be_array && key->type == GgufType::array) {
    TARN_TRY(value, layers_integer(*key));
  } else {
    TARN_TRY(value, file_.get_u64(name.view()));
  }
  if (value && (*value < row.min || *value > row.max)) {
    return invalid("the key's value is out of range", name.view(), {"value", *value},
                   {"min", row.min}, {"max", row.max});
  }
  return value ? std::optional<u32>(static_cast<u32>(*value)) : std::nullopt;
}

Result<u32> Describer::required_integer(tables::IntegerId id) {
  TARN_TRY(const auto value, integer(id));
  if (value) return *value;
  const Name name = key_name(tables::kIntegers[static_cast<u64>(id)].suffix);
  return invalid("the key is missing", name.view());
}

Result<f64> Describer::real(tables::RealId id) {
  const tables::RealRow& row = tables::kReals[static_cast<u64>(id)];
  TARN_DEBUG_ASSERT(row.id == id);
  const Name name = key_name(row.suffix);
  TARN_TRY(const auto value, file_.get_f64(name.view()));
  if (!value && row.need == Need::required) {
    return invalid("the key is missing", name.view());
  }
  const f64 number = value.value_or(row.fallback);
  if (number != row.fallback && !(number >= row.min && number <= row.max)) {
    return invalid("the key's value is out of range", name.view());
  }
  return number;
}

Result<void> Describer::read_shape() {
  using tables::IntegerId;
  TARN_TRY(spec_.n_layers, required_integer(IntegerId::block_count));
  TARN_TRY(spec_.n_ctx_train, required_integer(IntegerId::context_length));
  TARN_TRY(spec_.d_model, required_integer(IntegerId::embedding_length));
  TARN_TRY(spec_.d_ff, required_integer(IntegerId::feed_forward_length));
  TARN_TRY(const f64 rms_eps, real(tables::RealId::rms_epsilon));
  spec_.rms_eps = static_cast<f32>(rms_eps);
  return {};
}

Result<void> Describer::read_attention_shape() {
  using tables::IntegerId;
  TARN_TRY(spec_.n_heads, required_integer(IntegerId::head_count));
  TARN_TRY(const auto n_kv_heads, integer(IntegerId::head_count_kv));
  TARN_TRY(const auto key_length, integer(IntegerId::key_length));
  TARN_TRY(const auto value_length, integer(IntegerId::value_length));
  spec_.n_kv_heads = n_kv_heads.value_or(spec_.n_heads);
  if (spec_.n_heads % spec_.n_kv_heads != 0) {
    return invalid("the number of heads is not a multiple of the number of KV heads",
                   key_name("attention.head_count_kv").view(), {"n_heads", spec_.n_heads},
                   {"n_kv_heads", spec_.n_kv_heads});
  }
  if (!key_length && spec_.d_model % spec_.n_heads != 0) {
    return invalid("the embedding length is not a multiple of the number of heads",
                   key_name("attention.head_count").view(), {"d_model", spec_.d_model},
                   {"n_heads", spec_.n_heads});
  }
  const u32 head_dim = key_length.value_or(spec_.d_model / spec_.n_heads);
  const tables::IntegerRow& range = tables::kIntegers[static_cast<u64>(IntegerId::key_length)];
  if (head_dim < range.min || head_dim > range.max || head_dim % 2 != 0) {
    return unsupported("heads of this length are not supported (even numbers from 8 to 256 are)",
                       key_name("attention.key_length").view());
  }
  if (value_length.value_or(head_dim) != head_dim) {
    return unsupported("keys and values of different lengths are not supported",
                       key_name("attention.value_length").view());
  }
  spec_.head_dim = head_dim;
  return {};
}

Result<void> Describer::read_rope() {
  TARN_TRY(const auto n_rot, integer(tables::IntegerId::rope_dimensions));
  spec_.n_rot = n_rot.value_or(spec_.head_dim);
  if (spec_.n_rot % 2 != 0 || spec_.n_rot > spec_.head_dim) {
    return invalid("the rotated part of a head must be even and not longer than the head",
                   key_name("rope.dimension_count").view(), {"n_rot", spec_.n_rot},
                   {"head_dim", spec_.head_dim});
  }
  spec_.rope_halves = spec_.arch != Arch::llama;
  TARN_TRY(spec_.rope_base, real(tables::RealId::rope_base));
  TARN_TRY(f64 factor, real(tables::RealId::rope_factor));
  if (factor == 0.0) {
    TARN_TRY(factor, real(tables::RealId::rope_factor_old));
  }
  const Name scaling_key = key_name("rope.scaling.type");
  TARN_TRY(const auto scaling, text(scaling_key.view(), "linear"));
  if (scaling == "yarn") {
    return unsupported(
        "YaRN scaling is not supported; use the model's original file without it, up "
        "to that file's context length",
        scaling_key.view());
  }
  if (scaling != "linear" && scaling != "none") {
    return unsupported("this kind of RoPE scaling is not supported (none and linear are)", scaling);
  }
  // As in llama.cpp: without a factor there is no scaling, and the type "none" overrides the
  // factor.
  spec_.rope_scale = factor == 0.0 || scaling == "none" ? 1.0 : 1.0 / factor;
  return {};
}

// The embedding's rows define the vocabulary's size; the token list, or the key if there is no
// list, must agree.
Result<void> Describer::check_vocabulary() {
  const TensorRef& embedding = out_.tensors.of(ModelTensor::token_embd);
  if (!embedding.present()) {
    return invalid("a tensor of the model is missing", "token_embd.weight");
  }
  if (embedding.n_rows > GgufLimits::kArrayElementsMax) {
    return invalid("the vocabulary is larger than any real model's", "token_embd.weight",
                   {"n_vocab", embedding.n_rows}, {"limit", GgufLimits::kArrayElementsMax});
  }
  spec_.n_vocab = static_cast<u32>(embedding.n_rows);
  TARN_TRY(const auto n_vocab, integer(tables::IntegerId::vocab_size));
  const GgufKey* tokens = file_.find_key("tokenizer.ggml.tokens");
  if (tokens != nullptr &&
      (tokens->type != GgufType::array || tokens->element != GgufType::string)) {
    return invalid("the key has the wrong type; it must be an array of texts", tokens->name);
  }
  if (tokens != nullptr && tokens->count != spec_.n_vocab) {
    return invalid("the token list is not as long as the embedding table", tokens->name,
                   {"n_tokens", tokens->count}, {"n_rows", spec_.n_vocab});
  }
  if (tokens == nullptr && n_vocab && *n_vocab != spec_.n_vocab) {
    return invalid("the vocabulary is not as large as the embedding table",
                   key_name("vocab_size").view(), {"n_vocab", *n_vocab}, {"n_rows", spec_.n_vocab});
  }
  return {};
}

}  // namespace

const char* arch_name(Arch arch) { return tables::kArchs[static_cast<u64>(arch)]; }

Result<ModelDescription> describe_model(const GgufFile& file, Bump& memory) {
  const u64 mark = memory.used_bytes();
  auto description = Describer(file, memory).describe();
  if (!description) memory.rewind(mark);
  return description;
}

}  // namespace tarn::model
