// Goal    what a command says of its own work is true, and says it in words that a reader knows:
//         which KV attention read, what is known of its loss, whether the model's file was checked,
//         and how much KV has room in memory.
// Method  the program itself on a small random model; its lines on standard error.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/explanation.h"
#include "tools/support/input.h"

namespace tarn::sentences_native_test {
namespace {

TEST_CASE("the figures of a run say what attention read, and whether the file was checked") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile selects("selects.toml"), text("text.txt");
  const std::string toml =
      "[select]\nmethod = \"pq\"\nsink_tokens = 16\nlocal_tokens = 64\nk_tokens = 48\n"
      "code_bits = 4\nindex_delay_tokens = 4\ncontext_min = 1\n";
  tools::write_file(selects.path(), toml.data(), toml.size());
  std::string words;
  for (u32 i = 0; i < 400; ++i) words += " word" + std::to_string(i);
  tools::write_file(text.path(), words.data(), words.size());
  struct Case {
    const char* name;
    std::vector<std::string> options;
    const char* says;
  };
  const Case kCases[] = {
      {"all KV",
       {"-p", "a"},
       "; attention: full (exact); model file not checked (set model.sha256)\n"},
      {"a selection too short to select",
       {"-p", "a", "--select", "pq"},
       "; attention: full (exact; pq selected in no step); model file not checked"},
      {"a selection",
       {"-f", text.path(), "--config", selects.path()},
       " of the KV read (approximate, loss not measured: tarn verify); model file"},
  };
  for (const Case& each : kCases) {
    CAPTURE(each.name);
    std::vector<std::string> words_of = {"run", "-m", model.path(), "-n", "16", "--ignore-eos"};
    words_of.insert(words_of.end(), each.options.begin(), each.options.end());
    const test::Ended ended = test::run_tarn(words_of);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(ended.err.find(each.says) != std::string::npos);
  }
}

TEST_CASE("no more groups of KV are in memory than there are") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempDir store("sentences");
  for (const char* context : {"64", "512"}) {
    const test::Ended ended =
        test::run_tarn({"run", "-m", model.path(), "-p", "a", "-n", "1", "-c", context, "--store",
                        store.path(), "--session", "s", "-v"});
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    const size_t at = ended.err.find("kv: memory has room for ");
    REQUIRE(at != std::string::npos);
    u32 n_frames = 0, n_groups = 0;
    REQUIRE(std::sscanf(ended.err.c_str() + at, "kv: memory has room for %u of %u groups",
                        &n_frames, &n_groups) == 2);
    CHECK(n_frames == n_groups);  // the budget has room for all of so short a context
  }
}

TEST_CASE("an input of which nothing was decided says why") {
  CHECK(tools::explanation_text(tarn_explanation{}) ==
        "No decision: no profile is loaded (tarn calibrate), or no prompt needed KV from the "
        "disk.\n");
}

}  // namespace
}  // namespace tarn::sentences_native_test
