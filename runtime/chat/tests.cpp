// Tests: what stands behind `is`.
#include <algorithm>

#include "runtime/chat/call.h"

namespace tarn::chat {
namespace {

struct Comparison {
  std::string_view name;
  Op op;
};
constexpr Comparison kComparisons[] = {
    {"==", Op::equal},
    {"eq", Op::equal},
    {"equalto", Op::equal},
    {"!=", Op::not_equal},
    {"ne", Op::not_equal},
    {"<", Op::less},
    {"lt", Op::less},
    {"lessthan", Op::less},
    {"<=", Op::less_equal},
    {"le", Op::less_equal},
    {">", Op::greater},
    {"gt", Op::greater},
    {"greaterthan", Op::greater},
    {">=", Op::greater_equal},
    {"ge", Op::greater_equal},
    {"in", Op::in},
};

struct KindTest {
  std::string_view name;
  bool (*holds)(const Value& value);
};
bool is_sequence(const Value& value) {
  return value.is_text() || value.is(Kind::list) || value.is(Kind::tuple) ||
         value.is(Kind::range) || value.is(Kind::dict) || value.is(Kind::undefined);
}
bool is_iterable(const Value& value) {
  return is_sequence(value) || value.is(Kind::view) || value.is(Kind::generator) ||
         value.is(Kind::loop);
}
bool is_callable(const Value& value) {
  return value.is(Kind::macro) || value.is(Kind::function) || value.is(Kind::method) ||
         value.is(Kind::undefined) || value.is(Kind::loop);
}
constexpr KindTest kKinds[] = {
    {"defined", [](const Value& v) { return !v.is(Kind::undefined); }},
    {"undefined", [](const Value& v) { return v.is(Kind::undefined); }},
    {"none", [](const Value& v) { return v.is(Kind::none); }},
    {"boolean", [](const Value& v) { return v.is(Kind::boolean); }},
    {"true", [](const Value& v) { return v.is(Kind::boolean) && v.integer != 0; }},
    {"false", [](const Value& v) { return v.is(Kind::boolean) && v.integer == 0; }},
    {"integer", [](const Value& v) { return v.is(Kind::integer) || v.is(Kind::big); }},
    {"float", [](const Value& v) { return v.is(Kind::real); }},
    {"number", [](const Value& v) { return v.is_number() || v.is(Kind::big); }},
    {"string", [](const Value& v) { return v.is_text(); }},
    {"mapping", [](const Value& v) { return v.is(Kind::dict); }},
    {"sequence", is_sequence},
    {"iterable", is_iterable},
    {"callable", is_callable},
};

}  // namespace

std::optional<bool> call_test(Machine& m, std::string_view name, const Value& of,
                              const Arguments& arguments) {
  m.work(kFindWork);
  for (const KindTest& test : kKinds) {
    if (test.name != name) continue;
    if (!arguments.match(m, {}, 0)) return Failed{};
    return test.holds(of);
  }
  for (const Comparison& test : kComparisons) {
    if (test.name != name) continue;
    if (!arguments.match(m, {"other"}, 1)) return Failed{};
    return compare_of(m, test.op, of, *arguments.find(0, "other"));
  }
  if (name == "even" || name == "odd" || name == "divisibleby") {
    const bool has_divisor = name == "divisibleby";
    if (!arguments.match(m, {"num"}, has_divisor ? 1 : 0)) return Failed{};
    const Value by = has_divisor ? *arguments.find(0, "num") : make_integer(2);
    TARN_GET(const Value rest, binary_of(m, Op::modulo, of, by));
    return is_equal(m, rest, make_integer(name == "odd" ? 1 : 0));
  }
  if ((name == "upper" || name == "lower") && of.is_text()) {
    TARN_GET(const Value method, attribute_of(m, of, name == "upper" ? "isupper" : "islower"));
    TARN_GET(const Value holds, call_value(m, method, arguments));
    return is_true(holds);
  }
  return m.refuse(
      "the chat template has a test that Tarn does not know: pass another with "
      "--chat-template (chat_template)",
      name, Status::unsupported);
}

}  // namespace tarn::chat
