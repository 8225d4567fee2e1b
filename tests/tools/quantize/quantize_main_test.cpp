// Goal    `tarn quantize` answers every command line with the exit code that scripts rely on.
// Method  a table of command lines, run through the subcommand as main() does; a file is there
//         afterwards exactly where the code is 0.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_file.h"
#include "tools/support/exit_code.h"
#include "tools/synth/synth.h"
#include "tools/tarn/commands.h"

namespace tarn::tools::quantize_main_test {
namespace {

int exit_code_of(const std::vector<std::string>& words) {
  CommandLine app("", "tarn");
  app.require_subcommand(1, 1);
  add_quantize(app);
  std::vector<const char*> argv = {"tarn"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  try {
    return app.parse(static_cast<int>(argv.size()), argv.data()).value_or(kExitOk);
  } catch (const Failure& failure) {
    return failure.code;
  }
}

struct Case {
  const char* name;
  std::vector<std::string> words;  // IN, OUT, TEXT, Q4, ...: paths of this test
  int exit_code;
  bool writes;
};

const Case kCases[] = {
    {"a type", {"IN", "OUT", "q8_0"}, 0, true},
    {"the mix", {"IN", "OUT", "q4_k_m"}, 0, true},
    {"a type of uneven levels", {"IN", "OUT", "iq4_xs"}, 0, true},
    {"a type whose scales are exponents", {"IN", "OUT", "mxfp4"}, 0, true},
    {"dequantise one of them", {"MXFP4", "OUT", "f16"}, 0, true},
    {"IN has a name that OUT could have on its way", {"PART", "OUT", "q8_0"}, 0, true},
    {"IN has another such name", {"PART0", "OUT", "q8_0"}, 0, true},
    {"options in front", {"--threads", "1", "IN", "OUT", "bf16"}, 0, true},
    {"dequantise", {"Q4", "OUT", "f32"}, 0, true},
    {"round again, on request", {"Q4", "OUT", "q8_0", "--requantize"}, 0, true},
    {"round again", {"Q4", "OUT", "q8_0"}, 78, false},
    {"dry run", {"IN", "OUT", "q4_k_m", "--dry-run"}, 0, false},
    {"dry run of a second rounding", {"Q4", "OUT", "q8_0", "--dry-run"}, 78, false},
    {"dry run where OUT is IN", {"--dry-run", "IN", "IN", "q8_0"}, 64, false},
    {"help", {"--help"}, 0, false},
    {"nothing", {}, 64, false},
    {"no type", {"IN", "OUT"}, 64, false},
    {"unknown type", {"IN", "OUT", "iq3_s"}, 64, false},
    {"a type in capitals", {"IN", "OUT", "Q8_0"}, 64, false},
    {"one word too many", {"IN", "OUT", "q8_0", "more"}, 64, false},
    {"unknown option", {"IN", "OUT", "q8_0", "--fast"}, 64, false},
    {"no threads", {"IN", "OUT", "q8_0", "-t", "0"}, 64, false},
    {"OUT is IN", {"IN", "IN", "q8_0"}, 64, false},
    {"OUT is IN by another path", {"IN", "LINK", "q8_0"}, 64, false},
    {"OUT is a folder", {"IN", "FOLDER", "q8_0"}, 64, false},
    {"OUT is a device", {"IN", "/dev/null", "q8_0"}, 64, false},
    {"OUT in a folder that is not there", {"IN", "/nowhere/at/all.gguf", "q8_0"}, 74, false},
    {"no such file", {"/nowhere/at/all.gguf", "OUT", "q8_0"}, 74, false},
    {"no model", {"TEXT", "OUT", "q8_0"}, 78, false},
};

TEST_CASE("exit codes") {
  using tarn::test::TempFile;
  const TempFile in("main_in.gguf"), q4("main_q4.gguf"), mxfp4("main_mxfp4.gguf"),
      text("main_text"), link("main_link");
  synth::synth_write({.n_layers = 1, .n_vocab = 1024}, *parse_quant("f16"), 1, in.path(), 1);
  synth::synth_write({.n_layers = 1, .n_vocab = 1024}, *parse_quant("q4_0"), 1, q4.path(), 1);
  synth::synth_write({.n_layers = 1, .n_vocab = 1024}, *parse_quant("mxfp4"), 1, mxfp4.path(), 1);
  std::ofstream(text.path()) << "This is a text of more than twenty-four bytes, and no model.\n";
  std::filesystem::create_symlink(in.path(), link.path());
  const auto in_bytes = std::filesystem::file_size(in.path());
  const TempFile part("main_out.gguf.part"), part0("main_out.gguf.0.part");
  std::filesystem::copy_file(in.path(), part.path());
  std::filesystem::copy_file(in.path(), part0.path());
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const TempFile out("main_out.gguf");
    std::vector<std::string> words = {"quantize"};
    for (const std::string& word : c.words) {
      words.push_back(word == "IN"       ? in.path()
                      : word == "OUT"    ? out.path()
                      : word == "Q4"     ? q4.path()
                      : word == "MXFP4"  ? mxfp4.path()
                      : word == "TEXT"   ? text.path()
                      : word == "PART"   ? part.path()
                      : word == "PART0"  ? part0.path()
                      : word == "LINK"   ? link.path()
                      : word == "FOLDER" ? std::filesystem::temp_directory_path().string()
                                         : word);
    }
    CHECK(exit_code_of(words) == c.exit_code);
    CHECK(std::filesystem::exists(out.path()) == c.writes);
    CHECK_FALSE(std::filesystem::exists(out.path() + ".1.part"));
    for (const TempFile* kept : {&in, &part, &part0}) {
      CHECK(std::filesystem::file_size(kept->path()) == in_bytes);
    }
  }
}

}  // namespace
}  // namespace tarn::tools::quantize_main_test
