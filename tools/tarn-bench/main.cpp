// tools/tarn-bench/main.cpp: llama-bench's flags and formats on Tarn's engine.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/standard_descriptors.h"
#include "tools/tarn-bench/format.h"
#include "tools/tarn-bench/long_report.h"
#include "tools/tarn-bench/output.h"
#include "tools/tarn-bench/peer_options.h"
#include "tools/tarn-bench/record.h"
#include "tools/tarn-bench/reuse.h"
#include "tools/tarn-bench/runner.h"
#include "tools/tarn-bench/shell_quoted.h"
#include "tools/tarn-bench/value_list.h"

namespace tarn::bench {
namespace {

constexpr const char* kLongFills = "1024,8192,32768";

// Prints the time of rows with selection, or that a row read everything.
void print_selection(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.select == "full") continue;
    const std::string name = row.test.name() + row.fill_note();
    if (row.reads_all()) {
      std::printf("select: %s, %s: all KV was read, no step selected\n", row.select.c_str(),
                  name.c_str());
      continue;
    }
    const Row::PerToken t = row.per_token();
    std::printf(
        "select: %s (loss %s), %s: %.0f tokens a head; choice %.2f ms, gather %.2f ms, "
        "attention %.2f ms a token, of all workers together\n",
        row.select.c_str(), row.is_verified ? "measured" : "not measured: tarn verify",
        name.c_str(), t.slots, t.select_ms, t.gather_ms, t.attend_ms);
  }
}

void run(const Options& options, const std::string& record, const std::string& command) {
  const std::vector<Row> rows = run_all(options);
  tools::warn_of_unused_store(options.store_dir, std::ranges::any_of(rows, &Row::has_store));
  if (!record.empty()) append_record(record, command, rows);
  print_forms(options, {.table = to_markdown(rows), .json_list = to_json(rows)});
  if (options.output != "md") return;
  const Row& last = rows.back();
  std::printf("\nmemory: plan %s, peak RSS %s; weights read by %s\n",
              tools::format_bytes(last.plan_bytes).c_str(),
              tools::format_bytes(last.peak_rss_bytes).c_str(), last.io.c_str());
  if (last.bandwidth_bytes_per_s > 0) {
    std::printf(
        "share: of %.1f GB/s, the best read bandwidth around the last case's runs; -: of a prompt, "
        "or\nabove 1, where weights or KV came from the CPU's caches; %s\n",
        last.bandwidth_bytes_per_s * 1e-9, last.cpu_info.c_str());
  }
  print_selection(rows);
  std::printf("build: %s\n", last.commit.c_str());
}

// A table for each series, under its name.
std::string to_tables(const std::vector<LongSeries>& all) {
  std::string tables;
  for (const LongSeries& series : all) {
    if (series.depths.empty()) continue;
    tables +=
        (tables.empty() ? "### " : "\n### ") + series.name + "\n\n" + to_markdown(series.depths);
  }
  return tables;
}

void run_long(LongOptions options, const std::string& record, const std::string& command) {
  if (options.base.fills.empty()) options.base.fills = kLongFills;
  const std::vector<LongSeries> all = measure_long(options);
  for (const LongSeries& series : all) {
    if (!series.why_not.empty()) {
      std::fprintf(stderr, "tarn-bench: %s was not measured: %s\n", series.name.c_str(),
                   series.why_not.c_str());
    }
  }
  std::vector<Row> depths, rows;
  for (const LongSeries& series : all) {
    depths.insert(depths.end(), series.depths.begin(), series.depths.end());
    rows.insert(rows.end(), series.depths.begin(), series.depths.end());
    rows.insert(rows.end(), series.prompts.begin(), series.prompts.end());
  }
  print_forms(options.base, {.table = to_tables(all), .json_list = to_json(depths)});
  if (options.base.output == "md" && !depths.empty())
    std::printf("\nbuild: %s\n", depths.front().commit.c_str());
  if (!record.empty()) append_record(record, command, rows);
  const std::string html = to_html(all, command);
  tools::write_file(options.path, html.data(), html.size());
}

std::string command_line(int argc, char** argv) {
  std::string text = "tarn-bench";
  for (int i = 1; i < argc; ++i) text += " " + shell_quoted(argv[i]);
  return text;
}

