#include "tools/synth/vocab.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <unordered_set>

namespace tarn::synth {
namespace {

// GGUF's token types.
constexpr i32 kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

constexpr std::string_view kConsonants = "bcdfghjklmnpqrstvwxyz";
constexpr std::string_view kVowels = "aeiou";
constexpr std::string_view kSpmSpace = "\xE2\x96\x81";  // U+2581, written for a space

std::string utf8(u32 code_point) {
  std::string out;
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | (code_point >> 6));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else {
    out += static_cast<char>(0xE0 | (code_point >> 12));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  }
  return out;
}

// GPT-2's printable character for each byte: the byte itself in printable Latin-1, else U+0100 and
// up.
std::array<u32, 256> byte_code_points() {
  std::array<u32, 256> out{};
  u32 next = 0x100;
  for (u32 byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    out[byte] = printable ? byte : next++;
  }
  return out;
}

struct Merge {
  std::string left, right;
};

// Collects merges in rank order, each text once, until there are enough.
class MergeList {
 public:
  explicit MergeList(u64 n_max) : n_max_(n_max) { texts_.reserve(n_max); }

  bool full() const { return merges_.size() == n_max_; }
  void add(std::string left, std::string right) {
    if (full() || !texts_.insert(left + right).second) return;
    merges_.push_back({std::move(left), std::move(right)});
  }
  std::vector<Merge> take() { return std::move(merges_); }

