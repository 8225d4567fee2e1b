// The small trained vocabularies of tests/golden/tokenizer.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/runtime/text/test_vocab.h"
#include "tests/support/folders.h"

namespace tarn::text {

inline std::vector<std::string> golden_lines(const std::string& name) {
  std::ifstream in(test::source_folder() + "/tests/golden/tokenizer/" + name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  REQUIRE_FALSE(lines.empty());
  return lines;
}

inline std::string unescaped(const std::string& text) {
  std::string out;
  for (u64 at = 0; at < text.size(); ++at) {
    const bool escape = text[at] == '\\';
    out += escape ? static_cast<char>(std::stoi(text.substr(at + 2, 2), nullptr, 16)) : text[at];
    at += escape ? 3 : 0;
  }
  return out;
}

inline TokenKind kind_named(const std::string& name) {
  const TokenKind kind = name == "control"        ? TokenKind::control
                         : name == "user_defined" ? TokenKind::user_defined
                                                  : TokenKind::undefined;
  REQUIRE(kind != TokenKind::undefined);
  return kind;
}

// make_golden.py's build_vocab() once more.
inline TestVocab golden_vocab(const std::string& family) {
  TestVocab vocab = TestVocab::begin(family == "llama" ? "" : family);
  u32 n_pieces = 0;
  for (const std::string& line : golden_lines(family + ".vocab")) {
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

}  // namespace tarn::text
