// Runs statements.
#include <algorithm>

#include "runtime/chat/call.h"

namespace tarn::chat {
namespace {

enum class Flow : u8 { on, next_item, leave, failed };

Flow run_list(Machine& m, NodeIdx first);

Flow flow(bool is_good) { return is_good ? Flow::on : Flow::failed; }

bool run_print(Machine& m, const Node& node) {
  const Machine::Mark mark = m.mark();
  const bool is_put = put_value(m, node.a);
  m.release(mark);
  return is_put;
}

Flow run_branch(Machine& m, const Node* node) {
  while (true) {
    const auto condition = evaluate(m, node->a);
    if (!condition) return Flow::failed;
    if (is_true(*condition)) return run_list(m, node->b);
    if (node->c == kNoNode) return Flow::on;
    const Node& otherwise = m.program.at(node->c);
    const bool is_elif = otherwise.kind == NodeKind::branch && otherwise.next == kNoNode;
    if (!is_elif) return run_list(m, node->c);
    node = &otherwise;
  }
}

// Returns the items for which a loop's condition holds.
std::optional<std::span<const Value>> filtered(Machine& m, const Node& node, const Node& parts,
                                               std::span<const Value> items) {
  if (parts.a == kNoNode || items.empty()) return items;
  const std::span<Value> wanted = m.alloc<Value>(items.size());
  if (wanted.empty()) return Failed{};
  u64 n = 0;
  for (const Value& item : items) {
    if (!m.step()) return Failed{};
    const u32 outer = m.variables.begin_scope();
    const bool is_bound = assign(m, m.program.at(node.a), item);
    const auto condition = is_bound ? evaluate(m, parts.a) : MaybeValue();
    m.variables.end_scope(outer);
    if (!condition) return Failed{};
    if (is_true(*condition)) wanted[n++] = item;
  }
  return std::span<const Value>(wanted.first(n));
}

Flow run_loop(Machine& m, const Node& node) {
  const Node& parts = m.program.at(node.c);
  const auto over = evaluate(m, node.b);
  if (!over) return Flow::failed;
  const auto all = items_of(m, *over);
  if (!all) return Flow::failed;
  if (over->is(Kind::generator)) over->generated->is_open = true;
  const auto items = filtered(m, node, parts, *all);
  if (!items) return Flow::failed;
  if (items->empty()) {
    if (over->is(Kind::generator)) over->generated->is_open = false;
    const u32 outer = m.variables.begin_scope();
    const Flow end = run_list(m, parts.c);
    m.variables.end_scope(outer);
    return end;
  }
  const std::span<LoopState> state = m.alloc<LoopState>(1);
  const std::span<Value> changed = m.alloc<Value>(1);
  if (state.empty() || changed.empty()) return Flow::failed;
  changed[0] = Value();
  changed[0].kind = Kind::space;  // equal to nothing
  state[0] = {.items = *items, .at = 0, .changed = changed.data()};
  Value loop;
  loop.kind = Kind::loop;
  loop.loop = state.data();
  for (u64 i = 0; i < items->size(); ++i) {
    state[0].at = i;
    const Machine::Mark mark = m.mark();
    const u32 outer = m.variables.begin_scope();
    Flow end = Flow::failed;
    const bool has_loop = m.program.loop_name == kNoName || m.bind(m.program.loop_name, loop);
    if (m.step() && has_loop && assign(m, m.program.at(node.a), (*items)[i])) {
      end = run_list(m, parts.b);
    }
    m.variables.end_scope(outer);
    m.release(mark);
    if (end == Flow::failed) return end;
    if (end == Flow::leave) return Flow::on;
  }
  if (over->is(Kind::generator)) over->generated->is_open = false;
  return Flow::on;
}

// Returns what statements print, as a text, through filters.
MaybeValue captured(Machine& m, NodeIdx body, NodeIdx filters) {
  const u64 begin = m.begin();
  if (run_list(m, body) == Flow::failed) return Failed{};
  TARN_GET(const Value text, m.take(begin));
  if (filters == kNoNode) return text;
  return filtered_text(m, filters, text);
}

Flow run_with(Machine& m, const Node& node) {
  // All values are of the outer scope.
  u64 n = 0;
  for (NodeIdx idx = node.a; idx != kNoNode; idx = m.program.at(idx).next) ++n;
  const std::span<Value> values = n > 0 ? m.alloc<Value>(n) : std::span<Value>();
  if (values.size() < n) return Flow::failed;
  u64 at = 0;
  for (NodeIdx idx = node.a; idx != kNoNode; idx = m.program.at(idx).next) {
    const auto value = evaluate(m, m.program.at(idx).b);
    if (!value) return Flow::failed;
    values[at++] = *value;
  }
  const u32 outer = m.variables.begin_scope();
  Flow end = Flow::on;
  at = 0;
  for (NodeIdx idx = node.a; idx != kNoNode && end == Flow::on; idx = m.program.at(idx).next) {
    end = flow(assign(m, m.program.at(m.program.at(idx).a), values[at++]));
  }
  if (end == Flow::on) end = run_list(m, node.b);
  m.variables.end_scope(outer);
  return end;
}

Flow run_filter_block(Machine& m, const Node& node) {
  const u32 outer = m.variables.begin_scope();
  const auto text = captured(m, node.b, node.a);
  m.variables.end_scope(outer);
  return flow(text && put_text(m, *text));
}

Flow run_one(Machine& m, const Node& node, NodeIdx idx) {
  m.at_line(node.line);
  switch (node.kind) {
    case NodeKind::data:
      return flow(m.put(m.program.text(node.a, node.b)));
    case NodeKind::print:
      return flow(run_print(m, node));
    case NodeKind::branch:
      return run_branch(m, &node);
    case NodeKind::loop:
      return run_loop(m, node);
    case NodeKind::set: {
      const auto value = evaluate(m, node.b);
      return flow(value && assign(m, m.program.at(node.a), *value));
    }
    case NodeKind::set_block: {
      const u32 outer = m.variables.begin_scope();
      const auto value = captured(m, node.c, node.b);
      m.variables.end_scope(outer);
      return flow(value && assign(m, m.program.at(node.a), *value));
    }
    case NodeKind::macro: {
      Value macro;
      macro.kind = Kind::macro;
      macro.node = idx;
      return flow(m.bind(node.a, macro));
    }
    case NodeKind::filter_block:
      return run_filter_block(m, node);
    case NodeKind::with:
      return run_with(m, node);
    case NodeKind::leave:
      return Flow::leave;
    case NodeKind::next_item:
      return Flow::next_item;
    default:
      return Flow::failed;
  }
}

Flow run_list(Machine& m, NodeIdx first) {
  const Level level(m);
  if (!level) return Flow::failed;
  for (NodeIdx idx = first; idx != kNoNode; idx = m.program.at(idx).next) {
    if (!m.step()) return Flow::failed;
    const Flow end = run_one(m, m.program.at(idx), idx);
    if (end != Flow::on) return end;
  }
  return Flow::on;
}

}  // namespace

bool run(Machine& m, NodeIdx body) { return run_list(m, body) == Flow::on; }

bool assign(Machine& m, const Node& target, const Value& value) {
  if (target.kind == NodeKind::name) return m.bind(target.a, value);
  if (target.kind == NodeKind::tuple) {
    const auto items = items_of(m, value);
    if (!items) return false;
    u64 i = 0;
    for (NodeIdx idx = target.a; idx != kNoNode; idx = m.program.at(idx).next, ++i) {
      if (i == items->size()) return m.wrong("fewer items than names").no();
      if (!m.bind(m.program.at(idx).a, (*items)[i])) return false;
    }
    return i == items->size() || m.wrong("more items than names").no();
  }
  const auto space = m.variables.find(target.a);
  if (!space || !space->is(Kind::space)) {
    return m.wrong("an attribute set of what is no namespace").no();
  }
  return set_in_space(m, *space->space, m.program.text(target.b, target.c), value);
}

bool set_in_space(Machine& m, Space& space, std::string_view name, const Value& value) {
  if (name.starts_with('_')) return m.wrong("a namespace's attribute that begins with _").no();
  m.note_kept();
  const Entry* there = find_entry(m, {space.entries, space.n}, name);
  if (there != nullptr) {
    space.entries[there - space.entries].value = value;
    return true;
  }
  if (space.n == space.capacity) {
    const u32 capacity = space.capacity == 0 ? 8 : 2 * space.capacity;
    const std::span<Entry> larger = m.alloc<Entry>(capacity);
    if (larger.empty()) return false;
    std::copy_n(space.entries, space.n, larger.begin());
    space.entries = larger.data();
    space.capacity = capacity;
  }
  space.entries[space.n++] = {.key = make_text(name), .value = value};
  return true;
}

MaybeValue call_macro(Machine& m, const Node& macro, const Arguments& arguments) {
  const Scopes::Frame outer = m.variables.begin_frame();
  const u64 begin = m.begin();
  bool is_good = true;
  u64 place = 0;
  for (NodeIdx idx = macro.b; idx != kNoNode && is_good; idx = m.program.at(idx).next, ++place) {
    const Node& parameter = m.program.at(idx);
    const std::string_view name = m.program.name(parameter.a);
    const Value* given = arguments.find(place, name);
    MaybeValue value = make_undefined(name);
    if (given != nullptr) {
      value = *given;
    } else if (parameter.b != kNoNode) {
      value = evaluate(m, parameter.b);
    }
    is_good = value && m.bind(parameter.a, *value);
  }
  for (const Argument& argument : arguments.all()) {
    if (!is_good) break;
    if (argument.name.empty()) continue;
    bool is_known = false;
    for (NodeIdx idx = macro.b; idx != kNoNode; idx = m.program.at(idx).next) {
      is_known |= m.program.name(m.program.at(idx).a) == argument.name;
    }
    if (!is_known) is_good = m.wrong(argument.name).no();
  }
  u64 n_places = 0;
  for (const Argument& argument : arguments.all())
    n_places += argument.name.empty() ? u64{1} : u64{0};
  if (is_good && n_places > place) is_good = m.wrong("a macro with too many arguments").no();
  is_good = is_good && run(m, macro.c);
  m.variables.end_frame(outer);
  if (!is_good) return Failed{};
  return m.take(begin);
}

}  // namespace tarn::chat
