#include <algorithm>

#include "runtime/chat/call.h"
#include "runtime/chat/characters.h"

namespace tarn::chat {
namespace {

MaybeValue method_of(Machine& m, const Value& of, std::string_view name) {
  const std::span<const Named> methods = methods_of(of.kind);
  const Named* named = find_named(m, methods, name);
  if (named == nullptr) return make_undefined(name);
  const std::span<Value> self = m.alloc<Value>(1);
  if (self.empty()) return Failed{};
  self[0] = of;
  Value method;
  method.kind = Kind::method;
  method.id = static_cast<u16>(named - methods.data());
  method.self = self.data();
  return method;
}

MaybeValue loop_attribute(Machine& m, const Value& of, std::string_view name) {
  const LoopState& loop = *of.loop;
  const i64 at = static_cast<i64>(loop.at);
  const i64 n = static_cast<i64>(loop.items.size());
  if (name == "index") return make_integer(at + 1);
  if (name == "index0") return make_integer(at);
  if (name == "revindex") return make_integer(n - at);
  if (name == "revindex0") return make_integer(n - at - 1);
  if (name == "first") return make_bool(at == 0);
  if (name == "last") return make_bool(at + 1 == n);
  if (name == "length") return make_integer(n);
  if (name == "depth") return make_integer(1);
  if (name == "depth0") return make_integer(0);
  if (name == "previtem") return at > 0 ? loop.items[loop.at - 1] : make_undefined(name);
  if (name == "nextitem") return at + 1 < n ? loop.items[loop.at + 1] : make_undefined(name);
  return method_of(m, of, name);
}

Value value_or_undefined(const Entry* entry, std::string_view name) {
  return entry != nullptr ? entry->value : make_undefined(name);
}

}  // namespace

// As Jinja2's sandbox: an attribute, else an item.
MaybeValue attribute_of(Machine& m, const Value& of, std::string_view name) {
  switch (of.kind) {
    case Kind::undefined:
      return m.wrong(of.text());
    case Kind::space: {
      const std::span<const Entry> entries(of.space->entries, of.space->n);
      return value_or_undefined(find_entry(m, entries, name), name);
    }
    case Kind::loop:
      return loop_attribute(m, of, name);
    case Kind::dict: {
      for (const std::string_view changing : {"clear", "pop", "popitem", "setdefault", "update"}) {
        if (name == changing) return make_undefined(name);  // as the sandbox has it
      }
      TARN_GET(const Value method, method_of(m, of, name));
      if (method.is(Kind::method)) return method;
      return value_or_undefined(find_entry(m, entries_of(of), name), name);
    }
    case Kind::macro:
      return m.unknown("attributes of macros");
    default:
      return method_of(m, of, name);
  }
}

MaybeValue item_of(Machine& m, const Value& of, const Value& key) {
  if (of.is(Kind::undefined)) return m.wrong(of.text());
  if (of.is(Kind::dict)) {
    const Entry* entry = find_entry(m, entries_of(of), key);
    if (m.has_failed()) return Failed{};
    if (entry != nullptr) return entry->value;
  } else if (key.is_whole() && (of.has_items() || of.is_text()) && !of.is(Kind::view)) {
    TARN_GET(const u64 n, length_of(m, of));
    const i64 size = static_cast<i64>(n);
    const i64 idx = key.integer < 0 ? key.integer + size : key.integer;
    if (idx < 0 || idx >= size) return make_undefined("an item that is not there");
    if (!of.is_text()) return of.items[idx];
    const u64 begin = byte_of(of.text(), static_cast<u64>(idx));
    m.work(u64{4} * begin);
    return part_of(of, begin, code_point(of.text(), begin).n_bytes);
  }
  if (!key.is_text()) return make_undefined("an item that is not there");
  if (of.is(Kind::dict)) return method_of(m, of, key.text());
  return attribute_of(m, of, key.text());
}

MaybeValue slice_of(Machine& m, const Value& of, const Value& begin, const Value& end,
                    const Value& step) {
  if (of.is(Kind::undefined)) return m.wrong(of.text());
  if (!of.is_text() && (!of.has_items() || of.is(Kind::view))) {
    return m.wrong("a slice of what has no items");
  }
  for (const Value* part : {&begin, &end, &step}) {
    if (!part->is(Kind::none) && !part->is_whole()) return m.wrong("a slice by what is no number");
  }
  TARN_GET(const u64 length, length_of(m, of));
  const i64 n = static_cast<i64>(length);
  const i64 by = step.is(Kind::none) ? 1 : step.integer;
  if (by == 0) return m.wrong("a slice with step 0");
  // Python's slice.indices().
  const i64 low = by > 0 ? 0 : -1;
  const i64 high = by > 0 ? n : n - 1;
  const auto bound = [&](const Value& given, i64 otherwise) {
    if (given.is(Kind::none)) return otherwise;
    const i64 idx = given.integer < 0 ? std::max<i64>(given.integer, -n - 1) + n : given.integer;
    return std::clamp(idx, low, high);
  };
  const i64 first = bound(begin, by > 0 ? low : high);
  const i64 last = bound(end, by > 0 ? high : low);
  if (of.is_text() && by == 1) {
    const u64 from = byte_of(of.text(), static_cast<u64>(first));
    const u64 to = first < last ? byte_of(of.text(), static_cast<u64>(last)) : from;
    m.work(u64{4} * (from + to));
    return part_of(of, from, to - from);
  }
  TARN_GET(const auto items, items_of(m, of));
  if (by == 1) {
    return make_items(of.kind, items.subspan(static_cast<u64>(first),
                                             static_cast<u64>(std::max<i64>(last - first, 0))));
  }
  const auto goes_on = [&](i64 i) { return by > 0 ? i < last : i > last; };
  if (of.is_text()) {
    const u64 mark = m.begin();
    for (i64 i = first; goes_on(i); i += by) {
      if (!m.put(items[static_cast<u64>(i)])) return Failed{};
      if (by > n || by < -n) break;
    }
    return m.take(mark);
  }
  if (!goes_on(first)) return make_items(of.kind, {});
  const std::span<Value> picked = m.alloc<Value>(length);
  if (picked.empty()) return Failed{};
  u64 n_picked = 0;
  for (i64 i = first; goes_on(i); i += by) {
    picked[n_picked++] = items[static_cast<u64>(i)];
    if (by > n || by < -n) break;
  }
  m.work(u64{8} * length);
  return make_items(of.kind, picked.first(n_picked));
}

}  // namespace tarn::chat
