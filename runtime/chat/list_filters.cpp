// Filters of lists and dicts.
#include <algorithm>

#include "runtime/chat/call.h"
#include "runtime/chat/characters.h"

namespace tarn::chat {
namespace {

// a.b.0: attributes and indices, one after the other.
MaybeValue attribute_path(Machine& m, Value of, const Value& path) {
  if (!path.is_text()) return item_of(m, of, path);
  std::string_view rest = path.text();
  m.work(path.n);
  while (true) {
    m.work(kFindWork);
    if (!m.step()) return Failed{};
    const u64 dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    if (!part.empty() && part.size() < 9 && part.find_first_not_of("0123456789") == part.npos) {
      i64 idx = 0;
      for (const char c : part) idx = 10 * idx + (c - '0');
      TARN_GET(of, item_of(m, of, make_integer(idx)));
    } else {
      TARN_GET(of, item_of(m, of, make_text(part)));
    }
    if (dot == rest.npos) return of;
    rest = rest.substr(dot + 1);
  }
}

MaybeValue list(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  TARN_GET(const auto items, items_of(m, of));
  return make_items(Kind::list, items);
}

MaybeValue first(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  TARN_GET(const auto items, items_of(m, of));
  if (items.empty()) return make_undefined("the first item of nothing");
  if (of.is(Kind::generator)) of.generated->next -= items.size() - 1;
  return items.front();
}

MaybeValue last(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  if (of.is(Kind::generator)) return m.wrong("the last item of a generator");
  TARN_GET(const auto items, items_of(m, of));
  return items.empty() ? make_undefined("the last item of nothing") : items.back();
}

MaybeValue reverse(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  if (of.is(Kind::generator)) return m.unknown("reverse of a generator");
  TARN_GET(const auto items, items_of(m, of));
  if (of.is_text()) {
    const u64 mark = m.begin();
    for (u64 i = items.size(); i > 0; --i) {
      if (!m.put(items[i - 1])) return Failed{};
    }
    return m.take(mark);
  }
  if (items.empty()) return make_generator(m, {});
  const std::span<Value> turned = m.alloc<Value>(items.size());
  if (turned.empty()) return Failed{};
  std::reverse_copy(items.begin(), items.end(), turned.begin());
  m.work(u64{8} * items.size());
  return make_generator(m, turned);
}

MaybeValue join(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"d", "attribute"}, 0)) return Failed{};
  const Value* given = arguments.find(0, "d");
  const Value* attribute = arguments.find(1, "attribute");
  TARN_GET(const Value between, text_of(m, given != nullptr ? *given : make_text("")));
  TARN_GET(const auto items, items_of(m, of));
  const u64 mark = m.begin();
  for (u64 i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (attribute != nullptr) {
      TARN_GET(item, attribute_path(m, item, *attribute));
    }
    if (!m.step() || (i > 0 && !m.put(between)) || !put_text(m, item)) return Failed{};
  }
  return m.take(mark);
}

// The pairs of a dict.
MaybeValue pairs_of(Machine& m, const Value& dict) {
  TARN_GET(const Value method, attribute_of(m, dict, "items"));
  return call_value(m, method, Arguments());
}

MaybeValue items_filter(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  if (of.is(Kind::undefined)) return make_generator(m, {});
  if (!of.is(Kind::dict)) return m.wrong("items of what is no dict");
  TARN_GET(const Value pairs, pairs_of(m, of));
  return make_generator(m, pairs.span());
}

// ---- map, select and their relatives

Arguments without(const Arguments& arguments, u64 n) {
  return Arguments(arguments.all().subspan(std::min(n, arguments.n())));
}

// For a generator made of them.
std::optional<std::span<const Value>> items_for_later(Machine& m, const Value& of) {
  const auto items = items_of(m, of);
  if (of.is(Kind::generator)) of.generated->is_open = true;
  return items;
}

// These filters take whatever is false for an empty list.
std::optional<std::span<const Value>> items_if_true(Machine& m, const Value& of) {
  return is_true(of) ? items_for_later(m, of) : std::span<const Value>();
}

