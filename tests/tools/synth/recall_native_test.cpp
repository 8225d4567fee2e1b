// Goal    the recall model recalls because its weights make it, at every length that it promises.
// Method  the conditions of its construction, checked on the file: distances of all identities,
//         layer 1's scores at every distance up to 128K; then whole documents through the f64
//         reference in each tensor type. Longer documents run on the engine.
#include "tools/synth/recall.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "tests/support/gguf_reader.h"
#include "tests/support/reference_model.h"
#include "tests/support/temp_file.h"
#include "tools/quantize/blocks.h"
#include "tools/synth/vocab.h"

namespace tarn::synth::recall_native_test {
namespace {

TEST_CASE("identities are far apart, but for decoys, which two of five tokens have") {
  std::vector<u64> identities;
  for (u32 token = 0; token < kRecallVocab; ++token) identities.push_back(recall_identity(token));
  u32 n_with_decoy = 0, n_too_near = 0;
  for (u32 a = 0; a < kRecallVocab; ++a) {
    u32 n_decoys = 0;
    for (u32 b = 0; b < kRecallVocab; ++b) {
      if (a == b) continue;
      const int flipped = std::popcount(identities[a] ^ identities[b]);
      n_decoys += flipped <= 3;                   // cosine >= 0.906
      n_too_near += flipped > 3 && flipped < 13;  // cosine > 0.6
    }
    CHECK(n_decoys <= 1);
    n_with_decoy += n_decoys;
  }
  CHECK(n_too_near == 0);
  CHECK(n_with_decoy >= kRecallVocab * 3 / 10);
}

// The score of layer 1 between a query and a key `distance` before it, from the file's weights.
class CopyScores {
 public:
  explicit CopyScores(const test::GgufReader& file) {
    const auto q = file.f32s("blk.0.attn_q.weight");
    const auto k = file.f32s("blk.0.attn_k.weight");
    const auto factors = file.f32s("rope_freqs.weight");
    const auto embedding = file.f32s("token_embd.weight");
    std::vector<f64> x(embedding.begin() + 256 * 300, embedding.begin() + 256 * 301);
    f64 squares = 0;
    for (const f64 value : x) squares += value * value;
    for (f64& value : x) value /= std::sqrt(squares / 256);
    const auto project = [&](const std::vector<f32>& weights, u32 row) {
      f64 sum = 0;
      for (u32 i = 0; i < 256; ++i) sum += f64{weights[row * 256 + i]} * x[i];
      return sum / std::sqrt(std::sqrt(128.0));
    };
    for (u32 pair = 0; pair < 64; ++pair) {
      const f64 base = std::pow(file.number("llama.rope.freq_base"), -2.0 * pair / 128);
      turn_.push_back(base / f64{factors[pair]});
      const f64 qa = project(q, 2 * pair), qb = project(q, 2 * pair + 1);
      const f64 ka = project(k, 2 * pair), kb = project(k, 2 * pair + 1);
      along_.push_back(qa * ka + qb * kb);
      across_.push_back(qa * kb - qb * ka);
    }
  }
  f64 at(u32 distance) const {
    f64 sum = 0;
    for (u32 pair = 0; pair < 64; ++pair) {
      const f64 angle = turn_[pair] * distance;
      sum += along_[pair] * std::cos(angle) + across_[pair] * std::sin(angle);
    }
    return sum;
  }

