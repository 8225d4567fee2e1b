// Commands and their options, as handles to objects of a CommandLine. Only command_line.cpp
// includes CLI11: a file with its headers takes ten times as long to compile as a command of ours.
// The names are CLI11's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/types.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tarn::tools {

class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required() const;
  // Shows as the default in --help: the field's value now, or this text.
  Option capture_default_str() const;
  Option default_str(const std::string& text) const;
  // Sets this value if the option is not given.
  Option default_val(const std::string& value) const;
  Option type_name(const std::string& name) const;
  Option delimiter(char between_values) const;
  // Each occurrence takes one value, and not the next word.
  Option one_value_each() const;
  Option excludes(Option other) const;
  Option is_member(const std::vector<std::string>& names) const;
  // T: u32, i32, i64 or f64.
  template <class T>
  Option between(T least, T most) const;
  // `why_not` returns what is wrong with a value, or "".
  Option check(std::function<std::string(const std::string&)> why_not) const;

  u64 count() const;  // number of occurrences

 private:
  CLI::Option* option_ = nullptr;
};

class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // T: std::string, u32, u64, i64, f32, f64; std::string, u32, u64 or f64 in a std::optional;
  // std::string or u32 in a std::vector. The field must outlive the parsing.
  template <class T>
  Option add_option(const std::string& names, T& field, const std::string& help) const;
  // T: std::string.
  template <class T>
  Option add_option_function(const std::string& names, std::function<void(const T&)> take,
                             const std::string& help) const;
  Option add_flag(const std::string& names, bool& field, const std::string& help) const;

  Command add_subcommand(const std::string& name, const std::string& description) const;
  void require_subcommand(u64 least, u64 most) const;
  // Unknown options of a subcommand belong to this command.
  void fallthrough() const;
  void footer(const std::string& text) const;
  // Sets the function that runs after parsing if the command was given; it may throw.
  void callback(std::function<void()> run) const;
  bool parsed() const;

 protected:
  CLI::App* app_;
};

class CommandLine : public Command {
 public:
  CommandLine(const std::string& description, const std::string& name);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  void set_version_flag(const std::string& text);
  // Options added from now on may be repeated; the last one counts.
  void take_last();
  bool has_subcommand(const std::string& name) const;
  // Parses and runs the given command; its exceptions pass through. Returns kExitUsage, or kExitOk
  // after --help, if nothing was run.
  std::optional<int> parse(int argc, const char* const* argv);

 private:
  std::unique_ptr<CLI::App> owned_;
};

}  // namespace tarn::tools
