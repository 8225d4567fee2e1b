// tools/gpu_check/main.cpp: gpu-check-run, the program that a bundle starts (tools/gpu-check).
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/gpu_check/process.h"
#include "tools/gpu_check/steps.h"
#include "tools/support/command_line.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/utc.h"

namespace tarn::gpu_check {
namespace {

namespace fs = std::filesystem;

constexpr int kMissed = 1;         // a step failed or a target was missed
constexpr int kInterrupted = 130;  // what was seen until then is written

struct Options {
  f64 minutes = 8;
  std::string out = "gpu-check.json", table, dir = "/var/tmp", model, peer, sanitizer = "auto",
              cublas = "auto";
  std::string bundle;
  f64 step_seconds_max = 1e9;
};

// A folder for models and logits that goes with the run.
class WorkDir {
 public:
  explicit WorkDir(const std::string& parent) {
    std::string name = parent + "/gpu-check-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      throw tools::Failure{tools::kExitIo, "cannot make a folder in " + parent + ": " +
                                               std::strerror(errno) + "; name another with --dir"};
    }
    path_ = name;
  }
  ~WorkDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  WorkDir(const WorkDir&) = delete;
  WorkDir& operator=(const WorkDir&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

fs::path bundle_of(const Options& options) {
  if (!options.bundle.empty()) return options.bundle;
  return fs::canonical("/proc/self/exe").parent_path();
}

int code_of(const Report& report) {
  if (report.state == "interrupted") return kInterrupted;
  const Status device = report.steps.front().status;
  if (device != Status::ok) return device == Status::absent ? kExitAbsent : kMissed;
  for (const Step& step : report.steps) {
    if (step.status == Status::failed) return kMissed;
    if (step.status == Status::timed_out && is_asked_for(step.name)) return kMissed;
  }
  for (const Target& target : targets_of(report)) {
    if (target.verdict == Verdict::missed) return kMissed;
  }
  return tools::kExitOk;
}

int run(const Options& options) {
  const WorkDir work(options.dir);
  Setup setup{.bundle = bundle_of(options),
              .peer = options.peer,
              .work = work.path(),
              .model = options.model,
              .sanitizer = options.sanitizer,
              .cublas_dir = {},
              .cublas = {},
              .minutes = options.minutes,
              .step_seconds_max = options.step_seconds_max};
  if (options.sanitizer == "auto") setup.sanitizer = find_sanitizer();
  if (setup.peer.empty() && fs::exists(setup.bundle / "peer")) setup.peer = setup.bundle / "peer";
  catch_interrupts();
  if (options.cublas == "auto") {
    find_cublas(setup);
  } else {
    setup.cublas = options.cublas;
  }
  Report report;
  report.date = tools::utc_now();
  report.bundle = tools::read_file((setup.bundle / "bundle.txt").string());
  while (report.bundle.ends_with("\n")) report.bundle.pop_back();
  report.bundle += setup.cublas.empty() ? "; cuBLAS: absent" : "; cuBLAS: " + setup.cublas;
  report.minutes = options.minutes;
  const auto write = [&] { write_whole(options.out, to_json(report)); };
  write();
  run_steps(setup, report, [&] {
    const Step& step = report.steps.back();
    std::fprintf(stderr, "%-36s %-9s %6.1f s  %s\n", step.name.c_str(), status_name(step.status),
                 step.seconds, step.why.c_str());
    write();
  });
  report.state = is_interrupted() ? "interrupted" : "finished";
  write();
  const std::string table = to_table(report);
  std::fputs(table.c_str(), stdout);
  if (!options.table.empty()) write_whole(options.table, table);
  const int code = code_of(report);
  if (code == kExitAbsent) {
    std::fprintf(stderr, "gpu-check: nothing was checked: %s\n", report.steps.front().why.c_str());
  }
  return code;
}

int run_command_line(int argc, char** argv) {
  Options o;
  tools::CommandLine app(
      "gpu-check run: every GPU test and figure of Tarn's, on this machine's GPU.",
      "gpu-check run");
  app.take_last();
  app.footer(
      "\nThe JSON is written after every step, the table goes to standard output at the end.\n"
      "Exit codes: 0 all passed, 1 a step failed or a target was missed (a step that no target\n"
      "rests on may run out of its time), 77 there is no GPU here and nothing was checked, 130\n"
      "interrupted.\n\nExamples:\n"
      "  tools/gpu-check run\n"
      "  tools/gpu-check run --minutes 20 --dir /var/tmp --table orin.md\n");
  app.add_option("--minutes", o.minutes, "for all steps together")
      .between(0.0, 10000.0)
      .capture_default_str();
  app.add_option("-o,--output", o.out, "the JSON").capture_default_str();
  app.add_option("--table", o.table, "the table, into a file as well");
  app.add_option("--dir", o.dir, "a disk with 5.3 GB for the 8B; emptied afterwards")
      .capture_default_str();
  app.add_option("-m,--model", o.model, "a model instead of the 8B that `tarn synth` makes");
  app.add_option("--peer", o.peer, "a folder with llama-bench, built with CUDA");
  app.add_option("--sanitizer", o.sanitizer, "compute-sanitizer; auto looks for it")
      .capture_default_str();
  app.add_option("--cublas", o.cublas, "libcublas; auto looks for it, empty: there is none")
      .capture_default_str();
  app.add_option("--bundle", o.bundle, "the bundle's folder (default: where this program lies)");
  app.add_option("--step-seconds", o.step_seconds_max, "no step gets more than this");
  if (const auto code = app.parse(argc, argv)) return *code;
  return run(o);
}

}  // namespace
}  // namespace tarn::gpu_check

int main(int argc, char** argv) {
  int code = tarn::tools::kExitIo;
  try {
    code = tarn::gpu_check::run_command_line(argc, argv);
  } catch (const tarn::tools::Failure& failure) {
    std::fprintf(stderr, "gpu-check: %s\n", failure.text.c_str());
    code = failure.code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu-check: %s\n", error.what());
  }
  return tarn::tools::code_after_output("gpu-check", code);
}
