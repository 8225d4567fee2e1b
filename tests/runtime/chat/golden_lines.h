// The lines of a file in tests/golden/chat.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/folders.h"

namespace tarn::chat::test {

inline std::vector<std::string> lines_of(const std::string& name) {
  std::ifstream in(tarn::test::source_folder() + "/tests/golden/chat/" + name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  REQUIRE_FALSE(lines.empty());
  return lines;
}

}  // namespace tarn::chat::test