MaybeValue map(Machine& m, const Value& of, const Arguments& arguments) {
  TARN_GET(const auto all, items_if_true(m, of));
  const Value* attribute = arguments.find(arguments.n(), "attribute");
  const Value* otherwise = arguments.find(arguments.n(), "default");
  const bool is_filter = arguments.n() > 0 && arguments.all()[0].name.empty();
  if (!is_filter && attribute == nullptr) return m.wrong("map without a filter");
  if (is_filter && !arguments.at(0).is_text()) return m.wrong("map without a filter");
  if (all.empty()) return make_generator(m, {});
  const std::span<Value> mapped = m.alloc<Value>(all.size());
  if (mapped.empty()) return Failed{};
  for (u64 i = 0; i < all.size(); ++i) {
    if (!m.step()) return Failed{};
    if (is_filter) {
      TARN_GET(mapped[i], call_filter(m, arguments.at(0).text(), all[i], without(arguments, 1)));
      continue;
    }
    TARN_GET(mapped[i], attribute_path(m, all[i], *attribute));
    if (mapped[i].is(Kind::undefined) && otherwise != nullptr) mapped[i] = *otherwise;
  }
  return make_generator(m, mapped);
}

// Selects the items that a test holds for, or does not. by_attribute: of their attribute.
MaybeValue select(Machine& m, const Value& of, const Arguments& arguments, bool by_attribute,
                  bool wanted) {
  TARN_GET(const auto all, items_if_true(m, of));
  const u64 n_before = by_attribute ? 1 : 0;
  if (arguments.n() < n_before) return m.wrong("select without an attribute");
  const bool has_test = arguments.n() > n_before;
  if (has_test && !arguments.at(n_before).is_text()) return m.wrong("select without a test");
  if (all.empty()) return make_generator(m, {});
  const std::span<Value> chosen = m.alloc<Value>(all.size());
  if (chosen.empty()) return Failed{};
  u64 n = 0;
  for (const Value& item : all) {
    if (!m.step()) return Failed{};
    Value tested = item;
    if (by_attribute) {
      TARN_GET(tested, attribute_path(m, item, arguments.at(0)));
    }
    bool holds = is_true(tested);
    if (has_test) {
      TARN_GET(holds, call_test(m, arguments.at(n_before).text(), tested,
                                without(arguments, n_before + 1)));
    }
    if (holds == wanted) chosen[n++] = item;
  }
  return make_generator(m, chosen.first(n));
}

template <bool by_attribute, bool wanted>
MaybeValue selected(Machine& m, const Value& of, const Arguments& arguments) {
  return select(m, of, arguments, by_attribute, wanted);
}

// ---- order

// Returns the key that a value is ordered by: texts without their case, unless it counts.
MaybeValue order_key(Machine& m, const Value& of, const Value* attribute, bool case_counts) {
  Value key = of;
  if (attribute != nullptr && !attribute->is(Kind::none)) {
    if (attribute->is_text() && attribute->text().find(',') != std::string_view::npos) {
      return m.unknown("sort by several attributes");
    }
    TARN_GET(key, attribute_path(m, of, *attribute));
  }
  return key.is_text() && !case_counts ? in_case(m, key, Case::lower) : key;
}

struct Keyed {
  Value key{};
  Value value{};
};

// A list of the items, in order; stable.
MaybeValue sorted(Machine& m, std::span<const Value> all, const Value* attribute, bool case_counts,
                  bool descends) {
  if (all.empty()) return make_items(Kind::list, {});
  const std::span<Keyed> keyed = m.alloc<Keyed>(all.size());
  const std::span<Keyed> spare = m.alloc<Keyed>(all.size());
  if (keyed.empty() || spare.empty()) return Failed{};
  for (u64 i = 0; i < all.size(); ++i) {
    keyed[i].value = all[i];
    TARN_GET(keyed[i].key, order_key(m, all[i], attribute, case_counts));
  }
  // Merges runs of growing length: no comparison can lead out of the array.
  for (u64 run = 1; run < keyed.size(); run *= 2) {
    for (u64 begin = 0; begin < keyed.size(); begin += 2 * run) {
      const u64 middle = std::min<u64>(begin + run, keyed.size());
      const u64 end = std::min<u64>(begin + 2 * run, keyed.size());
      u64 left = begin;
      u64 right = middle;
      for (u64 at = begin; at < end; ++at) {
        bool takes_right = left == middle;
        if (left < middle && right < end) {
          const Value& a = keyed[left].key;
          const Value& b = keyed[right].key;
          TARN_GET(takes_right, descends ? is_less(m, a, b) : is_less(m, b, a));
        }
        spare[at] = keyed[takes_right ? right++ : left++];
      }
    }
    std::copy(spare.begin(), spare.end(), keyed.begin());
  }
  const std::span<Value> values = m.alloc<Value>(keyed.size());
  if (values.empty()) return Failed{};
  for (u64 i = 0; i < keyed.size(); ++i) values[i] = keyed[i].value;
  return make_items(Kind::list, values);
}

