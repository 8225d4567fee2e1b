// The only file that includes toml++. It is compiled with exceptions (module.cmake), because the
// library's containers throw when memory runs out; none leaves this file.
#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "platform/base/assert.h"
#include "runtime/config/config.h"
#include "runtime/config/keys.h"
#include "runtime/config/toml_text.h"

// Limits nesting in brackets, because values are destroyed by recursion. Dotted keys are counted in
// toml_text.h.
#define TOML_MAX_NESTED_VALUES 4
// toml++ 3.3 asserts on a condition that a text can cause ("[~kv]"). Under NDEBUG the compiler may
// assume that it never happens, which removes the branch that reports it. We keep only the branch.
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_FLOAT_CHARCONV 1  // a stringstream would hide a failed allocation
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#include <toml++/toml.h>

namespace tarn {
namespace {

constexpr std::string_view kDaemonSection = "daemon";  // tarnd's own (tools/tarnd/settings.h)

Error at_position(Error error, const toml::source_position& position) {
  u32 i = 0;
  while (i < error.figures.size() - 2 && error.figures[i].name != nullptr) ++i;
  error.figures[i] = {"line", position.line};
  error.figures[i + 1] = {"column", position.column};
  return error;
}

Error key_error(const char* hint, const char* key, const toml::node& node) {
  return at_position({.status = Status::invalid_config,
                      .reason = Reason::bad_setting,
                      .key = key,
                      .hint = hint,
                      .detail = Detail(key)},
                     node.source().begin);
}

// Removes the beginning that all of toml++'s texts share: "Error while parsing table header: cannot
// ..."
std::string_view without_prefix(std::string_view description) {
  constexpr std::string_view kPrefix = "Error while parsing ";
  return description.starts_with(kPrefix) ? description.substr(kPrefix.size()) : description;
}

// Finds the first leaf of the text that visit() does not know. Every key is section.name; deeper
// leaves are no keys.
std::optional<Error> find_unknown_key(const toml::table& root) {
  for (const auto& [section, node] : root) {
    if (section.str() == kDaemonSection) continue;
    const toml::table* table = node.as_table();
    if (table == nullptr || (table->empty() && !is_section(section.str()))) {
      return at_position(unknown_key_error(section.str()), section.source().begin);
    }
    for (const auto& [name, leaf] : *table) {
      DetailText key;
      key << section.str() << "." << name.str();
      if (key_idx(key.view()) == kConfigKeysMax) {
        return at_position(unknown_key_error(key.view()), name.source().begin);
      }
    }
  }
  return std::nullopt;
}

// Puts the values of the text into the fields, up to the first error.
class FieldReader {
 public:
  FieldReader(const toml::table& root, Origins* origins) : root_(root), origins_(origins) {}
  const std::optional<Error>& error() const { return error_; }

  template <class Number>
  void operator()(const char* key, Number& field, u64 min, u64 max, const char*) {
    const toml::node* node = next(key);
    if (node == nullptr) return;
    std::optional<u64> value;
    if (const auto* number = node->as_integer()) {
      if (number->get() >= 0) value = static_cast<u64>(number->get());
    } else if (!std::string_view(key).ends_with("_bytes")) {
      error_ = key_error("a whole number is expected", key, *node);
      return;
    } else if (const auto* text = node->as_string()) {
      const Result<u64> bytes = parse_bytes(text->get());
      if (!bytes) {
        error_ = key_error(bytes.error().hint, key, *node);
        return;
      }
      value = *bytes;
    } else {
      error_ =
          key_error("a size is expected: a whole number, or a text such as \"512MiB\"", key, *node);
      return;
    }
    if (value && *value >= min && *value <= max) {
      field = static_cast<Number>(*value);
    } else {
      error_ = at_position(range_error(key, min, max), node->source().begin);
    }
  }

  template <class Choice>
  void operator()(const char* key, Choice& field, ChoiceNames names, const char*) {
    const toml::node* node = next(key);
    if (node == nullptr) return;
    const auto* text = node->as_string();
    for (u64 i = 0; text != nullptr && i < names.size(); ++i) {
      if (text->get() == names[i]) return assign(field, i, names[i]);
    }
    error_ = at_position(choice_error(key, names), node->source().begin);
  }