// Returns --reuse.
tools::Option add_reuse(const tools::Command& app, ReuseOptions* options) {
  const auto reuse = app.add_option(
      "--reuse", options->passages,
      "measure the time to the first token of a prompt of passages, PASSAGESxTOKENS as in 6x512: "
      "without any stored KV, with a stored prefix, and with stored chunks, of whose tokens "
      "--shares are computed anew (with --store also from the disk)");
  app.add_option("--shares", options->shares, "with --reuse: shares of the chunks' tokens")
      .capture_default_str();
  app.add_option("--queries", options->n_queries,
                 "with --reuse: answer this many queries, each of passages drawn from --pool, and "
                 "report queries a second with chunks, with prefixes and without reuse");
  app.add_option("--pool", options->n_pool, "with --queries: passages to draw from")
      .capture_default_str();
  app.add_option("--kept", options->n_kept, "with --queries: passages whose KV fits into memory")
      .capture_default_str();
  app.add_option("--similar", options->n_similar,
                 "with --queries: queries in a row that have the same passages in other orders")
      .capture_default_str();
  return reuse;
}

// Options that one of the modes sets itself, or does not have.
struct ModeOptions {
  std::vector<tools::Option> not_with_long, not_with_reuse;
};

void add_cases(const tools::Command& app, Options* o, ModeOptions* modes) {
  app.add_option("-m,--model", o->models,
                 "GGUF files, or names that toolchain/model has (default: the built-in model)")
      .delimiter(',')
      .check(tools::is_not_empty);
  app.add_option("-p,--n-prompt", o->prompts, "tokens of the prompt").capture_default_str();
  app.add_option("-n,--n-gen", o->gens, "tokens to generate").capture_default_str();
  const auto pg = app.add_option("--pg", o->prompt_gens, "prompt and generation together: pp,tg");
  const auto depth =
      app.add_option("-d,--n-depth", o->depths, "tokens that are already in the KV (default 0)");
  const auto fill =
      app.add_option("--fill-kv", o->fills,
                     "depths to fill without a forward pass: K and V come from --kv-model, and are "
                     "converted, stored and coded as usual (also with a store)");
  app.add_option("--kv-model", o->kv_model,
                 "content of --fill-kv: rows of a short recorded prefill, repeated, or mixes of "
                 "them with the same covariance")
      .is_member({kKvModelNames[0], kKvModelNames[1]})
      .capture_default_str();
  app.add_option("--overlap", o->overlap,
                 "for synthetic KV: share of the k best tokens that stays from step to step")
      .between(0.05, 0.99);
  app.add_option(
         "--tail", o->tail,
         "for synthetic KV: weights fall with their rank to this power (default 0.6 and 1 if "
         "either is given)")
      .between(0.1, 4.0);
  const auto parallel = app.add_option("--np,--n-parallel", o->parallels, "sequences side by side")
                            .capture_default_str();
  modes->not_with_long = {pg, depth};
  modes->not_with_reuse = {pg, depth, fill, parallel};
}

void add_engine(const tools::Command& app, Options* o, ModeOptions* modes) {
  app.add_option("-b,--batch-size", o->batches,
                 "accepted for compatibility with llama-bench; the "
                 "size of slices is --ub")
      .capture_default_str();
  app.add_option("--ub,--ubatch-size", o->ubatches,
                 "rows of one step " + tools::default_of("engine.batch_rows_max"))
      .check(tools::is_not_empty);
  const auto select =
      app.add_option(
             "--select", o->selects,
             "which K and V a generated token reads: methods or presets of tarn run's --select "
             "(default full); compare-pqcache: each method at that budget; with --long: in "
             "addition")
          .delimiter(',')
          .is_member(tools::select_names());
  const auto k =
      app.add_option("--k", o->k, "select.k_tokens: tokens chosen from the middle, a step");
  const auto context_min = app.add_option(
      "--context-min", o->context_min,
      "select.context_min: shorter contexts are read whole (--long uses 1, to find the context "
      "from which selection is faster)");
  const auto recall =
      app.add_flag("--recall", o->wants_recall,
                   "also report the share of oracle's tokens that method pq chooses (in JSON)");
  app.add_option("--store", o->store_dir, "directory for KV that memory does not hold")
      .check(tools::is_not_empty);
  const auto memory =
      app.add_option("--kv-memory", o->kv_memory,
                     "bytes of KV in memory, with --store (default: what the budget leaves)");
  app.add_option("--config", o->config_paths,
                 "configuration file (TOML; keys: configs/README.md); may be repeated, a later "
                 "file overrides an earlier one, files override the defaults here, and options "
                 "override files")
      .one_value_each();
  app.add_option("-t,--threads", o->threads, "worker threads (default: one per physical core)");
  app.add_option("--isa", o->isa, "instruction set of the kernels " + tools::default_of("cpu.isa"))
      .is_member(tools::names_of(kIsaNames));
  app.add_option("--io", o->io, "how files are read " + tools::default_of("io.backend"))
      .is_member(tools::names_of(kIoNames));
  app.add_option("--budget", o->budget, "ceiling over all memory").capture_default_str();
  app.add_option("--device,--dev", o->device,
                 "where the model runs " + tools::default_of("device.kind"))
      .is_member(tools::names_of(kDeviceNames));
  for (const tools::Option option : {k, context_min, recall}) {
    modes->not_with_long.push_back(option);
    modes->not_with_reuse.push_back(option);
  }
  modes->not_with_reuse.insert(modes->not_with_reuse.end(), {select, memory});
}

