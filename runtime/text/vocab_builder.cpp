#include "runtime/text/vocab_builder.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "platform/base/assert.h"
#include "runtime/text/byte_chars.h"
#include "runtime/text/unicode.h"
#include "runtime/text/vocab_limits.h"

namespace tarn::text {
namespace {

Unexpected invalid(const char* hint, std::string_view about, const char* figure, u64 value) {
  return fail({.status = Status::invalid_model,
               .hint = hint,
               .detail = Detail(about),
               .figures = {{{figure, value}}}});
}

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
    return fail({.status = Status::invalid_model,
                 .hint = "the number of tokens is out of range",
                 .detail = Detail("tokenizer.ggml.tokens"),
                 .figures = {{{"tokens", counts.n_tokens}, {"max", VocabLimits::kTokensMax}}}});
  }
  if (counts.n_merges > VocabLimits::kMergesMax || counts.text_bytes >= ~u32{0}) {
    return fail({.status = Status::invalid_model,
                 .hint = "the vocabulary has more merges or longer texts than any in use",
                 .detail = Detail("tokenizer.ggml.merges"),
                 .figures = {{{"merges", counts.n_merges}, {"text bytes", counts.text_bytes}}}});
  }
  return {};
}

}  // namespace

// The order and the sizes of begin()'s allocations; each may need its alignment once.
Result<u64> VocabBuilder::region_bytes(const VocabCounts& counts) {
  TARN_CHECK(check_limits(counts));
  constexpr u64 kAllocations = 8;
  const Checked n = counts.n_tokens;
  const bool spm = counts.kind == VocabKind::spm;
  const Checked bytes =
      Checked(sizeof(Tokenizer::Tables)) + counts.text_bytes + (n + 1) * sizeof(u32) +
      n * sizeof(u8) + (spm ? n * sizeof(f32) : Checked(0)) + n * sizeof(u32) +
      Checked(TextIndex::slots_for(counts.n_tokens)) * sizeof(u64) +
      (spm ? Checked(0) : Checked(MergeIndex::slots_for(counts.n_merges)) * sizeof(Merge)) +
      kAllocations * alignof(std::max_align_t);
  const auto total = bytes.get();
  TARN_ASSERT(total.has_value());  // the limits keep it far from 2^64
  return *total;
}

Result<VocabBuilder> VocabBuilder::begin(const VocabCounts& counts, std::span<std::byte> region) {
  TARN_TRY(const u64 wanted_bytes, region_bytes(counts));
  if (region.size() < wanted_bytes) {
    return fail({.status = Status::over_budget,
                 .hint = "the region lent to the tokenizer is smaller than memory_bytes()",
                 .figures = {{{"lent bytes", region.size()}, {"wanted bytes", wanted_bytes}}}});
  }
  Bump memory(region);
  const u64 n = counts.n_tokens;
  const bool spm = counts.kind == VocabKind::spm;
  const auto tables = memory.alloc_bytes(sizeof(Tokenizer::Tables), alignof(Tokenizer::Tables));
  const auto texts = memory.alloc<char>(counts.text_bytes);
  const auto starts = memory.alloc<u32>(n + 1);
  const auto attributes = memory.alloc<u8>(n);
  const auto scores = memory.alloc<f32>(spm ? n : 0);
  const auto kinds = memory.alloc<i32>(n);
  const auto text_slots = memory.alloc<u64>(TextIndex::slots_for(n));
  const auto merge_slots = memory.alloc<Merge>(spm ? 0 : MergeIndex::slots_for(counts.n_merges));
  TARN_ASSERT(tables && texts && starts && attributes && scores && kinds && text_slots &&
              merge_slots);

  VocabBuilder builder;
  builder.counts_ = counts;
  builder.texts_ = *texts;
  builder.starts_ = *starts;
  builder.kinds_ = *kinds;
  builder.starts_[0] = 0;
  builder.roles_.fill(kNoToken);
  std::fill(scores->begin(), scores->end(), 0.0f);
  std::fill(kinds->begin(), kinds->end(), static_cast<i32>(TokenKind::normal));

  builder.tables_ = new (tables->data()) Tokenizer::Tables{};
  Tokenizer::Tables& built = *builder.tables_;
  built.kind = counts.kind;
  built.n_vocab = static_cast<u32>(n);
  built.texts = {.bytes = texts->data(), .starts = starts->data()};
  built.index = TextIndex(built.texts, *text_slots);
  if (!spm) built.merges = MergeIndex(*merge_slots);
  built.attributes = *attributes;
  built.scores = *scores;
  return builder;
}

