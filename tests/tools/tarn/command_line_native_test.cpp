// Goal    a wrong command line, a missing or a broken file ends with its exit code and a sentence
//         that names the remedy, and every command explains itself.
// Method  a table of command lines of the program itself, on a tiny model.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"
#include "tools/synth/synth.h"

namespace tarn {
namespace {

struct Case {
  const char* name;
  std::vector<std::string> arguments;  // MODEL, BOOK, NOISE: files of this test
  int exit_code;
  const char* says;  // on standard error, or on standard output where the code is 0
};

const Case kCases[] = {
    {"nothing", {}, 64, "A subcommand is required"},
    {"help", {"--help"}, 0, "Exit codes: 0 ok"},
    {"help of run", {"run", "--help"}, 0, "tarn run -m model.gguf"},
    {"help of eval", {"eval", "--help"}, 0, "logbook"},
    {"version", {"--version"}, 0, "tarn "},
    {"unknown command", {"serve"}, 64, "no command 'serve'"},
    {"unknown option", {"run", "--fast"}, 64, "--fast"},
    {"no prompt", {"run", "-m", "MODEL"}, 64, "-p TEXT"},
    {"no such model", {"run", "-m", "/nowhere.gguf", "-p", "a"}, 74, "/nowhere.gguf"},
    {"no GGUF", {"run", "-m", "NOISE", "-p", "a"}, 78, "GGUF"},
    {"a budget that is none", {"plan", "-m", "MODEL", "--budget", "6GB"}, 78, "KiB, MiB, GiB"},
    {"too small a budget", {"plan", "-m", "MODEL", "--budget", "1MiB"}, 78, "raise it to"},
    {"a plan", {"plan", "-m", "MODEL", "-c", "256"}, 0, "kv_groups"},
    {"a prompt longer than -c", {"run", "-m", "MODEL", "-c", "1", "-p", "a b c"}, 78, "raise -c"},
    {"no such type of KV", {"run", "-m", "MODEL", "--kv-type", "q3", "-p", "a"}, 64, "q3"},
    {"nothing to evaluate", {"eval", "-m", "MODEL"}, 64, "--text FILE"},
    {"no log book", {"eval", "-m", "MODEL", "logbook"}, 64, "logbook FILE"},
    {"a log book that is none", {"eval", "-m", "MODEL", "logbook", "NOISE"}, 78, "no JSON"},
    {"a log book", {"eval", "-m", "MODEL", "logbook", "BOOK"}, 0, "95 % interval"},
    {"ids of a text", {"tokenize", "-m", "MODEL", "-p", "a b"}, 0, "a"},
    {"the built-in model", {"run"}, 0, "allocations after READY: 0"},
    {"the built-in model asked", {"run", "-p", "Log.\nQ:", "-n", "2"}, 0, ""},
    {"the recall model", {"run", "--sample", "recall"}, 0, "| ok\n"},
    {"the recall model on more", {"run", "--sample", "recall", "-c", "9000"}, 0, "document  89"},
    {"too short a sample", {"run", "-c", "100"}, 78, "raise -c"},
    {"no such sample", {"run", "--sample", "poem"}, 64, "poem"},
    {"a file looked at", {"inspect", "MODEL"}, 0, "llama"},
};

TEST_CASE("every command line has its exit code and its sentence") {
  const test::TempFile model("model.gguf"), book("book.jsonl"), noise("noise.bin");
  synth::SynthOptions options;
  options.path = model.path();
  synth::synth_write(options);
  const std::string line =
      R"({"seed":1000000,"kind":"hop0","tokens":3,"prompt":"Log.\nA:","answer":" x"})";
  tools::write_file(book.path(), line.data(), line.size());
  tools::write_file(noise.path(), "noise\n", 6);
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    std::vector<std::string> words = c.arguments;
    for (auto& word : words) {
      if (word == "MODEL") word = model.path();
      if (word == "BOOK") word = book.path();
      if (word == "NOISE") word = noise.path();
    }
    const test::Ended ended = test::run_tarn(words);
    const std::string& text = c.exit_code == 0 ? ended.out : ended.err;
    CAPTURE(ended.err);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(text.find(c.says) != std::string::npos);
  }
}

}  // namespace
}  // namespace tarn
