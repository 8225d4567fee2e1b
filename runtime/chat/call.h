// Calls of filters, tests, methods and functions, and their arguments. Private to this folder.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/chat/core.h"

namespace tarn::chat {

struct Argument {
  Value value{};
  std::string_view name{};  // empty: given by its place
};

class Arguments {
 public:
  Arguments() = default;
  explicit Arguments(std::span<const Argument> all) : all_(all) {}

  std::span<const Argument> all() const { return all_; }
  u64 n() const { return all_.size(); }
  // Whether there are no others than these, at most one of each, and the first `n_wanted`.
  bool match(Machine& m, std::initializer_list<std::string_view> names, u64 n_wanted) const;
  // The argument at a place, or of a name; nullptr if it was not given.
  const Value* find(u64 place, std::string_view name) const;
  const Value& at(u64 place) const { return all_[place].value; }

 private:
  std::span<const Argument> all_{};
};

// A callee by name: with a value before the bar or the dot, and arguments.
using CallFn = MaybeValue (*)(Machine& m, const Value& of, const Arguments& arguments);
struct Named {
  std::string_view name;
  CallFn fn = nullptr;  // nullptr: Jinja2 has it, and Tarn does not
};

// nullptr if there is none of this name.
const Named* find_named(Machine& m, std::span<const Named> among, std::string_view name);

MaybeValue make_generator(Machine& m, std::span<const Value> items);
// A whole number in an argument.
std::optional<i64> integer_of(Machine& m, const Value& value);

// access.cpp: a.name, a[key], a[begin:end:step].
MaybeValue attribute_of(Machine& m, const Value& of, std::string_view name);
MaybeValue item_of(Machine& m, const Value& of, const Value& key);
MaybeValue slice_of(Machine& m, const Value& of, const Value& begin, const Value& end,
                    const Value& step);

// methods.cpp, text_methods.cpp: the methods of dicts, lists, loops and texts.
std::span<const Named> methods_of(Kind kind);
std::span<const Named> text_methods();

// functions.cpp
std::span<const Named> functions();

// filters.cpp, list_filters.cpp, tests.cpp. unknown or wrong where there is none of this name.
MaybeValue call_filter(Machine& m, std::string_view name, const Value& of,
                       const Arguments& arguments);
std::span<const Named> list_filters();
std::optional<bool> call_test(Machine& m, std::string_view name, const Value& of,
                              const Arguments& arguments);

// operators.cpp
MaybeValue unary_of(Machine& m, Op op, const Value& of);
// evaluate.cpp has ~ and the sum of texts.
MaybeValue binary_of(Machine& m, Op op, const Value& a, const Value& b);
std::optional<bool> compare_of(Machine& m, Op op, const Value& a, const Value& b);

// text_changes.cpp
MaybeValue replaced(Machine& m, const Value& text, std::string_view from, const Value& to, i64 n);
MaybeValue stripped(Machine& m, const Value& text, const Value* characters, bool left, bool right);
enum class Case : u8 { lower, upper, title, capitalized };
MaybeValue in_case(Machine& m, const Value& text, Case wanted);
// With HTML's escapes, and safe.
MaybeValue escaped(Machine& m, const Value& text);
// format.cpp: '...' % arguments, and '...'.format(...).
MaybeValue percent_formatted(Machine& m, const Value& format, std::span<const Value> values);
MaybeValue formatted(Machine& m, const Value& format, const Arguments& arguments);

// evaluate.cpp: anything that can be called.
MaybeValue call_value(Machine& m, const Value& called, const Arguments& arguments);
MaybeValue evaluate(Machine& m, NodeIdx idx);
// Prints the value of an expression.
bool put_value(Machine& m, NodeIdx idx);
// A text through the filters of a block.
MaybeValue filtered_text(Machine& m, NodeIdx filter, const Value& text);
// render.cpp: runs statements; prints to the machine's output.
MaybeValue call_macro(Machine& m, const Node& macro, const Arguments& arguments);
bool run(Machine& m, NodeIdx body);
bool assign(Machine& m, const Node& target, const Value& value);
bool set_in_space(Machine& m, Space& space, std::string_view name, const Value& value);

}  // namespace tarn::chat
