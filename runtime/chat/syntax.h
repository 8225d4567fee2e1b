// A parsed template: nodes that refer to each other by index. Private to this folder.
#pragma once

#include <span>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::chat {

using NodeIdx = u32;
inline constexpr NodeIdx kNoNode = 0;

// The kinds tell what a, b and c hold. "List" is the first of nodes that `next` links; a text is
// where it begins in Program::source, and its bytes.
enum class NodeKind : u8 {
  nothing,
  // expressions
  text,         // a, b: text
  none,         //
  boolean,      // a: 0 or 1
  integer,      // a, b: low and high half
  real,         // a, b: low and high half
  name,         // a: name
  list,         // a: list
  tuple,        // a: list
  dict,         // a: list of pairs
  pair,         // a: key, b: value
  attribute,    // a: of, b, c: text
  item,         // a: of, b: key or slice
  slice,        // a, b, c: begin, end, step, or nothing
  call,         // a: of, b: list of arguments
  argument,     // a: value, b, c: text of its name; b is 0 without one
  filter,       // a: of, or nothing: the text of a block; b: list of arguments, c: name
  test,         // a: of, b: list of arguments, c: name
  unary,        // op, a
  binary,       // op, a, b
  compare,      // a: first, b: list of comparisons
  comparison,   // op, a: with
  conditional,  // a: condition, b: if so, c: if not, or nothing
  // statements
  data,          // a, b: text
  print,         // a
  branch,        // a: condition, b: list if so, c: list if not
  loop,          // a: target, b: over, c: loop_parts
  loop_parts,    // a: condition, or nothing; b: list of the body, c: list if there was no item
  set,           // a: target, b: value
  set_block,     // a: target, b: filters, or nothing; c: list of the body
  space_target,  // a: name of a namespace, b, c: text of its attribute
  macro,         // a: name, b: list of parameters, c: list of the body
  parameter,     // a: name, b: default, or nothing
  filter_block,  // a: filters, b: list of the body
  with,          // a: list of sets, b: list of the body
  leave,         // break
  next_item,     // continue
};

enum class Op : u8 {
  none,
  negative,
  positive,
  not_,
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  concat,
  and_,
  or_,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct Node {
  NodeKind kind = NodeKind::nothing;
  Op op = Op::none;
  u32 line = 0;
  u32 a = 0;
  u32 b = 0;
  u32 c = 0;
  NodeIdx next = kNoNode;
};
static_assert(sizeof(Node) == 24);

struct NameText {
  u32 begin = 0;
  u32 n_bytes = 0;
};

inline constexpr u32 kNoName = ~u32{0};

struct Program {
  std::span<const char> source{};  // with one kind of line end, texts without escapes
  std::span<const Node> nodes{};
  std::span<const NameText> names{};
  NodeIdx body = kNoNode;  // list
  u32 loop_name = kNoName;

  const Node& at(NodeIdx idx) const { return nodes[idx]; }
  std::string_view text(u32 begin, u32 n_bytes) const { return {source.data() + begin, n_bytes}; }
  // The number of a variable's name; kNoName: the template does not use it.
  u32 find_name(std::string_view name) const;
  std::string_view name(u32 idx) const { return text(names[idx].begin, names[idx].n_bytes); }
};

}  // namespace tarn::chat
