#include "tools/tarn/model_facts.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "kernels/quant/tensor_type.h"
#include "runtime/chat/chat_template.h"

namespace tarn::tools {
namespace {

using model::GgufFile;
using model::GgufKey;
using model::GgufTensor;
using model::GgufType;

constexpr u64 kFactBytesMax = 4 * kKiB;  // of one shown text
constexpr u64 kLayersShownMax = 4096;
constexpr size_t kDetailsMax = 8;  // of one reason

const ShapeFact kShape[] = {
    {"layers", "block_count"},
    {"width", "embedding_length"},
    {"feed_forward", "feed_forward_length"},
    {"heads", "attention.head_count"},
    {"kv_heads", "attention.head_count_kv"},
    {"head_length", "attention.key_length"},
    {"context", "context_length"},
    {"experts", "expert_count"},
    {"experts_used", "expert_used_count"},
};

// Returns a key's value; nothing where it is of another type. Only a disk's failure is thrown: a
// wrong type is the checks' matter.
template <class T>
std::optional<T> stated(Result<std::optional<T>> value) {
  if (value) return *value;
  if (value.error().status == Status::io_failed) throw_failure(value.error());
  return {};
}

std::optional<std::string> text_of(const GgufFile& file, std::string_view key) {
  std::vector<std::byte> memory(kFactBytesMax + 1);
  Bump bump(memory);
  const auto text = stated(file.get_string(key, bump, kFactBytesMax));
  return text ? std::optional(std::string(*text)) : std::nullopt;
}

std::vector<u64> integers_of(const GgufFile& file, const std::string& name) {
  const GgufKey* key = file.find_key(name);
  if (key == nullptr) return {};
  if (key->type != GgufType::array) {
    const auto value = stated(file.get_u64(name));
    return value ? std::vector<u64>{*value} : std::vector<u64>{};
  }
  if (key->count > kLayersShownMax) return {};
  std::vector<i32> values(key->count);
  const Result<void> read = file.read_i32(*key, values);
  if (!read && read.error().status == Status::io_failed) throw_failure(read.error());
  const bool are_sizes = read && std::ranges::all_of(values, [](i32 n) { return n >= 0; });
  return are_sizes ? std::vector<u64>(values.begin(), values.end()) : std::vector<u64>{};
}

std::vector<ShapeFact> shape_of(const GgufFile& file, const std::string& arch) {
  std::vector<ShapeFact> shape(std::begin(kShape), std::end(kShape));
  for (ShapeFact& fact : shape) fact.values = integers_of(file, arch + "." + fact.suffix);
  return shape;
}

std::vector<TypeFact> types_of(const GgufFile& file) {
  std::map<u32, TypeFact> by_id;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeFact& fact = by_id[tensor.type_id];
    fact.id = tensor.type_id;
    fact.info = model::gguf_tensor_type(tensor.type_id);
    fact.computes = kernels::type_traits(tensor.type_id) != nullptr;
    ++fact.n_tensors;
    fact.n_elements += tensor.dims[0] * tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
    fact.n_bytes += tensor.bytes;
  }
  std::vector<TypeFact> types;
  types.reserve(by_id.size());
  for (const auto& [id, fact] : by_id) types.push_back(fact);
  std::ranges::stable_sort(types, std::ranges::greater(), &TypeFact::n_bytes);
  return types;
}

// The texts of the special tokens, in one walk over the vocabulary.
void read_texts(const GgufFile& file, const GgufKey& tokens, std::map<std::string, TokenFact>& of) {
  std::multimap<u64, TokenFact*> wanted;
  for (auto& [name, token] : of) wanted.emplace(token.id, &token);
  const auto visit = [](void* context, u64 idx, std::string_view text) -> Result<void> {
    const auto found = static_cast<decltype(wanted)*>(context)->equal_range(idx);
    for (auto token = found.first; token != found.second; ++token) token->second->text = text;
    return {};
  };
  const Result<void> read = file.each_string(tokens, visit, &wanted);
  if (!read && read.error().status == Status::io_failed) throw_failure(read.error());
}

void read_tokenizer(const GgufFile& file, ModelFacts* facts) {
  facts->tokenizer_model = text_of(file, "tokenizer.ggml.model");
  facts->tokenizer_pre = text_of(file, "tokenizer.ggml.pre");
  constexpr std::string_view kPrefix = "tokenizer.ggml.", kSuffix = "_token_id";
  for (const GgufKey& key : file.keys()) {
    if (key.name.size() < kPrefix.size() + kSuffix.size() || !key.name.starts_with(kPrefix) ||
        !key.name.ends_with(kSuffix)) {
      continue;
    }
    const size_t n_around = kPrefix.size() + kSuffix.size();
    const auto id = stated(file.get_u64(key.name));
    const std::string name(key.name.substr(kPrefix.size(), key.name.size() - n_around));
    if (id) facts->special_tokens[name] = {.id = *id};
  }
  const GgufKey* tokens = file.find_key("tokenizer.ggml.tokens");
  if (tokens == nullptr || tokens->type != GgufType::array) return;
  facts->n_tokens = tokens->count;
  if (tokens->element == GgufType::string) read_texts(file, *tokens, facts->special_tokens);
}

std::string sentence_of(const Error& error) {
  char text[512];
  format_error(error, text, sizeof text);
  return text;
}

std::string why_no_template(const GgufFile& file, const GgufKey& key) {
  std::vector<std::byte> memory(chat::kSourceBytesMax + 1);
  Bump bump(memory);
  const auto source = file.get_string(key.name, bump, chat::kSourceBytesMax);
  if (!source && source.error().status == Status::io_failed) throw_failure(source.error());
  if (!source) return sentence_of(source.error());
  const u64 n_bytes = chat::ChatTemplate::memory_bytes(key.bytes);
  const auto program = std::make_unique_for_overwrite<std::byte[]>(n_bytes);
  const auto parsed = chat::ChatTemplate::parse(**source, {program.get(), n_bytes});
  return parsed ? "" : sentence_of(parsed.error());
}

// The file's own, and those for other uses (tokenizer.chat_template.tool_use). A list of their
// names is none.
std::vector<TemplateFact> templates_of(const GgufFile& file) {
  std::vector<TemplateFact> templates;
  constexpr std::string_view kName = "tokenizer.chat_template";
  for (const GgufKey& key : file.keys()) {
    if (key.name != kName && !key.name.starts_with(std::string(kName) + ".")) continue;
    const u64 n_bytes = key.type == GgufType::string ? key.bytes : 0;
    templates.push_back({std::string(key.name), n_bytes, why_no_template(file, key)});
  }
  return templates;
}

bool are_alike(const Error& a, const Error& b) {
  const auto is_same = [](const Figure& x, const Figure& y) { return x.value == y.value; };
  return a.status == b.status && std::strcmp(a.hint, b.hint) == 0 &&
         std::ranges::equal(a.figures, b.figures, is_same);
}

// A sentence for each reason. What is wrong with many keys or tensors alike is one reason.
std::vector<std::string> sentences_of(const std::vector<Error>& errors) {
  struct Reason {
    const Error* first;
    std::vector<std::string> others;
  };
  std::vector<Reason> found;
  for (const Error& error : errors) {
    const auto alike = std::ranges::find_if(
        found, [&](const Reason& reason) { return are_alike(*reason.first, error); });
    if (alike == found.end()) {
      found.push_back({&error, {}});
    } else {
      alike->others.emplace_back(error.detail.c_str());
    }
  }
  std::vector<std::string> sentences;
  for (const Reason& reason : found) {
    std::string text = sentence_of(*reason.first);
    const size_t n_shown = std::min(reason.others.size(), kDetailsMax);
    for (size_t i = 0; i < n_shown; ++i) text += (i == 0 ? "; also " : ", ") + reason.others[i];
    const size_t n_more = reason.others.size() - n_shown;
    if (n_more > 0) text += " and " + std::to_string(n_more) + " more";
    sentences.push_back(std::move(text));
  }
  return sentences;
}

}  // namespace

