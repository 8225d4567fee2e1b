// The second file that includes toml++ (the first is runtime/config/toml_reader.cpp), with the same
// macros, because equal names of one program must be equal code.
#include <algorithm>
#include <string>
#include <string_view>

#include "runtime/config/toml_text.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/tarnd/settings.h"

#define TOML_MAX_NESTED_VALUES 4
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_FLOAT_CHARCONV 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#include <toml++/toml.h>

namespace tarn::daemon {
namespace {

[[noreturn]] void refuse_at(const std::string& file, const toml::source_position& at,
                            const std::string& why) {
  throw tools::Failure{tools::kExitRefused, file + ":" + std::to_string(at.line) + ":" +
                                                std::to_string(at.column) + ": " + why};
}

struct Where {
  const std::string& file;
  std::string key;

  [[noreturn]] void refuse(const toml::node& node, const std::string& why) const {
    refuse_at(file, node.source().begin, "daemon." + key + ": " + why);
  }
};

// Puts the values of the table into the fields.
class Reader {
 public:
  Reader(const toml::table& table, const std::string& file) : table_(table), file_(file) {}

  template <class Number>
  void operator()(const char* key, Number& field, u64 min, u64 max, bool, const char*) {
    const toml::node* const node = next(key);
    if (node == nullptr) return;
    const Where where{file_, key};
    const auto* const number = node->as_integer();
    const auto* const text = node->as_string();
    const bool is_size = std::string_view(key).find("bytes") != std::string_view::npos;
    u64 value = 0;
    if (number != nullptr && number->get() >= 0) {
      value = static_cast<u64>(number->get());
    } else if (text != nullptr && is_size) {
      const Result<u64> bytes = parse_bytes(text->get());
      if (!bytes) where.refuse(*node, bytes.error().hint);
      value = *bytes;
    } else {
      where.refuse(*node, is_size ? "a size is expected: a whole number, or \"64MiB\""
                                  : "a whole number is expected");
    }
    if (value < min || value > max) {
      where.refuse(*node, "it must be " + std::to_string(min) + " to " + std::to_string(max));
    }
    field = static_cast<Number>(value);
  }
  void operator()(const char* key, bool& field, bool, const char*) {
    const toml::node* const node = next(key);
    if (node == nullptr) return;
    const auto* const value = node->as_boolean();
    if (value == nullptr) Where{file_, key}.refuse(*node, "true or false is expected");
    field = value->get();
  }
  void operator()(const char* key, std::string& field, bool, const char*) {
    const toml::node* const node = next(key);
    if (node != nullptr) field = text_of(*node, key);
  }
  void operator()(const char* key, std::vector<std::string>& field, bool, const char*) {
    const toml::node* const node = next(key);
    if (node == nullptr) return;
    field.clear();
    const toml::array* const list = node->as_array();
    if (list == nullptr) {
      field.push_back(text_of(*node, key));
      return;
    }
    for (const toml::node& each : *list) field.push_back(text_of(each, key));
  }
  void refuse_unknown() const {
    for (const auto& [name, node] : table_) {
      if (known_.find("," + std::string(name.str()) + ",") != std::string::npos) continue;
      Where{file_, std::string(name.str())}.refuse(
          node, "the key is unknown: configs/README.md lists the known ones");
    }
  }

 private:
  const toml::node* next(const char* key) {
    known_.append(key).append(",");
    return table_.get(key);
  }
  std::string text_of(const toml::node& node, const char* key) const {
    const auto* const text = node.as_string();
    if (text == nullptr) Where{file_, key}.refuse(node, "a text is expected");
    const bool may_have_lines = std::string_view(key) == "chat_template";
    const auto is_refused = [&](char c) {
      const bool is_space = c == '\n' || c == '\r' || c == '\t';
      return (static_cast<u8>(c) < ' ' && !(may_have_lines && is_space)) || c == '\x7f';
    };
    if (std::ranges::any_of(text->get(), is_refused)) {
      Where{file_, key}.refuse(node, "a text here has no control characters: leave them out");
    }
    return text->get();
  }

  const toml::table& table_;
  const std::string& file_;
  std::string known_ = ",";
};

}  // namespace

void read_settings(std::string_view toml_text, const std::string& file, Settings& settings) {
  std::string ascii(toml_text.size(), '\0');
  const Result<std::string_view> checked = checked_toml(toml_text, ascii);
  if (!checked) {
    char why[256];
    format_error(checked.error(), why, sizeof why);
    throw tools::Failure{tools::kExitRefused, file + ": " + why};
  }
  const toml::parse_result parsed = toml::parse(*checked);
  if (!parsed) {
    refuse_at(file, parsed.error().source().begin, std::string(parsed.error().description()));
  }
  const toml::node* const node = parsed.table().get("daemon");
  if (node == nullptr) return;
  const toml::table* const table = node->as_table();
  if (table == nullptr) Where{file, ""}.refuse(*node, "a table is expected");
  Reader reader(*table, file);
  settings.visit(reader);
  reader.refuse_unknown();
}

}  // namespace tarn::daemon
