// Goal    gpu-check run comes to its end and says what happened whatever its steps do: pass, miss
//         a target, crash, hang, refuse, say nonsense, find no GPU, run out of time; whoever kills
//         it finds valid JSON and no process left.
// Method  the real gpu-check-run over a bundle of shell scripts, one of which misbehaves; JSON,
//         table and exit code are read.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/support/skip.h"
#include "tests/tools/gpu_check/fake_bundle.h"
#include "tools/support/input.h"

namespace tarn::test {
namespace {

namespace fs = std::filesystem;
using rapidjson::Value;

const Value* find(const rapidjson::Document& json, const char* list, const std::string& name) {
  for (const Value& entry : json[list].GetArray()) {
    if (entry["name"].GetString() == name) return &entry;
  }
  return nullptr;
}

std::string status_of(const rapidjson::Document& json, const std::string& step) {
  const Value* found = find(json, "steps", step);
  return found != nullptr ? (*found)["status"].GetString() : "missing";
}
std::string why_of(const rapidjson::Document& json, const std::string& step) {
  const Value* found = find(json, "steps", step);
  return found != nullptr && found->HasMember("why") ? (*found)["why"].GetString() : "";
}
std::string verdict_of(const rapidjson::Document& json, const std::string& name_begin) {
  for (const Value& entry : json["targets"].GetArray()) {
    if (std::string(entry["name"].GetString()).starts_with(name_begin)) {
      return entry["verdict"].GetString();
    }
  }
  return "missing";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Whether `condition` came true within ten seconds.
template <class Condition>
bool wait_for(const Condition& condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

bool is_running(pid_t process) {
  std::error_code ignored;
  if (!fs::exists("/proc/" + std::to_string(process), ignored)) return false;
  // One that nobody has waited for is dead all the same.
  const std::string stat = tools::read_file("/proc/" + std::to_string(process) + "/stat");
  return !contains(stat, ") Z ");
}

TEST_CASE("a bundle in which all is well meets every target") {
  const FakeBundle bundle;
  CHECK(bundle.run() == 0);
  const rapidjson::Document json = bundle.json();
  CHECK(std::string(json["state"].GetString()) == "finished");
  for (const Value& step : json["steps"].GetArray()) {
    CAPTURE(step["name"].GetString());
    CHECK(std::string(step["status"].GetString()) == "ok");
  }
  for (const Value& target : json["targets"].GetArray()) {
    CAPTURE(target["name"].GetString());
    CHECK(std::string(target["verdict"].GetString()) == "met");
  }
  const std::string table = bundle.table();
  CAPTURE(table);
  CHECK(contains(table, "# Fake H100, 20"));
  CHECK(contains(table, "| tg128 beside llama.cpp's | >= 1.3x | 1.60x | met |"));
  CHECK(contains(table, "| tg128, share of the copy bandwidth | >= 0.40 | 0.50 | met |"));
  CHECK(contains(table, ">= 0.85 | 0.88 (q6_k) | met |"));
  CHECK(contains(table, "| 0 | 1 | f16 | 9000.0 | 12000.0 | 0.75 | 200.0 | 125.0 | 1.60 |"));
  CHECK(contains(table, "| 0 | 8 | f16 | 9000.0 | - | - | 200.0 | 700.0 | 0.29 |"));
  CHECK(contains(table, "| 32768 | 1 | q8_0 | 9000.0 | - |"));
  CHECK(contains(table, "| matmat q4_k | 512 | 200.0 | 300.0 |\n| cuBLAS | absent | | |"));
  CHECK(contains(table, "The driver took 311 MB of at most 537 MB"));
  // A token of 5,000 us, 4,000 of them in 356 kernels.
  CHECK(contains(table, "so 1000 us are gaps and the host's part, 2809 ns a kernel"));
  CHECK(contains(table, "| 8192 | 97 | 150 | - | - | - |"));
  CHECK(contains(table, "| 32768 | 97 | 200 | 250.0 | 200.0 | 1.25 |"));
  CHECK(fs::is_empty(bundle.dir() / "work"));
}

TEST_CASE("selection is measured behind what it is compared with, and may not fit") {
  FakeBundle bundle;
  bundle.set_program("tarn-bench", R"(case "$*" in
*"--select"*) echo 'over the budget' >&2; exit 78 ;;
*) echo '[{"n_prompt": 0, "n_gen": 128, "avg_ts": 200.0}]' ;;
esac)");
  bundle.run();
  const rapidjson::Document json = bundle.json();
  std::vector<std::string> names;
  for (const Value& step : json["steps"].GetArray()) names.emplace_back(step["name"].GetString());
  const auto at = [&](const char* name) { return std::ranges::find(names, name) - names.begin(); };
  CHECK(at("decode d32768 x1") < at("decode d32768 x1 pq"));
  CHECK(at("decode d32768 x1 pq") < at("decode d32768 x1 q8_0"));
  CHECK(status_of(json, "decode d32768 x1 pq") == "refused");
  CHECK(status_of(json, "decode d32768 x1 q8_0") == "ok");
  CHECK(contains(bundle.table(), "| 32768 | 97 | 200 | - | 200.0 | - |"));
}

TEST_CASE("the table says in which state the machine was") {
  FakeBundle bundle;
  bundle.set_program("nvpmodel", "echo 'NV Power Mode: MAXN_SUPER'");
  const std::string path = std::getenv("PATH");
  setenv("PATH", (bundle.dir().string() + ":" + path).c_str(), 1);
  bundle.run();
  setenv("PATH", path.c_str(), 1);
  CHECK(contains(bundle.table(), "nvpmodel NV Power Mode: MAXN_SUPER. "));
  CHECK(status_of(bundle.json(), "machine after") == "ok");
}

TEST_CASE("without a GPU every step is absent, and the exit code says so") {
  FakeBundle bundle;
  bundle.set_program("gpu-bench", "echo 'no NVIDIA driver' >&2; exit 77");
  CHECK(bundle.run() == 77);
  const rapidjson::Document json = bundle.json();
  CHECK(json["steps"].Size() >= 7);
  for (const Value& step : json["steps"].GetArray()) {
    CHECK(std::string(step["status"].GetString()) == "absent");
    CHECK(contains(step["why"].GetString(), "no NVIDIA driver"));
  }
  for (const Value& target : json["targets"].GetArray()) {
    CHECK(std::string(target["verdict"].GetString()) == "absent");
  }
  CHECK(contains(bundle.table(), "# no GPU, 20"));
}

TEST_CASE("this build's own program finds the GPU, or says why there is none") {
  FakeBundle bundle;
  bundle.set_program("gpu-bench", std::string("exec '") + TARN_GPU_BENCH + "' --facts");
  const int code = bundle.run();
  const rapidjson::Document json = bundle.json();
  CHECK(status_of(json, "device") == (code == 77 ? "absent" : "ok"));
  if (code == 77) CHECK(why_of(json, "device").starts_with("gpu-bench: this "));
}

struct Misbehaviour {
  const char* name;
  const char* program;
  const char* lines;
  const char* step;
  const char* status;
  const char* why;
  int exit_code;
};

const Misbehaviour kMisbehaviours[] = {
    {"a crash", "tarn-bench", "kill -SEGV $$", "decode d0 x1", "failed", "Segmentation fault", 1},
    {"a failed test", "test_runtime_engine_gpu", "echo 'row 3 differs' >&2; exit 1",
     "test test_runtime_engine_gpu batch_test.cpp", "failed", "row 3 differs", 1},
    {"a hang", "test_runtime_engine_gpu", "sleep 100",
     "test test_runtime_engine_gpu batch_test.cpp", "timed_out", "cut after 1 s", 1},
    {"a hang behind a shell", "peer/llama-bench", "(sleep 100) & wait", "peer d0", "timed_out",
     "cut after 1 s", 1},
    {"a hang that no target rests on", "peer/llama-batched-bench", "sleep 100", "peer batch",
     "timed_out", "cut after 1 s", 0},
    {"a depth that takes too long", "tarn-bench",
     "case \"$*\" in *--fill-kv\\ 32768*) sleep 100 ;; *) echo '[]' ;; esac", "decode d32768 x8",
     "timed_out", "cut after 1 s", 0},
    {"a model that does not fit", "tarn-bench", "echo 'over the budget' >&2; exit 78",
     "decode d32768 x8", "refused", "over the budget", 0},
    {"a peer whose library is missing", "peer/llama-bench",
     "echo 'error while loading shared libraries: libcublas.so.13' >&2; exit 127", "peer d0",
     "absent", "libcublas.so.13", 0},
    {"nonsense for JSON", "gpu-bench",
     "case \"$*\" in *--facts*) echo '{\"name\": \"x\"}' ;; *) echo nan ;; esac", "kernels",
     "failed", "no JSON", 1},
    {"a GPU that cannot be opened", "gpu-bench", "echo 'it is lost' >&2; exit 75", "device",
     "failed", "it is lost", 1},
    {"an error of the sanitizer", "compute-sanitizer", "echo '= ERROR SUMMARY: 4 errors'; exit 99",
     "memcheck", "failed", "4 errors", 1},
    {"an error of the sanitizer in the engine", "compute-sanitizer",
     "case \"$*\" in *test_runtime_engine_gpu\\ --source-file=*batch_test.cpp*) echo '= ERROR "
     "SUMMARY: 2 errors'; exit 99 ;; esac",
     "memcheck engine", "failed", "2 errors", 1},
};

TEST_CASE("a step that misbehaves is written down, and the rest goes on") {
  for (const Misbehaviour& m : kMisbehaviours) {
    CAPTURE(std::string(m.name));
    FakeBundle bundle;
    bundle.set_program(m.program, m.lines);
    const bool hangs = std::string(m.status) == "timed_out";
    CHECK(bundle.run({"--step-seconds", hangs ? "1" : "60"}) == m.exit_code);
    const rapidjson::Document json = bundle.json();
    CHECK(std::string(json["state"].GetString()) == "finished");
    CHECK(status_of(json, m.step) == m.status);
    CHECK(contains(why_of(json, m.step), m.why));
    CHECK(contains(bundle.table(), m.why));
    if (std::string(m.step) == "device") continue;  // the rest needs it
    CHECK(json["steps"].Size() == 29);
    const bool is_last = std::string(m.program) == "compute-sanitizer";
    CHECK(status_of(json, "racecheck engine") == (is_last ? "failed" : "ok"));
    CHECK(verdict_of(json, "compute-sanitizer memcheck") == (is_last ? "missed" : "met"));
  }
}

TEST_CASE("depths are filled in, and have time by what they hold, within the minutes") {
  const auto limit_of = [](const rapidjson::Document& json, const char* step) {
    return (*find(json, "steps", step))["limit_s"].GetDouble();
  };
  FakeBundle bundle;
  CHECK(bundle.run({"--minutes", "60"}) == 0);
  const rapidjson::Document json = bundle.json();
  const f64 at_0 = limit_of(json, "decode d0 x8");
  CHECK(at_0 == 90);
  CHECK(limit_of(json, "decode d4096 x8") == limit_of(json, "decode d32768 x1"));
  CHECK(limit_of(json, "decode d32768 x1") == at_0 + 45);
  CHECK(limit_of(json, "decode d32768 x8") == at_0 + 8 * 45);
  for (const char* step : {"decode d0 x1", "decode d4096 x1 q8_0", "decode d32768 x4"}) {
    CAPTURE(step);
    const std::string command = (*find(json, "steps", step))["command"].GetString();
    CHECK(!contains(command, " -d "));
    CHECK(contains(command, "--fill-kv") == (std::string(step) != "decode d0 x1"));
  }
  CHECK(contains(bundle.table(), "Tarn's depths are filled in"));
  CHECK(bundle.run({"--minutes", "1"}) == 0);
  CHECK(limit_of(bundle.json(), "decode d32768 x8") <= 60);
}

TEST_CASE("targets that are missed are called so") {
  FakeBundle bundle;
  bundle.set_program("tarn-bench", R"(echo '[
{"n_prompt": 0, "n_gen": 128, "avg_ts": 125.0, "achieved_gb_per_s": 600.0}]')");
  bundle.set_program("tarn", R"(echo '{"kl_mean": 0.01, "top1_agreement": 1.0}')");
  CHECK(bundle.run() == 1);
  const rapidjson::Document json = bundle.json();
  CHECK(verdict_of(json, "tg128 beside") == "missed");
  CHECK(verdict_of(json, "tg128, share") == "missed");
  CHECK(verdict_of(json, "logits") == "missed");
  CHECK(verdict_of(json, "slowest kernel") == "met");
}

TEST_CASE("an H200 is asked for less than an H100, a board for more") {
  for (const auto& [device, wanted] :
       {std::pair{"NVIDIA H200", ">= 0.33"}, std::pair{"NVIDIA H100 PCIe", ">= 0.40"},
        std::pair{"Orin", ">= 0.90"}}) {
    FakeBundle bundle;
    bundle.set_program("gpu-bench", std::string("echo '{\"name\": \"") + device + "\"}'");
    bundle.run();
    CHECK(contains(bundle.table(), std::string("share of the copy bandwidth | ") + wanted));
  }
}

TEST_CASE("without libcublas the peer is absent, and Tarn runs") {
  FakeBundle bundle;
  CHECK(bundle.run({"--cublas", ""}) == 0);
  const rapidjson::Document json = bundle.json();
  CHECK(status_of(json, "peer d0") == "absent");
  CHECK(status_of(json, "decode d0 x1") == "ok");
  CHECK(verdict_of(json, "tg128 beside") == "absent");
  CHECK(contains(bundle.table(), "cuBLAS: absent"));
}

TEST_CASE("a folder in memory is refused for the model, and what needs none goes on") {
  if (!fs::is_directory("/dev/shm")) TARN_SKIP("no /dev/shm");
  const FakeBundle bundle;
  CHECK(bundle.run({"-m", "", "--dir", "/dev/shm"}) == 0);
  const rapidjson::Document json = bundle.json();
  CHECK(status_of(json, "model") == "absent");
  CHECK(contains(why_of(json, "model"), "--dir"));
  CHECK(why_of(json, "decode d0 x1") == "there is no model");
  CHECK(status_of(json, "memcheck") == "ok");
}

TEST_CASE("when the minutes are over, what is left is called so") {
  FakeBundle bundle;
  bundle.set_program("tarn-bench", "sleep 100");
  CHECK(bundle.run({"--minutes", "0.05"}) == 1);
  const rapidjson::Document json = bundle.json();
  CHECK(status_of(json, "kernels") == "ok");
  CHECK(status_of(json, "decode d0 x1") == "timed_out");
  CHECK(status_of(json, "logits cpu") == "no_time");
  CHECK(status_of(json, "racecheck") == "no_time");
}

TEST_CASE("whoever ends it finds what was seen, and nothing that still runs") {
  for (const int signal_number : {SIGKILL, SIGTERM}) {
    CAPTURE(signal_number);
    FakeBundle bundle;
    const std::string pid_file = (bundle.dir() / "pid").string();
    bundle.set_program("tarn-bench", "echo $$ >'" + pid_file + "'; exec sleep 100");
    std::vector<std::string> words = bundle.command();
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    const auto has_begun = [&] {
      return fs::exists(pid_file) && tools::read_file(pid_file).ends_with("\n");
    };
    REQUIRE(wait_for(has_begun));
    const pid_t step = std::stoi(tools::read_file(pid_file));
    CHECK(is_running(step));
    kill(child, signal_number);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(wait_for([&] { return !is_running(step); }));
    const rapidjson::Document json = bundle.json();
    CHECK(status_of(json, "kernels") == "ok");
    const bool was_killed = signal_number == SIGKILL;
    CHECK(std::string(json["state"].GetString()) == (was_killed ? "running" : "interrupted"));
    if (was_killed) continue;
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 130);
    CHECK(status_of(json, "decode d0 x1") == "no_time");
    CHECK(fs::is_empty(bundle.dir() / "work"));
  }
}

TEST_CASE("a wrong command line and a folder that cannot be written") {
  const FakeBundle bundle;
  CHECK(bundle.run({"--minutes", "soon"}) == 64);
  CHECK(bundle.run({"--dir", "/nowhere/at/all"}) == 74);
  CHECK(bundle.run({"-o", "/nowhere/at/all.json"}) == 74);
}

}  // namespace
}  // namespace tarn::test
