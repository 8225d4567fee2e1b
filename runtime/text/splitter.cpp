#include "runtime/text/splitter.h"

#include "platform/base/assert.h"
#include "runtime/text/unicode.h"

namespace tarn::text {
namespace {

bool is_newline(u32 code_point) { return code_point == '\r' || code_point == '\n'; }

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

// Reads a piece of the text from at_ on.
class Scanner {
 public:
  Scanner(std::string_view text, u64 at) : text_(text), at_(at) {}

  u64 gpt2_end() const;
  u64 llama_end(u32 digits_max) const;
  u64 number_end() const;

 private:
  struct Char {
    u32 value = 0;
    CharClass kind = CharClass::none;
    u64 end = 0;  // start of the next character
  };

  Char char_at(u64 at) const;
  u64 skip(CharClass kind, u64 at) const;
  u64 contraction_end(bool any_case) const;
  u64 spaces_end(bool newlines_end) const;

  std::string_view text_;
  u64 at_;
};

Scanner::Char Scanner::char_at(u64 at) const {
  if (at >= text_.size()) return {.value = 0, .kind = CharClass::none, .end = at};
  const CodePoint point = decode_lenient(text_, at);
  return {.value = point.value, .kind = class_of(point.value), .end = at + point.n_bytes};
}

u64 Scanner::skip(CharClass kind, u64 at) const {
  for (Char c = char_at(at); c.kind == kind; c = char_at(at)) at = c.end;
  return at;
}

// The end of the contraction that starts at at_; at_ if there is none.
u64 Scanner::contraction_end(bool any_case) const {
  if (text_[at_] != '\'') return at_;
  const std::string_view rest = text_.substr(at_ + 1, 2);
  const auto letter = [&](u64 i) {
    return i >= rest.size() ? '\0' : any_case ? lower(rest[i]) : rest[i];
  };
  const char first = letter(0);
  const char second = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at_ + 2;
  const bool two_letters = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                           (first == 'l' && second == 'l');
  return two_letters ? at_ + 3 : at_;
}

// The end of a match in a run of white space: its last newline if newlines bind; else all but the
// last character if text follows, else all.
u64 Scanner::spaces_end(bool newlines_end) const {
  u64 end = at_;
  u64 last_start = at_;
  u64 newline_end = at_;
  for (Char c = char_at(end); c.kind == CharClass::space; c = char_at(end)) {
    last_start = end;
    end = c.end;
    if (is_newline(c.value)) newline_end = end;
  }
  if (newlines_end && newline_end > at_) return newline_end;
  if (end < text_.size() && last_start > at_) return last_start;
  return end;
}

u64 Scanner::gpt2_end() const {
  if (const u64 end = contraction_end(false); end > at_) return end;
  Char c = char_at(at_);
  if (c.value == ' ') c = char_at(c.end);
  if (c.kind == CharClass::space || c.kind == CharClass::none) return spaces_end(false);
  return skip(c.kind, c.end);
}

u64 Scanner::llama_end(u32 digits_max) const {
  if (const u64 end = contraction_end(true); end > at_) return end;
  const Char first = char_at(at_);
  if (first.kind == CharClass::letter) return skip(CharClass::letter, first.end);
  if (first.kind == CharClass::number) {
    u64 end = first.end;
    for (u32 n = 1; n < digits_max; ++n) {
      const Char c = char_at(end);
      if (c.kind != CharClass::number) break;
      end = c.end;
    }
    return end;
  }
  const Char second = char_at(first.end);
  if (!is_newline(first.value) && second.kind == CharClass::letter) {
    return skip(CharClass::letter, second.end);
  }
  const Char& sign = first.value == ' ' ? second : first;
  if (sign.kind != CharClass::other) return spaces_end(true);
  u64 end = skip(CharClass::other, sign.end);
  while (end < text_.size() && is_newline(static_cast<u8>(text_[end]))) ++end;
  return end;
}

// The end of the number at at_, or of the text before the next one.
u64 Scanner::number_end() const {
  Char c = char_at(at_);
  if (c.kind == CharClass::number) return c.end;
  u64 end = at_;
  for (; c.kind != CharClass::number && c.kind != CharClass::none; c = char_at(end)) end = c.end;
  return end;
}

u64 cut_end(CutStage stage, const Scanner& scanner) {
  switch (stage.rule) {
    case CutRule::gpt2:
      return scanner.gpt2_end();
    case CutRule::llama:
      return scanner.llama_end(stage.digits_max);
    case CutRule::number:
      break;
  }
  return scanner.number_end();
}

constexpr CutStage kGpt2[] = {{.rule = CutRule::gpt2}};
constexpr CutStage kLlamaBpe[] = {{.rule = CutRule::llama, .digits_max = 3}};
constexpr CutStage kQwen2[] = {{.rule = CutRule::llama, .digits_max = 1}};
constexpr CutStage kSmolLm[] = {{.rule = CutRule::number}, {.rule = CutRule::gpt2}};

std::span<const CutStage> stages_of(PreTokenizer pre) {
  switch (pre) {
    case PreTokenizer::gpt2:
      return kGpt2;
    case PreTokenizer::llama_bpe:
      return kLlamaBpe;
    case PreTokenizer::qwen2:
      return kQwen2;
    case PreTokenizer::smollm:
      return kSmolLm;
    case PreTokenizer::none:
      break;
  }
  return {};
}

}  // namespace

Splitter::Splitter(PreTokenizer pre, std::string_view text) : stages_(stages_of(pre)), text_(text) {
  TARN_ASSERT(!stages_.empty());
}

std::string_view Splitter::next() {
  if (at_ >= text_.size()) return {};
  u64 end = text_.size();
  for (u64 stage = 0; stage < stages_.size(); ++stage) {
    u64& piece_end = ends_[stage];
    if (piece_end == at_) piece_end = cut_end(stages_[stage], Scanner(text_.substr(0, end), at_));
    end = piece_end;
    TARN_ASSERT(end > at_);
  }
  const std::string_view piece = text_.substr(at_, end - at_);
  at_ = end;
  return piece;
}

}  // namespace tarn::text
