// Facts that llama.cpp knows by name and files do not say: the rules of each pre-tokenizer, the
// roles of special tokens. The facts come from the copy in llama-cpp-python 0.3.36, whose ids and
// ends we must match. Where its choice among several names depends on a hash map's order, ours
// follows the table.
#pragma once

#include <span>
#include <string_view>

#include "runtime/text/tokenizer.h"

namespace tarn::text {

// The rules of a name in tokenizer.ggml.pre.
struct PreTokenizerRules {
  PreTokenizer splitter = PreTokenizer::none;
  bool whole_words_first = false;  // a pre-token that is a token is not merged
  bool adds_bos = false;           // unless the file says otherwise
};
// nullptr for a name that is not in the table.
const PreTokenizerRules* find_pre_tokenizer(std::string_view name);

// The roles of special tokens, whose ids come from a key of the file or are found by text.
enum class Role : u8 {
  none,
  bos,
  eos,
  unknown,
  padding,
  eot,
  eom,
  fim_prefix,
  fim_suffix,
  fim_middle,
  fim_pad,
  fim_repo,
  fim_separator,
  count,
};
inline constexpr u64 kRoles = static_cast<u64>(Role::count);

struct RoleKey {
  const char* key;
  Role role;
};
std::span<const RoleKey> role_keys();

// Tokens that are known by their texts.
enum class Mark : u8 {
  none,
  end,    // ends a generation, and is a control token whatever the file says
  shown,  // becomes user-defined, although it looks like a control token
};
struct NamedTokens {
  Role role;  // of the first that exists, if no key and no earlier name took it
  Mark mark;
  std::string_view texts[11];  // empty ones at the end are none
};
std::span<const NamedTokens> named_tokens();

// Whether a user-defined token is a marker, which shapes a conversation as control tokens do: files
// call <tool_call>, <think> or <|channel|> user-defined, because a reader sees them. Markers stand
// in <> or []. HTML tags do, too, and are no markers: Gemma has tokens for them, and texts are full
// of them. A user's text never becomes a marker; all other user-defined tokens are plain text
// (runs of white space, rare letters), and it gives them as everywhere.
bool is_marker(std::string_view text);

}  // namespace tarn::text
