// A small vocabulary that tests put together, as a GGUF image for the tokenizer and as a slow
// tokenizer of its own: every rule once more, written as plainly as it can be said, in quadratic
// time and as much memory as it likes.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/known_names.h"
#include "runtime/text/splitter.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/unicode.h"
#include "tests/support/gguf_writer.h"

namespace tarn::text {

inline std::string utf8_of(u32 code_point) {
  char bytes[4];
  return {bytes, encode_utf8(code_point, bytes)};
}

inline std::string byte_char(u8 byte) { return utf8_of(kCharOfByte[byte]); }

struct TestVocab {
  std::string pre{};  // empty: SPM; "gemma4": BPE of characters
  std::vector<std::string> texts{}, merges{};
  std::vector<i32> kinds{};
  std::vector<f32> scores{};
  std::optional<u32> bos{}, eos{};
  bool adds_bos = false, adds_eos = false, adds_space_prefix = true;

  bool spm() const { return pre.empty(); }
  bool gemma4() const { return pre == "gemma4"; }

  u32 add(const std::string& text, TokenKind kind = TokenKind::normal, f32 score = 0.0f) {
    texts.push_back(text);
    kinds.push_back(static_cast<i32>(kind));
    scores.push_back(score);
    return static_cast<u32>(texts.size() - 1);
  }
  std::optional<u32> find(const std::string& text) const {
    const auto at = std::find(texts.begin(), texts.end(), text);
    if (at == texts.end()) return std::nullopt;
    return static_cast<u32>(at - texts.begin());
  }
  // "left right", and its result if that is new.
  void add_merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    if (!find(left + right)) add(left + right);
  }

  // <unk>, <s>, </s> and the bytes, as SentencePiece begins; the 256 characters of bytes; or the
  // bytes and some characters.
  static TestVocab begin(const std::string& pre) {
    TestVocab vocab;
    vocab.pre = pre;
    if (!vocab.spm() && !vocab.gemma4()) {
      for (u32 byte = 0; byte < 256; ++byte) vocab.add(byte_char(static_cast<u8>(byte)));
      return vocab;
    }
    if (vocab.spm()) {
      vocab.add("<unk>", TokenKind::unknown);
      vocab.bos = vocab.add("<s>", TokenKind::control);
      vocab.eos = vocab.add("</s>", TokenKind::control);
    }
    for (u32 byte = 0; byte < 256; ++byte) {
      char text[8];
      std::snprintf(text, sizeof text, "<0x%02X>", byte);
      vocab.add(text, TokenKind::byte);
    }
    if (!vocab.gemma4()) return vocab;
    for (const char* text : {"a", "b", "c", "\u2581", "\u00e9", "\n", "\n\n", "1"}) vocab.add(text);
    vocab.bos = vocab.add("<s>", TokenKind::control);
    vocab.adds_bos = true;  // whatever the file says
    return vocab;
  }

  test::GgufImage image() const {
    test::GgufImage image;
    image.set_string("tokenizer.ggml.model", spm() ? "llama" : gemma4() ? pre : "gpt2");
    image.set_strings("tokenizer.ggml.tokens", texts);
    image.set_i32s("tokenizer.ggml.token_type", kinds);
    image.set_bool("tokenizer.ggml.add_bos_token", adds_bos);
    image.set_bool("tokenizer.ggml.add_eos_token", adds_eos);
    if (bos) image.set_u32("tokenizer.ggml.bos_token_id", *bos);
    if (eos) image.set_u32("tokenizer.ggml.eos_token_id", *eos);
    if (spm()) {
      image.set_f32s("tokenizer.ggml.scores", scores);
      image.set_bool("tokenizer.ggml.add_space_prefix", adds_space_prefix);
    } else {
      image.set_string("tokenizer.ggml.pre", pre);
      image.set_strings("tokenizer.ggml.merges", merges);
    }
    return image;
  }
};