const std::vector<u64>& ModelFacts::of(const char* shape_name) const {
  const auto found = std::ranges::find_if(
      shape, [&](const ShapeFact& fact) { return std::strcmp(fact.name, shape_name) == 0; });
  TARN_ASSERT(found != shape.end());
  return found->values;
}

u64 ModelFacts::n_elements() const {
  return std::accumulate(types.begin(), types.end(), u64{0},
                         [](u64 n, const TypeFact& type) { return n + type.n_elements; });
}

u64 ModelFacts::tensors_bytes() const {
  return std::accumulate(types.begin(), types.end(), u64{0},
                         [](u64 n, const TypeFact& type) { return n + type.n_bytes; });
}

ModelFacts facts_of(ModelFile& file) {
  const GgufFile& gguf = file.gguf();
  ModelFacts facts;
  facts.arch = text_of(gguf, "general.architecture");
  facts.name = text_of(gguf, "general.name");
  facts.size = text_of(gguf, "general.size_label");
  facts.license = text_of(gguf, "general.license");
  facts.shape = shape_of(gguf, facts.arch.value_or(""));
  facts.types = types_of(gguf);
  read_tokenizer(gguf, &facts);
  facts.templates = templates_of(gguf);
  const auto n_splits = stated(gguf.get_u64("split.count"));
  if (n_splits) facts.split = {stated(gguf.get_u64("split.no")).value_or(0), *n_splits};
  facts.reasons = sentences_of(file.refusals());
  if (file.described() != nullptr) facts.spec = file.described()->spec;
  return facts;
}

}  // namespace tarn::tools
