#include "runtime/text/vocab_builder.h"

#include <algorithm>
#include <new>

#include "platform/base/assert.h"
#include "runtime/arena/carver.h"
#include "runtime/model/model_errors.h"
#include "runtime/text/unicode.h"

namespace tarn::text {
namespace {

using model::invalid;

constexpr char kNotTokens[] = "a part of a merge, or its result, is not a token";

u64 place(Role role) { return static_cast<u64>(role); }

// <0xHH> with upper-case digits, as the encoder looks it up, or lower-case ones.
std::optional<u8> byte_of(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  u32 value = 0;
  for (const char digit : text.substr(3, 2)) {
    const bool decimal = digit >= '0' && digit <= '9';
    const bool upper = digit >= 'A' && digit <= 'F';
    const bool lower = digit >= 'a' && digit <= 'f';
    if (!decimal && !upper && !lower) return std::nullopt;
    value = value * 16 + static_cast<u32>(digit - (decimal ? '0' : upper ? 'A' - 10 : 'a' - 10));
  }
  return static_cast<u8>(value);
}

Result<void> check_limits(const VocabCounts& counts) {
  if (counts.n_tokens == 0 || counts.n_tokens > VocabLimits::kTokensMax) {
    return invalid("the number of tokens is out of range", "tokenizer.ggml.tokens",
                   {"tokens", counts.n_tokens}, {"max", VocabLimits::kTokensMax});
  }
  if (counts.n_merges > VocabLimits::kMergesMax || counts.text_bytes >= ~u32{0}) {
    return invalid("the vocabulary has more merges or longer texts than any in use",
                   "tokenizer.ggml.merges", {"merges", counts.n_merges},
                   {"text bytes", counts.text_bytes});
  }
  return {};
}

}  // namespace

struct VocabBuilder::Parts {
  std::span<Tokenizer::Tables> tables;
  std::span<char> texts;
  std::span<u32> starts;
  std::span<u8> attributes;
  std::span<f32> scores;
  std::span<i32> kinds;
  std::span<u64> text_slots;
  std::span<Merge> merge_slots;

