// Tokenizer::memory_bytes(), check_keys() and build(): from a GGUF file's tokenizer.* keys to a
// VocabBuilder.
#include <algorithm>
#include <iterator>

#include "platform/base/checked.h"
#include "runtime/model/model_errors.h"
#include "runtime/text/vocab_builder.h"

namespace tarn::text {
namespace {

using model::GgufFile;
using model::GgufKey;
using model::GgufType;
using model::Refusals;

constexpr char kModelKey[] = "tokenizer.ggml.model";
constexpr char kPreKey[] = "tokenizer.ggml.pre";
constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kMergesKey[] = "tokenizer.ggml.merges";
constexpr char kScoresKey[] = "tokenizer.ggml.scores";
constexpr char kKindsKey[] = "tokenizer.ggml.token_type";
constexpr char kUnnamed[] = "default";  // the pre-tokenizer of files that name none
constexpr u64 kNameBytesMax = 128;

using model::invalid;
using model::unsupported;

// A copy of a short string of the file.
struct Name {
  char bytes[kNameBytesMax + 1] = {};
  std::optional<std::string_view> text;
};

Result<void> read_name(const GgufFile& file, const char* key, Name& name) {
  Bump memory(std::as_writable_bytes(std::span(name.bytes)));
  TARN_TRY(name.text, file.get_string(key, memory, kNameBytesMax));
  return {};
}

// The facts about a vocabulary that the directory has.
struct Survey {
  VocabCounts counts{};
  const GgufKey* tokens = nullptr;
  const GgufKey* merges = nullptr;
};

Result<const GgufKey*> strings_key(const GgufFile& file, const char* name) {
  const GgufKey* key = file.find_key(name);
  if (key == nullptr) return invalid("the file has no vocabulary: a key is missing", name);
  if (key->type != GgufType::array || key->element != GgufType::string) {
    return invalid("this key must be an array of strings", name);
  }
  return key;
}

struct KindName {
  std::string_view name;  // in tokenizer.ggml.model
  VocabKind kind;
};
constexpr KindName kKinds[] = {
    {"llama", VocabKind::spm}, {"gpt2", VocabKind::bpe}, {"gemma4", VocabKind::char_bpe}};

Result<Survey> survey(const GgufFile& file) {
  Name model;
  TARN_CHECK(read_name(file, kModelKey, model));
  if (!model.text) {
    return invalid("the file has no vocabulary: a key is missing", kModelKey);
  }
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                 [&](const KindName& k) { return k.name == *model.text; });
  if (kind == std::end(kKinds)) {
    return unsupported(
        "tokenizer.ggml.model is none of: llama (SPM), gpt2 (byte-level BPE), gemma4 (BPE of "
        "characters)",
        *model.text);
  }
  const bool spm = kind->kind == VocabKind::spm;
  Survey survey;
  TARN_TRY(survey.tokens, strings_key(file, kTokensKey));
  if (!spm) {
    TARN_TRY(survey.merges, strings_key(file, kMergesKey));
  }
  const u64 n_tokens = survey.tokens->count;
  constexpr u64 kLengthBytes = sizeof(u64);  // before each string in the file
  const auto text_bytes = (Checked(survey.tokens->bytes) - Checked(n_tokens) * kLengthBytes).get();
  if (!text_bytes)
    return invalid("the array is shorter than its strings", kTokensKey, {"elements", n_tokens});
  survey.counts = {.kind = kind->kind,
                   .n_tokens = n_tokens,
                   .text_bytes = *text_bytes,
                   .n_merges = spm ? 0 : survey.merges->count};
  return survey;
}

Result<PreTokenizerRules> read_pre_tokenizer(const GgufFile& file) {
  Name name;
  TARN_CHECK(read_name(file, kPreKey, name));
  const bool is_named = name.text && !name.text->empty();
  const std::string_view text = is_named ? *name.text : kUnnamed;
  const PreTokenizerRules* rules = find_pre_tokenizer(text);
  if (rules == nullptr) {
    return unsupported(
        "this pre-tokenizer (tokenizer.ggml.pre) is not known; known are nearly all of "
        "llama.cpp's, such as gpt-2, llama-bpe, qwen2, tekken and gpt-4o",
        text);
  }
  return *rules;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// In Phi-3's files white space after a special token belongs to it; only their names tell. A name
// that is no short text is another model's: no vocabulary needs it.
Result<bool> is_phi3(const GgufFile& file) {
  Name name;
  const Result<void> read = read_name(file, "general.name", name);
  if (!read && read.error().status == Status::io_failed) return fail(read.error());
  if (!read || !name.text) return false;
  for (char& c : name.bytes) c = lower(c);
  return name.text->find("phi-3") != std::string_view::npos ||
         name.text->find("phi3") != std::string_view::npos;
}

Result<void> read_flag(const GgufFile& file, const char* key, std::optional<bool>& flag) {
  TARN_TRY(flag, file.get_bool(key));
  return {};
}

// Each rule that the file states wrongly is noted.
Result<void> read_rules(const GgufFile& file, VocabKind kind, Refusals& refusals,
                        VocabRules& rules) {
  if (kind == VocabKind::bpe) {
    const Result<PreTokenizerRules> pre = read_pre_tokenizer(file);
    if (!pre) TARN_CHECK(refusals.note(fail(pre.error())));
    rules.pre = pre.value_or(PreTokenizerRules{});
  }
  if (kind == VocabKind::char_bpe) rules.pre = {.splitter = PreTokenizer::gemma4};
  for (const RoleKey& role : role_keys()) {
    const Result<std::optional<u64>> id = file.get_u64(role.key);
    if (!id) TARN_CHECK(refusals.note(fail(id.error())));
    if (id && *id) rules.special_ids[static_cast<u64>(role.role)] = *id;
  }
  TARN_CHECK(refusals.note(read_flag(file, "tokenizer.ggml.add_bos_token", rules.adds_bos)));
  // Gemma 4's first files say false, and the model needs it.
  if (kind == VocabKind::char_bpe) rules.adds_bos = true;
  TARN_CHECK(refusals.note(read_flag(file, "tokenizer.ggml.add_eos_token", rules.adds_eos)));
  TARN_CHECK(
      refusals.note(read_flag(file, "tokenizer.ggml.add_space_prefix", rules.adds_space_prefix)));
  TARN_TRY(rules.specials_eat_spaces, is_phi3(file));
  return {};
}

// An array with one element per token; nullptr if there is none.
Result<const GgufKey*> parallel_key(const GgufFile& file, const char* name, u64 n_tokens) {
  const GgufKey* key = file.find_key(name);
  if (key == nullptr) return key;
  if (key->type != GgufType::array) return invalid("this key must be an array", name);
  if (key->count != n_tokens) {
    return invalid("an array about the tokens does not have one element for each", name,
                   {"tokens", n_tokens}, {"elements", key->count});
  }
  return key;
}

Result<void> add_token(void* builder, u64, std::string_view text) {
  return static_cast<VocabBuilder*>(builder)->add_token(text);
}

Result<void> add_merge(void* builder, u64, std::string_view text) {
  return static_cast<VocabBuilder*>(builder)->add_merge(text);
}

// All that the keys say of a vocabulary, without its texts.
struct Vocab {
  Survey found{};
  VocabRules rules{};
  const GgufKey* scores = nullptr;
  const GgufKey* kinds = nullptr;
};

Result<void> read_vocab(const GgufFile& file, Refusals& refusals, Vocab& out) {
  const Result<Survey> found = survey(file);
  if (!found) return refusals.note(fail(found.error()));  // the rest depends on it
  out.found = *found;
  const VocabCounts& counts = out.found.counts;
  TARN_CHECK(read_rules(file, counts.kind, refusals, out.rules));
  const auto read_parallel = [&](const char* name, const GgufKey*& key) -> Result<void> {
    TARN_TRY(key, parallel_key(file, name, counts.n_tokens));
    return {};
  };
  if (counts.kind == VocabKind::spm) {
    TARN_CHECK(refusals.note(read_parallel(kScoresKey, out.scores)));
  }
  return refusals.note(read_parallel(kKindsKey, out.kinds));
}

}  // namespace

Result<u64> Tokenizer::memory_bytes(const GgufFile& file) {
  TARN_TRY(const Survey found, survey(file));
  return VocabBuilder::region_bytes(found.counts);
}

Result<void> Tokenizer::check_keys(const GgufFile& file, Refusals& refusals) {
  Vocab vocab;
  return read_vocab(file, refusals, vocab);
}

Result<Tokenizer> Tokenizer::build(const GgufFile& file, std::span<std::byte> region) {
  Refusals first;
  Vocab vocab;
  TARN_CHECK(read_vocab(file, first, vocab));
  TARN_TRY(VocabBuilder builder, VocabBuilder::begin(vocab.found.counts, region));
  TARN_CHECK(file.each_string(*vocab.found.tokens, add_token, &builder));
  if (vocab.scores != nullptr) TARN_CHECK(file.read_f32(*vocab.scores, builder.scores()));
  if (vocab.kinds != nullptr) TARN_CHECK(file.read_i32(*vocab.kinds, builder.kinds()));
  TARN_CHECK(builder.finish_tokens(vocab.rules));
  if (vocab.found.merges != nullptr) {
    TARN_CHECK(file.each_string(*vocab.found.merges, add_merge, &builder));
  }
  return builder.finish();
}

}  // namespace tarn::text