// For vocabularies whose every byte has a token.
class SlowTokenizer {
 public:
  explicit SlowTokenizer(const TestVocab& vocab) : vocab_(vocab) {
    for (u32 id = 0; id < vocab.texts.size(); ++id) ids_[vocab.texts[id]] = id;
    for (u32 rank = 0; rank < vocab.merges.size(); ++rank) {
      const std::string& merge = vocab.merges[rank];
      const u64 space = merge.find(' ', 1);
      ranks_.emplace(std::pair(merge.substr(0, space), merge.substr(space + 1)), rank);
    }
  }

  std::vector<TokenId> encode(const std::string& text, EncodeOptions options) const {
    std::vector<TokenId> out;
    if (options.add_special && vocab_.adds_bos) out.push_back(*vocab_.bos);
    bool space_first = vocab_.spm() && vocab_.adds_space_prefix;
    for (const Fragment& fragment : fragments(text, options)) {
      if (fragment.id) out.push_back(*fragment.id);
      if (!fragment.id && vocab_.spm()) encode_spm((space_first ? " " : "") + fragment.text, out);
      if (!fragment.id && vocab_.gemma4()) encode_lines(fragment.text, out);
      if (!fragment.id && !vocab_.spm() && !vocab_.gemma4()) encode_bpe(fragment.text, out);
      space_first = fragment.id && vocab_.spm() && vocab_.adds_space_prefix;
    }
    if (options.add_special && vocab_.adds_eos) out.push_back(*vocab_.eos);
    return out;
  }

 private:
  struct Fragment {
    std::string text;
    std::optional<u32> id;
    u64 begin = 0;  // in the whole text
  };

  TokenKind kind(u32 id) const { return static_cast<TokenKind>(vocab_.kinds[id]); }

  bool marker(u32 id) const {
    return kind(id) == TokenKind::user_defined && is_marker(vocab_.texts[id]);
  }
  bool reserved(u32 id) const {
    return kind(id) == TokenKind::control || kind(id) == TokenKind::unknown || marker(id);
  }

  static bool from_template(const EncodeOptions& options, u64 at, u64 n) {
    bool all = true;
    for (u64 i = at; i < at + n && !options.origins.empty(); ++i) all &= options.origins[i] == 0;
    return all;
  }

  // One special token after another, longest first, cut out of what is still text.
  std::vector<Fragment> fragments(const std::string& text, const EncodeOptions& options) const {
    std::vector<u32> specials;
    for (u32 id = 0; id < vocab_.texts.size(); ++id) {
      if (kind(id) == TokenKind::user_defined || (reserved(id) && options.parse_special))
        specials.push_back(id);
    }
    std::stable_sort(specials.begin(), specials.end(),
                     [&](u32 a, u32 b) { return vocab_.texts[a].size() > vocab_.texts[b].size(); });
    std::vector<Fragment> parts;
    if (!text.empty()) parts.push_back({text, std::nullopt, 0});
    for (const u32 id : specials) {
      const std::string& name = vocab_.texts[id];
      std::vector<Fragment> cut;
      for (const Fragment& part : parts) {
        u64 at = 0, from = 0;
        for (u64 found = 0;
             !part.id && (found = part.text.find(name, from)) != std::string::npos;) {
          from = found + 1;
          if (reserved(id) && !from_template(options, part.begin + found, name.size())) continue;
          if (found > at) {
            cut.push_back({part.text.substr(at, found - at), std::nullopt, part.begin + at});
          }
          cut.push_back({name, id, part.begin + found});
          at = from = found + name.size();
        }
        if (at < part.text.size()) cut.push_back({part.text.substr(at), part.id, part.begin + at});
      }
      parts = cut;
    }
    return parts;
  }

