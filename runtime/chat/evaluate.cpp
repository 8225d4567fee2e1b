#include <algorithm>
#include <array>
#include <bit>

#include "runtime/chat/call.h"

namespace tarn::chat {
namespace {

u64 bits_of(const Node& node) { return static_cast<u64>(node.b) << 32 | node.a; }

u32 count(const Program& program, NodeIdx first) {
  u32 n = 0;
  for (NodeIdx idx = first; idx != kNoNode; idx = program.at(idx).next) ++n;
  return n;
}

MaybeValue list(Machine& m, const Node& node, Kind kind) {
  const u32 n = count(m.program, node.a);
  if (n == 0) return make_items(kind, {});
  const std::span<Value> items = m.alloc<Value>(n);
  if (items.empty()) return Failed{};
  u64 at = 0;
  for (NodeIdx idx = node.a; idx != kNoNode; idx = m.program.at(idx).next) {
    TARN_GET(items[at++], evaluate(m, idx));
  }
  return make_items(kind, items);
}

MaybeValue dict(Machine& m, const Node& node) {
  const u32 n_pairs = count(m.program, node.a);
  if (n_pairs == 0) return make_dict({});
  const std::span<Entry> entries = m.alloc<Entry>(n_pairs);
  if (entries.empty()) return Failed{};
  u64 n = 0;
  for (NodeIdx idx = node.a; idx != kNoNode; idx = m.program.at(idx).next) {
    Entry entry;
    TARN_GET(entry.key, evaluate(m, m.program.at(idx).a));
    TARN_GET(entry.value, evaluate(m, m.program.at(idx).b));
    const Entry* there = find_entry(m, entries.first(n), entry.key);
    if (m.has_failed()) return Failed{};
    if (there == nullptr) {
      entries[n++] = entry;
    } else {
      entries[static_cast<u64>(there - entries.data())].value = entry.value;
    }
  }
  return make_dict(entries.first(n));
}

std::optional<Arguments> arguments(Machine& m, NodeIdx first) {
  const u32 n = count(m.program, first);
  if (n == 0) return Arguments();
  const std::span<Argument> all = m.alloc<Argument>(n);
  if (all.empty()) return Failed{};
  u64 at = 0;
  for (NodeIdx idx = first; idx != kNoNode; idx = m.program.at(idx).next) {
    const Node& node = m.program.at(idx);
    TARN_GET(all[at].value, evaluate(m, node.a));
    all[at].name = m.program.text(node.b, node.c);
    ++at;
  }
  return Arguments(all);
}

MaybeValue name(Machine& m, const Node& node) {
  if (const auto found = m.variables.find(node.a)) return *found;
  const std::string_view text = m.program.name(node.a);
  if (const Named* named = find_named(m, functions(), text)) {
    Value function;
    function.kind = Kind::function;
    function.id = static_cast<u16>(named - functions().data());
    return function;
  }
  for (const std::string_view jinja : {"self", "varargs", "kwargs"}) {
    if (text == jinja) return m.unknown(jinja);
  }
  return make_undefined(text);
}

MaybeValue item(Machine& m, const Node& node) {
  TARN_GET(const Value of, evaluate(m, node.a));
  const Node& key = m.program.at(node.b);
  if (key.kind != NodeKind::slice) {
    TARN_GET(const Value idx, evaluate(m, node.b));
    return item_of(m, of, idx);
  }
  std::array<Value, 3> parts{make_none(), make_none(), make_none()};
  const std::array<NodeIdx, 3> nodes{key.a, key.b, key.c};
  for (u64 i = 0; i < 3; ++i) {
    if (nodes[i] == kNoNode) continue;
    TARN_GET(parts[i], evaluate(m, nodes[i]));
  }
  return slice_of(m, of, parts[0], parts[1], parts[2]);
}

MaybeValue compare(Machine& m, const Node& node) {
  TARN_GET(Value left, evaluate(m, node.a));
  for (NodeIdx idx = node.b; idx != kNoNode; idx = m.program.at(idx).next) {
    const Node& comparison = m.program.at(idx);
    TARN_GET(const Value right, evaluate(m, comparison.a));
    TARN_GET(const bool holds, compare_of(m, comparison.op, left, right));
    if (!holds) return make_bool(false);
    left = right;
  }
  return make_bool(true);
}

bool is_sum(const Node& node) {
  return node.kind == NodeKind::binary && (node.op == Op::add || node.op == Op::concat);
}

// The value of a + or ~, or the text that was put to the output instead.
struct Sum {
  Value value{};
  bool is_put = false;
};

// Puts a sum of texts part by part: the texts of its beginnings are never made.
std::optional<Sum> sum_of(Machine& m, const Node& node) {
  const Level level(m);
  if (!level || !m.step()) return Failed{};
  const u64 begin = m.begin();
  const Node& first = m.program.at(node.a);
  Sum left;
  if (is_sum(first)) {
    TARN_GET(left, sum_of(m, first));
  } else {
    TARN_GET(left.value, evaluate(m, node.a));
  }
  TARN_GET(const Value right, evaluate(m, node.b));
  m.at_line(node.line);
  const auto is_plain = [](const Value& of) { return of.is_text() && of.id != kSafe; };
  const bool puts_left = left.is_put || node.op == Op::concat || is_plain(left.value);
  if (puts_left && (node.op == Op::concat || is_plain(right))) {
    if ((!left.is_put && !put_text(m, left.value)) || !put_text(m, right)) return Failed{};
    return Sum{.is_put = true};
  }
  if (left.is_put) {
    TARN_GET(left.value, m.take(begin));
  }
  TARN_GET(const Value value, binary_of(m, node.op, left.value, right));
  return Sum{.value = value};
}

MaybeValue binary(Machine& m, const Node& node) {
  if (is_sum(node)) {
    const u64 begin = m.begin();
    TARN_GET(const Sum sum, sum_of(m, node));
    return sum.is_put ? m.take(begin) : sum.value;
  }
  TARN_GET(const Value left, evaluate(m, node.a));
  if (node.op == Op::and_ || node.op == Op::or_) {
    if (is_true(left) == (node.op == Op::or_)) return left;
    return evaluate(m, node.b);
  }
  TARN_GET(const Value right, evaluate(m, node.b));
  m.at_line(node.line);
  return binary_of(m, node.op, left, right);
}

MaybeValue call(Machine& m, const Node& node) {
  TARN_GET(const Value called, evaluate(m, node.a));
  TARN_GET(const Arguments given, arguments(m, node.b));
  m.at_line(node.line);
  return call_value(m, called, given);
}

MaybeValue filtered(Machine& m, const Node& node, const Value& of) {
  TARN_GET(const Arguments given, arguments(m, node.b));
  m.at_line(node.line);
  return call_filter(m, m.program.name(node.c), of, given);
}

MaybeValue test(Machine& m, const Node& node) {
  TARN_GET(const Value of, evaluate(m, node.a));
  TARN_GET(const Arguments given, arguments(m, node.b));
  m.at_line(node.line);
  TARN_GET(const bool holds, call_test(m, m.program.name(node.c), of, given));
  return make_bool(holds);
}

MaybeValue conditional(Machine& m, const Node& node) {
  TARN_GET(const Value condition, evaluate(m, node.a));
  if (is_true(condition)) return evaluate(m, node.b);
  if (node.c == kNoNode) return make_undefined("an if without an else");
  return evaluate(m, node.c);
}

}  // namespace

MaybeValue evaluate(Machine& m, NodeIdx idx) {
  const Level level(m);
  if (!level || !m.step()) return Failed{};
  const Node& node = m.program.at(idx);
  m.at_line(node.line);
  switch (node.kind) {
    case NodeKind::text:
      return make_text(m.program.text(node.a, node.b));
    case NodeKind::none:
      return make_none();
    case NodeKind::boolean:
      return make_bool(node.a != 0);
    case NodeKind::integer:
      return make_integer(static_cast<i64>(bits_of(node)));
    case NodeKind::real:
      return make_real(std::bit_cast<f64>(bits_of(node)));
    case NodeKind::name:
      return name(m, node);
    case NodeKind::list:
      return list(m, node, Kind::list);
    case NodeKind::tuple:
      return list(m, node, Kind::tuple);
    case NodeKind::dict:
      return dict(m, node);
    case NodeKind::item:
      return item(m, node);
    case NodeKind::call:
      return call(m, node);
    case NodeKind::filter: {
      TARN_GET(const Value of, evaluate(m, node.a));
      return filtered(m, node, of);
    }
    case NodeKind::test:
      return test(m, node);
    case NodeKind::binary:
      return binary(m, node);
    case NodeKind::compare:
      return compare(m, node);
    case NodeKind::conditional:
      return conditional(m, node);
    case NodeKind::attribute: {
      TARN_GET(const Value of, evaluate(m, node.a));
      return attribute_of(m, of, m.program.text(node.b, node.c));
    }
    case NodeKind::unary: {
      TARN_GET(const Value of, evaluate(m, node.a));
      return unary_of(m, node.op, of);
    }
    default:
      return m.wrong("a part of a template at a wrong place");
  }
}

bool put_value(Machine& m, NodeIdx idx) {
  if (is_sum(m.program.at(idx))) {
    m.at_line(m.program.at(idx).line);
    const auto sum = sum_of(m, m.program.at(idx));
    return sum && (sum->is_put || put_text(m, sum->value));
  }
  const auto value = evaluate(m, idx);
  return value && put_text(m, *value);
}

MaybeValue filtered_text(Machine& m, NodeIdx filter, const Value& text) {
  const Level level(m);
  if (!level) return Failed{};
  const Node& node = m.program.at(filter);
  Value of = text;
  if (node.a != kNoNode) {
    TARN_GET(of, filtered_text(m, node.a, text));
  }
  return filtered(m, node, of);
}

MaybeValue call_value(Machine& m, const Value& called, const Arguments& arguments) {
  switch (called.kind) {
    case Kind::undefined:
      return m.wrong(called.text());
    case Kind::macro:
      return call_macro(m, m.program.at(called.node), arguments);
    case Kind::function: {
      const Named& function = functions()[called.id];
      if (function.fn == nullptr) return m.unknown(function.name);
      return function.fn(m, called, arguments);
    }
    case Kind::method: {
      const Named& method = methods_of(called.self->kind)[called.id];
      if (method.fn == nullptr) return m.unknown(method.name);
      return method.fn(m, *called.self, arguments);
    }
    default:
      return m.wrong("a call of what is no function");
  }
}

const Named* find_named(Machine& m, std::span<const Named> among, std::string_view name) {
  if (!among.empty()) m.work(kFindWork);
  for (const Named& named : among) {
    if (named.name == name) return &named;
  }
  return nullptr;
}

bool Arguments::match(Machine& m, std::initializer_list<std::string_view> names,
                      u64 n_wanted) const {
  u64 n_places = 0;
  for (u64 i = 0; i < n(); ++i) {
    const std::string_view name = all_[i].name;
    if (name.empty()) {
      if (n_places < i) return m.wrong("an argument without a name behind one with a name").no();
      if (++n_places > names.size()) return m.wrong("a call with too many arguments").no();
      continue;
    }
    const auto known = std::find(names.begin(), names.end(), name);
    if (known == names.end()) return m.wrong(name).no();
    if (static_cast<u64>(known - names.begin()) < n_places) return m.wrong(name).no();
  }
  for (u64 i = 0; i < n_wanted; ++i) {
    if (find(i, names.begin()[i]) == nullptr) return m.wrong(names.begin()[i]).no();
  }
  return true;
}

const Value* Arguments::find(u64 place, std::string_view name) const {
  if (place < n() && all_[place].name.empty()) return &all_[place].value;
  for (const Argument& argument : all_) {
    if (!argument.name.empty() && argument.name == name) return &argument.value;
  }
  return nullptr;
}

}  // namespace tarn::chat
