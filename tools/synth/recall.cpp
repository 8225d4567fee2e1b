#include "tools/synth/recall.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "tools/support/gguf_write.h"
#include "tools/synth/quantize.h"
#include "tools/synth/random_blocks.h"
#include "tools/synth/vocab.h"

namespace tarn::synth {
namespace {

using kernels::TensorType;
using tools::GgufSlab;
using tools::GgufWriter;

constexpr u32 kModel = 256;  // d_model
constexpr u32 kFeedForward = 256;
constexpr u32 kHeads = 2;  // both compute the same, each for half of the output
constexpr u32 kHeadDim = 128;
constexpr u32 kIdentity = 64;  // signs
constexpr u32 kRotating = 32;  // rotating pairs of a head; the others are still
constexpr f64 kRopeBase = 10000;
constexpr f32 kStill = 1e12f;         // a pair's factor: 1e-8 radians after 128K tokens
constexpr f64 kCopyScore = 48;        // layer 1's peak logit
constexpr f64 kMatchScore = 128;      // layer 2's
constexpr f64 kTurnScore = 160;       // for a key in the query's direction
constexpr u32 kTurnPair = 15;         // its frequency is near a quarter turn per token
constexpr u32 kTurnSigns[] = {2, 4};  // the two signs of an identity that give a direction

// The begin of each part of the residual.
constexpr u32 kThis = 0, kPrevious = 64, kAnswer = 128, kOnes = 192;

// Frequencies spread over 0.3..3, one in each 32nd of it, placed there by the fractional part of
// the square root of a prime: no two have a common measure. The mean of their cosines stays below
// 0.53 at every distance up to 128K but the one that layer 1 looks for.
std::array<f64, kRotating> frequencies(RecallKeys keys) {
  constexpr std::array<u32, kRotating> kPrimes = {2,  3,  5,  7,   11,  13,  17,  19,  23,  29, 31,
                                                  37, 41, 43, 47,  53,  59,  61,  67,  71,  73, 79,
                                                  83, 89, 97, 101, 103, 107, 109, 113, 127, 131};
  std::array<f64, kRotating> out{};
  for (u32 i = 0; i < kRotating; ++i) {
    const f64 root = std::sqrt(kPrimes[i]);
    out[i] = 0.3 + 2.7 * (i + root - std::floor(root)) / kRotating;
  }
  if (keys == RecallKeys::turning) out[kTurnPair] = std::acos(0.0);
  return out;
}

struct Matrix {
  u32 k;
  std::vector<f32> values;
  Matrix(u32 k_, u32 n_rows) : k(k_), values(u64{k_} * n_rows) {}
  f32& at(u32 row, u32 column) { return values[u64{row} * k + column]; }
};

// RMSNorm's result for an entry of 1, if n_entries of the residual are +-1 and the rest 0.
f64 normed(u32 n_entries) { return std::sqrt(f64{kModel} / n_entries); }

// A file of tensors held in memory, each quantised as asked.
class RecallFile {
 public:
  explicit RecallFile(TensorType type) : type_(type) {}

  void add(const std::string& name, const Matrix& matrix) {
    const u64 n_rows = matrix.values.size() / matrix.k;
    writer.add_tensor(name, type_, {matrix.k, n_rows});
    data_.push_back(quantize(type_, matrix.values));
  }
  void add(const std::string& name, const std::vector<f32>& vector) {
    writer.add_tensor(name, TensorType::f32, {vector.size()});
    data_.push_back(quantize(TensorType::f32, vector));
  }
  u64 write(const std::string& path) const {
    const auto fill = [&](const GgufSlab& slab) {
      const auto& bytes = data_[slab.tensor_idx];
      std::memcpy(slab.out.data(), bytes.data() + slab.first_byte, slab.out.size());
    };
    return writer.write(path, 1, fill, {});
  }

  GgufWriter writer;

