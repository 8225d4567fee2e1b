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
  Describer(const GgufFile& file, Bump& memory, Refusals& refusals)
      : file_(file), memory_(memory), refusals_(refusals) {}

  Result<ModelDescription> describe() {
    TARN_CHECK(check_kind());
    TARN_CHECK(note(read_arch()));
    TARN_CHECK(check_neutral_keys());
    TARN_CHECK(read_shape());
    TARN_CHECK(read_attention_shape());
    TARN_CHECK(read_rope());
    TARN_CHECK(read_tensors());
    TARN_CHECK(refusals_.outcome());
    for (u32 i = 0; i < spec_.n_layers; ++i) spec_.kv_source[i] = static_cast<u16>(i);
    spec_.n_cache_layers = spec_.n_layers;
    return out_;
  }

 private:
  Result<void> check_kind();
  Result<void> check_has_weights();
  Result<void> check_is_model();
  Result<void> check_splits();
  Result<void> read_arch();
  Result<void> check_neutral_keys();
  Result<void> check_neutral_key(const tables::NeutralRow& row);
  Result<void> read_shape();
  Result<void> read_attention_shape();
  Result<void> check_heads();
  Result<void> read_head_dim();
  Result<void> read_rope();
  Result<void> read_rotated_dims();
  Result<void> read_rope_scale();
  Result<void> read_tensors();
  Result<void> check_vocabulary();

  Result<void> note(Result<void> outcome) { return refusals_.note(outcome); }
  Name key_name(std::string_view suffix) const;
  Result<std::string_view> text(std::string_view key, std::string_view fallback);
  Result<std::optional<u32>> integer(tables::IntegerId id);
  Result<void> required(tables::IntegerId id, u32* out);
  Result<std::optional<u64>> layers_integer(const GgufKey& key);
  Result<f64> real(tables::RealId id);

  const GgufFile& file_;
  Bump& memory_;
  Refusals& refusals_;
  ModelDescription out_{};
  ModelSpec& spec_ = out_.spec;
  std::string_view arch_{};  // as the file names it: the prefix of its keys
  bool arch_is_known_ = false;
  FileIs file_is_ = FileIs::whole;
};

// Copies into the memory that is left after read() of the directory; the caller of describe_model
// owns it.
Result<std::string_view> Describer::text(std::string_view key, std::string_view fallback) {
  TARN_TRY(const auto value, file_.get_string(key, memory_, tables::kKeyTextBytesMax));
  return value.value_or(fallback);
}

// Files that are no models are refused before any other check.
Result<void> Describer::check_kind() {
  if (file_.is_big_endian()) TARN_CHECK(note(big_endian()));
  TARN_CHECK(note(check_splits()));
  TARN_CHECK(note(check_has_weights()));
  return note(check_is_model());
}

// The first part of a split model may have none.
Result<void> Describer::check_has_weights() {
  if (!file_.tensors().empty() || file_is_ == FileIs::part) return {};
  if (file_.find_key("tokenizer.ggml.tokens") == nullptr) {
    return unsupported("the file holds no weights; give the model itself", "");
  }
  return unsupported("the file holds a vocabulary but no weights; it can only tokenize", "");
}

Result<void> Describer::check_is_model() {
  TARN_TRY(const auto kind, text("general.type", "model"));
  if (kind == "model") return {};
  return unsupported(
      "the file is a part of a model (adapter, projector) or made from one (importance matrix); "
      "give the model itself",
      kind);
}

Result<void> Describer::check_splits() {
  TARN_TRY(const auto n_splits, file_.get_u64("split.count"));
  if (n_splits.value_or(1) <= 1) return {};
  file_is_ = FileIs::part;
  return unsupported(
      "the model is split over several files; join them (llama-gguf-split --merge FIRST WHOLE)",
      "split.count");
}

Result<void> Describer::read_arch() {
  if (file_.find_key("general.architecture") == nullptr) {
    if (file_is_ == FileIs::part) return {};  // the first file has it
    return invalid("the key is missing", "general.architecture");
  }
  TARN_TRY(arch_, text("general.architecture", ""));
  for (u64 arch = 0; arch < std::size(tables::kArchs); ++arch) {
    if (arch_ != tables::kArchs[arch]) continue;
    spec_.arch = static_cast<Arch>(arch);
    arch_is_known_ = true;
    return {};
  }
  return unsupported("this architecture is not known here (known: llama, qwen2, qwen3)", arch_);
}

Name Describer::key_name(std::string_view suffix) const { return Name() << arch_ << "." << suffix; }

Result<void> Describer::check_neutral_keys() {
  for (const tables::NeutralRow& row : tables::kNeutral) TARN_CHECK(note(check_neutral_key(row)));
  return {};
}

