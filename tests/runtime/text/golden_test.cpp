// Goal    ids are llama.cpp's under every family's rules, on any machine, without llama.cpp.
// Method  four small trained vocabularies and llama.cpp's ids of some 300 requests under each, in
//         tests/golden/tokenizer; make_golden.py there writes them anew and says how they are
//         built.
#include <doctest/doctest.h>

#include "tests/runtime/text/golden_vocab.h"
#include "tests/runtime/text/vocabs.h"

namespace tarn::text::golden_test {
namespace {

TEST_CASE("ids of the golden requests") {
  const std::vector<std::string> requests = golden_lines("texts.txt");
  CHECK(requests.size() >= 250);
  for (const std::string family : {"llama", "gpt-2", "llama-bpe", "qwen2"}) {
    CAPTURE(family);
    const VocabFile built(golden_vocab(family).image());
    REQUIRE(hint_of(built.tokenizer) == "no error");
    const std::vector<std::string> answers = golden_lines(family + ".ids");
    REQUIRE(answers.size() == requests.size());
    for (u64 i = 0; i < requests.size(); ++i) {
      CAPTURE(requests[i]);
      const int flags = requests[i][0] - '0';
      const auto ids = encode(*built.tokenizer, unescaped(requests[i].substr(2)),
                              {.add_special = (flags & 1) != 0, .parse_special = (flags & 2) != 0});
      REQUIRE(hint_of(ids) == "no error");
      std::string got;
      for (const TokenId id : *ids) got += (got.empty() ? "" : " ") + std::to_string(id);
      CHECK(got == answers[i]);
    }
  }
}

}  // namespace
}  // namespace tarn::text::golden_test
