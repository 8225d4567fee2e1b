// The methods of dicts, lists and loops.
#include "runtime/chat/call.h"

namespace tarn::chat {
namespace {

MaybeValue get(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"key", "default"}, 1)) return Failed{};
  const Entry* entry = find_entry(m, entries_of(of), *arguments.find(0, "key"));
  if (m.has_failed()) return Failed{};
  if (entry != nullptr) return entry->value;
  const Value* otherwise = arguments.find(1, "default");
  return otherwise != nullptr ? *otherwise : make_none();
}

enum class Part : u8 { keys, values, items };

MaybeValue view(Machine& m, const Value& of, Part part) {
  if (of.n == 0) return make_items(Kind::view, {});
  const std::span<Value> items = m.alloc<Value>(of.n);
  if (items.empty()) return Failed{};
  for (u64 i = 0; i < of.n; ++i) {
    const Entry& entry = of.entries[i];
    if (part != Part::items) {
      items[i] = part == Part::keys ? entry.key : entry.value;
      continue;
    }
    const std::span<Value> pair = m.alloc<Value>(2);
    if (pair.empty()) return Failed{};
    pair[0] = entry.key;
    pair[1] = entry.value;
    items[i] = make_items(Kind::tuple, pair);
  }
  m.work(u64{16} * of.n);
  return make_items(Kind::view, items);
}

MaybeValue keys(Machine& m, const Value& of, const Arguments& arguments) {
  return arguments.match(m, {}, 0) ? view(m, of, Part::keys) : MaybeValue();
}
MaybeValue values(Machine& m, const Value& of, const Arguments& arguments) {
  return arguments.match(m, {}, 0) ? view(m, of, Part::values) : MaybeValue();
}
MaybeValue items(Machine& m, const Value& of, const Arguments& arguments) {
  return arguments.match(m, {}, 0) ? view(m, of, Part::items) : MaybeValue();
}
MaybeValue copy(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  return of;
}

MaybeValue index(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"value"}, 1)) return Failed{};
  for (u64 i = 0; i < of.n; ++i) {
    TARN_GET(const bool is_same, is_equal(m, of.items[i], arguments.at(0)));
    if (is_same) return make_integer(static_cast<i64>(i));
  }
  return m.wrong("index() of what is not in the list");
}

MaybeValue count(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"value"}, 1)) return Failed{};
  i64 n = 0;
  for (u64 i = 0; i < of.n; ++i) {
    TARN_GET(const bool is_same, is_equal(m, of.items[i], arguments.at(0)));
    n += is_same ? 1 : 0;
  }
  return make_integer(n);
}

MaybeValue cycle(Machine& m, const Value& of, const Arguments& arguments) {
  if (arguments.n() == 0) return m.wrong("cycle() of nothing");
  return arguments.at(of.loop->at % arguments.n());
}

MaybeValue changed(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"value"}, 1)) return m.unknown("changed() of several values");
  TARN_GET(const bool is_same, is_equal(m, *of.loop->changed, arguments.at(0)));
  m.note_kept();
  *of.loop->changed = arguments.at(0);
  return make_bool(!is_same);
}

// Methods of a dict. Those that change their object are undefined in the sandbox.
constexpr Named kDict[] = {{"get", get},     {"keys", keys}, {"values", values},
                           {"items", items}, {"copy", copy}, {"fromkeys", nullptr}};
constexpr Named kList[] = {{"index", index}, {"count", count}, {"copy", copy}};
constexpr Named kTuple[] = {{"index", index}, {"count", count}};
constexpr Named kRange[] = {
    {"index", index}, {"count", count}, {"start", nullptr}, {"stop", nullptr}, {"step", nullptr}};
constexpr Named kNumber[] = {
    {"real", nullptr},        {"imag", nullptr},       {"numerator", nullptr},
    {"denominator", nullptr}, {"conjugate", nullptr},  {"as_integer_ratio", nullptr},
    {"bit_length", nullptr},  {"bit_count", nullptr},  {"to_bytes", nullptr},
    {"from_bytes", nullptr},  {"is_integer", nullptr}, {"hex", nullptr},
    {"fromhex", nullptr}};
constexpr Named kLoop[] = {{"cycle", cycle}, {"changed", changed}};

}  // namespace

std::span<const Named> methods_of(Kind kind) {
  switch (kind) {
    case Kind::dict:
      return kDict;
    case Kind::list:
      return kList;
    case Kind::tuple:
      return kTuple;
    case Kind::range:
      return kRange;
    case Kind::boolean:
    case Kind::integer:
    case Kind::big:
    case Kind::real:
      return kNumber;
    case Kind::loop:
      return kLoop;
    case Kind::text:
      return text_methods();
    default:
      return {};
  }
}

}  // namespace tarn::chat