 private:
  TensorType type_;
  std::vector<std::vector<u8>> data_;
};

void set_keys(GgufWriter& writer) {
  writer.set_string("general.architecture", "llama");
  writer.set_string("general.type", "model");
  writer.set_string("general.name", "recall, computed");
  writer.set_u32("llama.block_count", 2);
  writer.set_u32("llama.context_length", kRecallContext);
  writer.set_u32("llama.embedding_length", kModel);
  writer.set_u32("llama.feed_forward_length", kFeedForward);
  writer.set_u32("llama.attention.head_count", kHeads);
  writer.set_u32("llama.attention.head_count_kv", 1);
  writer.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.set_u32("llama.rope.dimension_count", kHeadDim);
  writer.set_f32("llama.rope.freq_base", static_cast<f32>(kRopeBase));
  writer.set_u32("llama.vocab_size", kRecallVocab);
}

struct Attention {
  Matrix q{kModel, kHeads* kHeadDim};
  Matrix k{kModel, kHeadDim};
  Matrix v{kModel, kHeadDim};
  Matrix output{kHeads * kHeadDim, kModel};

  // Values are the token's identity; the heads' mean goes to `target`. `unit` is a normed entry.
  void copy_identity(u32 target, f64 unit) {
    for (u32 d = 0; d < kIdentity; ++d) {
      v.at(d, kThis + d) = static_cast<f32>(1 / unit);
      for (u32 head = 0; head < kHeads; ++head) {
        output.at(target + d, head * kHeadDim + d) = 1.0f / kHeads;
      }
    }
  }
};

// Layer 1: its input residual has this token's identity and the ones.
Attention previous_token_layer(RecallKeys keys) {
  Attention out;
  const f64 unit = normed(2 * kIdentity);
  const f64 entry = std::sqrt(kCopyScore * std::sqrt(f64{kHeadDim}) / kRotating);
  const f64 weight = entry / (kIdentity * unit);  // reads all of the ones
  const auto turns = frequencies(keys);
  for (u32 column = kOnes; column < kModel; ++column) {
    for (u32 pair = 0; pair < kRotating; ++pair) {
      for (u32 head = 0; head < kHeads; ++head) {
        out.q.at(head * kHeadDim + 2 * pair, column) = static_cast<f32>(weight);
      }
      out.k.at(2 * pair, column) = static_cast<f32>(weight * std::cos(turns[pair]));
      out.k.at(2 * pair + 1, column) = static_cast<f32>(weight * std::sin(turns[pair]));
    }
  }
  out.copy_identity(kPrevious, unit);
  return out;
}

// Layer 2: the residual now holds the previous token's identity too.
Attention match_layer(RecallKeys keys) {
  Attention out;
  const f64 unit = normed(3 * kIdentity);
  const f64 entry = std::sqrt(kMatchScore * std::sqrt(f64{kHeadDim}) / kIdentity);
  const auto weight = static_cast<f32>(entry / unit);
  for (u32 d = 0; d < kIdentity; ++d) {
    const u32 still = 2 * kRotating + d;
    for (u32 head = 0; head < kHeads; ++head) out.q.at(head * kHeadDim + still, kThis + d) = weight;
    out.k.at(still, kPrevious + d) = weight;
  }
  const f64 turned = std::sqrt(kTurnScore * std::sqrt(f64{kHeadDim}) / 2) / unit;
  for (u32 i = 0; keys == RecallKeys::turning && i < 2; ++i) {
    const u32 row = 2 * kTurnPair + i;
    out.k.at(row, kThis + kTurnSigns[i]) = static_cast<f32>(turned);
    for (u32 column = kOnes; column < kModel; ++column) {
      for (u32 head = 0; head < kHeads; ++head) {
        out.q.at(head * kHeadDim + row, column) = static_cast<f32>(turned / kIdentity);
      }
    }
  }
  out.copy_identity(kAnswer, unit);
  return out;
}

void add_layer(RecallFile& file, u32 idx, const Attention& attention) {
  const std::string prefix = "blk." + std::to_string(idx) + ".";
  const std::vector<f32> ones(kModel, 1.0f);
  file.add(prefix + "attn_norm.weight", ones);
  file.add(prefix + "attn_q.weight", attention.q);
  file.add(prefix + "attn_k.weight", attention.k);
  file.add(prefix + "attn_v.weight", attention.v);
  file.add(prefix + "attn_output.weight", attention.output);
  file.add(prefix + "ffn_norm.weight", ones);
  file.add(prefix + "ffn_gate.weight", Matrix(kModel, kFeedForward));
  file.add(prefix + "ffn_up.weight", Matrix(kModel, kFeedForward));
  file.add(prefix + "ffn_down.weight", Matrix(kFeedForward, kModel));
}

std::vector<f32> rope_factors(RecallKeys keys) {
  std::vector<f32> out;
  const auto turns = frequencies(keys);
  for (u32 i = 0; i < kRotating; ++i) {
    out.push_back(static_cast<f32>(std::pow(kRopeBase, -2.0 * i / kHeadDim) / turns[i]));
  }
  out.resize(kHeadDim / 2, kStill);
  return out;
}

// The rows of the embedding and of the output: a token's signs, in its part of the residual.
Matrix identities(u32 part, f32 ones) {
  Matrix out(kModel, kRecallVocab);
  for (u32 token = 0; token < kRecallVocab; ++token) {
    const u64 negative = recall_identity(token);
    for (u32 d = 0; d < kIdentity; ++d) {
      out.at(token, part + d) = (negative >> d & 1) != 0 ? -1.0f : 1.0f;
      out.at(token, kOnes + d) = ones;
    }
  }
  return out;
}

// A whole word with its space, in SentencePiece's spelling: a document has no other tokens.
bool is_word(const std::string& token) {
  constexpr u64 kSpaceBytes = 3;
  return token.size() == kSpaceBytes + 4 && token.starts_with("\xE2\x96\x81") &&
         std::all_of(token.begin() + kSpaceBytes, token.end(),
                     [](char c) { return c >= 'a' && c <= 'z'; });
}

u32 double_of(u32 token) { return token % 5 == 4 ? token - 1 : token + 1; }

struct Words {
  std::vector<u32> pairs;   // the first of two words that are decoys of each other
  std::vector<u32> others;  // words without a decoy
};

Words words_of(const Vocabulary& vocabulary) {
  Words out;
  for (u32 id = 0; id + 1 < vocabulary.tokens.size(); ++id) {
    if (!is_word(vocabulary.tokens[id])) continue;
    if (id % 5 < 3) out.others.push_back(id);
    if (id % 5 == 3 && is_word(vocabulary.tokens[id + 1])) out.pairs.push_back(id);
  }
  return out;
}

void shuffle(std::vector<u32>& ids, FastRandom& random) {
  for (u64 i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random.next() % i]);
}

}  // namespace

