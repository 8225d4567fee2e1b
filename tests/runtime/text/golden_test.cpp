// Goal    ids are llama.cpp's under every family's rules, on any machine, without llama.cpp.
// Method  four small trained vocabularies and llama.cpp's ids of some 300 requests under each, in
//         tests/golden/tokenizer; make_golden.py there writes them anew and says how they are
//         built.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "tests/runtime/text/test_vocab.h"
#include "tests/runtime/text/vocabs.h"
#include "tests/support/folders.h"

namespace tarn::text {
namespace {

std::vector<std::string> lines_of(const std::string& name) {
  std::ifstream in(test::source_folder() + "/tests/golden/tokenizer/" + name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  REQUIRE_FALSE(lines.empty());
  return lines;
}

std::string unescaped(const std::string& text) {
  std::string out;
  for (u64 at = 0; at < text.size(); ++at) {
    const bool escape = text[at] == '\\';
    out += escape ? static_cast<char>(std::stoi(text.substr(at + 2, 2), nullptr, 16)) : text[at];
    at += escape ? 3 : 0;
  }
  return out;
}

TokenKind kind_named(const std::string& name) {
  const TokenKind kind = name == "control"        ? TokenKind::control
                         : name == "user_defined" ? TokenKind::user_defined
                                                  : TokenKind::undefined;
  REQUIRE(kind != TokenKind::undefined);
  return kind;
}

// make_golden.py's build_vocab() once more.
TestVocab vocab_of(const std::string& family) {
  TestVocab vocab = TestVocab::begin(family == "llama" ? "" : family);
  u32 n_pieces = 0;
  for (const std::string& line : lines_of(family + ".vocab")) {
    std::istringstream fields(line);
    std::string what, first, second;
    fields >> what >> first >> second;
    if (what == "piece") {
      vocab.add(first, TokenKind::normal, -static_cast<f32>(n_pieces - n_pieces % 3));
      n_pieces += 1;
    } else if (what == "merge") {
      vocab.add_merge(first, second);
    } else {
      REQUIRE(what == "special");
      vocab.add(unescaped(second), kind_named(first));
    }
  }
  if (!vocab.spm()) {
    vocab.bos = vocab.find("<|begin|>");
    vocab.eos = vocab.find("<|endoftext|>");
  }
  vocab.adds_bos = true;
  vocab.adds_eos = true;
  return vocab;
}

TEST_CASE("ids of the golden requests") {
  const std::vector<std::string> requests = lines_of("texts.txt");
  CHECK(requests.size() >= 250);
  for (const std::string family : {"llama", "gpt-2", "llama-bpe", "qwen2"}) {
    CAPTURE(family);
    const VocabFile built(vocab_of(family).image());
    REQUIRE(hint_of(built.tokenizer) == "no error");
    const std::vector<std::string> answers = lines_of(family + ".ids");
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
}  // namespace tarn::text
