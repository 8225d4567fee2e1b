#include "runtime/config/config.h"

#include <algorithm>
#include <type_traits>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/config/keys.h"

namespace tarn {
namespace {

constexpr u64 kKeyBytesMax = 32;
constexpr u64 kNameBytesMax = 40;  // of a compared name; the rest is cut

// Calls on(key) for every key.
template <class Fn>
void each_key(Fn&& on) {
  const Config config;
  config.visit([&](const char* key, const auto&...) { on(key); });
}

u32 edit_distance(std::string_view name, std::string_view key) {
  TARN_ASSERT(key.size() < kKeyBytesMax);
  std::array<u32, kKeyBytesMax> row{};  // distances of the first i bytes of name to those of key
  for (u32 j = 0; j <= key.size(); ++j) row[j] = j;
  for (u32 i = 0; i < name.size(); ++i) {
    u32 diagonal = row[0];
    row[0] = i + 1;
    for (u32 j = 0; j < key.size(); ++j) {
      const u32 replaced = diagonal + (name[i] == key[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min(replaced, std::min(row[j], row[j + 1]) + 1);
    }
  }
  return row[key.size()];
}

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// Keeps the first value that breaks a range or choice.
struct RangeChecker {
  Result<void> result{};

  template <class Number>
  void operator()(const char* key, const Number& value, u64 min, u64 max, const char*) {
    if (result && (value < min || value > max)) result = fail(range_error(key, min, max));
  }
  template <class Choice>
  void operator()(const char* key, const Choice& value, ChoiceNames names,
                  const char*) requires std::is_enum_v<Choice> {
    if (result && static_cast<u64>(value) >= names.size()) result = fail(choice_error(key, names));
  }
  template <u64 n>
  void operator()(const char* key, const std::array<char, n>& value, ChoiceNames names,
                  const char*) {
    const std::string_view all(value.data(), n);
    const std::string_view text = all.substr(0, all.find('\0'));
    const bool known = std::ranges::any_of(names, [&](const char* name) { return text == name; });
    if (result && !known) result = fail(choice_error(key, names));
  }
  void operator()(const char*, const bool&, const char*) {}
  template <u64 n>
  void operator()(const char* key, const std::array<char, n>& text, const char*) {
    if (result && !is_plain_text(text)) result = fail(text_error(key, n - 1));
  }
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The bytes of a unit; 0 for an unknown name.
u64 unit_bytes(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1;
  if (unit == "KiB") return kKiB;
  if (unit == "MiB") return kMiB;
  if (unit == "GiB") return kGiB;
  if (unit == "TiB") return 1024 * kGiB;
  return 0;
}

}  // namespace

Error range_error(const char* key, u64 min, u64 max) {
  return {.status = Status::invalid_config,
          .reason = Reason::bad_setting,
          .key = key,
          .hint = "a value is out of its range",
          .detail = Detail(key),
          .figures = {{{"min", min}, {"max", max}}}};
}

Error choice_error(const char* key, ChoiceNames names) {
  DetailText detail;
  detail << key;
  const char* separator = " = ";
  for (const char* name : names) {
    detail << separator << name;
    separator = " | ";
  }
  return {.status = Status::invalid_config,
          .reason = Reason::bad_setting,
          .key = key,
          .hint = "a value is not one of its key's names",
          .detail = Detail(detail.view())};
}

bool is_plain_text(std::span<const char> text) {
  constexpr std::string_view kRefused = "\"'\\?";
  for (const char c : text) {
    if (c == '\0') return true;
    if (c < ' ' || c > '~' || kRefused.find(c) != std::string_view::npos) return false;
  }
  return false;  // no terminator
}

Error text_error(const char* key, u64 bytes_max) {
  return {.status = Status::invalid_config,
          .reason = Reason::bad_setting,
          .key = key,
          .hint =
              "a text here is made of printable ASCII characters without quotes, backslash and "
              "question mark, and is no longer than bytes_max",
          .detail = Detail(key),
          .figures = {{{"bytes_max", bytes_max}}}};
}

Error unknown_key_error(std::string_view name) {
  DetailText detail;
  constexpr u64 kShownBytes = 32;  // leaves room for the longest key
  detail << name.substr(0, kShownBytes);
  const std::string_view nearest = name.starts_with("box.") ? "box.profile" : nearest_key(name);
  if (!nearest.empty()) detail << " -> " << nearest;
  return {.status = Status::invalid_config,
          .reason = Reason::bad_setting,
          .hint = nearest.empty() ? "a key is unknown: configs/README.md lists the known ones"
                                  : "a key is unknown; the nearest known one follows the arrow",
          .detail = Detail(detail.view())};
}

bool is_section(std::string_view section) {
  bool found = false;
  each_key([&](std::string_view key) { found = found || key.substr(0, key.find('.')) == section; });
  return found;
}

u32 key_idx(std::string_view key) {
  u32 idx = 0, found = kConfigKeysMax;
  each_key([&](const char* known) {
    if (key == known) found = idx;
    ++idx;
  });
  TARN_ASSERT(idx <= kConfigKeysMax);
  return found;
}

const char* nearest_key(std::string_view name) {
  const std::string_view compared = name.substr(0, kNameBytesMax);
  const char* nearest = "";
  u32 least = ~u32{0};
  each_key([&](const char* key) {
    const u32 distance = edit_distance(compared, key);
    const bool is_near =
        u64{3} * distance <= std::string_view(key).size() || last_part(name) == last_part(key);
    if (!is_near || distance >= least) return;
    nearest = key;
    least = distance;
  });
  return nearest;
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

Result<void> config_validate(const Config& config) {
  RangeChecker ranges;
  config.visit(ranges);
  TARN_CHECK(ranges.result);
  if (config.model_sha256[0] != '\0' && !is_sha256(config.model_sha256.data())) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "model.sha256",
                 .hint = "a SHA-256 has 64 hexadecimal digits; tarn inspect --hash prints a file's",
                 .detail = Detail("model.sha256")});
  }
  if (config.page_tokens % 16 != 0) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "kv.page_tokens",
                 .hint = "a page holds a multiple of 16 tokens",
                 .detail = Detail("kv.page_tokens"),
                 .figures = {{{"page_tokens", config.page_tokens}}}});
  }
  if (config.batch_rows_max < config.sessions_max) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "engine.batch_rows_max",
                 .hint =
                     "a step must hold one row of every session: raise engine.batch_rows_max or "
                     "lower engine.sessions_max",
                 .detail = Detail("engine.batch_rows_max"),
                 .figures = {{{"batch_rows_max", config.batch_rows_max},
                              {"sessions_max", config.sessions_max}}}});
  }
  TARN_CHECK(select_config_validate(config.select));
  if (config.select.iterations == 0 && config.box.layer.update_ps == 0) {
    return fail(
        {.status = Status::invalid_config,
         .reason = Reason::bad_setting,
         .key = "select.iterations",
         .hint = "with 0 iterations the box's costs (box.profile) decide, and they are not set: "
                 "measure them with tarn calibrate -m MODEL -o FILE, and give --config "
                 "FILE",
         .detail = Detail("select.iterations")});
  }
  return store_config_validate(config.store);
}

Result<u64> parse_bytes(std::string_view text) {
  u64 at = 0;
  Checked whole = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    whole = whole * 10 + static_cast<u64>(text[at] - '0');
  }
  const bool has_whole = at > 0;
  constexpr u64 kDecimalsScaleMax = 1000000;
  u64 decimals = 0, decimals_scale = 1;
  const bool has_point = at < text.size() && text[at] == '.';
  if (has_point) {
    for (++at; at < text.size() && is_digit(text[at]) && decimals_scale < kDecimalsScaleMax; ++at) {
      decimals = decimals * 10 + static_cast<u64>(text[at] - '0');
      decimals_scale *= 10;
    }
  }
  const u64 unit = unit_bytes(text.substr(at));
  const bool well_formed =
      has_whole && unit != 0 && (!has_point || (decimals_scale > 1 && unit > 1));
  const Checked bytes = whole * unit + decimals * unit / decimals_scale;
  if (!well_formed || !bytes.valid()) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .hint = "a size is a whole number of bytes, or a number directly followed by KiB, "
                         "MiB, GiB or TiB, below 16 EiB",
                 .detail = Detail(text)});
  }
  return *bytes.get();
}

}  // namespace tarn
