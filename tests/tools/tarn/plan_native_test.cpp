// Goal    tarn plan plans for each box that it knows, without its GPU and without its disk, and
//         says that nothing was measured there; the head of a model's file suffices for a plan and
//         not for a run; a plan says what a store costs, and a refusal names the store where that
//         helps.
// Method  the program itself on a small random model and on the first part of its file.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/open_engine.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"
#include "tools/support/target_box.h"

namespace tarn::plan_native_test {
namespace {

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

rapidjson::Document plan_of(std::vector<std::string> words) {
  words.insert(words.begin(), "plan");
  words.emplace_back("--json");
  const test::Ended ended = test::run_tarn(words);
  CAPTURE(ended.err);
  rapidjson::Document plan;
  plan.Parse(ended.out.c_str());
  REQUIRE(plan.IsObject());
  return plan;
}

TEST_CASE("a plan for each box that is known, on its GPU or its cores") {
  const test::SmallModel model("llama", "q8_0");
  const char* const kNames[] = {"orin-nano-8gb", "orin-nx-16gb", "agx-orin-32gb", "agx-orin-64gb",
                                "thor-128gb",    "rtx-8gb",      "rtx-12gb",      "rtx-16gb"};
  REQUIRE(tools::target_boxes().size() == std::size(kNames));
  const std::string help = test::run_tarn({"plan", "--help"}).out;
  for (const char* name : kNames) {
    CAPTURE(name);
    const test::Ended ended = test::run_tarn({"plan", "-m", model.path(), "--target", name});
    CHECK(ended.exit_code == 0);
    CHECK(has(ended.out, std::string("target         ") + name + ": "));
    CHECK(has(ended.out, "runs on its GPU. From data sheets, not measured on such a box\n"));
    CHECK(has(ended.out, "weights        device weights"));
    CHECK(has(ended.out, "driver         device driver"));
    CHECK(has(ended.out, "budgets ") == std::string(name).starts_with("rtx-"));
    CHECK(has(help, name));
    const auto cores = plan_of({"-m", model.path(), "--target", name, "--device", "cpu"});
    CHECK_FALSE(cores["on_gpu"].GetBool());
    CHECK(std::string(cores["target"].GetString()) == name);
    for (const auto& region : cores["regions"].GetArray()) {
      if (region["bytes"].GetUint64() > 0)
        CHECK(std::string(region["space"].GetString()) != "device");
    }
  }
  const test::Ended none = test::run_tarn({"plan", "-m", model.path(), "--target", "rtx"});
  CHECK(none.exit_code == 64);
  CHECK(has(none.err, "orin-nano-8gb, "));
}

TEST_CASE("a file and options say otherwise than the box") {
  const test::SmallModel model("llama", "q8_0");
  const auto budget = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"-m", model.path(), "--target", "orin-nano-8gb"};
    words.insert(words.end(), more.begin(), more.end());
    return plan_of(words)["budget_bytes"].GetUint64();
  };
  CHECK(budget({}) > 5 * kGiB);
  CHECK(budget({}) < 6 * kGiB);
  CHECK(budget({"--budget", "4GiB"}) == 4 * kGiB);
  const test::TempFile file("box.toml");
  const std::string toml = "[memory]\nbudget_bytes = \"3GiB\"\n";
  tools::write_file(file.path(), toml.data(), toml.size());
  CHECK(budget({"--config", file.path()}) == 3 * kGiB);
}

TEST_CASE("the head of a file suffices for a plan, and not for a run") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile head("head.gguf");
  const std::string whole = tools::read_file(model.path());
  const u64 n_missing = 1000;
  tools::write_file(head.path(), whole.data(), whole.size() - n_missing);
  const auto of_whole = plan_of({"-m", model.path(), "-c", "256"});
  const auto of_head = plan_of({"-m", head.path(), "-c", "256"});
  CHECK(of_head["total_bytes"] == of_whole["total_bytes"]);
  CHECK(of_whole["missing_bytes"].GetUint64() == 0);
  CHECK(of_head["missing_bytes"].GetUint64() > n_missing - 32);  // the padding
  const test::Ended said = test::run_tarn({"plan", "-m", head.path(), "-c", "256"});
  CHECK(said.exit_code == 0);
  CHECK(has(said.out, "of the tensors' data are missing"));
  const test::Ended run = test::run_tarn({"run", "-m", head.path(), "-p", "a", "-n", "1"});
  CHECK(run.exit_code == 78);
  CHECK(has(run.err, "beyond the end of the file; get the file again"));
}

TEST_CASE("a store that is nowhere here is planned for, with what it costs full attention") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile box("box.toml");
  const std::string toml =  // 10 us a request, 1 GB/s
      "box.profile = '1 0 0 0 0 0 0 100 0 0 0 0 10000 1000000'\n";
  tools::write_file(box.path(), toml.data(), toml.size());
  std::vector<std::string> words = {"-m",       model.path(),    "-c",       "262144",
                                    "--target", "orin-nano-8gb", "--budget", "700MiB"};
  std::vector<std::string> as_text = words;
  as_text.insert(as_text.begin(), "plan");
  const test::Ended refused = test::run_tarn(as_text);
  CAPTURE(refused.out);
  CHECK(refused.exit_code == 78);
  CHECK(has(refused.err, "give a folder on a disk for KV beyond memory (--store DIR, store.path)"));

  as_text.insert(as_text.end(), {"--store", "/nowhere/at/all"});
  const test::Ended planned = test::run_tarn(as_text);
  CAPTURE(planned.err);
  CHECK(planned.exit_code == 0);
  CHECK(has(planned.out, "store          behind a full context, full attention reads "));
  CHECK(has(planned.out, "(in seconds with the profile of tarn calibrate)"));
  CHECK_FALSE(std::filesystem::exists("/nowhere"));

  words.insert(words.end(), {"--store", "/nowhere/at/all", "--config", box.path()});
  const auto plan = plan_of(words);
  const f64 bytes = plan["full_attention_disk_bytes_per_token"].GetDouble();
  CHECK(bytes > 0);
  CHECK(plan["full_attention_disk_s_per_token"].GetDouble() >= bytes * 1e-9 * 0.999);
  const auto small = plan_of({"-m", model.path(), "-c", "256"});
  CHECK(small["full_attention_disk_bytes_per_token"].GetUint64() == 0);
  CHECK(small["full_attention_disk_s_per_token"].IsNull());
  CHECK(small["target"].IsNull());
}

}  // namespace
}  // namespace tarn::plan_native_test
