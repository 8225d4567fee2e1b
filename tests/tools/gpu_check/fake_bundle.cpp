#include "tests/tools/gpu_check/fake_bundle.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include "tools/gpu_check/process.h"
#include "tools/support/input.h"

namespace tarn::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGpuBench = R"(case "$*" in
*--facts*) echo '{"name": "Fake H100", "sm": 90}' ;;
*) echo '{"copy_gb_per_s": 2000.0, "read_gb_per_s": 2100.0,
 "graph_launch_ns": 1500, "stream_launch_ns": 4000,
 "kernels": [
 {"name": "q4_k", "rows": 1, "weight_bytes": 75497472, "bytes": 75497472,
  "ns": 40000, "gb_per_s": 1800, "share": 0.9},
 {"name": "q6_k", "rows": 1, "weight_bytes": 75497472, "bytes": 75497472,
  "ns": 41000, "gb_per_s": 1760, "share": 0.88},
 {"name": "q6_k", "rows": 8, "weight_bytes": 75497472, "bytes": 75497472,
  "ns": 99000, "gb_per_s": 762, "share": 0.38},
 {"name": "small", "rows": 1, "weight_bytes": 1048576, "bytes": 1048576,
  "ns": 2000, "gb_per_s": 524, "share": 0.26}],
 "prompt": [{"name": "matmat q4_k", "rows": 512, "ns": 200000, "tera_ops_per_s": 300.0}],
 "has_cublas": false, "step": {"launches": 356, "busy_ns": 4000000},
 "select": [{"depth": 8192, "launches": 97, "busy_ns": 150000},
 {"depth": 32768, "launches": 97, "busy_ns": 200000}]}' ;;
esac)";

// 200 tokens a second move 1,000 GB/s.
constexpr const char* kTarnBench = R"(case "$*" in
*"-p 0 -n 128 --select pq"*"--fill-kv 32768 --kv-model recorded"*)
 echo '[{"n_prompt": 0, "n_gen": 128, "avg_ts": 250.0, "select": "pq"}]' ;;
*) echo '[
{"n_prompt": 512, "n_gen": 0, "avg_ts": 9000.0, "achieved_gb_per_s": null},
{"n_prompt": 0, "n_gen": 128, "avg_ts": 200.0, "achieved_gb_per_s": 1000.0,
 "driver_bytes": 311000000, "driver_limit_bytes": 536870912}]' ;;
esac)";

constexpr const char* kLlamaBench = R"(echo '[
{"n_prompt": 512, "n_gen": 0, "avg_ts": 12000.0},
{"n_prompt": 0, "n_gen": 128, "avg_ts": 125.0}]')";

constexpr const char* kBatchedBench = R"(echo 'a line of its log'
echo '{"pl": 4, "speed_tg": 400.0}'
echo '{"pl": 8, "speed_tg": 700.0}')";

constexpr const char* kTarn = R"(case "$1" in
synth) shift $(($# - 1)); echo model >"$1" ;;
eval) echo '{"kl_mean": 1.5e-7, "kl_p99": 1e-6, "top1_agreement": 1.0}' ;;
esac)";

}  // namespace

FakeBundle::FakeBundle() {
  std::string name = (fs::temp_directory_path() / "tarn_bundle_XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  dir_ = name;
  fs::create_directories(dir_ / "peer");
  fs::create_directories(dir_ / "work");
  set_program("gpu-bench", kGpuBench);
  set_program("tarn-bench", kTarnBench);
  set_program("tarn", kTarn);
  set_program("test_kernels_gpu", "echo '[doctest] test cases: 3 | 3 passed | 0 failed'");
  set_program("test_runtime_engine_gpu", "echo '[doctest] test cases: 5 | 5 passed | 0 failed'");
  set_program("peer/llama-bench", kLlamaBench);
  set_program("peer/llama-batched-bench", kBatchedBench);
  set_program("compute-sanitizer", "echo '========= ERROR SUMMARY: 0 errors'");
  const std::string tests =
      "test_kernels_gpu real_gpu_test.cpp\ntest_kernels_gpu matvec_test.cpp\n"
      "test_runtime_engine_gpu batch_test.cpp\n";
  tools::write_file((dir_ / "tests.list").string(), tests.data(), tests.size());
  const std::string what = "scripts of a test\n";
  tools::write_file((dir_ / "bundle.txt").string(), what.data(), what.size());
}

FakeBundle::~FakeBundle() {
  std::error_code ignored;
  fs::remove_all(dir_, ignored);
}

void FakeBundle::set_program(const std::string& name, const std::string& lines) {
  const std::string text = "#!/bin/sh\n" + lines + "\n";
  const fs::path path = dir_ / name;
  tools::write_file(path.string(), text.data(), text.size());
  fs::permissions(path, fs::perms::owner_all);
}

std::vector<std::string> FakeBundle::command(const std::vector<std::string>& more) const {
  std::vector<std::string> words = {TARN_GPU_CHECK,
                                    "--bundle",
                                    dir_.string(),
                                    "--dir",
                                    (dir_ / "work").string(),
                                    "--sanitizer",
                                    (dir_ / "compute-sanitizer").string(),
                                    "--cublas",
                                    "a library of a test",
                                    "-m",
                                    (dir_ / "tarn").string(),
                                    "-o",
                                    json_path(),
                                    "--table",
                                    table_path()};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

int FakeBundle::run(const std::vector<std::string>& more) const {
  const gpu_check::Outcome outcome =
      gpu_check::run_command({.arguments = command(more), .library_dir = {}, .limit_s = 120});
  INFO(outcome.err);
  return outcome.ending == gpu_check::Ending::exited ? outcome.code : -1;
}

rapidjson::Document FakeBundle::json() const {
  rapidjson::Document document;
  document.Parse(tools::read_file(json_path()).c_str());
  REQUIRE_FALSE(document.HasParseError());
  return document;
}

std::string FakeBundle::table() const { return tools::read_file(table_path()); }

}  // namespace tarn::test
