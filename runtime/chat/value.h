// The values of a template: Python's, as far as templates use them. Private to this folder.
//
// A value is small and copied; what it refers to lies in the machine's heap, and never changes, but
// for namespaces. A text has an origin for each of its bytes (chat_template.h).
#pragma once

#include <span>
#include <string_view>

#include "platform/base/types.h"
#include "runtime/chat/syntax.h"

namespace tarn::chat {

enum class Kind : u8 {
  undefined,  // bytes: what has no value, for the error
  none,
  boolean,
  integer,
  real,
  big,  // an integer beyond 64 bits: its digits, as bytes
  text,
  list,
  tuple,
  range,
  view,       // of a dict: keys(), values(), items()
  generator,  // what a filter yields, once
  dict,
  space,  // namespace()
  loop,
  macro,     // node
  function,  // id
  method,    // id, self
};

// A text from the filter safe: + escapes what it joins to it, as Python's Markup does.
inline constexpr u16 kSafe = 1;

struct Entry;
struct Space;
struct LoopState;
struct Generated;

struct Value {
  Kind kind = Kind::undefined;
  u8 origin = 0;  // of a text without origins
  u16 id = 0;     // of a function or method; of a text: kSafe or 0
  u32 n = 0;      // bytes of a text, items, entries
  union {
    i64 integer = 0;  // boolean, too
    f64 real;
    const char* bytes;
    const Value* items;
    const Entry* entries;
    const Value* self;
    Generated* generated;
    Space* space;
    const LoopState* loop;
    NodeIdx node;
  };
  const u8* origins = nullptr;

  bool is(Kind of) const { return kind == of; }
  bool is_text() const { return kind == Kind::text; }
  // Has items, in an order.
  bool has_items() const { return kind >= Kind::list && kind <= Kind::view; }
  std::string_view text() const { return {bytes, n}; }
  std::span<const Value> span() const { return {items, n}; }
  bool is_number() const {
    return kind == Kind::boolean || kind == Kind::integer || kind == Kind::real;
  }
  bool is_whole() const { return kind == Kind::boolean || kind == Kind::integer; }
  f64 as_real() const { return kind == Kind::real ? real : static_cast<f64>(integer); }
};
static_assert(sizeof(Value) == 24);

struct Entry {
  Value key{};
  Value value{};
};

struct Space {
  Entry* entries = nullptr;
  u32 n = 0;
  u32 capacity = 0;
};

struct Generated {
  std::span<const Value> items{};
  u64 next = 0;
  bool is_open = false;  // a loop, or a generator made of it, reads it as it goes
};

struct LoopState {
  std::span<const Value> items{};
  u64 at = 0;
  const LoopState* outer = nullptr;
  Value* changed = nullptr;  // what loop.changed() saw last
};

inline Value make_none() {
  Value value;
  value.kind = Kind::none;
  return value;
}
inline Value make_bool(bool of) {
  Value value;
  value.kind = Kind::boolean;
  value.integer = of ? 1 : 0;
  return value;
}
inline Value make_integer(i64 of) {
  Value value;
  value.kind = Kind::integer;
  value.integer = of;
  return value;
}
inline Value make_real(f64 of) {
  Value value;
  value.kind = Kind::real;
  value.real = of;
  return value;
}
inline Value make_undefined(std::string_view what) {
  Value value;
  value.n = static_cast<u32>(what.size());
  value.bytes = what.data();
  return value;
}
// A text that lasts as long as the machine.
inline Value make_text(std::string_view of, u8 origin = 0) {
  Value value;
  value.kind = Kind::text;
  value.origin = origin;
  value.n = static_cast<u32>(of.size());
  value.bytes = of.data();
  return value;
}
inline Value make_items(Kind kind, std::span<const Value> items) {
  Value value;
  value.kind = kind;
  value.n = static_cast<u32>(items.size());
  value.items = items.data();
  return value;
}
inline Value make_dict(std::span<const Entry> entries) {
  Value value;
  value.kind = Kind::dict;
  value.n = static_cast<u32>(entries.size());
  value.entries = entries.data();
  return value;
}
inline std::span<const Entry> entries_of(const Value& dict) { return {dict.entries, dict.n}; }

// A part of a text, in bytes, with its origins.
inline Value part_of(const Value& text, u64 begin, u64 n) {
  Value part = text;
  part.bytes += begin;
  part.n = static_cast<u32>(n);
  if (part.origins != nullptr) part.origins += begin;
  return part;
}

// Returns what Python's bool() says.
bool is_true(const Value& value);
// Returns the name of a type in errors.
const char* name_of(Kind kind);

}  // namespace tarn::chat