u64 recall_identity(u32 token) {
  const u32 base = token % 5 == 4 ? token - 1 : token;
  // Reed-Muller RM(2,6), minimum distance 16: entry d is a quadratic polynomial in the six bits of
  // d; the token's 13 bits choose its coefficients, of the six linear terms and of seven products.
  constexpr u32 kProducts[7][2] = {{0, 1}, {2, 3}, {4, 5}, {1, 2}, {3, 4}, {5, 0}, {0, 3}};
  u64 word = 0;
  for (u32 d = 0; d < kIdentity; ++d) {
    u32 value = 0;
    for (u32 i = 0; i < 6; ++i) value ^= base >> i & d >> i & 1;
    for (u32 i = 0; i < 7; ++i) {
      value ^= base >> (6 + i) & d >> kProducts[i][0] & d >> kProducts[i][1] & 1;
    }
    word |= u64{value} << d;
  }
  return base == token ? word : word ^ 0x0000'0100'0040'0002u;
}

u32 recall_turn(u32 token) {
  const u64 negative = recall_identity(token);
  const bool x = (negative >> kTurnSigns[0] & 1) != 0, y = (negative >> kTurnSigns[1] & 1) != 0;
  return x ? (y ? 2 : 3) : (y ? 1 : 0);
}

SynthReport recall_write(SynthQuant quant, const std::string& path, RecallKeys keys,
                         const Vocabulary* vocabulary) {
  if (quant.mix != SynthQuant::Mix::none) {
    throw std::invalid_argument("the recall model has one tensor type, not a mix");
  }
  if (vocabulary != nullptr && vocabulary->tokens.size() != kRecallVocab) {
    throw std::invalid_argument("the recall model has an identity for each of its tokens, no more");
  }
  RecallFile file(quant.type);
  set_keys(file.writer);
  set_vocabulary(file.writer, vocabulary != nullptr
                                  ? *vocabulary
                                  : make_vocabulary(VocabFamily::spm, kRecallVocab));
  file.add("rope_freqs.weight", rope_factors(keys));
  file.add("token_embd.weight", identities(kThis, 1));
  add_layer(file, 0, previous_token_layer(keys));
  add_layer(file, 1, match_layer(keys));
  file.add("output_norm.weight", std::vector<f32>(kModel, 1.0f));
  file.add("output.weight", identities(kAnswer, 0));
  return {.file_bytes = file.write(path), .entropy_nats = 0, .ln_vocab = std::log(kRecallVocab)};
}

