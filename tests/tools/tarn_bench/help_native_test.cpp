// Goal    the benchmark's help can be read where there is no terminal.
// Method  --help into a pipe.
#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "platform/base/types.h"
#include "tests/tools/tarn/command_line.h"

namespace tarn::bench {
namespace {

TEST_CASE("no line of help is longer than 80 columns where there is no terminal") {
  const test::Ended ended = test::run_tarn({"--help"});
  CHECK(ended.exit_code == 0);
  std::istringstream in(ended.out);
  u32 n_lines = 0;
  for (std::string line; std::getline(in, line); ++n_lines) CHECK(line.size() <= 80);
  CHECK(n_lines > 20);
}

}  // namespace
}  // namespace tarn::bench
