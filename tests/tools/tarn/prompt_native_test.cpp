// Goal    -n says how many tokens are generated, none included; an empty prompt is told; a prompt
//         from a pipe is read once.
// Method  the program on tiny models whose vocabularies add BOS or none; what a session said in
//         several commands against one command without a session.
#include <doctest/doctest.h>
#include <rapidjson/document.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"
#include "tools/synth/synth.h"

namespace tarn::prompt_native_test {
namespace {

using Words = std::vector<std::string>;

struct World {
  World() {
    synth::SynthOptions options;
    options.path = model.path();
    synth::synth_write(options);
    options.arch = "tiny-qwen2";
    options.path = without_bos.path();
    synth::synth_write(options);
    tools::write_file(empty.path(), "", 0);
  }
  const test::TempFile model{"model.gguf"}, without_bos{"without_bos.gguf"}, empty{"empty.txt"};
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

test::Ended run(const std::string& model, const Words& more) {
  Words words = {"run", "-m", model, "-c", "128", "--ignore-eos", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return test::run_tarn(words);
}

rapidjson::Document object_of(const test::Ended& ended) {
  CAPTURE(ended.err);
  CAPTURE(ended.out);
  CHECK(ended.exit_code == 0);
  rapidjson::Document json;
  json.Parse(ended.out.c_str());
  REQUIRE(json.IsObject());
  return json;
}

std::vector<u32> tokens_of(const test::Ended& ended) {
  const rapidjson::Document json = object_of(ended);
  std::vector<u32> tokens;
  for (const auto& token : json["tokens"].GetArray()) tokens.push_back(token.GetUint());
  return tokens;
}

TEST_CASE("as many tokens are generated as -n says: none, some, or all that there is room for") {
  const World world;
  for (const std::string n : {"0", "1", "5", "-1"}) {
    CAPTURE(n);
    const test::Ended ended = run(world.model.path(), {"-p", "a b c", "-n", n});
    const rapidjson::Document json = object_of(ended);
    const u64 n_prompt = json["prompt_tokens"].GetUint64();
    CHECK(n_prompt > 1);
    // The last one of a full context needs no place.
    const u64 n_wanted = n == "-1" ? 128 - n_prompt + 1 : std::stoull(n);
    CHECK(json["tokens"].Size() == n_wanted);
    CHECK((json["text"] == "") == (n == "0"));
    CHECK(json["finish_reason"] == "length");
    for (const auto& timing : json["timings"].GetObject()) {
      CAPTURE(timing.name.GetString());
      const bool is_told = timing.value.IsNumber() && std::isfinite(timing.value.GetDouble()) &&
                           timing.value.GetDouble() >= 0;
      CHECK((is_told || timing.value.IsNull()));
    }
    CHECK(json["timings"]["prefill_s"].GetDouble() > 0);
  }
  const test::Ended silent =
      test::run_tarn({"run", "-m", world.model.path(), "-p", "a b c", "-n", "0"});
  CHECK(silent.exit_code == 0);
  CHECK(silent.out == "");
  CHECK(has(silent.err, "decode 0 tokens;"));
}

TEST_CASE("a prompt that is only read is kept, and what is asked after it is answered as ever") {
  const World world;
  const test::TempDir store("only_read");
  const test::TempFile both("both.ids"), first("first.ids"), second("second.ids");
  tools::write_file(both.path(), "1 5 6 7 8 9", 11);
  tools::write_file(first.path(), "1 5 6 7", 7);
  tools::write_file(second.path(), "8 9", 3);
  const auto kept = [&](Words words) {
    words.insert(words.end(), {"--session", "s", "--store", store.path()});
    return run(world.model.path(), words);
  };
  CHECK(tokens_of(kept({"--prompt-ids", first.path(), "-n", "0"})).empty());
  const test::Ended list = test::run_tarn({"store", "--store", store.path(), "--json"});
  CHECK(has(list.out, "\"tokens\": 4,"));
  CHECK(has(list.out, "\"state\": \"complete\""));
  const std::vector<u32> answer = tokens_of(kept({"--prompt-ids", second.path(), "-n", "6"}));
  CHECK(answer == tokens_of(run(world.model.path(), {"--prompt-ids", both.path(), "-n", "6"})));
}

TEST_CASE("an empty prompt is told, and refused where there is nothing to read") {
  const World world;
  const std::string& empty = world.empty.path();
  for (const Words& prompt : {Words{"-p", ""}, Words{"-f", empty}}) {
    for (const std::string n : {"0", "2"}) {
      Words words = prompt;
      words.insert(words.end(), {"-n", n});
      const test::Ended with_bos = run(world.model.path(), words);
      CHECK(tokens_of(with_bos).size() == std::stoull(n));
      CHECK(has(with_bos.err, "tarn warning: the prompt is empty"));
      const test::Ended without = run(world.without_bos.path(), words);
      CHECK(without.exit_code == 78);
      CHECK(without.out == "");
      CHECK(has(without.err, "-p TEXT"));
    }
    Words words = {"tokenize", "-m", world.model.path()};
    words.insert(words.end(), prompt.begin(), prompt.end());
    const test::Ended ids = test::run_tarn(words);
    CHECK(ids.exit_code == 0);
    CHECK(ids.out == "");
    CHECK(has(ids.err, "tarn warning: the text is empty"));
  }
  CHECK(run(world.model.path(), {"--prompt-ids", empty}).exit_code == 78);
  CHECK_FALSE(has(run(world.model.path(), {"-p", "a", "-n", "1"}).err, "empty"));
}

TEST_CASE("an empty prompt goes on with a session, and takes nothing of its input back") {
  const World world;
  const test::TempDir store("empty_prompt");
  const test::TempFile ids("long_prompt.ids");
  constexpr u32 kTokens = 16'000;  // seconds of reading
  std::string text = "1 ";         // BOS
  for (u32 i = 1; i < kTokens; ++i) text += "5 ";
  tools::write_file(ids.path(), text.data(), text.size());
  const Words kept = {"run", "--sample", "recall",     "-c",        "32768", "-n",
                      "0",   "--store",  store.path(), "--session", "s"};
  Words words = kept;
  words.insert(words.end(), {"--prompt-ids", ids.path()});
  const test::Stopped stopped = test::stop_tarn(words, "tokens, ", SIGTERM);
  CAPTURE(stopped.err);
  REQUIRE(stopped.said);
  REQUIRE(stopped.signal == SIGTERM);
  words = kept;
  words.insert(words.end(), {"-p", ""});
  const test::Ended ended = test::run_tarn(words);
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "the prompt is empty"));
  CHECK(has(ended.err, "session s: " + std::to_string(kTokens) + " tokens kept"));
}

TEST_CASE("the second input of a session is taken from a pipe, too") {
  const World world;
  const test::TempDir store("piped");
  const std::string pipe = world.empty.path() + ".pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  u64 n_prompt = 0;
  for (const bool is_first : {true, false}) {
    std::thread writer([&] { tools::write_file(pipe, "a b c", 5); });
    const test::Ended ended =
        run(world.model.path(), {"-f", pipe, "-n", "2", "--session", "s", "--store", store.path()});
    writer.join();
    const u64 n = object_of(ended)["prompt_tokens"].GetUint64();
    if (is_first) n_prompt = n - 1;  // BOS
    // The last token of the first answer is computed with the second input.
    if (!is_first) CHECK(n == n_prompt + 1);
  }
  unlink(pipe.c_str());
}

}  // namespace
}  // namespace tarn::prompt_native_test