Result<void> VocabBuilder::add_token(std::string_view text) {
  TARN_ASSERT(n_tokens_ < counts_.n_tokens);
  const u32 id = n_tokens_;
  const u32 start = starts_[id];
  if (text.size() > VocabLimits::kTokenBytesMax) {
    return invalid("a token is longer than any in use", text, "token", id);
  }
  if (text.size() > texts_.size() - start) {
    return invalid("the tokens are longer than the directory said", text, "token", id);
  }
  std::copy(text.begin(), text.end(), texts_.begin() + start);
  starts_[id + 1] = start + static_cast<u32>(text.size());
  tables_->text_bytes_max = std::max(tables_->text_bytes_max, static_cast<u32>(text.size()));
  n_tokens_ += 1;
  pending_hashes_[n_pending_++] = TextIndex::hash(text);
  tables_->index.prefetch_slot(pending_hashes_[n_pending_ - 1]);
  return n_pending_ == kPendingMax ? insert_pending_tokens() : Result<void>();
}

Result<void> VocabBuilder::insert_pending_tokens() {
  const u32 n = n_pending_;
  n_pending_ = 0;
  for (u32 i = 0; i < n; ++i) {
    const u32 id = n_tokens_ - n + i;
    const std::string_view text = tables_->texts.at(id);
    if (text.empty()) continue;
    switch (tables_->index.insert(id, pending_hashes_[i])) {
      case Insertion::done:
        break;
      case Insertion::repeated:
        return invalid("two tokens have the same text", text, "token", id);
      case Insertion::crowded:
        return invalid("the tokens' texts were made to collide", text, "token", id);
    }
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
      return invalid("a token's type is none of GGUF's", text, "token", id);
    }
    if (kind == static_cast<i32>(TokenKind::byte) && !byte_of(text)) {
      return invalid("a byte token's text is not <0x00> to <0xFF>", text, "token", id);
    }
    tables_->attributes[id] = static_cast<u8>(kind);
  }
  for (u32 id = 0; id < tables_->scores.size(); ++id) {
    f32& score = tables_->scores[id];
    if (score != score) {
      return invalid("a token's score is not a number", tables_->texts.at(id), "token", id);
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
  tables_->adds_bos = rules.adds_bos.value_or(spm || rules.pre.adds_bos);
  tables_->adds_eos = rules.adds_eos.value_or(false);
  tables_->adds_space_prefix = spm && rules.adds_space_prefix.value_or(true);
  tables_->pre_tokenizer = spm ? PreTokenizer::none : rules.pre.splitter;
  tables_->whole_words_first = !spm && rules.pre.whole_words_first;
  if (tables_->adds_bos && tables_->bos == kNoToken) {
    return invalid("texts are to begin with BOS, but the file names no such token",
                   "tokenizer.ggml.bos_token_id", "tokens", n_tokens_);
  }
  if (tables_->adds_eos && tables_->eos == kNoToken) {
    return invalid("texts are to end with EOS, but the file names no such token",
                   "tokenizer.ggml.eos_token_id", "tokens", n_tokens_);
  }
  return {};
}

// First named_tokens.h, then the roles that end a generation, then the exceptions.
void VocabBuilder::mark_ends(const VocabRules& rules) {
  const auto find = [&](std::string_view text) { return tables_->index.find(text); };
  const auto ends = [&](TokenId id) {
    return id != kNoToken && (tables_->attributes[id] & Attribute::kEnd) != 0;
  };
  for (const NamedToken& name : named_tokens()) {
    const TokenId id = find(name.text);
    if (id == kNoToken) continue;
    TokenId& holder = roles_[place(name.role)];
    const bool takes_place = name.role != Role::none && holder == kNoToken;
    if (takes_place) holder = id;
    if (name.ends) tables_->attributes[id] |= Attribute::kEnd;
    if (takes_place || name.ends) set_kind(id, TokenKind::control);
    if (name.shown) set_kind(id, TokenKind::user_defined);
  }
  for (const Role role :
       {Role::eos, Role::eot, Role::eom, Role::fim_pad, Role::fim_repo, Role::fim_separator}) {
    const TokenId id = roles_[place(role)];
    if (id != kNoToken) tables_->attributes[id] |= Attribute::kEnd;
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
    const bool special = is_reserved(tables_->kind_of(id)) ||
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
    if (text.empty() || (!is_reserved(kind) && !user_defined)) continue;
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
    if (counts_.kind == VocabKind::spm) {
      id = tables_->index.find({name, sizeof name});
      if (id == kNoToken) id = tables_->index.find({&itself, 1});
    } else {
      char encoded[4];
      id = tables_->index.find({encoded, encode_utf8(kCharOfByte[byte], encoded)});
    }
    tables_->byte_ids[byte] = id;
  }
}

Result<void> VocabBuilder::finish_tokens(const VocabRules& rules) {
  if (n_tokens_ != counts_.n_tokens) {
    return invalid("there are fewer tokens than the directory said", "tokenizer.ggml.tokens",
                   "tokens", n_tokens_);
  }
  TARN_CHECK(insert_pending_tokens());
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
  TARN_ASSERT(counts_.kind == VocabKind::bpe && n_merges_ < counts_.n_merges);
  const u32 rank = n_merges_++;
  const u64 space = text.find(' ', 1);
  if (space == std::string_view::npos) {
    return invalid("a merge is not two texts with a space between", text, "merge", rank);
  }
  const std::string_view left = text.substr(0, space);
  const std::string_view right = text.substr(space + 1);
  const TokenId result = merge_result(left, right);
  if (result == kNoToken) return invalid(kNotTokens, text, "merge", rank);
  last_result_ = result;
  PendingMerge& pending = pending_merges_[n_pending_++];
  pending = {.left_bytes = static_cast<u32>(left.size()),
             .left_hash = TextIndex::hash(left),
             .right_hash = TextIndex::hash(right),
             .merge = {.left = kNoToken, .right = kNoToken, .rank = rank, .result = result}};
  tables_->index.prefetch_slot(pending.left_hash);
  tables_->index.prefetch_slot(pending.right_hash);
  return n_pending_ == kPendingMax ? insert_pending_merges() : Result<void>();
}

Result<void> VocabBuilder::insert_pending_merges() {
  const std::span<PendingMerge> pending = std::span(pending_merges_).first(n_pending_);
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
      return invalid(kNotTokens, text, "merge", p.merge.rank);
    }
    tables_->merges.prefetch(p.merge.left, p.merge.right);
  }
  for (const PendingMerge& p : pending) {
    if (is_reserved(tables_->kind_of(p.merge.result))) continue;  // text must not become one
    // A repeated pair keeps its first rank.
    if (tables_->merges.insert(p.merge) == Insertion::crowded) {
      return invalid("the merges were made to collide", tables_->texts.at(p.merge.result), "merge",
                     p.merge.rank);
    }
  }
  return {};
}

Result<Tokenizer> VocabBuilder::finish() {
  if (n_merges_ != counts_.n_merges) {
    return invalid("there are fewer merges than the directory said", "tokenizer.ggml.merges",
                   "merges", n_merges_);
  }
  TARN_CHECK(insert_pending_merges());
  Tokenizer tokenizer;
  tokenizer.tables_ = tables_;
  return tokenizer;
}

}  // namespace tarn::text
