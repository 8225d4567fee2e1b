#include "runtime/chat/core.h"

#include <algorithm>

#include "runtime/chat/characters.h"

namespace tarn::chat {

bool is_true(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer != 0;
    case Kind::real:
      return value.real != 0;
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::view:
    case Kind::dict:
      return value.n > 0;
    default:
      return true;
  }
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::undefined:
      return "something undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "a bool";
    case Kind::integer:
    case Kind::big:
      return "an int";
    case Kind::real:
      return "a float";
    case Kind::text:
      return "a text";
    case Kind::list:
      return "a list";
    case Kind::tuple:
      return "a tuple";
    case Kind::range:
      return "a range";
    case Kind::view:
      return "a view of a dict";
    case Kind::generator:
      return "a generator";
    case Kind::dict:
      return "a dict";
    case Kind::space:
      return "a namespace";
    case Kind::loop:
      return "loop";
    case Kind::macro:
      return "a macro";
    case Kind::function:
      return "a function";
    case Kind::method:
      return "a method";
  }
  return "";
}

namespace {

// Two lists of items, one by one.
std::optional<bool> are_equal(Machine& m, std::span<const Value> a, std::span<const Value> b) {
  if (a.size() != b.size()) return false;
  for (u64 i = 0; i < a.size(); ++i) {
    TARN_GET(const bool is_same, is_equal(m, a[i], b[i]));
    if (!is_same) return false;
  }
  return true;
}

std::optional<bool> are_equal(Machine& m, std::span<const Entry> a, std::span<const Entry> b) {
  if (a.size() != b.size()) return false;
  for (const Entry& entry : a) {
    const Entry* other = find_entry(m, b, entry.key);
    if (other == nullptr) return false;
    TARN_GET(const bool is_same, is_equal(m, entry.value, other->value));
    if (!is_same) return false;
  }
  return true;
}

}  // namespace

std::optional<bool> is_equal(Machine& m, const Value& a, const Value& b) {
  const Level level(m);
  if (!level || !m.step()) return Failed{};
  if (a.is(Kind::big) || b.is(Kind::big)) {
    return a.kind == b.kind && a.text() == b.text();
  }
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.integer == b.integer;
    return a.as_real() == b.as_real();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      m.work(std::min(a.n, b.n));
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
      return are_equal(m, a.span(), b.span());
    case Kind::dict:
      return are_equal(m, entries_of(a), entries_of(b));
    case Kind::view:
      return m.unknown("comparing views of dicts");
    case Kind::function:
      return a.id == b.id;
    case Kind::macro:
      return a.node == b.node;
    case Kind::method:
      return m.unknown("comparing methods");
    default:
      return a.self == b.self;
  }
}

std::optional<bool> is_less(Machine& m, const Value& a, const Value& b) {
  const Level level(m);
  if (!level || !m.step()) return Failed{};
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.integer < b.integer;
    return a.as_real() < b.as_real();
  }
  if (a.is_text() && b.is_text()) {  // UTF-8 has the order of code points
    m.work(std::min(a.n, b.n));
    return a.text() < b.text();
  }
  if (a.kind == b.kind && (a.is(Kind::list) || a.is(Kind::tuple))) {
    for (u64 i = 0; i < std::min(a.n, b.n); ++i) {
      TARN_GET(const bool is_same, is_equal(m, a.items[i], b.items[i]));
      if (!is_same) return is_less(m, a.items[i], b.items[i]);
    }
    return a.n < b.n;
  }
  if (a.is(Kind::big) || b.is(Kind::big)) return m.unknown("arithmetic with an integer so large");
  return m.wrong("a comparison of values without an order");
}

const Entry* find_entry(Machine& m, std::span<const Entry> entries, std::string_view key) {
  m.work(u64{8} * entries.size());
  for (const Entry& entry : entries) {
    if (!entry.key.is_text() || entry.key.n != key.size()) continue;
    m.work(key.size());
    if (entry.key.text() == key) return &entry;
  }
  return nullptr;
}

bool is_hashable(const Value& value) {
  const auto changes = [](const Value& of) {
    return of.is(Kind::list) || of.is(Kind::dict) || of.is(Kind::view);
  };
  if (!value.is(Kind::tuple)) return !changes(value);
  return std::ranges::none_of(
      value.span(), [&](const Value& item) { return changes(item) || item.is(Kind::tuple); });
}

const Entry* find_entry(Machine& m, std::span<const Entry> entries, const Value& key) {
  if (key.is_text()) return find_entry(m, entries, key.text());
  m.work(u64{8} * key.n);
  if (!is_hashable(key)) {
    m.wrong("a key that can change");
    return nullptr;
  }
  for (const Entry& entry : entries) {
    const auto is_same = is_equal(m, entry.key, key);
    if (is_same && *is_same) return &entry;
  }
  return nullptr;
}

std::optional<bool> contains(Machine& m, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (item.is_text()) {
      m.work(u64{8} * container.n);
      return find_text(container.text(), item.text()) != std::string_view::npos;
    }
    return m.wrong(item.is(Kind::undefined) ? item.text() : "in: only a text is in a text");
  }
  if (container.is(Kind::dict)) {
    const bool is_there = find_entry(m, entries_of(container), item) != nullptr;
    if (m.has_failed()) return Failed{};
    return is_there;
  }
  TARN_GET(const auto items, items_of(m, container));
  for (const Value& one : items) {
    TARN_GET(const bool is_same, is_equal(m, one, item));
    if (is_same && container.is(Kind::generator)) {  // what comes behind it is left
      container.generated->next = static_cast<u64>(&one - container.generated->items.data()) + 1;
    }
    if (is_same) return true;
  }
  return false;
}

std::optional<u64> length_of(Machine& m, const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      m.work(u64{4} * value.n);
      return count_code_points(value.text());
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::view:
    case Kind::dict:
      return value.n;
    default:
      return m.wrong("the length of what has none");
  }
}

std::optional<std::span<const Value>> items_of(Machine& m, const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return std::span<const Value>();
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::view:
      return value.span();
    case Kind::generator: {
      Generated& generated = *value.generated;
      if (generated.is_open) return m.unknown("a generator that is read in two places");
      const auto items = generated.items.subspan(generated.next);
      generated.next = generated.items.size();
      return items;
    }
    case Kind::dict: {
      if (value.n == 0) return std::span<const Value>();
      const std::span<Value> keys = m.alloc<Value>(value.n);
      if (keys.empty()) return Failed{};
      for (u64 i = 0; i < value.n; ++i) keys[i] = value.entries[i].key;
      m.work(u64{8} * value.n);
      return std::span<const Value>(keys);
    }
    case Kind::text: {
      const u64 n = count_code_points(value.text());
      if (n == 0) return std::span<const Value>();
      const std::span<Value> characters = m.alloc<Value>(n);
      if (characters.empty()) return Failed{};
      u64 at = 0;
      for (Value& character : characters) {
        const u64 n_bytes = code_point(value.text(), at).n_bytes;
        character = part_of(value, at, n_bytes);
        at += n_bytes;
      }
      m.work(u64{8} * value.n);
      return std::span<const Value>(characters);
    }
    default:
      return m.wrong("a loop over what has no items");
  }
}

u64 byte_of(std::string_view text, u64 idx) {
  u64 at = 0;
  for (; at < text.size(); ++at) {
    if (is_continuation(text[at])) continue;
    if (idx == 0) break;
    --idx;
  }
  return at;
}

}  // namespace tarn::chat