void add_output(const tools::Command& app, Options* o) {
  app.add_option("-r,--repetitions", o->repetitions, "runs of each case").capture_default_str();
  app.add_option("--delay", o->delay_s, "seconds between runs").capture_default_str();
  app.add_flag("--no-warmup", o->no_warmup, "measure the first run too");
  app.add_flag("--no-bandwidth", o->no_bandwidth,
               "do not measure the memory's bandwidth around the runs");
  app.add_flag("--progress", o->progress, "print what is being measured");
  const std::vector<std::string> formats = {"md", "csv", "json", "jsonl", "none"};
  app.add_option("-o,--output", o->output, "format on standard output")
      .is_member(formats)
      .capture_default_str();
  app.add_option("--oe,--output-err", o->output_err, "format on standard error")
      .is_member(formats)
      .capture_default_str();
}

int run_command_line(int argc, char** argv) {
  Options o;
  std::string long_path, record, budgets = "2048,512";
  ReuseOptions reuse;
  PeerOptions peer;
  ModeOptions modes;
  tools::CommandLine app(
      "tarn-bench measures prompt reading (pp), generation (tg) and both (pg) as llama-bench "
      "does.",
      "tarn-bench");
  app.footer(
      "\nNumbers may be lists and ranges: 1,2,4  1-4  16-64+16  1-8*2\n\nExamples:\n"
      "  tarn-bench -m model.gguf                  pp512 and tg128, 5 times each\n"
      "  tarn-bench -m model.gguf -p 0 -n 64 -d 0,4096 -t 1,2\n"
      "  tarn-bench -m model.gguf --pg 512,128 -o json\n");
  add_cases(app, &o, &modes);
  add_engine(app, &o, &modes);
  const auto long_option =
      app.add_option("--long", long_path,
                     "measure full, q8_0, q4_0, PQCache and window at every --fill-kv (default " +
                         std::string(kLongFills) +
                         "), with --store also over the disk, and the time to first tokens at "
                         "every -p; write a report "
                         "with plots to this HTML file");
  app.add_option("--k-list", budgets, "with --long: values of --k").capture_default_str();
  const auto reuse_option = add_reuse(app, &reuse);
  add_output(app, &o);
  const auto record_option =
      app.add_option(
             "--record", record,
             "append machine, commit, command and all rows, as one line of JSON, to this file")
          .check(tools::is_not_empty);
  const auto kv_types = peer.add_to(app);
  modes.not_with_long.insert(modes.not_with_long.end(), kv_types.begin(), kv_types.end());
  modes.not_with_reuse.insert(modes.not_with_reuse.end(), {record_option, long_option});
  for (const tools::Option option : modes.not_with_long) long_option.excludes(option);
  for (const tools::Option option : modes.not_with_reuse) reuse_option.excludes(option);
  if (const auto code = app.parse(argc, argv)) return *code;
  peer.apply(&o);
  if (o.models.empty()) o.models.emplace_back();
  std::vector<std::unique_ptr<tools::BuiltInModel>> built_in;
  for (std::string& model : o.models) built_in.push_back(tools::built_in_unless_named(model));
  for (const std::string& out : {record, long_path}) tools::check_output(out, o.models);
  if (!reuse.passages.empty()) {
    reuse.base = o;
    run_reuse(reuse);
  } else if (long_path.empty()) {
    run(o, record, command_line(argc, argv));
  } else {
    run_long({.base = o, .budgets = parse_values(budgets), .path = long_path}, record,
             command_line(argc, argv));
  }
  return tools::kExitOk;
}

int code_of(int argc, char** argv) {
  try {
    return run_command_line(argc, argv);
  } catch (const tools::Failure& failure) {
    tools::print_failure("tarn-bench", failure.text);
    return failure.code;
  } catch (const std::invalid_argument& error) {
    tools::print_failure("tarn-bench", error.what());
    return tools::kExitUsage;
  } catch (const std::exception& error) {
    tools::print_failure("tarn-bench", error.what());
    return tools::kExitRefused;
  }
}

}  // namespace
}  // namespace tarn::bench

int main(int argc, char** argv) {
  tarn::tools::fill_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at the limit (ulimit -f) is an error of a write
  tarn::set_thread_fatal_sink(&tarn::tools::fatal_sink());
  std::vector<std::string> arguments = tarn::bench::with_two_dashes(argc, argv);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size());
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return tarn::tools::code_after_output(
      "tarn-bench", tarn::bench::code_of(static_cast<int>(pointers.size()), pointers.data()));
}