 private:
  u64 n_max_;
  std::unordered_set<std::string> texts_;
  std::vector<Merge> merges_;
};

std::vector<std::string> syllables() {
  std::vector<std::string> out;
  for (const char consonant : kConsonants) {
    for (const char vowel : kVowels) out.push_back({consonant, vowel});
  }
  return out;
}

void add_runs(MergeList& list, const std::string& unit, u32 n_doublings) {
  std::string run = unit;
  for (u32 i = 0; i < n_doublings; ++i, run += run) list.add(run, run);
}

// Characters of two and three bytes, for byte-level BPE: Latin, Greek, Cyrillic, then kana and the
// first of the CJK ideographs, each by the merge of its bytes.
void add_characters(MergeList& list) {
  for (u32 code_point = 0xC0; code_point < 0x460; ++code_point) {
    const std::string text = utf8(code_point);
    list.add(text.substr(0, 1), text.substr(1));
  }
  const auto three_bytes = [&](u32 first, u32 end) {
    for (u32 code_point = first; code_point < end; ++code_point) {
      const std::string text = utf8(code_point);
      list.add(text.substr(0, 1), text.substr(1, 1));
      list.add(text.substr(0, 2), text.substr(2));
    }
  };
  three_bytes(0x3040, 0x3100);
  three_bytes(0x4E00, 0x6000);
}

// `space` is the family's spelling of a space; byte-level families also merge numbers, line breaks
// and the bytes of characters.
std::vector<Merge> make_merges(u64 n, const std::string& space, VocabFamily family) {
  MergeList list(n);
  const auto parts = syllables();
  for (const auto& part : parts) list.add(part.substr(0, 1), part.substr(1));
  for (const auto& part : parts) list.add(space, part);
  for (char c = 'a'; c <= 'z'; ++c) list.add(space, {c});
  add_runs(list, space, 4);
  if (family != VocabFamily::spm) {
    add_runs(list, "\n", 2);
    list.add(".", "\n");
  }
  for (char left = 'a'; left <= 'z'; ++left) {
    for (char right = 'a'; right <= 'z'; ++right) list.add({left}, {right});
  }
  for (const auto& part : parts) {
    const auto capital = static_cast<char>(part[0] - 'a' + 'A');
    list.add({capital}, part.substr(1));
    list.add(space, {capital, part[1]});
  }
  if (family == VocabFamily::llama_bpe) {
    for (u32 i = 0; i < 100; ++i) {
      list.add({static_cast<char>('0' + i / 10)}, {static_cast<char>('0' + i % 10)});
    }
    for (u32 i = 0; i < 1000; ++i) {
      const std::string text = std::to_string(1000 + i);
      list.add(text.substr(1, 2), text.substr(3));
    }
  }
  for (const auto& left : parts) {
    for (const auto& right : parts) list.add(space + left, right);
  }
  for (const auto& left : parts) {
    for (const auto& right : parts) list.add(left, right);
  }
  if (family != VocabFamily::spm) add_characters(list);
  // Words of three syllables, in an order that mixes them: the stride is coprime to their number.
  const u64 n_words = parts.size() * parts.size() * parts.size();
  const u64 stride = 500009;
  for (u64 i = 0; i < n_words && !list.full(); ++i) {
    const u64 word = i * stride % n_words;
    const auto& first = parts[word % parts.size()];
    const auto& second = parts[word / parts.size() % parts.size()];
    list.add(space + first + second, parts[word / parts.size() / parts.size()]);
  }
  if (!list.full()) throw std::runtime_error("the vocabulary is larger than its words");
  return list.take();
}

void add_token(Vocabulary& vocabulary, std::string text, i32 kind) {
  vocabulary.tokens.push_back(std::move(text));
  vocabulary.kinds.push_back(kind);
}

Vocabulary make_spm(u32 n_tokens) {
  Vocabulary out;
  out.bos = 1;
  out.eos = 2;
  add_token(out, "<unk>", kUnknown);
  add_token(out, "<s>", kControl);
  add_token(out, "</s>", kControl);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (u32 byte = 0; byte < 256; ++byte) {
    add_token(out, std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", kByte);
  }
  out.scores.assign(out.tokens.size(), 0.0f);

  // Characters end the list, as in the real file; a small vocabulary has only ASCII.
  std::vector<std::string> characters{std::string(kSpmSpace)};
  for (u32 c = '!'; c <= '~'; ++c) characters.push_back(utf8(c));
  if (n_tokens > 8192) {
    for (u32 c = 0xA1; c < 0x460; ++c) characters.push_back(utf8(c));
    for (u32 c = 0x4E00; c < 0x5000; ++c) characters.push_back(utf8(c));
  }
  const u64 n_merges = n_tokens - out.tokens.size() - characters.size();
  for (const Merge& merge : make_merges(n_merges, std::string(kSpmSpace), VocabFamily::spm)) {
    add_token(out, merge.left + merge.right, kNormal);
  }
  for (auto& character : characters) add_token(out, std::move(character), kNormal);
  for (u64 i = out.scores.size(); i < n_tokens; ++i) {
    out.scores.push_back(-static_cast<f32>(out.scores.size() - 259));
  }
  return out;
}

std::vector<std::string> llama_bpe_specials() {
  std::vector<std::string> out;
  u32 n_reserved = 0;
  for (u32 i = 0; i < 256; ++i) {
    switch (i) {
      case 0:
        out.push_back("<|begin_of_text|>");
        break;
      case 1:
        out.push_back("<|end_of_text|>");
        break;
      case 4:
        out.push_back("<|finetune_right_pad_id|>");
        break;
      case 6:
        out.push_back("<|start_header_id|>");
        break;
      case 7:
        out.push_back("<|end_header_id|>");
        break;
      case 8:
        out.push_back("<|eom_id|>");
        break;
      case 9:
        out.push_back("<|eot_id|>");
        break;
      case 10:
        out.push_back("<|python_tag|>");
        break;
      default:
        out.push_back("<|reserved_special_token_" + std::to_string(n_reserved++) + "|>");
    }
  }
  return out;
}

struct Special {
  std::string_view text;
  i32 kind;
};
constexpr Special kQwenSpecials[] = {
    {"<|endoftext|>", kControl},       {"<|im_start|>", kControl},
    {"<|im_end|>", kControl},          {"<|object_ref_start|>", kControl},
    {"<|object_ref_end|>", kControl},  {"<|box_start|>", kControl},
    {"<|box_end|>", kControl},         {"<|quad_start|>", kControl},
    {"<|quad_end|>", kControl},        {"<|vision_start|>", kControl},
    {"<|vision_end|>", kControl},      {"<|vision_pad|>", kControl},
    {"<|image_pad|>", kControl},       {"<|video_pad|>", kControl},
    {"<tool_call>", kUserDefined},     {"</tool_call>", kUserDefined},
    {"<|fim_prefix|>", kControl},      {"<|fim_middle|>", kControl},
    {"<|fim_suffix|>", kControl},      {"<|fim_pad|>", kControl},
    {"<|repo_name|>", kControl},       {"<|file_sep|>", kControl},
    {"<tool_response>", kUserDefined}, {"</tool_response>", kUserDefined},
    {"<think>", kUserDefined},         {"</think>", kUserDefined},
};
constexpr u32 kQwen2Specials = 22;
constexpr u32 kQwenNormalTokens = 151643;  // the real files'; special tokens follow

void add_byte_level_words(Vocabulary& out, u32 n_normal) {
  const auto code_points = byte_code_points();
  const auto written = [&](const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) text += utf8(code_points[static_cast<u8>(byte)]);
    return text;
  };
  // The printable bytes come first, as in the real files.
  for (u32 byte = 0; byte < 256; ++byte) {
    if (code_points[byte] < 0x100) add_token(out, utf8(code_points[byte]), kNormal);
  }
  for (u32 byte = 0; byte < 256; ++byte) {
    if (code_points[byte] >= 0x100) add_token(out, utf8(code_points[byte]), kNormal);
  }
  for (const Merge& merge : make_merges(n_normal - 256, " ", out.family)) {
    const std::string left = written(merge.left);
    const std::string right = written(merge.right);
    out.merges.push_back(left + " " + right);
    add_token(out, left + right, kNormal);
  }
}

}  // namespace

