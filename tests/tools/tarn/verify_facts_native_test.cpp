// Goal    `tarn verify` counts the planted facts that a selection finds, and a preset that finds
//         fewer than full attention fails by that alone: it is close in KL and best tokens, its
//         record is not written, and without facts it would have passed.
// Method  the recall model with a vocabulary in which a planted question ends in a token of its own
//         and a code is two, so that full attention says each. The text ends in a cycle of eight
//         words: what follows is known from the last few tokens, and the facts stand before them.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <array>
#include <string>
#include <vector>

#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"
#include "tools/synth/recall.h"

namespace tarn::verify_facts_native_test {
namespace {

const std::string kOldRecord = "# an old one\n";
constexpr u32 kNeedles = 4;
constexpr std::array<const char*, kNeedles> kPlaces = {"archive", "bakery", "cellar", "dairy"};

class Facts {
 public:
  Facts() {
    synth::Vocabulary vocabulary =
        synth::make_vocabulary(synth::VocabFamily::spm, synth::kRecallVocab);
    write_text(vocabulary);
    u32 id = kNamedBegin;
    const auto name = [&](const std::string& text) {
      constexpr i32 kUserDefined = 4;  // GGUF's number: found in any text, before merges
      vocabulary.tokens[id] = text;
      vocabulary.kinds[id++] = kUserDefined;
    };
    for (const char* place : kPlaces) name(std::string(place) + " is");
    for (u32 i = 0; i < 1000; ++i) {
      const std::string digits = std::to_string(1000 + i).substr(1);
      name(" " + digits);
      name(digits);
    }
    synth::recall_write({.type = kernels::TensorType::f16}, model_.path(), synth::RecallKeys::still,
                        &vocabulary);
    // Codes of 4 parts, as in recall_select.h: half of this model's key says nothing.
    const std::string toml = "[select]\nsink_tokens = 4\nlocal_tokens = 32\nsubspaces = 4\n";
    tools::write_file(config_.path(), toml.data(), toml.size());
    tools::write_file(record_.path(), kOldRecord.data(), kOldRecord.size());
  }

  test::Ended verify(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"verify",       "-m",       model_.path(),  "--text",
                                          text_.path(),   "--config", config_.path(), "--record",
                                          record_.path(), "--steps",  "24",           "-c",
                                          "2000",         "--lock",   "off"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::run_tarn(arguments);
  }
  std::string record() const { return tools::read_file(record_.path()); }
  bool has_old_record() const { return record() == kOldRecord; }
  std::string record_path() const { return record_.path(); }

 private:
  static constexpr u32 kWordsBegin = 2000, kNamedBegin = 6000;  // ids; all are words at first

  // 1,600 words that stand once, then the cycle.
  void write_text(const synth::Vocabulary& vocabulary) const {
    constexpr u32 kOnce = 1600, kCycle = 8, kAll = 2100, kSpaceBytes = 3;
    static_assert(kWordsBegin + (kOnce + kCycle) / 3 * 5 + 5 <= kNamedBegin);
    std::string text;
    for (u32 i = 0; i < kAll; ++i) {
      const u32 word = i < kOnce ? i : kOnce + i % kCycle;
      const u32 id = kWordsBegin + word / 3 * 5 + word % 3;  // those without a decoy
      text += (i == 0 ? "" : " ") + vocabulary.tokens[id].substr(kSpaceBytes);
    }
    tools::write_file(text_.path(), text.data(), text.size());
  }

  test::TempFile model_{"facts.gguf"}, text_{"facts.txt"};
  test::TempFile config_{"facts.toml"}, record_{"facts_record.toml"};
};

const rapidjson::Value& member(const rapidjson::Value& of, const char* name) {
  const auto it = of.FindMember(name);
  REQUIRE(it != of.MemberEnd());
  return it->value;
}

std::string text_of(const rapidjson::Value& of, const char* name) {
  return member(of, name).GetString();
}

TEST_CASE("what finds as many facts as full attention passes, what finds fewer fails") {
  const Facts facts;
  const test::Ended ended =
      facts.verify({"--needles", "4", "--presets", "window,pq", "--budgets", "16,400", "--json"});
  CAPTURE(ended.out);
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  rapidjson::Document json;
  json.Parse(ended.out.c_str());
  REQUIRE(json.IsObject());
  CHECK(member(json, "needles").GetUint() == kNeedles);
  struct Case {
    const char* name;
    u32 n_right;
    const char* verdict;
  };
  // A window of 4 + 32 + 400 tokens holds the last fact, and not the one before it.
  const Case kCases[] = {{"full", kNeedles, "exact"},
                         {"window 16", 0, "failed"},
                         {"window 400", 1, "failed"},
                         {"pq 16", kNeedles, "passed"},
                         {"pq 400", kNeedles, "passed"}};
  const auto& trials = member(json, "trials");
  REQUIRE(trials.Size() == std::size(kCases));
  for (u32 i = 0; i < trials.Size(); ++i) {
    const Case& c = kCases[i];
    CAPTURE(c.name);
    CHECK(text_of(trials[i], "name") == std::string(c.name));
    CHECK(member(trials[i], "needles_right").GetUint() == c.n_right);
    CHECK(text_of(trials[i], "verdict") == std::string(c.verdict));
    CHECK(member(trials[i], "kl_mean").GetDouble() <= member(json, "kl_max").GetDouble());
    CHECK(member(trials[i], "top1_agreement").GetDouble() >= member(json, "top1_min").GetDouble());
    CHECK((member(trials[i], "steps_selected").GetUint() > 0) == (i > 0));
  }
  // Of what passed it reads least; a window of 16 reads as little.
  const std::string record = facts.record();
  CAPTURE(record);
  CHECK(record.find("pq 16, over 2000 tokens") != std::string::npos);
  CHECK(record.find("4 of 4 facts") != std::string::npos);
}

TEST_CASE("where facts alone fail there is no record, and without them there is one") {
  const Facts facts;
  const std::vector<std::string> few = {"--presets", "window,random", "--budgets", "16"};
  std::vector<std::string> with_facts = few, without = few;
  with_facts.insert(with_facts.end(), {"--needles", "4"});
  without.insert(without.end(), {"--needles", "0"});
  {
    const test::Ended ended = facts.verify(with_facts);
    CAPTURE(ended.out);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 78);
    CHECK(ended.out.find(" 4/4 ") != std::string::npos);  // full attention
    CHECK(ended.out.find(" 0/4 ") != std::string::npos);
    CHECK(ended.out.find("failed") != std::string::npos);
    CHECK(ended.out.find("passed") == std::string::npos);
    CHECK(ended.err.find("no preset passed") != std::string::npos);
    CHECK(ended.err.find(facts.record_path() + " is not written") != std::string::npos);
    CHECK(facts.has_old_record());
  }
  const test::Ended ended = facts.verify(without);
  CAPTURE(ended.out);
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.out.find("failed") == std::string::npos);
  CHECK(facts.record().find("window 16, over 2000 tokens") != std::string::npos);
}

}  // namespace
}  // namespace tarn::verify_facts_native_test