// A key that changes the mathematics in an unsupported way may only have its neutral value.
Result<void> Describer::check_neutral_key(const tables::NeutralRow& row) {
  const Name name = key_name(row.suffix);
  const GgufKey* key = file_.find_key(name.view());
  if (key == nullptr) return {};
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
  if (value == row.neutral || value == row.neutral_too) return {};
  return unsupported(row.hint, name.view());
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

// A missing key is refused where the architecture is known to need it.
Result<void> Describer::required(tables::IntegerId id, u32* out) {
  TARN_TRY(const auto value, integer(id));
  *out = value.value_or(0);
  if (value || !arch_is_known_) return {};
  const Name name = key_name(tables::kIntegers[static_cast<u64>(id)].suffix);
  return invalid("the key is missing", name.view());
}

Result<f64> Describer::real(tables::RealId id) {
  const tables::RealRow& row = tables::kReals[static_cast<u64>(id)];
  TARN_DEBUG_ASSERT(row.id == id);
  const Name name = key_name(row.suffix);
  TARN_TRY(const auto value, file_.get_f64(name.view()));
  if (!value && row.need == Need::required && arch_is_known_) {
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
  u32 n_ctx_train = 0;
  TARN_CHECK(note(required(IntegerId::block_count, &spec_.n_layers)));
  TARN_CHECK(note(required(IntegerId::context_length, &n_ctx_train)));
  TARN_CHECK(note(required(IntegerId::embedding_length, &spec_.d_model)));
  TARN_CHECK(note(required(IntegerId::feed_forward_length, &spec_.d_ff)));
  spec_.n_ctx_train = n_ctx_train;
  const Result<f64> rms_eps = real(tables::RealId::rms_epsilon);
  if (!rms_eps) return note(fail(rms_eps.error()));
  spec_.rms_eps = static_cast<f32>(*rms_eps);
  return {};
}

Result<void> Describer::read_attention_shape() {
  TARN_CHECK(note(required(tables::IntegerId::head_count, &spec_.n_heads)));
  TARN_CHECK(note(check_heads()));
  return note(read_head_dim());
}

Result<void> Describer::check_heads() {
  TARN_TRY(const auto n_kv_heads, integer(tables::IntegerId::head_count_kv));
  spec_.n_kv_heads = n_kv_heads.value_or(spec_.n_heads);
  if (spec_.n_kv_heads != 0 && spec_.n_heads % spec_.n_kv_heads != 0) {
    return invalid("the number of heads is not a multiple of the number of KV heads",
                   key_name("attention.head_count_kv").view(), {"n_heads", spec_.n_heads},
                   {"n_kv_heads", spec_.n_kv_heads});
  }
  return {};
}

// The length of a head stays 0 where the file does not tell it.
Result<void> Describer::read_head_dim() {
  using tables::IntegerId;
  TARN_TRY(const auto key_length, integer(IntegerId::key_length));
  TARN_TRY(const auto value_length, integer(IntegerId::value_length));
  const bool is_known = key_length || (spec_.d_model != 0 && spec_.n_heads != 0);
  if (!is_known) return {};
  if (!key_length && spec_.d_model % spec_.n_heads != 0) {
    return invalid("the embedding length is not a multiple of the number of heads",
                   key_name("attention.head_count").view(), {"d_model", spec_.d_model},
                   {"n_heads", spec_.n_heads});
  }
  const u32 head_dim = key_length ? *key_length : spec_.d_model / spec_.n_heads;
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
  TARN_CHECK(note(read_rotated_dims()));
  spec_.rope_halves = spec_.arch != Arch::llama;
  const Result<f64> base = real(tables::RealId::rope_base);
  if (!base) TARN_CHECK(note(fail(base.error())));
  spec_.rope_base = base.value_or(spec_.rope_base);
  return note(read_rope_scale());
}

Result<void> Describer::read_rotated_dims() {
  TARN_TRY(const auto n_rot, integer(tables::IntegerId::rope_dimensions));
  spec_.n_rot = n_rot.value_or(spec_.head_dim);
  if (spec_.head_dim == 0) return {};
  if (spec_.n_rot % 2 != 0 || spec_.n_rot > spec_.head_dim) {
    return invalid("the rotated part of a head must be even and not longer than the head",
                   key_name("rope.dimension_count").view(), {"n_rot", spec_.n_rot},
                   {"head_dim", spec_.head_dim});
  }
  return {};
}

Result<void> Describer::read_rope_scale() {
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

// Which tensors there must be is known of a known architecture with a known number of layers.
Result<void> Describer::read_tensors() {
  const bool are_known = arch_is_known_ && spec_.n_layers != 0 && !file_.tensors().empty();
  if (are_known) TARN_CHECK(find_tensors(file_, memory_, refusals_, out_));
  TARN_CHECK(check_types(file_, refusals_));
  if (!are_known) return {};
  TARN_CHECK(note(check_vocabulary()));
  return check_tensors(file_is_, refusals_, out_);
}

// The embedding's rows define the vocabulary's size; the token list, or the key if there is no
// list, must agree.
Result<void> Describer::check_vocabulary() {
  const TensorRef& embedding = out_.tensors.of(ModelTensor::token_embd);
  if (!embedding.present()) return {};  // check_tensors() refuses it
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

Result<ModelDescription> describe_model(const GgufFile& file, Bump& memory, Refusals& refusals) {
  const u64 mark = memory.used_bytes();
  auto description = Describer(file, memory, refusals).describe();
  if (!description) memory.rewind(mark);
  return description;
}

Result<ModelDescription> describe_model(const GgufFile& file, Bump& memory) {
  Refusals first;
  return describe_model(file, memory, first);
}

}  // namespace tarn::model
