// Goal    every command that reads a model takes the name of a fetched one, and refuses a name that
//         has none with the command that fetches it.
// Method  the program in a folder of its own beside `models`, with a model that it makes; and as it
//         was built, with a name that no model has.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/folders.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/tarn/command_line.h"

namespace tarn::model_name_native_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

TEST_CASE("a fetched model by its name") {
  const test::TempDir dir("fetched");
  for (const char* folder : {"", "/bin", "/models"}) fs::create_directory(dir.path() + folder);
  for (const char* name : {"tarn", "tarn-bench"}) {
    fs::copy_file(test::build_folder() + "/" + name, dir.path() + "/bin/" + name);
  }
  const std::string tarn = dir.path() + "/bin/tarn", own = dir.path() + "/models/own.gguf";
  REQUIRE(
      test::run_program(tarn, {"synth", "--arch", "tiny-llama", "--quant", "f16", own}).exit_code ==
      0);
  const Words kCommands[] = {{"plan", "-m", "own", "-c", "64"},
                             {"run", "-m", "own", "-p", "a", "-n", "1"},
                             {"inspect", "own"},
                             {"tokenize", "-m", "own", "-p", "a"},
                             {"quantize", "own", dir.path() + "/q8.gguf", "q8_0"}};
  for (const Words& words : kCommands) {
    CAPTURE(words[0]);
    const test::Ended ended = test::run_program(tarn, words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
  }
  const test::Ended ended = test::run_program(
      dir.path() + "/bin/tarn-bench", {"-m", "own," + own, "-p", "4", "-n", "0", "-r", "1"});
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
}

TEST_CASE("a name that no model has") {
  const test::TempDir dir("unfetched");
  fs::create_directory(dir.path());
  const std::string text = dir.path() + "/text";
  std::ofstream(text) << "a text";
  const Words kCommands[] = {
      {"plan", "-m", "absent"},
      {"run", "-m", "absent", "-p", "a"},
      {"chat", "-m", "absent"},
      {"inspect", "absent"},
      {"tokenize", "-m", "absent", "-p", "a"},
      {"template", "-m", "absent", "--messages", text},
      {"ingest", "-m", "absent", "--store", dir.path() + "/store", text},
      {"eval", "-m", "absent", "--text", text},
      {"verify", "-m", "absent", "--text", text},
      {"calibrate", "-m", "absent"},
      {"quantize", "absent", dir.path() + "/out", "f16"},
      {"store", "unpack", text, "--store", dir.path() + "/store", "-m", "absent"}};
  for (const Words& words : kCommands) {
    CAPTURE(words[0]);
    const test::Ended ended = test::run_tarn(words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 74);
    CHECK(ended.err.find("toolchain/model absent") != std::string::npos);
    CHECK(ended.out.empty());
  }
}

}  // namespace
}  // namespace tarn::model_name_native_test
