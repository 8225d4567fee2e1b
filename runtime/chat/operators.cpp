#include <algorithm>
#include <cmath>

#include "runtime/chat/call.h"

namespace tarn::chat {
namespace {

MaybeValue joined(Machine& m, Value a, Value b) {
  const u16 safe = a.id | b.id;
  if (safe != a.id) {
    TARN_GET(a, escaped(m, a));
  }
  if (safe != b.id) {
    TARN_GET(b, escaped(m, b));
  }
  if (a.n == 0) return b;
  if (b.n == 0) return a;
  const u64 begin = m.begin();
  if (!m.put(a) || !m.put(b)) return Failed{};
  TARN_GET(Value text, m.take(begin));
  text.id = safe;
  return text;
}

MaybeValue joined_lists(Machine& m, const Value& a, const Value& b) {
  if (a.n == 0) return b;
  if (b.n == 0) return a;
  const std::span<Value> items = m.alloc<Value>(u64{a.n} + b.n);
  if (items.empty()) return Failed{};
  std::copy_n(a.items, a.n, items.begin());
  std::copy_n(b.items, b.n, items.begin() + a.n);
  m.work(u64{8} * items.size());
  return make_items(a.kind, items);
}

// A text or a list, several times.
MaybeValue repeated(Machine& m, const Value& of, i64 n) {
  const u64 times = static_cast<u64>(std::max<i64>(n, 0));
  if (of.is_text()) {
    if (of.n == 0 || times == 0) return make_text("");
    const u64 begin = m.begin();
    for (u64 i = 0; i < times; ++i) {
      if (!m.step() || !m.put(of)) return Failed{};
    }
    return m.take(begin);
  }
  if (of.n == 0 || times == 0) return make_items(of.kind, {});
  if (times > kRangeMax) return m.no_memory();
  m.work(u64{8} * times * of.n);
  if (!m.step()) return Failed{};
  const std::span<Value> items = m.alloc<Value>(times * of.n);
  if (items.empty()) return Failed{};
  for (u64 i = 0; i < times; ++i) {
    std::copy_n(of.items, of.n, items.begin() + static_cast<std::ptrdiff_t>(i * of.n));
  }
  return make_items(of.kind, items);
}

MaybeValue too_large(Machine& m) { return m.unknown("arithmetic with an integer so large"); }

i64 floor_divided(i64 a, i64 b) {
  const i64 whole = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? whole - 1 : whole;
}

MaybeValue whole_arithmetic(Machine& m, Op op, i64 a, i64 b) {
  i64 result = 0;
  switch (op) {
    case Op::add:
      if (__builtin_add_overflow(a, b, &result)) return too_large(m);
      return make_integer(result);
    case Op::subtract:
      if (__builtin_sub_overflow(a, b, &result)) return too_large(m);
      return make_integer(result);
    case Op::multiply:
      if (__builtin_mul_overflow(a, b, &result)) return too_large(m);
      return make_integer(result);
    case Op::floor_divide:
    case Op::modulo:
      if (b == 0) return m.wrong("a division by 0");
      if (b == -1)
        return op == Op::modulo ? make_integer(0) : whole_arithmetic(m, Op::multiply, a, b);
      result = floor_divided(a, b);
      return make_integer(op == Op::modulo ? a - result * b : result);
    case Op::power:
      if (b < 0) return m.unknown("** with a float");
      result = 1;
      for (i64 i = 0; i < b && result != 0; ++i) {
        if (a == 1 || (i >= 64 && a != -1)) break;
        if (a == -1) return make_integer(b % 2 == 0 ? 1 : -1);
        if (__builtin_mul_overflow(result, a, &result)) return too_large(m);
      }
      return make_integer(result);
    default:
      if (b == 0) return m.wrong("a division by 0");
      return make_real(static_cast<f64>(a) / static_cast<f64>(b));
  }
}

MaybeValue real_arithmetic(Machine& m, Op op, f64 a, f64 b) {
  const bool divides = op == Op::divide || op == Op::floor_divide || op == Op::modulo;
  if (divides && b == 0) return m.wrong("a division by 0");
  switch (op) {
    case Op::add:
      return make_real(a + b);
    case Op::subtract:
      return make_real(a - b);
    case Op::multiply:
      return make_real(a * b);
    case Op::divide:
      return make_real(a / b);
    case Op::floor_divide:
    case Op::modulo: {  // CPython's float_divmod
      f64 rest = std::fmod(a, b);
      f64 whole = (a - rest) / b;
      if (rest != 0 && (b < 0) != (rest < 0)) {
        rest += b;
        whole -= 1;
      }
      if (op == Op::modulo) return make_real(rest != 0 ? rest : std::copysign(0.0, b));
      const f64 floor = std::floor(whole);
      if (whole == 0) return make_real(std::copysign(0.0, a / b));
      return make_real(whole - floor > 0.5 ? floor + 1 : floor);
    }
    default:
      return m.unknown("** with a float");
  }
}

}  // namespace

MaybeValue unary_of(Machine& m, Op op, const Value& of) {
  if (op == Op::not_) return make_bool(!is_true(of));
  if (of.is(Kind::undefined)) return m.wrong(of.text());
  if (of.is(Kind::real)) return make_real(op == Op::negative ? -of.real : of.real);
  if (!of.is_whole()) return m.wrong("a sign before what is no number");
  if (op == Op::positive) return make_integer(of.integer);
  return whole_arithmetic(m, Op::subtract, 0, of.integer);
}

MaybeValue binary_of(Machine& m, Op op, const Value& a, const Value& b) {
  if (a.is(Kind::undefined)) return m.wrong(a.text());
  if (b.is(Kind::undefined)) return m.wrong(b.text());
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return whole_arithmetic(m, op, a.integer, b.integer);
    return real_arithmetic(m, op, a.as_real(), b.as_real());
  }
  if (a.is(Kind::big) || b.is(Kind::big)) return too_large(m);
  if (op == Op::add && a.is_text() && b.is_text()) return joined(m, a, b);
  if (op == Op::add && a.kind == b.kind && (a.is(Kind::list) || a.is(Kind::tuple))) {
    return joined_lists(m, a, b);
  }
  const auto repeats = [](const Value& of, const Value& times) {
    return times.is_whole() && (of.is_text() || of.is(Kind::list) || of.is(Kind::tuple));
  };
  if (op == Op::multiply && repeats(a, b)) return repeated(m, a, b.integer);
  if (op == Op::multiply && repeats(b, a)) return repeated(m, b, a.integer);
  if (op == Op::modulo && a.is_text()) {
    if (a.id == kSafe) return m.unknown("a format that is safe");
    return percent_formatted(m, a, b.is(Kind::tuple) ? b.span() : std::span(&b, 1));
  }
  return m.wrong("an operator between values that it does not join");
}

std::optional<bool> compare_of(Machine& m, Op op, const Value& a, const Value& b) {
  const bool is_negated =
      op == Op::not_equal || op == Op::not_in || op == Op::less_equal || op == Op::greater_equal;
  const auto of = [&]() -> std::optional<bool> {
    switch (op) {
      case Op::equal:
      case Op::not_equal:
        return is_equal(m, a, b);
      case Op::less:
      case Op::greater_equal:
        return is_less(m, a, b);
      case Op::greater:
      case Op::less_equal:
        return is_less(m, b, a);
      default:
        return contains(m, b, a);
    }
  };
  const bool is_order =
      op == Op::less || op == Op::less_equal || op == Op::greater || op == Op::greater_equal;
  if (is_order) {
    for (const Value* value : {&a, &b}) {
      if (value->is(Kind::undefined)) return m.wrong(value->text());
      if (value->is(Kind::real) && std::isnan(value->real)) return false;
    }
  }
  TARN_GET(const bool holds, of());
  return holds != is_negated;
}

}  // namespace tarn::chat