Vocabulary make_vocabulary(VocabFamily family, u32 n_tokens) {
  if (n_tokens < kVocabTokensMin) throw std::runtime_error("a vocabulary has 1024 tokens or more");
  if (family == VocabFamily::spm) return make_spm(n_tokens);
  Vocabulary out;
  out.family = family;
  if (family == VocabFamily::llama_bpe) {
    const auto specials = llama_bpe_specials();
    const auto n_normal = n_tokens - static_cast<u32>(specials.size());
    add_byte_level_words(out, n_normal);
    for (const auto& special : specials) add_token(out, special, kControl);
    out.bos = n_normal;
    out.eos = n_normal + 9;  // <|eot_id|>, as in the instruct files
    return out;
  }
  const u32 n_specials =
      family == VocabFamily::qwen2 ? kQwen2Specials : static_cast<u32>(std::size(kQwenSpecials));
  const u32 n_normal = std::min(n_tokens - n_specials, kQwenNormalTokens);
  add_byte_level_words(out, n_normal);
  for (u32 i = 0; i < n_specials; ++i) {
    add_token(out, std::string(kQwenSpecials[i].text), kQwenSpecials[i].kind);
  }
  while (out.tokens.size() < n_tokens) {
    add_token(out, "[PAD" + std::to_string(out.tokens.size()) + "]", kUnused);
  }
  out.bos = n_normal;      // <|endoftext|>
  out.eos = n_normal + 2;  // <|im_end|>
  return out;
}

void set_vocabulary(tools::GgufWriter& writer, const Vocabulary& vocabulary) {
  const bool spm = vocabulary.family == VocabFamily::spm;
  const bool qwen = !spm && vocabulary.family != VocabFamily::llama_bpe;
  writer.set_string("tokenizer.ggml.model", spm ? "llama" : "gpt2");
  writer.set_string("tokenizer.ggml.pre", spm ? "default" : qwen ? "qwen2" : "llama-bpe");
  writer.set_strings("tokenizer.ggml.tokens", vocabulary.tokens);
  if (spm) writer.set_f32s("tokenizer.ggml.scores", vocabulary.scores);
  writer.set_i32s("tokenizer.ggml.token_type", vocabulary.kinds);
  if (!spm) writer.set_strings("tokenizer.ggml.merges", vocabulary.merges);
  writer.set_u32("tokenizer.ggml.bos_token_id", vocabulary.bos);
  writer.set_u32("tokenizer.ggml.eos_token_id", vocabulary.eos);
  if (spm) {
    writer.set_u32("tokenizer.ggml.unknown_token_id", 0);
    writer.set_bool("tokenizer.ggml.add_bos_token", true);
    writer.set_bool("tokenizer.ggml.add_eos_token", false);
  }
  if (qwen) {
    writer.set_u32("tokenizer.ggml.padding_token_id", vocabulary.bos);
    writer.set_bool("tokenizer.ggml.add_bos_token", false);
  }
}

}  // namespace tarn::synth
