#include "runtime/text/known_names.h"

#include <algorithm>
#include <iterator>

namespace tarn::text {
namespace {

// llama.cpp's names that are missing on purpose: those of encoders with rules of their own
// ("jina-v1-en", "jina-v2-code", "jina-v2-de", "jina-v2-es", "whitespace"), "chameleon", and those
// of characters in place of bytes ("granite-embed-multi-311m", "sarvam-moe", "gemma4" as "gpt2").
// Names of one family have all rules in common.
struct PreTokenizerFamily {
  PreTokenizerRules rules;
  std::string_view names[17];  // empty ones at the end are none
};
constexpr PreTokenizerFamily kFamilies[] = {
    {{.splitter = PreTokenizer::gpt2},
     {"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "a.x-4.0", "mellum", "exaone4", "mpt",
      "olmo", "jais", "trillion", "granite-docling", "roberta-bpe", "modern-bert"}},
    {{.splitter = PreTokenizer::llama_bpe, .whole_words_first = true, .adds_bos = true},
     {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
      "jina-v5-nano"}},
    {{.splitter = PreTokenizer::llama_bpe}, {"dbrx", "smaug-bpe", "chatglm-bpe"}},
    {{.splitter = PreTokenizer::llama_bpe, .whole_words_first = true}, {"glm4", "glm5"}},
    {{.splitter = PreTokenizer::qwen2},
     {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
      "solar-open", "grok-2", "bailingmoe", "bailingmoe2", "llada-moe"}},
    {{.splitter = PreTokenizer::smollm},
     {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
      "mellum2"}},
    {{.splitter = PreTokenizer::falcon}, {"falcon"}},
    {{.splitter = PreTokenizer::unnamed}, {"default"}},
    {{.splitter = PreTokenizer::deepseek_llm}, {"deepseek-llm"}},
    {{.splitter = PreTokenizer::deepseek_coder}, {"deepseek-coder"}},
    {{.splitter = PreTokenizer::deepseek_v3},
     {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}},
    {{.splitter = PreTokenizer::spark}, {"spark2_5"}},
    {{.splitter = PreTokenizer::afmoe}, {"afmoe"}},
    {{.splitter = PreTokenizer::youtu, .whole_words_first = true}, {"youtu"}},
    {{.splitter = PreTokenizer::tiny_aya}, {"tiny_aya", "cohere2moe"}},
    {{.splitter = PreTokenizer::qwen35}, {"qwen35"}},
    {{.splitter = PreTokenizer::bloom}, {"bloom", "poro-chat", "gpt3-finnish"}},
    {{.splitter = PreTokenizer::viking}, {"viking"}},
    {{.splitter = PreTokenizer::tekken, .whole_words_first = true, .adds_bos = true}, {"tekken"}},
    {{.splitter = PreTokenizer::gpt4o}, {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}},
    {{.splitter = PreTokenizer::granite_embed, .whole_words_first = true},
     {"granite-embed-multi-97m"}},
    {{.splitter = PreTokenizer::kimi_k2}, {"kimi-k2"}},
    {{.splitter = PreTokenizer::superbpe}, {"superbpe"}},
    {{.splitter = PreTokenizer::seed_coder}, {"seed-coder"}},
    {{.splitter = PreTokenizer::ufakzeka}, {"ufakzeka"}},
    {{.splitter = PreTokenizer::exaone_moe}, {"exaone-moe"}},
    {{.splitter = PreTokenizer::laguna}, {"laguna"}},
    {{.splitter = PreTokenizer::minicpm5, .whole_words_first = true}, {"minicpm5"}},
    {{.splitter = PreTokenizer::jais2}, {"jais-2"}},
};

// A later key overrides an earlier one.
constexpr RoleKey kRoleKeys[] = {
    {"tokenizer.ggml.bos_token_id", Role::bos},
    {"tokenizer.ggml.eos_token_id", Role::eos},
    {"tokenizer.ggml.unknown_token_id", Role::unknown},
    {"tokenizer.ggml.padding_token_id", Role::padding},
    {"tokenizer.ggml.eot_token_id", Role::eot},
    {"tokenizer.ggml.eom_token_id", Role::eom},
    {"tokenizer.ggml.fim_pre_token_id", Role::fim_prefix},
    {"tokenizer.ggml.fim_suf_token_id", Role::fim_suffix},
    {"tokenizer.ggml.fim_mid_token_id", Role::fim_middle},
    {"tokenizer.ggml.fim_pad_token_id", Role::fim_pad},
    {"tokenizer.ggml.fim_rep_token_id", Role::fim_repo},
    {"tokenizer.ggml.fim_sep_token_id", Role::fim_separator},
    {"tokenizer.ggml.prefix_token_id", Role::fim_prefix},  // older names
    {"tokenizer.ggml.suffix_token_id", Role::fim_suffix},
    {"tokenizer.ggml.middle_token_id", Role::fim_middle},
};

// clang-format off
constexpr NamedTokens kNamedTokens[] = {
    {Role::eot, Mark::end,
     {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
      "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"}},
    {Role::eom, Mark::end, {"<|eom_id|>"}},
    {Role::none, Mark::end,
     {"<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>", "[EOS]", "<eos>", "<turn|>",
      "<|tool_response>", "[e~["}},
    {Role::fim_prefix, Mark::none,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
      "<|code_prefix|>", "<|prefix|>"}},
    {Role::fim_suffix, Mark::none,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
      "<|code_suffix|>", "<|suffix|>"}},
    {Role::fim_middle, Mark::none,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
      "<|code_middle|>", "<|middle|>"}},
    {Role::fim_pad, Mark::none, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {Role::fim_repo, Mark::none,
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {Role::fim_separator, Mark::none, {"<|file_sep|>"}},
    {Role::none, Mark::shown, {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}},
};
// clang-format on

// The HTML elements whose tags are tokens of Gemma.
constexpr std::string_view kHtmlTags[] = {
    "table", "caption", "thead", "tbody", "tfoot", "tr",  "th",         "td",
    "h1",    "h2",      "h3",    "h4",    "h5",    "h6",  "blockquote", "strong",
    "em",    "b",       "i",     "u",     "s",     "sub", "sup",        "code"};

}  // namespace

const PreTokenizerRules* find_pre_tokenizer(std::string_view name) {
  for (const PreTokenizerFamily& family : kFamilies) {
    for (const std::string_view known : family.names) {
      if (!known.empty() && known == name) return &family.rules;
    }
  }
  return nullptr;
}

bool is_marker(std::string_view text) {
  const bool in_angles = text.starts_with('<') && text.ends_with('>');
  const bool in_brackets = text.starts_with('[') && text.ends_with(']');
  if (text.size() < 3 || (!in_angles && !in_brackets)) return false;
  const u64 begin = text[1] == '/' ? 2 : 1;
  const std::string_view name = text.substr(begin, text.size() - 1 - begin);
  return in_brackets ||
         std::find(std::begin(kHtmlTags), std::end(kHtmlTags), name) == std::end(kHtmlTags);
}

std::span<const RoleKey> role_keys() { return kRoleKeys; }
std::span<const NamedTokens> named_tokens() { return kNamedTokens; }

}  // namespace tarn::text
