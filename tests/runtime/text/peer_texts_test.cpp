// Goal    every text that llama.cpp tests its tokenizers with has llama.cpp's ids.
// Method  its vocabularies with texts and ids (vocab_folder.h); skipped without them. Those of
//         encoder models (bert) are refused by name.
#include <doctest/doctest.h>

#include <sstream>

#include "tests/runtime/text/vocab_folder.h"
#include "tests/runtime/text/vocabs.h"
#include "tests/support/skip.h"

namespace tarn::text::peer_texts_test {
namespace {

std::vector<std::string> parts_of(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  u64 at = 0;
  for (u64 end = text.find(separator); end != std::string::npos; end = text.find(separator, at)) {
    parts.push_back(text.substr(at, end - at));
    at = end + separator.size();
  }
  if (at < text.size()) parts.push_back(text.substr(at));
  return parts;
}

Ids ids_in(const std::string& line) {
  std::istringstream in(line);
  Ids ids;
  for (TokenId id = 0; in >> id;) ids.push_back(id);
  return ids;
}

TEST_CASE("the ids of llama.cpp's own texts") {
  const auto texts = files_in(vocab_folder(), ".inp");
  if (texts.empty())
    TARN_SKIP("no vocabularies of llama.cpp: run tools/compare-peers, or set TARN_VOCAB_DIR");
  u32 n_vocabs = 0;
  for (const std::filesystem::path& path : texts) {
    const std::filesystem::path vocab = path.parent_path() / path.stem();
    CAPTURE(vocab.filename().string());
    const VocabFile built(file_bytes(vocab));
    if (!built.tokenizer) {
      const std::string kind = built.tokenizer.error().detail.c_str();
      CHECK(kind == "bert");
      continue;
    }
    n_vocabs += 1;
    const auto inputs = parts_of(file_text(path), "\n__ggml_vocab_test__\n");
    const auto answers = parts_of(file_text(vocab.string() + ".out"), "\n");
    REQUIRE(inputs.size() == answers.size());
    for (u64 i = 0; i < inputs.size(); ++i) {
      CAPTURE(inputs[i]);
      const auto ids = encode(*built.tokenizer, inputs[i]);
      REQUIRE(hint_of(ids) == "no error");
      CHECK(*ids == ids_in(answers[i]));
      CHECK(shown(*built.tokenizer, *ids) == inputs[i]);
    }
    MESSAGE(vocab.filename().string() << ": " << inputs.size() << " texts");
  }
  CHECK(n_vocabs >= 14);
}

}  // namespace
}  // namespace tarn::text::peer_texts_test
