// tarn eval: evaluates a model on a text, position by position: perplexity, raw logits, and the
// difference of two runs (Kullback-Leibler divergence of the base from this run, agreement of the
// best token). Log books: eval_logbook.cpp.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/lab/probe.h"
#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/json.h"
#include "tools/support/model_file.h"
#include "tools/support/own_engine.h"
#include "tools/support/percentile.h"
#include "tools/support/progress.h"
#include "tools/support/stepping.h"
#include "tools/tarn/commands.h"
#include "tools/tarn/eval_logbook.h"
#include "tools/tarn/softmax.h"

namespace tarn::tools {
namespace {

struct EvalCommand {
  EngineOptions engine;
  std::string suite, ids_file, text_file, base_file, logits_file;
  LogbookCommand logbook;
  bool json = false;
};

// Takes the logits row by row, in order; keeps figures, not the logits.
class Measure {
 public:
  Measure(std::vector<u32> ids, u32 n_vocab) : ids_(std::move(ids)), n_vocab_(n_vocab) {}

  void write_to(const std::string& path) {
    out_ = open(path, "wb");
    out_path_ = path;
  }
  void compare_with(const std::string& path) {
    base_ = open(path, "rb");
    base_path_ = path;
    base_row_.resize(n_vocab_);
    const u64 want = ids_.size() * n_vocab_ * sizeof(f32);
    std::fseek(base_.get(), 0, SEEK_END);
    const u64 have = static_cast<u64>(std::ftell(base_.get()));
    std::rewind(base_.get());
    if (have != want) {
      throw Failure{kExitRefused, path + ": not the logits of these ids with this vocabulary: " +
                                      std::to_string(have) + " bytes, " + std::to_string(want) +
                                      " wanted"};
    }
  }

  static void on_logits(void* context, u32 position, std::span<const f32> logits) {
    auto& measure = *static_cast<Measure*>(context);
    if (measure.failure_) return;
    try {
      measure.take(position, logits);
    } catch (const Failure& failure) {  // must not reach the engine, built without exceptions
      measure.failure_ = failure;
    }
  }
  // Throws the failure of a row, if any.
  void check() const {
    if (failure_) throw *failure_;
  }

  f64 perplexity() const {
    return n_scored_ > 0 ? std::exp(nll_ / static_cast<f64>(n_scored_)) : NAN;
  }
  u64 n_scored() const { return n_scored_; }
  bool compared() const { return base_ != nullptr; }
  f64 kl_mean() const {
    f64 sum = 0;
    for (const f64 kl : kls_) sum += kl;
    return kls_.empty() ? NAN : sum / static_cast<f64>(kls_.size());
  }
  f64 kl_p99() const { return percentile(kls_, 99); }
  f64 top1_agreement() const {
    return kls_.empty() ? NAN : static_cast<f64>(n_agree_) / static_cast<f64>(kls_.size());
  }
  void finish() {
    if (out_ != nullptr && std::fflush(out_.get()) != 0) fail_io("cannot write", out_path_);
  }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Closer>;

  [[noreturn]] static void fail_io(const char* what, const std::string& path) {
    throw Failure{kExitIo, std::string(what) + " " + path + ": " + std::strerror(errno)};
  }
  static File open(const std::string& path, const char* mode) {
    File file(std::fopen(path.c_str(), mode));
    if (file == nullptr) fail_io("cannot open", path);
    return file;
  }

  void take(u32 position, std::span<const f32> logits) {
    const Softmax ours = softmax_of(logits);
    check_finite(ours.log_sum, position);
    if (position + 1 < ids_.size()) {
      nll_ += ours.log_sum - logits[ids_[position + 1]];
      ++n_scored_;
    }
    if (out_ != nullptr &&
        std::fwrite(logits.data(), sizeof(f32), n_vocab_, out_.get()) != n_vocab_) {
      fail_io("cannot write", out_path_);
    }
    if (base_ == nullptr) return;
    if (std::fread(base_row_.data(), sizeof(f32), n_vocab_, base_.get()) != n_vocab_) {
      fail_io("cannot read", base_path_);
    }
    const Softmax base = softmax_of(base_row_);
    kls_.push_back(kl_divergence(base_row_, base, logits, ours));
    n_agree_ += base.argmax == ours.argmax ? 1 : 0;
  }