  static Parts carve(Carver& carver, const VocabCounts& counts) {
    const u64 n = counts.n_tokens;
    const bool spm = counts.kind == VocabKind::spm;
    return {.tables = carver.take<Tokenizer::Tables>("tables", 1),
            .texts = carver.take<char>("texts", counts.text_bytes),
            .starts = carver.take<u32>("starts", n + 1),
            .attributes = carver.take<u8>("attributes", n),
            .scores = carver.take<f32>("scores", spm ? n : 0),
            .kinds = carver.take<i32>("kinds", n),
            .text_slots = carver.take<u64>("text slots", TextIndex::slots_for(n)),
            .merge_slots = carver.take<Merge>("merge slots",
                                              spm ? 0 : MergeIndex::slots_for(counts.n_merges))};
  }
};

Result<u64> VocabBuilder::region_bytes(const VocabCounts& counts) {
  TARN_CHECK(check_limits(counts));
  Carver carver;
  Parts::carve(carver, counts);
  const auto n_bytes = carver.n_bytes().get();
  TARN_ASSERT(n_bytes.has_value());  // the limits keep it far from 2^64
  return *n_bytes;
}

Result<VocabBuilder> VocabBuilder::begin(const VocabCounts& counts, std::span<std::byte> region) {
  TARN_TRY(const u64 wanted_bytes, region_bytes(counts));
  if (region.size() < wanted_bytes) {
    return fail({.status = Status::over_budget,
                 .hint = "the region lent to the tokenizer is smaller than memory_bytes()",
                 .figures = {{{"lent bytes", region.size()}, {"wanted bytes", wanted_bytes}}}});
  }
  Carver carver(region);
  const Parts parts = Parts::carve(carver, counts);
  VocabBuilder builder;
  builder.counts_ = counts;
  builder.texts_ = parts.texts;
  builder.starts_ = parts.starts;
  builder.kinds_ = parts.kinds;
  builder.starts_[0] = 0;
  builder.roles_.fill(kNoToken);
  std::fill(parts.scores.begin(), parts.scores.end(), 0.0f);
  std::fill(parts.kinds.begin(), parts.kinds.end(), static_cast<i32>(TokenKind::normal));

  builder.tables_ = new (parts.tables.data()) Tokenizer::Tables{};
  Tokenizer::Tables& built = *builder.tables_;
  built.kind = counts.kind;
  built.n_vocab = static_cast<u32>(counts.n_tokens);
  built.texts = {.bytes = parts.texts.data(), .starts = parts.starts.data()};
  built.index = TextIndex(built.texts, parts.text_slots);
  if (!parts.merge_slots.empty()) built.merges = MergeIndex(parts.merge_slots);
  built.attributes = parts.attributes;
  built.scores = parts.scores;
  return builder;
}

Result<void> VocabBuilder::add_token(std::string_view text) {
  TARN_ASSERT(n_tokens_ < counts_.n_tokens);
  const u32 id = n_tokens_;
  const u32 start = starts_[id];
  if (text.size() > VocabLimits::kTokenBytesMax) {
    return invalid("a token is longer than any in use", text, {"token", id});
  }
  if (text.size() > texts_.size() - start) {
    return invalid("the tokens are longer than the directory said", text, {"token", id});
  }
  std::copy(text.begin(), text.end(), texts_.begin() + start);
  starts_[id + 1] = start + static_cast<u32>(text.size());
  tables_->text_bytes_max = std::max(tables_->text_bytes_max, static_cast<u32>(text.size()));
  n_tokens_ += 1;
  return {};
}

// Hashes some tokens ahead, so that the cache misses of their slots overlap.
Result<void> VocabBuilder::insert_tokens() {
  constexpr u32 kAhead = 32;
  std::array<u64, kAhead> hashes{};
  for (u32 next = 0; next < n_tokens_ + kAhead; ++next) {
    const u32 id = next - kAhead;
    if (next >= kAhead && !tables_->texts.at(id).empty()) {
      const Insertion inserted = tables_->index.insert(id, hashes[next % kAhead]);
      if (inserted != Insertion::done) {
        return invalid(inserted == Insertion::repeated ? "two tokens have the same text"
                                                       : "the tokens' texts were made to collide",
                       tables_->texts.at(id), {"token", id});
      }
    }
    if (next >= n_tokens_) continue;
    hashes[next % kAhead] = TextIndex::hash(tables_->texts.at(next));
    tables_->index.prefetch_slot(hashes[next % kAhead]);
  }
  return {};
}

void VocabBuilder::set_kind(TokenId id, TokenKind kind) {
  u8& attribute = tables_->attributes[id];
  attribute = static_cast<u8>((attribute & ~Attribute::kKindMask) | static_cast<u8>(kind));
}

Result<void> VocabBuilder::set_attributes() {
  for (u32 id = 0; id < n_tokens_; ++id) {
    const std::string_view text = tables_->texts.at(id);
    const i32 kind = kinds_[id];
    if (kind < 0 || kind > static_cast<i32>(TokenKind::byte)) {
      return invalid("a token's type is none of GGUF's", text, {"token", id});
    }
    if (kind == static_cast<i32>(TokenKind::byte) && !byte_of(text)) {
      return invalid("a byte token's text is not <0x00> to <0xFF>", text, {"token", id});
    }
    tables_->attributes[id] = static_cast<u8>(kind);
  }
  for (u32 id = 0; id < tables_->scores.size(); ++id) {
    f32& score = tables_->scores[id];
    if (score != score) {
      return invalid("a token's score is not a number", tables_->texts.at(id), {"token", id});
    }
    score += 0.0f;  // -0 becomes +0: the merge queue compares bits
  }
  return {};
}

Result<void> VocabBuilder::set_roles(const VocabRules& rules) {
  const bool spm = counts_.kind == VocabKind::spm;
  const auto exists = [&](u64 id) { return id < n_tokens_; };
  if (spm) {  // as SentencePiece numbers them
    if (exists(0)) roles_[place(Role::unknown)] = 0;
    if (exists(1)) roles_[place(Role::bos)] = 1;
    if (exists(2)) roles_[place(Role::eos)] = 2;
  }
  for (u64 role = 0; role < kRoles; ++role) {
    // Converters write "none" as an id past the end (-1): the family's default stays.
    const std::optional<u64> id = rules.special_ids[role];
    if (id && exists(*id)) roles_[role] = static_cast<TokenId>(*id);
  }
  tables_->bos = roles_[place(Role::bos)];
  tables_->eos = roles_[place(Role::eos)];
  tables_->unknown = roles_[place(Role::unknown)];
  tables_->padding = roles_[place(Role::padding)];
  tables_->adds_bos = rules.adds_bos.value_or(spm || rules.pre.adds_bos);
  tables_->adds_eos = rules.adds_eos.value_or(false);
  tables_->adds_space_prefix = spm && rules.adds_space_prefix.value_or(true);
  tables_->pre_tokenizer = spm ? PreTokenizer::none : rules.pre.splitter;
  tables_->whole_words_first = !spm && rules.pre.whole_words_first;
  if (tables_->adds_bos && tables_->bos == kNoToken) {
    return invalid("texts are to begin with BOS, but the file names no such token",
                   "tokenizer.ggml.bos_token_id", {"tokens", n_tokens_});
  }
  if (tables_->adds_eos && tables_->eos == kNoToken) {
    return invalid("texts are to end with EOS, but the file names no such token",
                   "tokenizer.ggml.eos_token_id", {"tokens", n_tokens_});
  }
  return {};
}

// First known_names.h, then the roles that end a generation, then the exceptions.
void VocabBuilder::mark_ends(const VocabRules& rules) {
  const auto find = [&](std::string_view text) { return tables_->index.find(text); };
  const auto ends = [&](TokenId id) {
    return id != kNoToken && (tables_->attributes[id] & Attribute::kEnd) != 0;
  };
  for (const NamedTokens& named : named_tokens()) {
    for (const std::string_view text : named.texts) {
      const TokenId id = find(text);
      if (id == kNoToken) continue;
      TokenId& holder = roles_[place(named.role)];
      const bool takes_role = named.role != Role::none && holder == kNoToken;
      if (takes_role) holder = id;
      if (named.mark == Mark::end) tables_->attributes[id] |= Attribute::kEnd;
      if (takes_role || named.mark == Mark::end) set_kind(id, TokenKind::control);
      if (named.mark == Mark::shown) set_kind(id, TokenKind::user_defined);
    }
  }
  for (const Role role :
       {Role::eos, Role::eot, Role::eom, Role::fim_pad, Role::fim_repo, Role::fim_separator}) {
    const TokenId id = roles_[place(role)];
    if (id != kNoToken) tables_->attributes[id] |= Attribute::kEnd;
  }
  // Where Gemma 4's and PLaMo's own ends are, </s> is plain text.
  const TokenId closing = find("</s>");
  if (ends(closing) && (ends(find("<|tool_response>")) || ends(find("<|plamo:eos|>")))) {
    tables_->attributes[closing] &= static_cast<u8>(~Attribute::kEnd);
    set_kind(closing, TokenKind::normal);
  }
  // In the harmony and solar formats <|end|> closes a message, not the generation.
  const bool calls = ends(find("<|call|>")) || ends(find("<|calls|>"));
  const TokenId end_of_message = find("<|end|>");
  if (ends(end_of_message) && calls && (ends(find("<|return|>")) || ends(find("<|flush|>")))) {
    tables_->attributes[end_of_message] &= static_cast<u8>(~Attribute::kEnd);
    set_kind(end_of_message, TokenKind::user_defined);
  }
  if (!rules.specials_eat_spaces) return;
  for (u32 id = 0; id < n_tokens_; ++id) {
    const std::string_view text = tables_->texts.at(id);
    const bool keeps = text == "<unk>" || text == "<s>" || text == "<|endoftext|>";
    const bool special = tables_->is_reserved(id) ||
                         tables_->kind_of(id) == TokenKind::user_defined || text == "</s>";
    if (special && !keeps) tables_->attributes[id] |= Attribute::kEatsSpaces;
  }
}

void VocabBuilder::keep_specials() {
  // The numbers of kinds_ have become attributes, so the list reuses their memory.
  u32* const ids = reinterpret_cast<u32*>(kinds_.data());
  u64 n = 0;
  for (u32 id = 0; id < n_tokens_; ++id) {
    const TokenKind kind = tables_->kind_of(id);
    const std::string_view text = tables_->texts.at(id);
    const bool user_defined = kind == TokenKind::user_defined;
    if (text.empty() || (!tables_->is_reserved(id) && !user_defined)) continue;
    if (user_defined && is_marker(text)) tables_->attributes[id] |= Attribute::kMarker;
    ids[n++] = id;
    tables_->special_starts[static_cast<u8>(text[0])] = true;
    if (user_defined) tables_->user_defined_starts[static_cast<u8>(text[0])] = true;
  }
  tables_->specials = {ids, n};
  std::sort(ids, ids + n,
            [&](u32 a, u32 b) { return tables_->texts.at(a) < tables_->texts.at(b); });
}

void VocabBuilder::set_byte_ids() {
  constexpr char kHex[] = "0123456789ABCDEF";
  for (u32 byte = 0; byte < 256; ++byte) {
    const char name[] = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
    const char itself = static_cast<char>(byte);
    TokenId id = kNoToken;
    if (counts_.kind == VocabKind::bpe) {
      char encoded[4];
      id = tables_->index.find({encoded, encode_utf8(kCharOfByte[byte], encoded)});
    } else {
      id = tables_->index.find({name, sizeof name});
      if (id == kNoToken && counts_.kind == VocabKind::spm) id = tables_->index.find({&itself, 1});
    }
    tables_->byte_ids[byte] = id;
  }
}

Result<void> VocabBuilder::finish_tokens(const VocabRules& rules) {
  if (n_tokens_ != counts_.n_tokens) {
    return invalid("there are fewer tokens than the directory said", "tokenizer.ggml.tokens",
                   {"tokens", n_tokens_});
  }
  TARN_CHECK(insert_tokens());
  TARN_CHECK(set_attributes());
  TARN_CHECK(set_roles(rules));
  mark_ends(rules);
  keep_specials();
  set_byte_ids();
  return {};
}

// The token whose text is left + right. Files nearly always list merges in the order of their
// results, so the last result and the next id are tried before the table.
TokenId VocabBuilder::merge_result(std::string_view left, std::string_view right) const {
  const u64 n_bytes = left.size() + right.size();
  if (n_bytes > tables_->text_bytes_max) return kNoToken;
  const u32 first = last_result_ == kNoToken ? 0 : last_result_;
  for (u32 id = first; id < n_tokens_ && id < first + 2; ++id) {
    const std::string_view text = tables_->texts.at(id);
    if (text.size() == n_bytes && text.starts_with(left) && text.ends_with(right)) return id;
  }
  char joined[VocabLimits::kTokenBytesMax];
  std::copy(left.begin(), left.end(), joined);
  std::copy(right.begin(), right.end(), joined + left.size());
  return tables_->index.find({joined, n_bytes});
}

Result<void> VocabBuilder::add_merge(std::string_view text) {
  TARN_ASSERT(counts_.kind != VocabKind::spm && n_merges_ < counts_.n_merges);
  const u32 rank = n_merges_++;
  const u64 space = text.find(' ', 1);
  if (space == std::string_view::npos) {
    return invalid("a merge is not two texts with a space between", text, {"merge", rank});
  }
  const std::string_view left = text.substr(0, space);
  const std::string_view right = text.substr(space + 1);
  const TokenId result = merge_result(left, right);
  if (result == kNoToken) return invalid(kNotTokens, text, {"merge", rank});
  last_result_ = result;
  PendingMerge& pending = pending_[n_pending_++];
  pending = {.left_bytes = static_cast<u32>(left.size()),
             .left_hash = TextIndex::hash(left),
             .right_hash = TextIndex::hash(right),
             .merge = {.rank = rank, .result = result}};
  tables_->index.prefetch_slot(pending.left_hash);
  tables_->index.prefetch_slot(pending.right_hash);
  return n_pending_ == kPendingMax ? insert_pending() : Result<void>();
}

Result<void> VocabBuilder::insert_pending() {
  const std::span<PendingMerge> pending = std::span(pending_).first(n_pending_);
  n_pending_ = 0;
  for (const PendingMerge& p : pending) {
    tables_->index.prefetch_text(p.left_hash);
    tables_->index.prefetch_text(p.right_hash);
  }
  for (PendingMerge& p : pending) {
    const std::string_view text = tables_->texts.at(p.merge.result);
    p.merge.left = tables_->index.find(text.substr(0, p.left_bytes), p.left_hash);
    p.merge.right = tables_->index.find(text.substr(p.left_bytes), p.right_hash);
    if (p.merge.left == kNoToken || p.merge.right == kNoToken) {
      return invalid(kNotTokens, text, {"merge", p.merge.rank});
    }
    tables_->merges.prefetch(p.merge.left, p.merge.right);
  }
  for (const PendingMerge& p : pending) {
    const bool is_byte = tables_->kind_of(p.merge.result) == TokenKind::byte;
    if (is_byte || tables_->is_reserved(p.merge.result)) continue;  // text must not become one
    // A repeated pair keeps its first rank.
    if (tables_->merges.insert(p.merge) == Insertion::crowded) {
      return invalid("the merges were made to collide", tables_->texts.at(p.merge.result),
                     {"merge", p.merge.rank});
    }
  }
  return {};
}

Result<Tokenizer> VocabBuilder::finish() {
  if (n_merges_ != counts_.n_merges) {
    return invalid("there are fewer merges than the directory said", "tokenizer.ggml.merges",
                   {"merges", n_merges_});
  }
  TARN_CHECK(insert_pending());
  Tokenizer tokenizer;
  tokenizer.tables_ = tables_;
  return tokenizer;
}

}  // namespace tarn::text
