#include "tools/gpu_check/steps.h"

#include <signal.h>
#include <sys/vfs.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>

#include "tools/gpu_check/machine.h"
#include "tools/gpu_check/process.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"

namespace tarn::gpu_check {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr u64 kModelBytes = 5'300'000'000;  // the 8B of `tarn synth`, and logits of kIds tokens
constexpr f64 kSecondsWorthwhile = 2;
constexpr f64 kBenchSeconds = 90;          // a bench's, without KV
constexpr f64 kBenchSecondsOfDepth = 45;   // and for each 32K tokens of it
constexpr f64 kTokensOfDepth = 32 * 1024;  // twice what an AGX Orin takes by kernels/NAPKIN.md
constexpr u32 kIds = 64;
constexpr u32 kSelectDepth = 32768;
constexpr f64 kClusterSeconds = 90;  // 0.4 TFLOP of the host's: all layers' keys at that depth
constexpr long kTmpfs = 0x01021994;  // linux/magic.h

// The last line that says something, in plain ASCII.
std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line)) {
    if (line.find_first_not_of(" \r\t") != std::string::npos) last = line;
  }
  for (char& c : last) c = c < ' ' || c > '~' ? ' ' : c;
  return last.substr(0, 300);
}

std::string joined(const Arguments& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

struct TestFile {
  std::string program, file;
  std::string name() const { return "test " + program + " " + file; }
};

class Runner {
 public:
  Runner(const Setup& setup, Report& report, const std::function<void()>& after_step)
      : setup_(setup), report_(report), after_step_(after_step), begin_(Clock::now()) {}

  void run() {
    if (!find_device()) return everything_absent();
    look("machine before");
    run_steps();
    look("machine after");
  }

 private:
  using Clock = std::chrono::steady_clock;

  void run_steps() {
    tests_ = test_files();
    if (!tests_.empty()) test(tests_.front());
    json_step("kernels", {program("gpu-bench")}, 90);
    make_model();
    bench(0, 1);
    peer_bench(0);
    logits();
    for (u64 i = 1; i < tests_.size(); ++i) test(tests_[i]);
    sanitize("memcheck");
    for (const u32 n_parallel : {4u, 8u}) bench(0, n_parallel);
    peer_batch();
    for (const u32 depth : {4096u, 32768u}) {
      bench(depth, 1);
      peer_bench(depth);
      if (depth == kSelectDepth) bench_selection();
      bench(depth, 1, "q8_0");
      for (const u32 n_parallel : {4u, 8u}) bench(depth, n_parallel);
    }
    sanitize("racecheck");
  }

  std::string program(const char* name) const { return (setup_.bundle / name).string(); }
  f64 seconds_left() const {
    const std::chrono::duration<f64> gone = Clock::now() - begin_;
    return setup_.minutes * 60 - gone.count();
  }

  Step& add(const std::string& name) {
    report_.steps.emplace_back();
    report_.steps.back().name = name;
    return report_.steps.back();
  }
  void add_absent(const std::string& name, const std::string& why) {
    Step& step = add(name);
    step.why = why;
    after_step_();
  }

  // Runs the command into a new step; what it printed is returned where it ended with 0.
  std::optional<std::string> execute(const std::string& name, const Arguments& arguments,
                                     f64 limit_s) {
    Step& step = add(name);
    const f64 left_s = seconds_left();
    if (is_interrupted() || left_s < kSecondsWorthwhile) {
      step.status = Status::no_time;
      step.why = is_interrupted() ? "interrupted" : "the time given by --minutes was over";
      return std::nullopt;
    }
    step.command = joined(arguments);
    limit_s = std::min({limit_s, left_s, setup_.step_seconds_max});
    const Outcome outcome =
        run_command({.arguments = arguments, .library_dir = setup_.cublas_dir, .limit_s = limit_s});
    step.seconds = outcome.seconds;
    step.limit_s = limit_s;
    judge(outcome, limit_s, step);
    if (step.status != Status::ok) return std::nullopt;
    return outcome.out;
  }

  static void judge(const Outcome& outcome, f64 limit_s, Step& step) {
    const std::string said = last_line(outcome.err.empty() ? outcome.out : outcome.err);
    const std::string behind = said.empty() ? "" : ": " + said;
    step.status = Status::failed;
    switch (outcome.ending) {
      case Ending::exited:
        if (outcome.code == 0) step.status = Status::ok;
        if (outcome.code == kExitAbsent) step.status = Status::absent;
        if (outcome.code == tools::kExitRefused) step.status = Status::refused;
        // The loader's word for a library that is not here.
        if (outcome.code == 127 && outcome.err.find("shared libraries") != std::string::npos) {
          step.status = Status::absent;
        }
        if (outcome.code != 0) step.why = "exit code " + std::to_string(outcome.code) + behind;
        if (outcome.code == kExitAbsent && !said.empty()) step.why = said;
        break;
      case Ending::signalled:
        step.why = std::string("crashed: ") + strsignal(outcome.code) + behind;
        break;
      case Ending::timed_out:
        step.status = Status::timed_out;
        step.why = "cut after " + std::to_string(static_cast<u64>(limit_s)) + " s" + behind;
        break;
      case Ending::interrupted:
        step.status = Status::no_time;
        step.why = "interrupted";
        break;
      case Ending::not_started:
        step.why = std::string("could not be started: ") + std::strerror(outcome.code);
        break;
    }
  }

  // A step whose program prints one JSON value.
  bool json_step(const std::string& name, const Arguments& arguments, f64 limit_s) {
    const std::optional<std::string> out = execute(name, arguments, limit_s);
    if (out) take_figures(*out);
    after_step_();
    return report_.steps.back().status == Status::ok;
  }
  void take_figures(const std::string& text) {
    Step& step = report_.steps.back();
    step.figures.Parse(text.c_str());
    if (!step.figures.HasParseError()) return;
    step.figures.SetNull();
    step.status = Status::failed;
    step.why = "what it printed is no JSON: " + last_line(text);
  }

  void look(const std::string& name) {
    Step& step = add(name);
    step.status = Status::ok;
    step.figures = look_at_machine();
    after_step_();
  }

  bool find_device() { return json_step("device", {program("gpu-bench"), "--facts"}, 60); }

  void everything_absent() {
    const Status status = report_.steps.back().status;
    const std::string why =
        status == Status::absent ? report_.steps.back().why : "the GPU could not be opened";
    for (const char* name :
         {"tests", "kernels", "model", "decode d0 x1", "peer d0", "logits", "memcheck"}) {
      add_absent(name, why);
    }
  }

  std::vector<TestFile> test_files() const {
    std::vector<TestFile> files;
    std::istringstream lines(tools::read_file((setup_.bundle / "tests.list").string()));
    TestFile file;
    while (lines >> file.program >> file.file) files.push_back(file);
    return files;
  }
  void test(const TestFile& file) {
    execute(file.name(), {program(file.program.c_str()), "--source-file=*/" + file.file}, 120);
    after_step_();
  }

  void make_model() {
    model_ = setup_.model.string();
    if (!model_.empty()) return;
    const std::string why = why_no_room();
    if (!why.empty()) return add_absent("model", why);
    const std::string path = (setup_.work / "8b.gguf").string();
    const Arguments arguments = {program("tarn"), "synth",  "--arch", "llama-3.1-8b",
                                 "--quant",       "q4_k_m", path};
    if (execute("model", arguments, 240)) model_ = path;
    after_step_();
  }
  std::string why_no_room() const {
    struct statfs disk {};
    if (statfs(setup_.work.c_str(), &disk) != 0) return "cannot look at " + setup_.work.string();
    const u64 free_bytes = disk.f_bavail * static_cast<u64>(disk.f_bsize);
    const std::string place = setup_.work.parent_path().string();
    if (disk.f_type == kTmpfs) return place + " is memory, not a disk: name another with --dir";
    if (free_bytes >= kModelBytes) return "";
    return "the 8B needs " + std::to_string(kModelBytes / 1'000'000) + " MB, and " + place +
           " has " + std::to_string(free_bytes / 1'000'000) + ": name another with --dir";
  }
  bool needs_model(const std::string& name) {
    if (model_.empty()) add_absent(name, "there is no model");
    return !model_.empty();
  }

  static f64 bench_limit_s(u32 depth, u32 n_parallel) {
    return kBenchSeconds + kBenchSecondsOfDepth * depth * n_parallel / kTokensOfDepth;
  }
  // Above depth 0 KV is filled in: a real prefill of 32K takes minutes on a board.
  void bench(u32 depth, u32 n_parallel, const char* kv_type = "f16") {
    const std::string d = std::to_string(depth), np = std::to_string(n_parallel);
    const std::string name = decode_step_name(depth, n_parallel, kv_type);
    if (!needs_model(name)) return;
    Arguments arguments = {program("tarn-bench"),
                           "-m",
                           model_,
                           "-p",
                           "512",
                           "-n",
                           "128",
                           "--np",
                           np,
                           "--ctk",
                           kv_type,
                           "-r",
                           depth == 0 ? "3" : "2",
                           "--device",
                           "cuda",
                           "--no-bandwidth",
                           "-o",
                           "json"};
    if (depth > 0) {
      arguments.insert(arguments.end(), {"--fill-kv", d, "--kv-model", "recorded"});
    }
    json_step(name, arguments, bench_limit_s(depth, n_parallel));
  }

  // Tokens that are generated after the index came into use, which the host clusters before; a
  // prompt is read as ever.
  void bench_selection() {
    const std::string name = select_step_name(kSelectDepth);
    if (!needs_model(name)) return;
    json_step(name,
              {program("tarn-bench"),
               "-m",
               model_,
               "-p",
               "0",
               "-n",
               "128",
               "--select",
               "pq",
               "-r",
               "2",
               "--device",
               "cuda",
               "--no-bandwidth",
               "-o",
               "json",
               "--fill-kv",
               std::to_string(kSelectDepth),
               "--kv-model",
               "recorded"},
              bench_limit_s(kSelectDepth, 1) + kClusterSeconds);
  }

  std::string why_no_peer(const char* name) const {
    if (setup_.peer.empty() || !fs::exists(setup_.peer / name))
      return "no llama.cpp with CUDA here";
    return setup_.cublas.empty() ? "llama.cpp needs libcublas, which is not here" : "";
  }
  void peer_bench(u32 depth) {
    const std::string d = std::to_string(depth), name = "peer d" + d;
    if (!needs_model(name)) return;
    const std::string why = why_no_peer("llama-bench");
    if (!why.empty()) return add_absent(name, why);
    json_step(name,
              {(setup_.peer / "llama-bench").string(), "-m", model_, "-p", "512", "-n", "128", "-d",
               d, "-r", depth == 0 ? "3" : "2", "-ngl", "99", "-fa", "1", "-o", "json"},
              bench_limit_s(depth, 1));
  }
  // A JSON line for each batch; kept as an array, as llama-bench's are.
  void peer_batch() {
    const std::string name = "peer batch";
    if (!needs_model(name)) return;
    const std::string why = why_no_peer("llama-batched-bench");
    if (!why.empty()) return add_absent(name, why);
    const std::optional<std::string> out = execute(
        name,
        {(setup_.peer / "llama-batched-bench").string(), "-m", model_, "-c", "4096", "-npp", "16",
         "-ntg", "128", "-npl", "4,8", "-ngl", "99", "-fa", "1", "--output-format", "jsonl"},
        90);
    if (out) {
      std::istringstream lines(*out);
      std::string line, rows;
      while (std::getline(lines, line)) {
        if (line.starts_with("{")) rows += (rows.empty() ? "" : ",") + line;
      }
      take_figures("[" + rows + "]");
    }
    after_step_();
  }

  void logits() {
    if (!needs_model("logits")) return;
    std::string ids;
    u32 state = 1;
    for (u32 i = 0; i < kIds; ++i) {
      state = state * 1664525 + 1013904223;
      ids += std::to_string((state >> 8) % 30000) + "\n";
    }
    const std::string ids_file = (setup_.work / "ids.txt").string();
    const std::string base = (setup_.work / "cpu.logits").string();
    tools::write_file(ids_file, ids.data(), ids.size());
    const Arguments eval = {program("tarn"), "eval", "-m", model_, "--ids", ids_file, "--json"};
    const auto with = [&](std::initializer_list<std::string> more) {
      Arguments arguments = eval;
      arguments.insert(arguments.end(), more);
      return arguments;
    };
    if (json_step("logits cpu", with({"--device", "cpu", "--logits-out", base}), 120)) {
      json_step("logits", with({"--device", "cuda", "--base", base}), 60);
    } else {
      add_absent("logits", "the CPU gave none to compare with");
    }
  }

  // The kernels' tests and the engine's on the real GPU, under one of compute-sanitizer's tools;
  // its last line counts the errors. What our calls answer is no error there: we ask events
  // whether they are done, and look at every other answer ourselves.
  void sanitize(const std::string& tool) {
    sanitize(tool, tool, "kernels");
    sanitize(tool + " engine", tool, "engine");
  }
  void sanitize(const std::string& name, const std::string& tool, const std::string& tests) {
    if (setup_.sanitizer.empty()) return add_absent(name, "no compute-sanitizer here");
    const auto found = std::find_if(tests_.begin(), tests_.end(), [&](const TestFile& file) {
      return file.program.find(tests) != std::string::npos;
    });
    if (found == tests_.end()) return add_absent(name, "no tests of the " + tests + " here");
    Arguments arguments = {setup_.sanitizer.string(), "--tool", tool, "--error-exitcode", "99"};
    if (tool == "memcheck") {
      arguments.insert(arguments.end(), {"--report-api-errors", "no"});
    }
    arguments.push_back(program(found->program.c_str()));
    // Most of the engine's tests have the emulator alone.
    if (tests == "engine") arguments.push_back("--source-file=*/" + found->file);
    execute(name, arguments, 120);
    after_step_();
  }

  const Setup& setup_;
  Report& report_;
  const std::function<void()>& after_step_;
  Clock::time_point begin_;
  std::vector<TestFile> tests_;
  std::string model_;
};

}  // namespace

void run_steps(const Setup& setup, Report& report, const std::function<void()>& after_step) {
  Runner(setup, report, after_step).run();
}

}  // namespace tarn::gpu_check
