#include "runtime/chat/json_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "platform/base/assert.h"

#define RAPIDJSON_ASSERT(condition) TARN_ASSERT(condition)
// RapidJSON 1.1 adds to the null pointer of a stack that is still empty.
#ifdef __clang__
#pragma clang attribute push(__attribute__((no_sanitize("pointer-overflow"))), apply_to = function)
#endif
#include <rapidjson/reader.h>
#ifdef __clang__
#pragma clang attribute pop
#endif

#include "runtime/chat/chat_template.h"
#include "runtime/chat/core.h"
#include "runtime/text/unicode.h"

namespace tarn::chat {
namespace {

// The state that RapidJSON's reader keeps of open arrays and objects: a few bytes each.
class OpenParts {
 public:
  void* Malloc(size_t n_bytes) { return Realloc(nullptr, 0, n_bytes); }
  void* Realloc(void*, size_t, size_t n_bytes) {
    TARN_ASSERT(n_bytes <= memory_.size());
    return memory_.data();
  }
  static void Free(void*) {}

 private:
  alignas(8) std::array<std::byte, 8192> memory_{};
};

// A role of these counts as the template's own: many write '<|' + message.role + '|>', a control
// token. Nothing that a user types is a role.
bool is_known_role(std::string_view role) {
  constexpr std::string_view kRoles[] = {"system",  "user",      "assistant",
                                         "tool",    "developer", "function",
                                         "ipython", "model",     "observation"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}
constexpr u32 kMessageDepth = 2;  // in the array, in the object

// Collects values on a stack; the end of an array or object moves its own to the heap.
class Builder {
 public:
  Builder(Machine& m, std::span<Value> stack, u8 origin, bool by_item)
      : m_(m), stack_(stack), origin_(origin), by_item_(by_item) {}

  bool Null() { return push(make_none()); }
  bool Bool(bool value) { return push(make_bool(value)); }
  // Numbers come as text.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }
  bool RawNumber(const char* text, unsigned n, bool) { return push(number({text, n})); }
  bool String(const char* bytes, unsigned n, bool) {
    // RapidJSON takes half a surrogate pair for a character, and its own check of UTF-8 reads past
    // the end of a text that ends within a character.
    const std::string_view text(bytes, n);
    if (!text::is_utf8(text)) return false;
    if (is_role_ && is_known_role(text)) return push(make_text(text, kFromTemplate));
    return push(make_text(text, by_item_ ? origin_of_message(n_items_) : origin_));
  }
  bool Key(const char* text, unsigned n, bool copy) {
    if (!String(text, n, copy)) return false;
    is_role_ = by_item_ && depth_ == kMessageDepth && std::string_view(text, n) == "role";
    return true;
  }
  bool StartObject() { return begin_part(); }
  bool StartArray() { return begin_part(); }
  bool EndArray(unsigned n) {
    --depth_;
    if (n == 0) return push(make_items(Kind::list, {}));
    const std::span<Value> items = m_.alloc<Value>(n);
    if (items.empty()) return false;
    n_ -= n;
    std::copy_n(stack_.begin() + static_cast<std::ptrdiff_t>(n_), n, items.begin());
    return push(make_items(Kind::list, items));
  }
  bool EndObject(unsigned n_pairs) {
    --depth_;
    if (n_pairs == 0) return push(make_dict({}));
    const std::span<Entry> entries = m_.alloc<Entry>(n_pairs);
    if (entries.empty()) return false;
    n_ -= 2 * u64{n_pairs};
    u64 n = 0;
    for (u64 i = 0; i < n_pairs; ++i) {  // of a repeated key the last value counts
      const Entry entry{.key = stack_[n_ + 2 * i], .value = stack_[n_ + 2 * i + 1]};
      const Entry* there = find_entry(m_, entries.first(n), entry.key.text());
      if (there == nullptr) {
        entries[n++] = entry;
      } else {
        entries[static_cast<u64>(there - entries.data())].value = entry.value;
      }
      if (!m_.step()) return false;
    }
    return push(make_dict(entries.first(n)));
  }

  bool is_whole() const { return n_ == 1 && depth_ == 0; }
  const Value& value() const { return stack_[0]; }
  bool is_too_deep() const { return depth_ > kJsonDepthMax; }

 private:
  bool begin_part() {
    is_role_ = false;
    return ++depth_ <= kJsonDepthMax;
  }

  bool push(const Value& value) {
    is_role_ = false;
    if (n_ == stack_.size()) return m_.no_memory().no();
    stack_[n_++] = value;
    if (depth_ == 1) ++n_items_;
    return true;
  }

  static Value number(std::string_view text) {
    const char* end = text.data() + text.size();
    if (text.find_first_of(".eE") == text.npos) {
      i64 whole = 0;
      if (std::from_chars(text.data(), end, whole).ec == std::errc()) return make_integer(whole);
      Value big = make_text(text);
      big.kind = Kind::big;
      return big;
    }
    f64 real = 0;
    const auto read = std::from_chars(text.data(), end, real);
    if (read.ec == std::errc::result_out_of_range) {
      const bool is_small = text.find("e-") != text.npos || text.find("E-") != text.npos ||
                            text.starts_with("0.") || text.starts_with("-0.");
      const f64 size = is_small ? 0.0 : std::numeric_limits<f64>::infinity();
      real = text[0] == '-' ? -size : size;
    }
    return make_real(real);
  }

  Machine& m_;
  std::span<Value> stack_;
  u64 n_ = 0;
  u64 n_items_ = 0;  // of the outer array
  u32 depth_ = 0;
  u8 origin_;
  bool by_item_;
  bool is_role_ = false;  // the next value is a message's role
};

}  // namespace

MaybeValue read_json(Machine& m, std::string_view json, const char* what, u8 origin, bool by_item) {
  if (json.size() > m.spare().size()) return m.no_memory();  // which is a quarter of the memory
  const std::span<char> text = m.alloc<char>(json.size() + 1);
  if (text.empty()) return Failed{};
  json.copy(text.data(), json.size());
  text.back() = '\0';
  m.work(u64{4} * json.size());
  const std::span<std::byte> lent = m.spare();
  Bump spare(lent);
  // A value takes at least two bytes of JSON, with what separates it from the next.
  const u64 n_stack = std::min<u64>(json.size() / 2 + 2, lent.size() / sizeof(Value) - 1);
  const std::span<Value> stack = spare.alloc<Value>(n_stack).value_or(std::span<Value>());

  OpenParts open_parts;
  rapidjson::GenericReader<rapidjson::UTF8<>, rapidjson::UTF8<>, OpenParts> reader(&open_parts);
  Builder builder(m, stack, origin, by_item);
  rapidjson::InsituStringStream stream(text.data());
  constexpr unsigned kFlags = rapidjson::kParseInsituFlag | rapidjson::kParseIterativeFlag |
                              rapidjson::kParseNumbersAsStringsFlag;
  const bool is_good = !reader.Parse<kFlags>(stream, builder).IsError();
  if (m.has_failed()) return Failed{};
  if (builder.is_too_deep()) {
    return m.refuse("JSON that is nested too deeply", what);
  }
  // A zero byte ends a stream, and is nothing that JSON may have.
  if (!is_good || !builder.is_whole() || json.find('\0') != json.npos) {
    return m.refuse_json(what, is_good ? json.find('\0') : reader.GetErrorOffset());
  }
  return builder.value();
}

}  // namespace tarn::chat
