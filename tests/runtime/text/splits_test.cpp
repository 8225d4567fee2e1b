// Goal    each pre-tokenizer cuts where llama.cpp does, on any machine, without llama.cpp.
// Method  tests/golden/tokenizer/splits.txt: adversarial texts and the lengths of llama.cpp's
//         pieces under one name of each row; make_splits.py there writes it anew.
#include <doctest/doctest.h>

#include <set>
#include <sstream>

#include "runtime/text/splitter.h"
#include "tests/runtime/text/golden_vocab.h"

namespace tarn::text::splits_test {
namespace {

// In bytes of the text after lenient decoding, with dots between.
std::string lengths(PreTokenizer pre, const std::string& text) {
  std::string out;
  Splitter splitter(pre, text);
  for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
    u64 n_bytes = 0;
    for (u64 at = 0; at < piece.size();) {
      const CodePoint point = decode_lenient(piece, at);
      n_bytes += utf8_of(point.value).size();
      at += point.n_bytes;
    }
    out += (out.empty() ? "" : ".") + std::to_string(n_bytes);
  }
  return out;
}

TEST_CASE("the golden pieces") {
  std::vector<std::string> texts;
  std::set<PreTokenizer> seen{PreTokenizer::none, PreTokenizer::gemma4};
  for (const std::string& line : golden_lines("splits.txt")) {
    if (line.starts_with("text ")) {
      texts.push_back(unescaped(line.substr(5)));
      continue;
    }
    std::istringstream fields(line);
    std::string name, want;
    fields >> name;
    CAPTURE(name);
    const PreTokenizerRules* rules = find_pre_tokenizer(name);
    REQUIRE(rules != nullptr);
    seen.insert(rules->splitter);
    for (const std::string& text : texts) {
      CAPTURE(text);
      fields >> want;
      CHECK(lengths(rules->splitter, text) == want);
    }
    const bool has_more = static_cast<bool>(fields >> want);
    CHECK_FALSE(has_more);
  }
  CHECK(texts.size() >= 70);
  CHECK(seen.size() == static_cast<u64>(PreTokenizer::count));
}

}  // namespace
}  // namespace tarn::text::splits_test
