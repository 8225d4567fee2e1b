// A model whose weights are computed, not trained: two layers of the llama architecture that do
// exact associative recall at any length, `... a 7 ... b 3 ... a` -> `7` (the induction head of
// Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", written by hand).
//
//   residual  [identity 64 | previous token's identity 64 | answer 64 | ones 64], all entries +-1
//   identity  a codeword of 64 signs; of a second-order Reed-Muller code, so two tokens' cosine is
//             at most 0.5, but for decoys: every fifth token is the one before it with three signs
//             flipped, cosine 0.906, so 2 of 5 tokens have a near double
//   RoPE      rope_freqs.weight gives the first 32 pairs of a head the frequencies w_i in 0.3..3,
//             without a common measure, and stills the other 32 pairs
//   layer 1   constant query and key over the rotating pairs; the key is turned one step ahead, so
//             the score at distance n is 48/32 * sum cos(w_i (n - 1)): 48 at n = 1, at most 25 at
//             any other n up to 128K. It copies the previous token's identity.
//   layer 2   query: this token's identity, key: the previous token's, over the still pairs; score
//             128 * cosine, so a decoy weighs exp(-12). It copies the identity of the token there,
//             which is the one that followed, into `answer`.
//   output    logit = 64 * cosine of answer and identity: the answer leads a decoy by 6
//
// The feed-forward blocks exist, with ffn_down = 0, so that every engine loads the file.
//
// RecallKeys::turning is a variant that tests whether an index uses keys after RoPE. The model
// above searches in still pairs, where RoPE makes no difference. In this variant one pair turns by
// a quarter per token. Layer 2's keys have one of four directions there, given by the token's
// identity (recall_turn()); its query has a constant one. If the word at position p has turn p mod
// 4, RoPE turns all directions into one: all scores get the same amount and no weight changes.
// Before RoPE the directions differ: a quarter of all tokens score 160 more than the right one,
// whose direction is orthogonal to the query's. So codes of such keys lose it, at every position.
// Documents in any other order are not recalled.
#pragma once

#include <string>
#include <vector>

#include "tools/synth/synth.h"
#include "tools/synth/vocab.h"

namespace tarn::synth {

inline constexpr u32 kRecallVocab = 8192;
inline constexpr u32 kRecallContext = 262144;

enum class RecallKeys : u8 { still, turning };

// Any tensor type; each keeps the signs exactly. Turning keys: f32, f16 or bf16. `vocabulary` may
// name other words than recall_document()'s, equally many: an identity depends only on its token's
// id.
SynthReport recall_write(SynthQuant quant, const std::string& path,
                         RecallKeys keys = RecallKeys::still,
                         const Vocabulary* vocabulary = nullptr);

// The signs of a token's identity, bit set for -1.
u64 recall_identity(u32 token);
// The quarter turns that RoPE must add to its direction, 0 to 3.
u32 recall_turn(u32 token);

struct RecallQuestion {
  u32 key_id = 0;
  std::string key;  // without a space
  u64 key_pos = 0;  // the record's start in the document
  std::vector<u32> answer_ids;
  std::string answer;  // the words with a space between them
};

// Filler words with records among them: a key and the words of its answer, which appear nowhere
// else. Every record's key has a decoy with a record of its own.
//   prompt   ids, then a question's key_id; or text, a space, and the key
struct RecallDocument {
  std::vector<u32> ids;                   // BOS first
  std::string text;                       // encodes, with special tokens added, to `ids`
  std::vector<RecallQuestion> questions;  // in the order of their records
};

// A document that makes a prompt of exactly n_tokens (at least 64) with a question's key at its
// end. For turning keys all words are ordered by turn, also those of question and answer; then an
// answer has 3, 7, 11 or 15 words.
RecallDocument recall_document(u64 seed, u32 n_tokens, u32 n_answer_words = 1,
                               RecallKeys keys = RecallKeys::still);

}  // namespace tarn::synth
