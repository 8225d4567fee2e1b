// Goal    `tarn synth` answers a wrong command line, a file that cannot be written and a right one
//         with the exit codes that scripts rely on.
// Method  a table of command lines; a file is there afterwards exactly where the code is 0.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temp_file.h"
#include "tools/synth/synth.h"

namespace tarn::synth::synth_main_test {
namespace {

struct Case {
  const char* name;
  std::vector<std::string> arguments;  // OUT: a path of this test
  int exit_code;
};

const Case kCases[] = {
    {"recall in its type", {"--arch", "recall", "OUT"}, 0},
    {"options behind OUT", {"OUT", "--arch", "recall", "--quant", "q8_0"}, 0},
    {"a type of uneven levels", {"--arch", "tiny-llama", "--quant", "iq4_nl", "OUT"}, 0},
    {"recall in such a type", {"--arch", "recall", "--quant", "iq4_nl", "OUT"}, 64},
    {"no OUT", {"--arch", "recall"}, 64},
    {"two OUTs", {"OUT", "OUT"}, 64},
    {"unknown architecture", {"--arch", "gpt-5", "OUT"}, 64},
    {"unknown type", {"--quant", "q1_0", "OUT"}, 64},
    {"unknown option", {"--fast", "1", "OUT"}, 64},
    {"option without a value", {"OUT", "--seed"}, 64},
    {"seed that is no number", {"--seed", "12x", "OUT"}, 64},
    {"negative seed", {"--seed", "-1", "OUT"}, 64},
    {"no layers", {"--layers", "0", "OUT"}, 64},
    {"too many layers", {"--layers", "513", "OUT"}, 64},
    {"recall with layers", {"--arch", "recall", "--layers", "3", "OUT"}, 64},
    {"a folder that is not there", {"--arch", "recall", "/nowhere/at/all.gguf"}, 74},
};

TEST_CASE("exit codes") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const test::TempFile file("synth_main.gguf");
    std::vector<std::string> words{"synth"};
    for (const auto& argument : c.arguments) {
      words.push_back(argument == "OUT" ? file.path() : argument);
    }
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    CHECK(synth_main(static_cast<int>(argv.size()), argv.data()) == c.exit_code);
    CHECK(std::filesystem::exists(file.path()) == (c.exit_code == 0));
  }
}

}  // namespace
}  // namespace tarn::synth::synth_main_test
