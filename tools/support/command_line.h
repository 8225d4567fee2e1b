// tools/support/command_line.h
//
// Commands and their options, as handles to what a CommandLine owns. CLI11 is behind them, in
// command_line.cpp alone: it consists of headers, of which every file that includes them compiles
// the whole, in ten times what a command of ours takes. The names are CLI11's.
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
  // In --help as its default: what the field holds now, or this text.
  Option capture_default_str() const;
  Option default_str(const std::string& text) const;
  // Set where the option is not given.
  Option default_val(const std::string& value) const;
  Option type_name(const std::string& name) const;
  Option delimiter(char between_values) const;
  // Each time that it is given it takes one value, and leaves the next word alone.
  Option one_value_each() const;
  Option excludes(Option other) const;
  Option is_member(const std::vector<std::string>& names) const;
  // T: u32, i32, i64 or f64.
  template <class T>
  Option between(T least, T most) const;
  // `why_not` says what is wrong with a value, or "".
  Option check(std::function<std::string(const std::string&)> why_not) const;

  u64 count() const;  // how often it was given

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
  // Options that a subcommand does not know are this command's.
  void fallthrough() const;
  void footer(const std::string& text) const;
  // What is run after parsing, where the command was given; it may throw.
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
  // Options that are added from now on may be given again; the last one counts.
  void take_last();
  bool has_subcommand(const std::string& name) const;
  // Runs what the words ask for. What they throw goes through; kExitUsage, or kExitOk after --help,
  // where nothing was run.
  std::optional<int> parse(int argc, const char* const* argv);

 private:
  std::unique_ptr<CLI::App> owned_;
};

}  // namespace tarn::tools
