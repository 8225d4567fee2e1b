// The state machines of the splitters. A Scanner reads a text from one place on; each method is one
// regular expression, written by hand, because no regex engine with look-ahead has bounded time and
// stack on hostile text (ROBUSTNESS T2). A method returns where the piece ends that begins at the
// place, which is after it. Every character is read a fixed number of times: linear time, no
// memory.
//
// An expression need not match everywhere: what lies before its next match is a piece, too.
//
// C stands for (?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]). The families' own files
// spell it (?i:'s|...). Engines that fold case over all of Unicode then match U+017F as an s.
// llama.cpp does not, and our ids must equal its ids.
#pragma once

#include <span>
#include <string_view>

#include "runtime/text/unicode.h"

namespace tarn::text {

inline constexpr ClassSet kLetter = set_of(CharClass::letter);
inline constexpr ClassSet kNumber = set_of(CharClass::number);
inline constexpr ClassSet kMark = set_of(CharClass::mark);
inline constexpr ClassSet kPunctuation = set_of(CharClass::punctuation);
inline constexpr ClassSet kSymbol = set_of(CharClass::symbol);
// [^\s\p{L}\p{N}]
inline constexpr ClassSet kSigns = kAllClasses & ~(kLetter | kNumber | set_of(CharClass::space));

// The letters of a word, for \p{L}+ in a WordRule.
enum class Letters : u8 {
  plain,         // \p{L}+
  marked,        // [\p{L}\p{M}]+
  cased,         // U*L+|U+L*, where U is a letter but a to z, and L a letter but A to Z
  cased_marked,  // the same, and marks are letters
  not_han,       // \p{L}+ without ideographs, which form pieces of their own
  spaced,        // (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+
};
enum class Contractions : u8 { none, before, after };
enum class SignTail : u8 { none, newlines, newlines_slashes, newline_or_slash };

// C|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits_max}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// with C before, as here, or after a word, as C?, and with `tail` for [\r\n]*.
struct WordRule {
  u32 digits_max = 1;
  Letters letters = Letters::plain;
  Contractions contractions = Contractions::before;
  SignTail tail = SignTail::newlines;
  ClassSet signs = kSigns;
};

struct CodeRange {
  u32 first = 0, last = 0;
};
// The characters of some classes, and those of some ranges in order. White space beyond ASCII is in
// no range: llama.cpp reads it as a vertical tab.
struct CharSet {
  ClassSet classes = 0;
  std::span<const CodeRange> ranges{};
  bool excludes_ranges = false;  // the characters of the classes that are in no range
};
enum class Lead : u8 { none, space, white_space };

// S{1,n_max} for the first of the sets that has a character there; with ` ?` or `\s?` before it.
struct RunRule {
  std::span<const CharSet> sets;
  u32 n_max = ~u32{0};
  Lead lead = Lead::none;
};

enum class Newlines : u8 { bind, alone };

class Scanner {
 public:
  // `groups_end` is 0 for a new text, and kept from call to call of a stage: the digits up to there
  // are whole groups of three.
  Scanner(std::string_view text, u64 at, u64* groups_end)
      : text_(text), at_(at), groups_end_(groups_end) {}

  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  u64 gpt2_end() const;
  u64 word_end(const WordRule& rule) const;
  // [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+ and then
  //   bind   [\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  //   alone  |[\r\n]|\s+(?!\S)|\s+
  u64 deepseek_end(Newlines newlines) const;
  u64 run_end(const RunRule& rule) const;
  // [0-9][0-9][0-9]
  u64 digit_triple_end() const;
  // Numbers in groups of three from the right. The text before a number belongs to its first group.
  u64 number_groups_end() const;
  // (?=(\d{3})+(?!\d)), between whose matches the pieces lie
  u64 digit_groups_end() const;
  // \s+$
  u64 trailing_spaces_end() const;
  // [^\n]+|[\n]+
  u64 newlines_end() const;
  // White space that does not end a line, and is a piece, in powers of two:
  // \s{512}(?!\S)|\s{256}(?!\S)| ... |\s{4}(?!\S)|\s{1,2}(?!\S)|\s
  u64 halved_spaces_end() const;

 private:
  struct Char {
    u32 value = 0;
    CharClass kind = CharClass::none;
    u64 end = 0;  // start of the next character
  };

  Char char_at(u64 at) const;
  u64 skip(ClassSet set, u64 at) const;
  template <class Is>
  u64 skip_if(u64 at, const Is& is, u64 n_max = ~u64{0}) const;
  u64 contraction_end(const Char& first, u64 at, bool any_case) const;
  u64 spaces_end(bool newlines_end) const;
  u64 letters_end(Letters letters, const Char& first) const;
  u64 spaced_end(u64 at) const;
  u64 mixed_case_end(ClassSet set, u64 at) const;
  u64 tail_end(SignTail tail, u64 at) const;
  u64 deepseek_match_end(Newlines newlines) const;
  bool may_begin_deepseek(const Char& c) const;
  struct Run {
    const CharSet* set = nullptr;  // nullptr: no run begins here
    u64 begin = 0;                 // behind the lead
  };
  Run run_at(const RunRule& rule, u64 at) const;

  std::string_view text_;
  u64 at_;
  u64* groups_end_;
};

}  // namespace tarn::text
