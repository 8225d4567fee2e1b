#include "tools/support/command_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "tools/support/exit_code.h"
#include "tools/support/wrapped.h"

namespace tarn::tools {
namespace {

// The columns of standard output's terminal, or a default.
size_t output_columns() {
  constexpr size_t kColumns = 80, kColumnsMin = 50;
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? std::max<size_t>(size.ws_col, kColumnsMin) : kColumns;
}

// CLI11 takes the nearest number for one that is out of range, and takes "nan" and "inf".
template <class T>
std::string why_no_number(const std::string& text) {
  errno = 0;
  if constexpr (std::is_floating_point_v<T>) {
    const auto value = static_cast<T>(std::strtod(text.c_str(), nullptr));
    if (!std::isfinite(value)) return text + " is not a finite number";
  } else if constexpr (std::is_signed_v<T>) {
    static_cast<void>(std::strtoll(text.c_str(), nullptr, 0));
  } else {
    static_cast<void>(std::strtoull(text.c_str(), nullptr, 0));
  }
  using Limits = std::numeric_limits<T>;
  if (std::is_floating_point_v<T> || errno != ERANGE) return "";
  return "Value " + text + " not in range " + std::to_string(Limits::min()) + " to " +
         std::to_string(Limits::max());
}

// The type of one value of an option's field.
template <class T>
struct ValueOf {
  using Type = T;
};
template <class T>
struct ValueOf<std::optional<T>> {
  using Type = T;
};
template <class T>
struct ValueOf<std::vector<T>> {
  using Type = T;
};

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return wrapped_entry(make_option_name(option, is_positional) + make_option_opts(option),
                         make_option_desc(option), output_columns());
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return wrapped_entry(command->get_name(), command->get_description(), output_columns());
  }
  std::string make_description(const CLI::App* command) const override {
    return wrapped_lines(CLI::Formatter::make_description(command), output_columns());
  }
  std::string make_footer(const CLI::App* command) const override {
    return wrapped_lines(CLI::Formatter::make_footer(command), output_columns());
  }
};

}  // namespace

Option Option::required() const {
  option_->required();
  return *this;
}

Option Option::capture_default_str() const {
  option_->capture_default_str();
  return *this;
}

Option Option::default_str(const std::string& text) const {
  option_->default_str(text);
  return *this;
}

Option Option::default_val(const std::string& value) const {
  option_->default_val(value);
  return *this;
}

Option Option::type_name(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

Option Option::delimiter(char between_values) const {
  option_->delimiter(between_values);
  return *this;
}

Option Option::one_value_each() const {
  option_->allow_extra_args(false);
  return *this;
}

Option Option::excludes(Option other) const {
  option_->excludes(other.option_);
  return *this;
}

Option Option::is_member(const std::vector<std::string>& names) const {
  option_->check(CLI::IsMember(names));
  return *this;
}

template <class T>
Option Option::between(T least, T most) const {
  option_->transform(CLI::Range(least, most));  // before other checks: it says the range
  return *this;
}
template Option Option::between(u32, u32) const;
template Option Option::between(i32, i32) const;
template Option Option::between(i64, i64) const;
template Option Option::between(f64, f64) const;

Option Option::check(std::function<std::string(const std::string&)> why_not) const {
  option_->check(std::move(why_not));
  return *this;
}

u64 Option::count() const { return option_->count(); }

template <class T>
Option Command::add_option(const std::string& names, T& field, const std::string& help) const {
  const Option option(app_->add_option(names, field, help));
  using Value = typename ValueOf<T>::Type;
  if constexpr (std::is_arithmetic_v<Value>) option.check(why_no_number<Value>);
  return option;
}
template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, u32&, const std::string&) const;
template Option Command::add_option(const std::string&, i64&, const std::string&) const;
template Option Command::add_option(const std::string&, u64&, const std::string&) const;
template Option Command::add_option(const std::string&, f32&, const std::string&) const;
template Option Command::add_option(const std::string&, f64&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<std::string>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<u32>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<u64>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<f64>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<u32>&,
                                    const std::string&) const;

template <class T>
Option Command::add_option_function(const std::string& names, std::function<void(const T&)> take,
                                    const std::string& help) const {
  return Option(app_->add_option_function<T>(names, std::move(take), help));
}
template Option Command::add_option_function(const std::string&,
                                             std::function<void(const std::string&)>,
                                             const std::string&) const;

Option Command::add_flag(const std::string& names, bool& field, const std::string& help) const {
  return Option(app_->add_flag(names, field, help));
}

Command Command::add_subcommand(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

void Command::require_subcommand(u64 least, u64 most) const {
  app_->require_subcommand(least, most);
}

void Command::fallthrough() const { app_->fallthrough(); }

void Command::footer(const std::string& text) const { app_->footer(text); }

void Command::callback(std::function<void()> run) const { app_->callback(std::move(run)); }

bool Command::parsed() const { return app_->parsed(); }

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : Command(nullptr), owned_(std::make_unique<CLI::App>(description, name)) {
  app_ = owned_.get();
  app_->formatter(std::make_shared<HelpFormatter>());  // for subcommands too
}

CommandLine::~CommandLine() = default;

void CommandLine::set_version_flag(const std::string& text) {
  app_->set_version_flag("--version", text);
}

void CommandLine::take_last() {
  app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

bool CommandLine::has_subcommand(const std::string& name) const {
  const auto is_named = [&](const CLI::App* command) { return command->check_name(name); };
  return !app_->get_subcommands(is_named).empty();
}

std::optional<int> CommandLine::parse(int argc, const char* const* argv) {
  // llama.cpp's spelling with one dash would be -n with the value "gl".
  std::vector<const char*> words(argv, argv + argc);
  for (const char*& word : words) {
    if (std::strcmp(word, "-ngl") == 0) word = "--ngl";
  }
  try {
    app_->parse(argc, words.data());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? kExitOk : kExitUsage;
  }
}

}  // namespace tarn::tools