 private:
  std::vector<f64> turn_, along_, across_;
};

TEST_CASE("layer 1 looks at the previous token and at no other, up to 128K") {
  for (const RecallKeys keys : {RecallKeys::still, RecallKeys::turning}) {
    const test::TempFile path("recall.gguf");
    recall_write(*parse_quant("f16"), path.path(), keys);
    const test::GgufReader file(path.path());
    const CopyScores scores(file);
    const f64 peak = scores.at(1);
    CHECK(peak >= 32);
    f64 highest = scores.at(0), leak = std::exp(scores.at(0) - peak);
    for (u32 distance = 2; distance <= 131072; ++distance) {
      const f64 score = scores.at(distance);
      highest = std::max(highest, score);
      leak += std::exp(score - peak);
    }
    CHECK(highest < peak * 2 / 3);
    CHECK(leak < 1e-4);
    for (const f32 value : file.f32s("blk.0.ffn_down.weight")) REQUIRE(value == 0.0f);
  }
}

TEST_CASE("a document has the asked length, words that stand once, and text that says the same") {
  const auto vocabulary = make_vocabulary(VocabFamily::spm, kRecallVocab);
  std::map<std::string, u32> ids;
  for (u32 i = 0; i < kRecallVocab; ++i) ids.emplace(vocabulary.tokens[i], i);
  for (const u32 n_tokens : {64u, 100u, 1024u, 16384u}) {
    for (const u32 n_answer_words : {1u, 4u}) {
      CAPTURE(n_tokens);
      CAPTURE(n_answer_words);
      const auto document = recall_document(9, n_tokens, n_answer_words);
      CHECK(document.ids.size() == n_tokens - 1);
      CHECK(document.ids[0] == vocabulary.bos);
      CHECK(document.ids == recall_document(9, n_tokens, n_answer_words).ids);
      CHECK(document.ids != recall_document(10, n_tokens, n_answer_words).ids);

      std::vector<u32> of_text{vocabulary.bos};
      std::istringstream words(document.text);
      for (std::string word; words >> word;) of_text.push_back(ids.at("\xE2\x96\x81" + word));
      CHECK(of_text == document.ids);

      REQUIRE(document.questions.size() >= 2);
      std::set<u32> keys;
      for (const auto& question : document.questions) keys.insert(question.key_id);
      for (const auto& question : document.questions) {
        CHECK(std::ranges::count(document.ids, question.key_id) == 1);
        CHECK(document.ids[question.key_pos] == question.key_id);
        for (u32 i = 0; i < n_answer_words; ++i) {
          CHECK(document.ids[question.key_pos + 1 + i] == question.answer_ids[i]);
          CHECK(std::ranges::count(document.ids, question.answer_ids[i]) == 1);
        }
        const u64 identity = recall_identity(question.key_id);
        CHECK(std::ranges::count_if(keys, [&](u32 key) {
                return std::popcount(identity ^ recall_identity(key)) <= 3;
              }) == 2);  // itself and its decoy
      }
    }
  }
  CHECK_THROWS(recall_document(1, 63));
}

TEST_CASE("words take turns, each in its place, where keys turn") {
  for (const u32 n_tokens : {64u, 101u, 1022u, 4095u}) {
    CAPTURE(n_tokens);
    const auto document = recall_document(9, n_tokens, 3, RecallKeys::turning);
    CHECK(document.ids.size() == n_tokens - 1);
    for (u32 p = 0; p < document.ids.size(); ++p) REQUIRE(recall_turn(document.ids[p]) == p % 4);
    REQUIRE(document.questions.size() >= 2);
    for (const auto& question : document.questions) {
      CHECK(recall_turn(question.key_id) == (n_tokens - 1) % 4);  // it stands behind the document
      CHECK(document.ids[question.key_pos] == question.key_id);
      CHECK(std::ranges::count(document.ids, question.key_id) == 1);
      for (u32 i = 0; i < 3; ++i) {
        CHECK(document.ids[question.key_pos + 1 + i] == question.answer_ids[i]);
        CHECK(std::ranges::count(document.ids, question.answer_ids[i]) == 1);
      }
    }
  }
  CHECK_THROWS(recall_document(1, 100, 2, RecallKeys::turning));
}

// Whether the reference says the answers of every fifth question, by a margin of 5 each.
void check_answers(const test::ReferenceModel& model, const RecallDocument& document) {
  for (u64 i = 0; i < document.questions.size(); i += 5) {
    const auto& question = document.questions[i];
    CAPTURE(question.key);
    auto ids = document.ids;
    ids.push_back(question.key_id);
    for (const u32 expected : question.answer_ids) {
      auto logits = model.logits(ids, ids.size() - 1);
      REQUIRE(std::ranges::max_element(logits) - logits.begin() == expected);
      const f64 best = std::exchange(logits[expected], -1e9);
      CHECK(best - *std::ranges::max_element(logits) > 5);
      ids.push_back(expected);
    }
  }
}

TEST_CASE("the f64 reference finds every answer in every tensor type of even codes") {
  for (const auto& traits : kernels::kTypeTraits) {
    CAPTURE(traits.name);
    const test::TempFile path("recall.gguf");
    const auto write = [&] { recall_write(*parse_quant(traits.name), path.path()); };
    if (traits.block_elems > 1 && !tools::block_form(traits.type).levels.empty()) {
      CHECK_THROWS_AS(write(), std::invalid_argument);
      continue;
    }
    write();
    check_answers(test::ReferenceModel(path.path()), recall_document(3, 120, 2));
  }
  for (const char* quant : {"f32", "f16", "bf16"}) {
    CAPTURE(quant);
    const test::TempFile path("recall.gguf");
    recall_write(*parse_quant(quant), path.path(), RecallKeys::turning);
    check_answers(test::ReferenceModel(path.path()),
                  recall_document(3, 120, 3, RecallKeys::turning));
  }
}

TEST_CASE("a mix, another number of layers or of tokens is refused") {
  SynthOptions options;
  options.arch = "recall";
  options.quant = "q4_k_m";
  CHECK_THROWS_AS(synth_write(options), std::invalid_argument);
  options.quant = "f16";
  options.layers = 3;
  CHECK_THROWS_AS(synth_write(options), std::invalid_argument);
  const Vocabulary small = make_vocabulary(VocabFamily::spm, kRecallVocab / 2);
  CHECK_THROWS_AS(recall_write(*parse_quant("f16"), "none.gguf", RecallKeys::still, &small),
                  std::invalid_argument);
}

}  // namespace
}  // namespace tarn::synth::recall_native_test
