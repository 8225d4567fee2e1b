// tools/tarn-bench/main.cpp: llama-bench's flags and formats on Tarn's engine.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>

#include "kernels/quant/tensor_type.h"
#include "platform/cpu/topology.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/memory_use.h"
#include "tools/support/model_file.h"
#include "tools/support/own_engine.h"
#include "tools/support/utc.h"
#include "tools/tarn-bench/bandwidth.h"
#include "tools/tarn-bench/output.h"
#include "tools/tarn-bench/value_list.h"

namespace tarn::bench {
namespace {

struct Options {
  std::vector<std::string> models;
  std::string prompts = "512", gens = "128", depths = "0", ubatches = "512", threads,
              parallels = "1";
  std::string batches = "2048";
  std::vector<std::string> prompt_gens;
  std::vector<std::string> kv_types = {"f16"};
  std::string isa = "auto", io = "auto", budget = "auto", device = "auto";
  u32 repetitions = 5;
  u32 delay_s = 0;
  bool no_warmup = false, progress = false, no_bandwidth = false;
  std::string output = "md", output_err = "none";
};

// One engine's worth of settings.
struct Setup {
  std::string model, kv_type;
  u32 n_threads = 0;
  u32 n_ubatch = 0;
};

// "llama 8.03B q4_k": the type that holds most of the bytes.
std::string model_type(tools::ModelFile& file) {
  std::map<u32, u64> bytes_by_type;
  for (const model::GgufTensor& t : file.gguf().tensors()) bytes_by_type[t.type_id] += t.bytes;
  u32 type = 0;
  for (const auto& [id, bytes] : bytes_by_type) type = bytes > bytes_by_type[type] ? id : type;
  const model::ModelSpec& spec = file.description().spec;
  char text[64];
  std::snprintf(text, sizeof text, "%s %.2fB %s", model::arch_name(spec.arch),
                static_cast<f64>(spec.n_params) * 1e-9, kernels::type_traits(type)->name);
  return text;
}

std::vector<Case> cases_of(const Options& options) {
  std::vector<Case> cases;
  for (const u32 depth : parse_values(options.depths)) {
    for (const u32 parallel : parse_values(options.parallels)) {
      const auto add = [&](u32 n_prompt, u32 n_gen) {
        if (n_prompt + n_gen > 0) cases.push_back({n_prompt, n_gen, depth, parallel});
      };
      for (const u32 n : parse_values(options.prompts)) add(n, 0);
      for (const u32 n : parse_values(options.gens)) add(0, n);
      for (const std::string& pair : options.prompt_gens) {
        const auto [n_prompt, n_gen] = parse_pair(pair);
        add(n_prompt, n_gen);
      }
    }
  }
  return cases;
}

Config config_of(const Options& options, const Setup& setup, const std::vector<Case>& cases) {
  tools::EngineOptions engine;
  engine.budget = options.budget;
  engine.isa = options.isa;
  engine.io = options.io;
  engine.device = options.device;
  engine.kv_type = setup.kv_type;
  engine.n_threads = setup.n_threads;
  engine.rows_max = setup.n_ubatch;
  u64 context_tokens = 0;
  u32 sessions = 1;
  for (const Case& c : cases) {
    context_tokens = std::max<u64>(context_tokens, c.context_tokens());
    sessions = std::max(sessions, c.n_parallel);
  }
  engine.context_tokens = context_tokens;
  engine.sessions_max = sessions;
  return engine.config();
}

void print_progress(const Options& options, const std::string& text) {
  if (options.progress || isatty(STDERR_FILENO) != 0)
    std::fprintf(stderr, "tarn-bench: %s\n", text.c_str());
}

void print_rows(const std::string& format, const std::vector<Row>& rows, std::FILE* out) {
  std::string text;
  if (format == "md") text = to_markdown(rows);
  if (format == "json") text = to_json(rows);
  if (format == "jsonl") {
    for (const Row& row : rows) text += to_json_line(row);
  }
  std::fputs(text.c_str(), out);
}

// All cases on one engine.
void run_setup(const Options& options, const Setup& setup, const std::vector<Case>& cases,
               std::vector<Row>& rows) {
  Row base;
  {
    tools::ModelFile file(setup.model);
    base.model_type = model_type(file);
    base.model_bytes = file.description().spec.weights_file_bytes;
    base.n_params = file.description().spec.n_params;
  }
  const u32 n_readers = setup.n_threads != 0 ? setup.n_threads : cpu_topology().n_physical_cores;
  bool has_limit = true;  // the CPU's reads: what a GPU reads has another
  const auto measure_bandwidth = [&](f64& best) {
    if (!has_limit || options.no_bandwidth || memory_available_bytes() < 2 * kBandwidthBufferBytes)
      return;
    best = std::max(best, measure_read_bandwidth(n_readers));
    tools::reset_peak_rss();  // that figure is the engine's, without the buffer read here
  };
  measure_bandwidth(base.bandwidth_bytes_per_s);
  print_progress(options, "loading " + setup.model);
  tools::OwnEngine own(setup.model, config_of(options, setup, cases));
  engine::Engine& engine = own.get();
  has_limit = !engine.on_gpu();
  if (!has_limit) base.bandwidth_bytes_per_s = 0;
  base.model_path = setup.model;
  base.cpu_info = cpu_topology().model_name.data();
  base.gpu_info = engine.gpu_name();
  base.isa = engine.isa();
  base.io = engine.io_name();
  base.kv_type = setup.kv_type;
  base.n_batch = parse_values(options.batches).front();
  base.n_ubatch = setup.n_ubatch;
  base.n_threads = engine.n_workers();
  base.plan_bytes = engine.plan().total_bytes;
  for (const Case& c : cases) {
    Row row = base;
    row.test = c;
    row.test_time = tools::utc_now();
    if (!options.no_warmup) {  // the same work in small
      Case warm = c;
      warm.n_depth = 0;
      warm.n_gen = std::min(c.n_gen, 1u);
      print_progress(options, c.name() + ": warm-up");
      run_case(engine, warm, 1);
    }
    for (u32 i = 0; i < options.repetitions; ++i) {
      print_progress(options, c.name() + ": run " + std::to_string(i + 1) + " of " +
                                  std::to_string(options.repetitions));
      if (options.delay_s > 0) std::this_thread::sleep_for(std::chrono::seconds(options.delay_s));
      row.samples.push_back(run_case(engine, c, 1000 + i));
      row.peak_rss_bytes = std::max(row.peak_rss_bytes, tools::peak_rss_bytes());
      // A machine whose neighbours share its memory has another bandwidth every few seconds; the
      // best that was seen around the runs is the limit.
      measure_bandwidth(row.bandwidth_bytes_per_s);
    }
    rows.push_back(std::move(row));
  }
}

void run(const Options& options) {
  const std::vector<Case> cases = cases_of(options);
  if (cases.empty())
    throw tools::Failure{tools::kExitUsage,
                         "there is nothing to measure: -p, -n and -pg are all 0"};
  if (options.repetitions == 0) throw tools::Failure{tools::kExitUsage, "-r must be at least 1"};
  const std::vector<u32> threads =
      options.threads.empty() ? std::vector<u32>{0} : parse_values(options.threads);
  std::vector<Row> rows;
  for (const std::string& model : options.models) {
    for (const std::string& kv_type : options.kv_types) {
      for (const u32 n_ubatch : parse_values(options.ubatches)) {
        for (const u32 n_threads : threads) {
          run_setup(options, {model, kv_type, n_threads, n_ubatch}, cases, rows);
        }
      }
    }
  }
  print_rows(options.output, rows, stdout);
  print_rows(options.output_err, rows, stderr);
  if (options.output != "md") return;
  const Row& last = rows.back();
  std::printf("\nmemory: plan %s, peak RSS %s; weights read by %s\n",
              tools::format_bytes(last.plan_bytes).c_str(),
              tools::format_bytes(last.peak_rss_bytes).c_str(), last.io.c_str());
  if (last.bandwidth_bytes_per_s > 0) {
    std::printf("share: of %.1f GB/s, the best read bandwidth around the last case's runs; %s\n",
                last.bandwidth_bytes_per_s * 1e-9, last.cpu_info.c_str());
  }
}

// Options of llama-bench that have one legal value here: scripts may pass them, and nothing is
// ignored silently.
void add_fixed_options(CLI::App& app) {
  const auto only = [&](const char* flag, const char* help, std::vector<std::string> allowed) {
    app.add_option_function<std::string>(
           flag, [](const std::string&) {}, help)
        ->check(CLI::IsMember(std::move(allowed)));
  };
  only("--n-gpu-layers,--ngl", "0: a model is on the GPU as a whole or not at all, see --device",
       {"0"});
  only("--flash-attn,--fa", "attention is always computed in tiles", {"1", "on", "auto"});
  only("--mmap", "weights are always read directly", {"0"});
  only("--split-mode,--sm", "none", {"none"});
}

int run_command_line(int argc, char** argv) {
  Options o;
  CLI::App app{
      "tarn-bench measures prompt reading (pp), generation (tg) and both (pg) as llama-bench "
      "does."};
  app.name("tarn-bench");
  app.footer(
      "\nNumbers may be lists and ranges: 1,2,4  1-4  16-64+16  1-8*2\n\nExamples:\n"
      "  tarn-bench -m model.gguf                  pp512 and tg128, 5 times each\n"
      "  tarn-bench -m model.gguf -p 0 -n 64 -d 0,4096 -t 1,2\n"
      "  tarn-bench -m model.gguf --pg 512,128 -o json\n");
  app.add_option("-m,--model", o.models, "GGUF files")->required()->delimiter(',');
  app.add_option("-p,--n-prompt", o.prompts, "tokens of the prompt")->capture_default_str();
  app.add_option("-n,--n-gen", o.gens, "tokens to generate")->capture_default_str();
  app.add_option("--pg", o.prompt_gens, "prompt and generation together: pp,tg");
  app.add_option("-d,--n-depth", o.depths, "tokens that are in the KV already")
      ->capture_default_str();
  app.add_option("--np,--n-parallel", o.parallels, "sequences side by side")->capture_default_str();
  app.add_option("-b,--batch-size", o.batches, "accepted for llama-bench's sake; slices are --ub")
      ->capture_default_str();
  app.add_option("--ub,--ubatch-size", o.ubatches, "rows of one step")->capture_default_str();
  app.add_option("--ctk,--cache-type-k,--ctv,--cache-type-v", o.kv_types,
                 "number format of K and V")
      ->delimiter(',')
      ->check(CLI::IsMember({"f16", "q8_0"}))
      ->capture_default_str();
  app.add_option("-t,--threads", o.threads, "worker threads (default: one per physical core)");
  app.add_option("--isa", o.isa, "instruction set of the kernels")->capture_default_str();
  app.add_option("--io", o.io, "how files are read: auto, uring, threads")->capture_default_str();
  app.add_option("--budget", o.budget, "ceiling over all memory")->capture_default_str();
  app.add_option("--device,--dev", o.device, "where the model runs")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("-r,--repetitions", o.repetitions, "runs of each case")->capture_default_str();
  app.add_option("--delay", o.delay_s, "seconds between runs")->capture_default_str();
  app.add_flag("--no-warmup", o.no_warmup, "measure the first run too");
  app.add_flag("--no-bandwidth", o.no_bandwidth,
               "do not measure the memory's bandwidth around the runs");
  app.add_flag("--progress", o.progress, "say what is being measured");
  const auto formats = CLI::IsMember({"md", "json", "jsonl", "none"});
  app.add_option("-o,--output", o.output, "format on standard output")
      ->check(formats)
      ->capture_default_str();
  app.add_option("--oe,--output-err", o.output_err, "format on standard error")
      ->check(formats)
      ->capture_default_str();
  add_fixed_options(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? tools::kExitOk : tools::kExitUsage;
  }
  run(o);
  return tools::kExitOk;
}

// llama-bench writes its long names with one dash (-pg, -ngl); CLI11 wants two.
std::vector<std::string> with_two_dashes(int argc, char** argv) {
  std::vector<std::string> arguments(argv, argv + argc);
  for (std::string& a : arguments) {
    for (const char* name :
         {"-pg", "-ub", "-ctk", "-ctv", "-ngl", "-fa", "-sm", "-oe", "-mmp", "-dev", "-np"}) {
      if (a == name) a = a == "-mmp" ? "--mmap" : "-" + a;
    }
  }
  return arguments;
}

int code_of(int argc, char** argv) {
  try {
    return run_command_line(argc, argv);
  } catch (const tools::Failure& failure) {
    std::fprintf(stderr, "tarn-bench: %s\n", failure.text.c_str());
    return failure.code;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "tarn-bench: %s\n", error.what());
    return tools::kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tarn-bench: %s\n", error.what());
    return tools::kExitRefused;
  }
}

}  // namespace
}  // namespace tarn::bench

int main(int argc, char** argv) {
  tarn::set_thread_fatal_sink(&tarn::tools::fatal_sink());
  std::vector<std::string> arguments = tarn::bench::with_two_dashes(argc, argv);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size());
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return tarn::tools::code_after_output(
      "tarn-bench", tarn::bench::code_of(static_cast<int>(pointers.size()), pointers.data()));
}
