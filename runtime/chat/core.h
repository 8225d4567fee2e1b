// Python's operations on values of any kind: comparing, counting, iterating, printing. Private to
// this folder.
#pragma once

#include <optional>
#include <span>

#include "runtime/chat/machine.h"

namespace tarn::chat {

// ---- comparing (core.cpp)
std::optional<bool> is_equal(Machine& m, const Value& a, const Value& b);
std::optional<bool> is_less(Machine& m, const Value& a, const Value& b);
std::optional<bool> contains(Machine& m, const Value& container, const Value& item);
// Whether it can be a key; of tuples within tuples this says no.
bool is_hashable(const Value& value);
// The entry of a key; nullptr if there is none. What is not hashable fails the machine.
const Entry* find_entry(Machine& m, std::span<const Entry> entries, const Value& key);
const Entry* find_entry(Machine& m, std::span<const Entry> entries, std::string_view key);

// ---- iterating (core.cpp)
std::optional<u64> length_of(Machine& m, const Value& value);
// Returns what a loop over the value goes through: items, keys, or the characters of a text.
std::optional<std::span<const Value>> items_of(Machine& m, const Value& value);
// Where the code point of an index begins, in bytes; the text's size beyond its end.
u64 byte_of(std::string_view text, u64 idx);

// ---- printing (printing.cpp): appends to the machine's output
bool put_text(Machine& m, const Value& value);  // str()
bool put_repr(Machine& m, const Value& value);  // repr()
bool put_integer(Machine& m, i64 value);
bool put_code_point(Machine& m, u32 code_point, u8 origin);
// str() as a value; a text is itself.
MaybeValue text_of(Machine& m, const Value& value);

// json.dumps(). indent < 0: on one line.
struct JsonStyle {
  i64 indent = -1;
  bool ensures_ascii = false;
  bool sorts_keys = false;
  std::string_view between_items = ", ";
  std::string_view behind_key = ": ";
};
bool put_json(Machine& m, const Value& value, const JsonStyle& style, u32 level = 0);

}  // namespace tarn::chat
