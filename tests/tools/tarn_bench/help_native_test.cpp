// Goal    the benchmark's help can be read where there is no terminal; without a model the built-in
//         one is measured, and named so.
// Method  --help into a pipe; a short measurement without a model.
#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "platform/base/types.h"
#include "tests/tools/tarn/command_line.h"

namespace tarn::bench::help_native_test {
namespace {

TEST_CASE("no line of help is longer than 80 columns where there is no terminal") {
  const test::Ended ended = test::run_tarn({"--help"});
  CHECK(ended.exit_code == 0);
  std::istringstream in(ended.out);
  u32 n_lines = 0;
  for (std::string line; std::getline(in, line); ++n_lines) CHECK(line.size() <= 80);
  CHECK(n_lines > 20);
}

TEST_CASE("without a model the built-in one is measured") {
  const test::Ended ended =
      test::run_tarn({"-p", "8", "-n", "2", "-r", "1", "--no-bandwidth", "-o", "json"});
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.out.find("\"model_filename\": \"built-in\"") != std::string::npos);
  CHECK(ended.out.find("/proc/") == std::string::npos);
  CHECK(test::run_tarn({"-m", "", "-p", "8", "-n", "2", "-r", "1"}).exit_code == 64);
}

}  // namespace
}  // namespace tarn::bench::help_native_test