bool is_set(const Value* value) { return value != nullptr && is_true(*value); }

MaybeValue sort(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"reverse", "case_sensitive", "attribute"}, 0)) return Failed{};
  TARN_GET(const auto all, items_of(m, of));
  return sorted(m, all, arguments.find(2, "attribute"), is_set(arguments.find(1, "case_sensitive")),
                is_set(arguments.find(0, "reverse")));
}

MaybeValue dictsort(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"case_sensitive", "by", "reverse"}, 0)) return Failed{};
  if (!of.is(Kind::dict)) return m.wrong("dictsort of what is no dict");
  const Value* by = arguments.find(1, "by");
  const bool by_value = by != nullptr && by->is_text() && by->text() == "value";
  TARN_GET(const Value pairs, pairs_of(m, of));
  const Value place = make_integer(by_value ? 1 : 0);
  return sorted(m, pairs.span(), &place, is_set(arguments.find(0, "case_sensitive")),
                is_set(arguments.find(2, "reverse")));
}

template <bool wants_max>
MaybeValue extreme(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"case_sensitive", "attribute"}, 0)) return Failed{};
  TARN_GET(const auto all, items_of(m, of));
  if (all.empty()) return make_undefined("an item of nothing");
  const Value* attribute = arguments.find(1, "attribute");
  const bool case_counts = is_set(arguments.find(0, "case_sensitive"));
  Value best = all.front();
  TARN_GET(Value best_key, order_key(m, best, attribute, case_counts));
  for (const Value& item : all.subspan(1)) {
    TARN_GET(const Value key, order_key(m, item, attribute, case_counts));
    TARN_GET(const bool is_better,
             wants_max ? is_less(m, best_key, key) : is_less(m, key, best_key));
    if (!is_better) continue;
    best = item;
    best_key = key;
  }
  return best;
}

MaybeValue unique(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"case_sensitive", "attribute"}, 0)) return Failed{};
  TARN_GET(const auto all, items_for_later(m, of));
  if (all.empty()) return make_generator(m, {});
  const std::span<Value> chosen = m.alloc<Value>(all.size());
  const std::span<Value> keys = m.alloc<Value>(all.size());
  if (chosen.empty() || keys.empty()) return Failed{};
  u64 n = 0;
  for (const Value& item : all) {
    TARN_GET(const Value key, order_key(m, item, arguments.find(1, "attribute"),
                                        is_set(arguments.find(0, "case_sensitive"))));
    if (!is_hashable(key)) return m.wrong("unique: an item that can change");
    bool is_new = true;
    for (u64 i = 0; i < n && is_new; ++i) {
      TARN_GET(const bool is_same, is_equal(m, keys[i], key));
      is_new = !is_same;
    }
    if (!is_new) continue;
    keys[n] = key;
    chosen[n++] = item;
  }
  return make_generator(m, chosen.first(n));
}

MaybeValue sum(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"attribute", "start"}, 0)) return Failed{};
  const Value* attribute = arguments.find(0, "attribute");
  const Value* start = arguments.find(1, "start");
  TARN_GET(const auto all, items_of(m, of));
  Value total = start != nullptr ? *start : make_integer(0);
  if (total.is_text()) return m.wrong("sum of texts");
  for (const Value& item : all) {
    Value term = item;
    if (attribute != nullptr && !attribute->is(Kind::none)) {
      TARN_GET(term, attribute_path(m, item, *attribute));
    }
    if (!m.step()) return Failed{};
    TARN_GET(total, binary_of(m, Op::add, total, term));
  }
  return total;
}

constexpr Named kListFilters[] = {
    {"dictsort", dictsort},
    {"first", first},
    {"items", items_filter},
    {"join", join},
    {"last", last},
    {"list", list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", selected<false, false>},
    {"rejectattr", selected<true, false>},
    {"reverse", reverse},
    {"select", selected<false, true>},
    {"selectattr", selected<true, true>},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const Named> list_filters() { return kListFilters; }

}  // namespace tarn::chat
