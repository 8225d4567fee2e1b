// Functions that a template can call by their name alone.
#include <array>

#include "runtime/chat/call.h"
#include "runtime/chat/chat_template.h"

namespace tarn::chat {
namespace {

MaybeValue range(Machine& m, const Value&, const Arguments& arguments) {
  if (!arguments.match(m, {"start", "stop", "step"}, 1)) return Failed{};
  std::array<i64, 3> given{0, 0, 1};
  for (u64 i = 0; i < arguments.n(); ++i) {
    TARN_GET(given[i], integer_of(m, arguments.at(i)));
  }
  if (arguments.n() == 1) given = {0, given[0], 1};
  const i64 by = given[2];
  if (by == 0) return m.wrong("range: a step of 0");
  constexpr i64 kFar = i64{1} << 40;
  for (const i64 value : given) {
    if (value > kFar || value < -kFar) return m.wrong("range: too large");
  }
  const i64 length =
      by > 0 ? (given[1] - given[0] + by - 1) / by : (given[0] - given[1] - by - 1) / -by;
  if (length <= 0) return make_items(Kind::range, {});
  if (length > kRangeMax) return m.wrong("range: too large");
  const std::span<Value> items = m.alloc<Value>(static_cast<u64>(length));
  if (items.empty()) return Failed{};
  for (u64 i = 0; i < items.size(); ++i) {
    items[i] = make_integer(given[0] + static_cast<i64>(i) * by);
  }
  m.work(u64{8} * items.size());
  return make_items(Kind::range, items);
}

MaybeValue make_space(Machine& m, const Value&, const Arguments& arguments) {
  const std::span<Space> space = m.alloc<Space>(1);
  if (space.empty()) return Failed{};
  space[0] = Space{};
  for (const Argument& argument : arguments.all()) {
    if (argument.name.empty()) return m.unknown("namespace() of a dict");
    if (!set_in_space(m, space[0], argument.name, argument.value)) return Failed{};
  }
  Value value;
  value.kind = Kind::space;
  value.space = space.data();
  return value;
}

MaybeValue dict(Machine& m, const Value&, const Arguments& arguments) {
  const bool copies = arguments.n() > 0 && arguments.all()[0].name.empty();
  if (copies && !arguments.at(0).is(Kind::dict)) return m.unknown("dict() of what is no dict");
  const auto copied = copies ? entries_of(arguments.at(0)) : std::span<const Entry>();
  const u64 n_max = copied.size() + arguments.n();
  if (n_max == 0) return make_dict({});
  const std::span<Entry> entries = m.alloc<Entry>(n_max);
  if (entries.empty()) return Failed{};
  u64 n = 0;
  for (const Entry& entry : copied) entries[n++] = entry;
  for (const Argument& argument : arguments.all().subspan(copies ? 1 : 0)) {
    if (argument.name.empty()) return m.wrong("dict() of more than one value");
    const Entry* there = find_entry(m, entries.first(n), argument.name);
    const u64 at = there == nullptr ? n++ : static_cast<u64>(there - entries.data());
    if (there == nullptr) entries[at].key = make_text(argument.name);
    entries[at].value = argument.value;
  }
  return make_dict(entries.first(n));
}

MaybeValue raise_exception(Machine& m, const Value&, const Arguments& arguments) {
  if (!arguments.match(m, {"message"}, 1)) return Failed{};
  TARN_GET(const Value why, text_of(m, *arguments.find(0, "message")));
  return m.refuse("the chat template refuses these messages", why.text());
}

MaybeValue strftime_now(Machine& m, const Value&, const Arguments& arguments) {
  if (!arguments.match(m, {"format"}, 1)) return Failed{};
  const Value& format = *arguments.find(0, "format");
  std::array<char, 128> terminated{};
  std::array<char, 512> out{};
  if (!format.is_text() || format.n >= terminated.size()) {
    return m.wrong("strftime_now of what is no short text");
  }
  if (format.text().find('\0') != std::string_view::npos) {
    return m.wrong("strftime_now of a text with a zero byte");
  }
  format.text().copy(terminated.data(), format.n);
  const u64 n = std::strftime(out.data(), out.size(), terminated.data(), &m.now);
  m.work(u64{256} * format.n);
  // A user's text in it is no control token.
  const bool is_own = format.origins == nullptr && format.origin == kFromTemplate;
  const u64 begin = m.begin();
  if (!m.put({out.data(), n}, is_own ? kFromTemplate : kFromCaller)) return Failed{};
  return m.take(begin);
}

constexpr Named kFunctions[] = {
    {"range", range},    {"namespace", make_space},
    {"dict", dict},      {"raise_exception", raise_exception},
    {"cycler", nullptr}, {"strftime_now", strftime_now},
    {"joiner", nullptr}, {"lipsum", nullptr},
};

}  // namespace

std::span<const Named> functions() { return kFunctions; }

MaybeValue make_generator(Machine& m, std::span<const Value> items) {
  const std::span<Generated> generated = m.alloc<Generated>(1);
  if (generated.empty()) return Failed{};
  generated[0] = {.items = items};
  Value value;
  value.kind = Kind::generator;
  value.generated = generated.data();
  return value;
}

std::optional<i64> integer_of(Machine& m, const Value& value) {
  if (value.is_whole()) return value.integer;
  return m.wrong("an argument that must be a whole number");
}

}  // namespace tarn::chat
