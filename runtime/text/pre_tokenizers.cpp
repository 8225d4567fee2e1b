#include "runtime/text/pre_tokenizers.h"

namespace tarn::text {
namespace {

constexpr PreTokenizer kGpt2 = PreTokenizer::gpt2;
constexpr PreTokenizer kLlama = PreTokenizer::llama_bpe;
constexpr PreTokenizer kQwen2 = PreTokenizer::qwen2;

// Names whose regular expression is exactly one of the three. Missing on purpose: "default" and
// files without the key, which llama.cpp splits by four other expressions. Also missing: encoder
// models (jina-v2, roberta, modern-bert), whose separators and masks have other rules. clang-format
// off
constexpr PreTokenizerRules kRules[] = {
    // name             splitter whole  bos
    {"gpt-2", kGpt2, false, false},
    {"phi-2", kGpt2, false, false},
    {"jina-es", kGpt2, false, false},
    {"jina-de", kGpt2, false, false},
    {"gigachat", kGpt2, false, false},
    {"a.x-4.0", kGpt2, false, false},
    {"mellum", kGpt2, false, false},
    {"exaone4", kGpt2, false, false},
    {"mpt", kGpt2, false, false},
    {"olmo", kGpt2, false, false},
    {"jais", kGpt2, false, false},
    {"trillion", kGpt2, false, false},
    {"granite-docling", kGpt2, false, false},
    {"llama-bpe", kLlama, true, true},
    {"llama3", kLlama, true, true},
    {"llama-v3", kLlama, true, true},
    {"falcon3", kLlama, true, true},
    {"falcon-h1", kLlama, true, true},
    {"pixtral", kLlama, true, true},
    {"midm-2.0", kLlama, true, true},
    {"lfm2", kLlama, true, true},
    {"jina-v5-nano", kLlama, true, true},
    {"dbrx", kLlama, false, false},
    {"smaug-bpe", kLlama, false, false},
    {"chatglm-bpe", kLlama, false, false},
    {"glm4", kLlama, true, false},
    {"glm5", kLlama, true, false},
    {"qwen2", kQwen2, false, false},
    {"deepseek-r1-qwen", kQwen2, false, false},
    {"kormo", kQwen2, false, false},
    {"f2llmv2", kQwen2, false, false},
    {"megrez", kQwen2, false, false},
    {"stablelm2", kQwen2, false, false},
    {"hunyuan", kQwen2, false, false},
    {"solar-open", kQwen2, false, false},
    {"grok-2", kQwen2, false, false},
};
// clang-format on

}  // namespace

const PreTokenizerRules* find_pre_tokenizer(std::string_view name) {
  for (const PreTokenizerRules& rules : kRules) {
    if (rules.name == name) return &rules;
  }
  return nullptr;
}

}  // namespace tarn::text
