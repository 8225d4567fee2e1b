// The command line of a kernel bench: options with a value each, and the parts that are to run.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::bench {

struct OptionTargets {
  std::map<std::string, std::string*> texts;
  std::map<std::string, u32*> numbers;
};

// Sets the targets of the options that are given and returns the parts that are named.
inline std::vector<std::string> parse_options(int argc, char** argv, const OptionTargets& targets) {
  std::vector<std::string> parts;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--", 0) != 0) {
      parts.push_back(arg);
      continue;
    }
    const char* value = ++i < argc ? argv[i] : "";
    const auto text = targets.texts.find(arg);
    if (text != targets.texts.end()) *text->second = value;
    const auto number = targets.numbers.find(arg);
    if (number != targets.numbers.end()) {
      *number->second = static_cast<u32>(std::strtoul(value, nullptr, 10));
    }
  }
  return parts;
}

}  // namespace tarn::bench
