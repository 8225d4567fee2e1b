#include "runtime/text/splitter.h"

#include <iterator>

#include "platform/base/assert.h"
#include "runtime/text/char_sets.h"

namespace tarn::text {
namespace {

struct Row {
  PreTokenizer pre;
  CutStage stages[kCutStagesMax];  // nullptr behind the last
};

// Stages that several rows have, and the expressions of llama.cpp that they stand for. C is defined
// in scanner.h.
//
//   gpt2      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)
//   qwen2     C|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   digits    \p{N}
//   digits3   \p{N}{1,3}
//   numbers   \p{N}+
//   triples   [0-9][0-9][0-9]
//   lines     [^\n]+|[\n]+
//   han_kana  [U+4E00-U+9FA5 U+3040-U+309F U+30A0-U+30FF]+
//   cjk       [U+4E00-U+9FA5 U+0800-U+4E00 U+AC00-U+D7FF]+
u64 gpt2(const Scanner& s) { return s.gpt2_end(); }
u64 qwen2(const Scanner& s) { return s.word_end({}); }
u64 digits(const Scanner& s) { return s.run_end({.sets = kNumbers, .n_max = 1}); }
u64 digits3(const Scanner& s) { return s.run_end({.sets = kNumbers, .n_max = 3}); }
u64 numbers(const Scanner& s) { return s.run_end({.sets = kNumbers}); }
u64 triples(const Scanner& s) { return s.digit_triple_end(); }
u64 lines(const Scanner& s) { return s.newlines_end(); }
u64 han_kana(const Scanner& s) { return s.run_end({.sets = kHanKana}); }
u64 cjk(const Scanner& s) { return s.run_end({.sets = kCjk}); }
u64 newline(const Scanner& s) { return s.run_end({.sets = kNewline, .n_max = 1}); }
u64 bloom(const Scanner& s) { return s.run_end({.sets = kNoStops, .lead = Lead::space}); }

constexpr Row kRows[] = {
    {PreTokenizer::gpt2, {gpt2}},
    // C|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
    // |\s*[\r\n]+|\s+(?!\S)|\s+
    {PreTokenizer::llama_bpe, {[](const Scanner& s) { return s.word_end({.digits_max = 3}); }}},
    // bailingmoe's \s*[\r\n] takes as much as \s*[\r\n]+.
    {PreTokenizer::qwen2, {qwen2}},
    {PreTokenizer::smollm, {digits, gpt2}},
    // [\p{P}\$\+<=>\^~\|`]+, gpt2, triples
    {PreTokenizer::falcon,
     {[](const Scanner& s) { return s.run_end({.sets = kFalconSigns}); }, gpt2, triples}},
    // [\p{P}\$\+<=>\^~\|]+, gpt2, numbers, triples
    {PreTokenizer::unnamed,
     {[](const Scanner& s) { return s.run_end({.sets = kUnnamedSigns}); }, gpt2, numbers, triples}},
    // [\r\n], \s?[cased letters]+, \s?[signs]+, \s+$, cjk, numbers
    {PreTokenizer::deepseek_llm,
     {newline,
      [](const Scanner& s) {
        return s.run_end({.sets = kDeepseekLetters, .lead = Lead::white_space});
      },
      [](const Scanner& s) {
        return s.run_end({.sets = kDeepseekSigns, .lead = Lead::white_space});
      },
      [](const Scanner& s) { return s.trailing_spaces_end(); }, cjk, numbers}},
    // [\r\n], \s?\p{L}+, \s?\p{P}+, cjk, digits
    {PreTokenizer::deepseek_coder,
     {newline,
      [](const Scanner& s) { return s.run_end({.sets = kLetters, .lead = Lead::white_space}); },
      [](const Scanner& s) {
        return s.run_end({.sets = kPunctuations, .lead = Lead::white_space});
      },
      cjk, digits}},
    // digits3, han_kana, [signs of ASCII][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
    // | ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
    {PreTokenizer::deepseek_v3,
     {digits3, han_kana, [](const Scanner& s) { return s.deepseek_end(Newlines::bind); }}},
    // digits3, han_kana, the same with | ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+ at the end, digits
    {PreTokenizer::spark,
     {digits3, han_kana, [](const Scanner& s) { return s.deepseek_end(Newlines::alone); }, digits}},
    // numbers in threes from the right, [Asian scripts]+, deepseek_v3's last
    {PreTokenizer::afmoe,
     {[](const Scanner& s) { return s.number_groups_end(); },
      [](const Scanner& s) { return s.run_end({.sets = kAsian}); },
      [](const Scanner& s) { return s.deepseek_end(Newlines::bind); }}},
    // [hangul]+|[signs of CJK]+|[bopomofo]+|[han_kana]+, then
    // [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+C?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
    {PreTokenizer::youtu,
     {[](const Scanner& s) { return s.run_end({.sets = kYoutu}); },
      [](const Scanner& s) {
        return s.word_end({.letters = Letters::marked,
                           .contractions = Contractions::after,
                           .tail = SignTail::newlines_slashes});
      }}},
    // numbers in threes from the right, then youtu's last with \p{N}{1,3}
    {PreTokenizer::tiny_aya,
     {[](const Scanner& s) { return s.number_groups_end(); },
      [](const Scanner& s) {
        return s.word_end({.digits_max = 3,
                           .letters = Letters::marked,
                           .contractions = Contractions::after,
                           .tail = SignTail::newlines_slashes});
      }}},
    // C|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*
    // |\s*[\r\n]+|\s+(?!\S)|\s+
    {PreTokenizer::qwen35, {[](const Scanner& s) {
       return s.word_end({.letters = Letters::marked, .signs = kSigns & ~kMark});
     }}},
    //  ?[^(\s|.,!?…。，、।۔،)]+
    {PreTokenizer::bloom, {bloom}},
    // bloom, digits
    {PreTokenizer::viking, {bloom, digits}},
    // [^\r\n\p{L}\p{N}]?(?:U*L+|U+L*)|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
    // for letters U but a to z and L but A to Z; the models' own files mean the cases of all
    // scripts, and marks
    {PreTokenizer::tekken, {[](const Scanner& s) {
       return s.word_end({.letters = Letters::cased,
                          .contractions = Contractions::none,
                          .tail = SignTail::newlines_slashes});
     }}},
    // [^\r\n\p{L}\p{N}]?(?:U*L+|U+L*)C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*
    // |\s*[\r\n]+|\s+(?!\S)|\s+
    {PreTokenizer::gpt4o, {[](const Scanner& s) {
       return s.word_end({.digits_max = 3,
                          .letters = Letters::cased,
                          .contractions = Contractions::after,
                          .tail = SignTail::newlines_slashes});
     }}},
    // gpt4o with marks among the letters
    {PreTokenizer::granite_embed, {[](const Scanner& s) {
       return s.word_end({.digits_max = 3,
                          .letters = Letters::cased_marked,
                          .contractions = Contractions::after,
                          .tail = SignTail::newlines_slashes});
     }}},
    // \p{Han}+|[^\r\n\p{L}\p{N}]?[\p{L}--\p{Han}]+C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
    // |\s*[\r\n]+|\s+(?!\S)|\s+
    {PreTokenizer::kimi_k2, {[](const Scanner& s) {
       return s.word_end(
           {.digits_max = 3, .letters = Letters::not_han, .contractions = Contractions::after});
     }}},
    // numbers, (?=(\d{3})+(?!\d))
    {PreTokenizer::superbpe, {numbers, [](const Scanner& s) { return s.digit_groups_end(); }}},
    // C|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+
    {PreTokenizer::seed_coder,
     {[](const Scanner& s) { return s.word_end({.tail = SignTail::none}); }}},
    // qwen2 without C
    {PreTokenizer::ufakzeka,
     {[](const Scanner& s) { return s.word_end({.contractions = Contractions::none}); }}},
    // C|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?
    // |\s*[\r\n]|\s+(?!\S)|\s+
    {PreTokenizer::exaone_moe, {[](const Scanner& s) {
       return s.word_end({.letters = Letters::spaced, .tail = SignTail::newline_or_slash});
     }}},
    // lines, qwen2
    {PreTokenizer::laguna, {lines, qwen2}},
    // digits3, llama_bpe with \p{N}+
    {PreTokenizer::minicpm5,
     {digits3, [](const Scanner& s) { return s.word_end({.digits_max = ~u32{0}}); }}},
    // llama_bpe with \s{512}(?!\S)|\s{256}(?!\S)| ... |\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1} for
    // \s+(?!\S)|\s+
    {PreTokenizer::jais2,
     {[](const Scanner& s) { return s.word_end({.digits_max = 3}); },
      [](const Scanner& s) { return s.halved_spaces_end(); }}},
    {PreTokenizer::gemma4, {lines}},
};

constexpr bool rows_are_in_order() {
  for (u64 i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].pre != static_cast<PreTokenizer>(i + 1)) return false;
  }
  return static_cast<u64>(PreTokenizer::count) == std::size(kRows) + 1;
}
static_assert(rows_are_in_order());

std::span<const CutStage> stages_of(PreTokenizer pre) {
  TARN_ASSERT(pre != PreTokenizer::none && pre < PreTokenizer::count);
  const Row& row = kRows[static_cast<u64>(pre) - 1];
  u64 n = 0;
  while (n < kCutStagesMax && row.stages[n] != nullptr) ++n;
  return std::span(row.stages).first(n);
}

}  // namespace

Splitter::Splitter(PreTokenizer pre, std::string_view text)
    : stages_(stages_of(pre)), text_(text) {}

std::string_view Splitter::next() {
  if (at_ >= text_.size()) return {};
  u64 end = text_.size();
  for (u64 stage = 0; stage < stages_.size(); ++stage) {
    u64& piece_end = ends_[stage];
    if (piece_end == at_) {
      piece_end = stages_[stage](Scanner(text_.substr(0, end), at_, &groups_ends_[stage]));
    }
    TARN_ASSERT(piece_end > at_ && piece_end <= end);
    end = piece_end;
  }
  const std::string_view piece = text_.substr(at_, end - at_);
  at_ = end;
  return piece;
}

}  // namespace tarn::text
