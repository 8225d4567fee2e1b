// Which tokens of a session were generated: a bit for each, beside its ids. The penalties of
// OpenAI's names count these.
//
//   fed, and forked   a fed token is not. A fork has the marks of its source
//   truncated         marks behind the end say nothing, and are written anew with the tokens
//   saved             the last kAnswersMax answers, and the tokens generated behind the last
//                     input. A restored session counts these
#pragma once

#include <bit>
#include <span>

#include "platform/base/assert.h"
#include "platform/base/types.h"

namespace tarn::step {

class GeneratedMarks {
 public:
  GeneratedMarks() = default;
  explicit GeneratedMarks(std::span<u64> words) : words_(words) {}
  static constexpr u64 n_words(u64 n_tokens) { return (n_tokens + kBits - 1) / kBits; }

  void set(u32 begin, u32 end, bool is_generated) {
    TARN_ASSERT(end <= words_.size() * kBits);
    for (u32 i = begin; i < end; ++i) {
      const u64 bit = u64{1} << i % kBits;
      words_[i / kBits] = is_generated ? words_[i / kBits] | bit : words_[i / kBits] & ~bit;
    }
  }
  void copy(const GeneratedMarks& from, u32 n_tokens) {
    for (u64 i = 0; i < n_words(n_tokens); ++i) words_[i] = from.words_[i];
  }
  bool at(u32 i) const { return (words_[i / kBits] >> i % kBits & 1) != 0; }

  // fn(i) for each of the first n_tokens that was generated, in order.
  template <class Fn>
  void for_each(u32 n_tokens, Fn&& fn) const {
    for (u32 begin = 0; begin < n_tokens && begin / kBits < words_.size(); begin += kBits) {
      u64 word = words_[begin / kBits];
      if (n_tokens - begin < kBits) word &= (u64{1} << (n_tokens - begin)) - 1;
      for (; word != 0; word &= word - 1) fn(begin + static_cast<u32>(std::countr_zero(word)));
    }
  }

  // fn(begin, end) for each run of generated tokens, in order.
  template <class Fn>
  void for_each_answer(u32 n_tokens, Fn&& fn) const {
    u32 begin = 0, end = 0;
    for_each(n_tokens, [&](u32 i) {
      if (i != end && begin < end) fn(begin, end);
      if (i != end) begin = i;
      end = i + 1;
    });
    if (begin < end) fn(begin, end);
  }

 private:
  static constexpr u32 kBits = 64;
  std::span<u64> words_{};
};

}  // namespace tarn::step