RecallDocument recall_document(u64 seed, u32 n_tokens, u32 n_answer_words, RecallKeys order) {
  const u32 n_record = 1 + n_answer_words;
  if (n_tokens < 64 || n_answer_words == 0 || n_answer_words > 16) {
    throw std::invalid_argument("a recall document has 64 tokens or more, answers 1 to 16 words");
  }
  // For turning keys, words are grouped by turn, and records are whole rounds.
  const u32 n_turns = order == RecallKeys::turning ? 4 : 1;
  if (n_record % n_turns != 0) {
    throw std::invalid_argument("where words take turns an answer has 3, 7, 11 or 15 words");
  }
  const auto turn_of = [&](u32 id) { return recall_turn(id) % n_turns; };
  const Vocabulary vocabulary = make_vocabulary(VocabFamily::spm, kRecallVocab);
  Words words = words_of(vocabulary);
  FastRandom random(seed, n_tokens, n_answer_words);
  shuffle(words.pairs, random);
  shuffle(words.others, random);
  const u32 key_turn = (n_tokens - 1) % n_turns;
  std::erase_if(words.pairs, [&](u32 id) { return turn_of(id) != key_turn; });
  std::array<std::vector<u32>, 4> others;  // of each turn: answers, then fillers
  for (const u32 id : words.others) others[turn_of(id)].push_back(id);

  // Records come in pairs, a key and its decoy; they take at most half of the document.
  const u64 n_pairs = std::min<u64>(32, (n_tokens - 2) / 2 / (2 * n_record));
  std::vector<u32> keys;
  for (u64 i = 0; i < n_pairs; ++i) {
    keys.push_back(words.pairs.at(i));
    keys.push_back(double_of(words.pairs[i]));
  }
  shuffle(keys, random);
  std::array<u64, 4> n_answers{};  // by turn: all, then those in the document
  for (u32 i = 0; i < n_answer_words; ++i) n_answers[(key_turn + 1 + i) % n_turns] += keys.size();
  std::array<std::span<const u32>, 4> fillers;
  for (u32 turn = 0; turn < n_turns; ++turn) {
    fillers[turn] = std::span(others[turn]).subspan(n_answers[turn]);
  }
  n_answers = {};

  const auto word = [&](u32 id) { return vocabulary.tokens[id].substr(3); };
  RecallDocument out;
  out.ids.push_back(vocabulary.bos);
  const auto put = [&](u32 id) {
    if (out.ids.size() > 1) out.text += ' ';
    out.text += word(id);
    out.ids.push_back(id);
  };
  const u64 n_fillers = n_tokens - 2 - keys.size() * n_record;
  u64 n_put = 0;
  const auto put_filler = [&] {
    const auto& from = fillers[out.ids.size() % n_turns];
    put(from[random.next() % from.size()]);
    ++n_put;
  };
  const u64 n_strewn = n_fillers - (n_turns - 1);  // the rest aligns keys to their turns
  for (u64 r = 0; r < keys.size(); ++r) {
    // Record r gets a random place in its share of the fillers.
    const u64 low = r * n_strewn / keys.size(), high = (r + 1) * n_strewn / keys.size();
    const u64 until = low + random.next() % (high - low + 1);
    while (n_put < until || out.ids.size() % n_turns != key_turn) put_filler();
    RecallQuestion question{.key_id = keys[r],
                            .key = word(keys[r]),
                            .key_pos = out.ids.size(),
                            .answer_ids = {},
                            .answer = {}};
    put(keys[r]);
    for (u32 i = 0; i < n_answer_words; ++i) {
      const u64 turn = out.ids.size() % n_turns;
      const u32 id = others[turn][n_answers[turn]++];
      question.answer_ids.push_back(id);
      question.answer += (i == 0 ? "" : " ") + word(id);
      put(id);
    }
    out.questions.push_back(std::move(question));
  }
  while (n_put < n_fillers) put_filler();
  return out;
}

}  // namespace tarn::synth