  std::vector<u32> ids_;
  u32 n_vocab_;
  f64 nll_ = 0;
  u64 n_scored_ = 0;
  std::vector<f64> kls_;
  u64 n_agree_ = 0;
  std::optional<Failure> failure_;
  File out_, base_;
  std::string out_path_, base_path_;
  std::vector<f32> base_row_;
};

std::vector<u32> ids_of(const EvalCommand& command) {
  if (!command.ids_file.empty()) return read_ids(command.ids_file);
  const std::string text = read_file(command.text_file);
  if (text.empty()) {
    throw Failure{kExitRefused, command.text_file + " is empty: there is no text to evaluate"};
  }
  ModelFile file(command.engine.model);
  return file.encode(text, {.add_bos = true});
}

void compute(engine::Engine& engine, const std::vector<u32>& ids, Measure& measure) {
  Progress progress;
  const engine::SessionIdx session = value_of(engine.sessions().create());
  lab::Probe(engine).watch_logits(session, &Measure::on_logits, &measure);
  value_of(engine.sessions().feed(session, ids));
  compute_all(engine, session, [&] {
    measure.check();
    if (!progress.is_due()) return;
    const u32 n = engine.sessions().state(session).sequence.n_slots();
    progress.show("read " + std::to_string(n) + " of " + std::to_string(ids.size()) + " tokens",
                  static_cast<f64>(n) / static_cast<f64>(ids.size()));
  });
  measure.finish();
}

void print(const EvalCommand& command, Measure& measure, u64 n_ids) {
  if (command.json) {
    Json json;
    json.begin_object();
    json.key("n_tokens").number(n_ids);
    json.key("perplexity").real(measure.perplexity());
    if (measure.compared()) {
      json.key("kl_mean").real(measure.kl_mean());
      json.key("kl_p99").real(measure.kl_p99());
      json.key("top1_agreement").real(measure.top1_agreement());
    }
    json.end_object();
    print_json(json);
    return;
  }
  std::printf("tokens           %llu\n", static_cast<unsigned long long>(n_ids));
  if (measure.n_scored() > 0) {
    std::printf("perplexity       %.6g over %llu predictions\n", measure.perplexity(),
                static_cast<unsigned long long>(measure.n_scored()));
  }
  if (!measure.compared()) return;
  std::printf("KL(base || this) mean %.6g, p99 %.6g\n", measure.kl_mean(), measure.kl_p99());
  std::printf("top-1 agreement  %.4f\n", measure.top1_agreement());
}

void run(EvalCommand& command) {
  const auto built_in = built_in_unless_named(command.engine.model);
  if (command.suite == "logbook") {
    if (command.logbook.file.empty()) {
      throw Failure{kExitUsage, "eval logbook needs the log book: eval logbook FILE"};
    }
    command.logbook.json = command.json;
    return run_logbook(command.engine, command.logbook);
  }
  if (command.ids_file.empty() && command.text_file.empty()) {
    throw Failure{kExitUsage, "eval needs --text FILE or --ids FILE, or logbook FILE"};
  }
  check_output(command.logits_file,
               {command.engine.model, command.base_file, command.text_file, command.ids_file});
  const std::vector<u32> ids = ids_of(command);
  if (ids.empty()) throw Failure{kExitRefused, "there are no tokens to evaluate"};
  Config config = command.engine.config();
  if (config.context_tokens == 0) config.context_tokens = ids.size();
  config.sessions_max = 1;
  OwnEngine own(command.engine.model, config);
  engine::Engine& engine = own.get();
  warn_of_unused_store(command.engine.store_dir, engine.plan().tiers.is_on());
  Measure measure(ids, engine.spec().n_vocab);
  if (!command.logits_file.empty()) measure.write_to(command.logits_file);
  if (!command.base_file.empty()) measure.compare_with(command.base_file);
  if (!config.select.is_full()) {
    std::fprintf(stderr,
                 "tarn warning: select %s changes nothing here, because a text is an input, and "
                 "inputs are exact; tarn verify and eval logbook measure answers\n",
                 engine.status().select);
  }
  compute(engine, ids, measure);
  print(command, measure, ids.size());
}

}  // namespace

void add_eval(const Command& app) {
  auto command = std::make_shared<EvalCommand>();
  const Command sub =
      app.add_subcommand("eval",
                         "measure perplexity, raw logits, the difference of two runs, log "
                         "books");
  sub.footer(
      "\nExamples:\n"
      "  tarn eval -m model.gguf --text book.txt\n"
      "  tarn eval -m f16.gguf --text book.txt --logits-out f16.logits\n"
      "  tarn eval -m q4.gguf --text book.txt --base f16.logits   what q4 lost\n"
      "  tarn eval -m model.gguf logbook books.jsonl    questions with one right answer\n"
      "\nLogits take 4 bytes a token and vocabulary entry: 1,000 tokens of a 128,256 vocabulary "
      "are 513 MB.\n");
  command->engine.add_to(sub, "what the text or the longest prompt needs");
  sub.add_option("SUITE", command->suite, "the measurement")
      .is_member({"perplexity", "logbook"})
      .default_val("perplexity");
  sub.add_option("FILE", command->logbook.file, "logbook: the log books, JSON lines");
  sub.add_option("--answers-out", command->logbook.answers_file,
                 "logbook: write every answer, one line {seed, index, kind, expected, given, "
                 "selected} each");
  const Option text =
      sub.add_option("--text", command->text_file, "the text, from a file; -: standard input");
  sub.add_option("--ids", command->ids_file, "token ids from a file; nothing is added")
      .excludes(text);
  sub.add_option("--logits-out", command->logits_file,
                 "write raw little-endian f32 [positions, vocabulary]; row i predicts token i+1");
  sub.add_option("--base", command->base_file,
                 "logits of an earlier --logits-out: adds KL(base || this) and top-1 agreement");
  sub.add_flag("--json", command->json, "one JSON object on standard output");
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