  void encode_bpe(const std::string& text, std::vector<TokenId>& out) const {
    const PreTokenizerRules& rules = *find_pre_tokenizer(vocab_.pre);
    Splitter splitter(rules.splitter, text);
    for (auto word = splitter.next(); !word.empty(); word = splitter.next()) {
      std::vector<std::string> symbols;
      std::string whole;
      for (u64 at = 0; at < word.size();) {
        const CodePoint point = decode_lenient(word, at);
        for (const char c : utf8_of(point.value)) symbols.push_back(byte_char(static_cast<u8>(c)));
        at += point.n_bytes;
      }
      for (const std::string& symbol : symbols) whole += symbol;
      const auto id = ids_.find(whole);
      const bool is_token = id != ids_.end() && !reserved(id->second);
      if (rules.whole_words_first && is_token) symbols = {whole};
      join(symbols, [&](const std::string& left, const std::string& right) {
        const auto found = ranks_.find({left, right});
        return found == ranks_.end() ? std::optional<f64>() : std::optional<f64>(found->second);
      });
      for (const std::string& symbol : symbols) out.push_back(ids_.at(symbol));
    }
  }

  void encode_lines(const std::string& text, std::vector<TokenId>& out) const {
    for (u64 at = 0; at < text.size();) {
      const bool newlines = decode_lenient(text, at).value == '\n';
      std::vector<std::string> symbols;
      std::string whole;
      while (at < text.size()) {
        const CodePoint point = decode_lenient(text, at);
        if ((point.value == '\n') != newlines) break;
        symbols.push_back(text[at] == ' ' ? "\u2581" : utf8_of(point.value));
        whole += symbols.back();
        at += point.n_bytes;
      }
      if (newlines && ids_.count(whole) > 0) symbols = {whole};
      join(symbols, [&](const std::string& left, const std::string& right) {
        const auto found = ranks_.find({left, right});
        return found == ranks_.end() ? std::optional<f64>() : std::optional<f64>(found->second);
      });
      for (const std::string& symbol : symbols) {
        const auto id = ids_.find(symbol);
        if (id != ids_.end()) out.push_back(id->second);
        for (const char c : id == ids_.end() ? symbol : "") out.push_back(static_cast<u8>(c));
      }
    }
  }

  void encode_spm(const std::string& text, std::vector<TokenId>& out) const {
    std::string marked;
    for (const char c : text) marked += c == ' ' ? "\u2581" : std::string(1, c);
    std::vector<std::string> symbols;
    for (u64 at = 0; at < marked.size(); at += symbols.back().size()) {
      symbols.push_back(marked.substr(at, utf8_bytes_by_lead(marked[at])));
    }
    const auto token = [&](const std::string& symbol) -> std::optional<u32> {
      const auto found = ids_.find(symbol);
      if (found == ids_.end()) return std::nullopt;
      const bool plain = !reserved(found->second) && kind(found->second) != TokenKind::byte;
      return plain ? std::optional<u32>(found->second) : std::nullopt;
    };
    join(symbols, [&](const std::string& left, const std::string& right) {
      const auto id = token(left + right);
      return id ? std::optional<f64>(-f64{vocab_.scores[*id]}) : std::nullopt;
    });
    for (const std::string& symbol : symbols) {
      const auto id = token(symbol);
      if (id) out.push_back(*id);
      for (const char c : id ? std::string() : symbol) out.push_back(3u + static_cast<u8>(c));
    }
  }

  // The smallest key first, the leftmost of equals.
  template <class Key>
  static void join(std::vector<std::string>& symbols, Key&& key) {
    while (true) {
      std::optional<f64> best;
      u64 best_at = 0;
      for (u64 at = 0; at + 1 < symbols.size(); ++at) {
        const std::optional<f64> here = key(symbols[at], symbols[at + 1]);
        if (here && (!best || *here < *best)) {
          best = here;
          best_at = at;
        }
      }
      if (!best) return;
      symbols[best_at] += symbols[best_at + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
    }
  }

  const TestVocab& vocab_;
  std::map<std::string, u32> ids_;
  std::map<std::pair<std::string, std::string>, u32> ranks_;
};

}  // namespace tarn::text