  void operator()(const char* key, bool& field, const char*) {
    const toml::node* node = next(key);
    if (node == nullptr) return;
    if (const auto* flag = node->as_boolean()) {
      field = flag->get();
    } else {
      error_ = key_error("true or false is expected", key, *node);
    }
  }

  template <u64 n>
  void operator()(const char* key, std::array<char, n>& field, const char*) {
    const toml::node* node = next(key);
    if (node == nullptr) return;
    const auto* text = node->as_string();
    if (text == nullptr) {
      error_ = key_error("a text is expected", key, *node);
      return;
    }
    std::array<char, n> value{};
    const std::string_view given = text->get();
    const bool fits = given.size() < n && given.find('\0') == std::string_view::npos;
    if (fits) std::copy(given.begin(), given.end(), value.begin());
    if (fits && is_plain_text(value)) {
      field = value;
    } else {
      error_ = at_position(text_error(key, n - 1), node->source().begin);
    }
  }

 private:
  // The text's value for the next key of visit(); nullptr if there is none, or after an error.
  const toml::node* next(const char* key) {
    const u32 idx = n_visited_++;
    if (error_) return nullptr;
    const char* dot = std::strchr(key, '.');
    const std::string_view section(key, static_cast<u64>(dot - key));
    const toml::node* node = root_[section][std::string_view(dot + 1)].node();
    if (node != nullptr && origins_ != nullptr) (*origins_)[idx] = Origin::file;
    return node;
  }

  template <class Enum>
  static void assign(Enum& field, u64 idx, const char*) requires std::is_enum_v<Enum> {
    field = static_cast<Enum>(idx);
  }
  template <u64 n>
  static void assign(std::array<char, n>& field, u64, const char* name) {
    TARN_ASSERT(std::strlen(name) < n);
    field = {};
    std::copy_n(name, std::strlen(name), field.begin());
  }

  const toml::table& root_;
  Origins* origins_;
  u32 n_visited_ = 0;
  std::optional<Error> error_;
};

// The value of select.preset; none if it is no preset's name, which FieldReader refuses.
std::optional<SelectPreset> preset_of(const toml::table& root) {
  const auto* text = root["select"]["preset"].as_string();
  for (u64 i = 0; text != nullptr && i < std::size(kSelectPresetNames); ++i) {
    if (text->get() == kSelectPresetNames[i]) return static_cast<SelectPreset>(i);
  }
  return std::nullopt;
}

Result<Config> read(std::string_view text, Config config, Origins* origins) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return fail(at_position({.status = Status::invalid_config,
                             .reason = Reason::bad_setting,
                             .hint = "the configuration is not valid TOML, or gives a key twice",
                             .detail = Detail(without_prefix(error.description()))},
                            error.source().begin));
  }
  if (const auto error = find_unknown_key(parsed.table())) return fail(*error);
  // A preset is applied before the other keys, which may override it.
  if (const auto preset = preset_of(parsed.table())) {
    config.select = with_preset(config.select, *preset);
  }
  FieldReader reader(parsed.table(), origins);
  config.visit(reader);
  if (reader.error()) return fail(*reader.error());
  if (const toml::node* node = parsed.table()["box"]["profile"].node()) {
    const std::string_view profile = config.box_profile.data();
    const auto box = profile.empty() ? BoxConfig{} : box_from_text(profile);
    if (!box) return fail(at_position(box.error(), node->source().begin));
    config.box = *box;
  }
  TARN_CHECK(config_validate(config));
  return config;
}

}  // namespace

Result<Config> config_from_toml(std::string_view text, Config base, Origins* origins) {
  if (text.size() > kConfigTextBytesMax) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .hint = "the configuration is larger than any real one",
                 .figures = {{{"bytes", text.size()}, {"bytes_max", kConfigTextBytesMax}}}});
  }
  std::array<char, kConfigTextBytesMax> ascii;  // on the stack: the core has no heap
  TARN_TRY(const std::string_view checked, checked_toml(text, ascii));
  try {
    return read(checked, base, origins);
  } catch (...) {
    return fail(
        {.status = Status::invalid_config,
         .reason = Reason::bad_setting,
         .hint = "memory ran out while the configuration was read: free some and try again"});
  }
}

}  // namespace tarn
