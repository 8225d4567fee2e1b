// tarn verify: measures the loss of selection on this model and this text, against full attention
// in the same run. All trials have one document: the text with facts planted at even depths. Each
// preset and budget reads it, decodes the text's next tokens (not the model's own), and answers a
// question for each fact.
#include "tools/tarn/verify.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/lab/methods.h"
#include "runtime/lab/probe.h"
#include "runtime/lab/row_scores.h"
#include "tools/builtin/built_in_model.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/json.h"
#include "tools/support/model_file.h"
#include "tools/support/own_engine.h"
#include "tools/support/progress.h"
#include "tools/support/stepping.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

using Ids = std::vector<u32>;
using SteadyClock = std::chrono::steady_clock;

constexpr u32 kContextDefault = 8192;
constexpr u32 kAnswerTokens = 12;
constexpr std::array kPlaces = {"archive", "bakery", "cellar",   "dairy",   "engine", "forge",
                                "garden",  "harbor", "island",   "kitchen", "ladder", "market",
                                "nursery", "office", "pantry",   "quarry",  "river",  "stable",
                                "tower",   "vault",  "windmill", "yard",    "zoo",    "bridge"};

// A planted fact and its question.
struct Needle {
  Ids question;
  std::string answer;
};

struct Exam {
  Ids document, continuation;
  std::vector<Needle> needles;
};

// Inserts facts between the text's own tokens.
Exam exam_of(ModelFile& model, const VerifyCommand& command, u32 n_context) {
  const Ids text = model.encode(read_file(command.text_file), {.add_bos = true});
  Exam exam;
  std::vector<Ids> facts;
  u64 n_taken = command.n_steps;
  u64 n_question_max = 0;
  for (u32 i = 0; i < command.n_needles; ++i) {
    const std::string line = std::string("\nThe code of the ") + kPlaces[i] + " is";
    const std::string code = std::to_string(100'000 + (i + 1) * 611'953ull % 900'000);
    facts.push_back(model.encode(line + " " + code + ".\n", {.add_bos = false}));
    exam.needles.push_back({model.encode(line, {.add_bos = false}), code});
    n_taken += facts.back().size();
    n_question_max = std::max<u64>(n_question_max, exam.needles.back().question.size());
  }
  n_taken += n_question_max + kAnswerTokens;
  const u64 n_least = n_taken + 2 * command.n_needles + 64;
  if (n_context < n_least) {
    throw Failure{kExitRefused, "a context of " + std::to_string(n_context) +
                                    " tokens has no room for the planted facts and " +
                                    std::to_string(command.n_steps) + " steps: raise -c to " +
                                    std::to_string(n_least) + " or more"};
  }
  const u64 n_body = n_context - n_taken;
  if (text.size() < n_body + command.n_steps) {
    throw Failure{kExitRefused, command.text_file + " has " + std::to_string(text.size()) +
                                    " tokens, " + std::to_string(n_body + command.n_steps) +
                                    " are needed: give a longer text, or lower -c"};
  }
  for (u64 i = 0; i < n_body; ++i) {
    for (u32 n = 0; n < facts.size(); ++n) {
      if (i == (2 * n + 1) * n_body / (2 * facts.size())) {
        exam.document.insert(exam.document.end(), facts[n].begin(), facts[n].end());
      }
    }
    exam.document.push_back(text[i]);
  }
  const auto from = text.begin() + static_cast<std::ptrdiff_t>(n_body);
  exam.continuation.assign(from, from + command.n_steps);
  return exam;
}

// One preset with one budget, and its results.
struct Trial : Score {  // the loss is of the steps with selection
  std::string name;
  SelectConfig select{};
  u32 n_steps = 0;
  f64 tokens_read = 0;  // per step, on average
  f64 ms_per_token = 0;
  bool has_store = false;
  VerifyMark mark{};

  bool selected() const { return !loss.is_empty(); }
};

// How far all trials are, by the tokens that they read and decode.
class ExamProgress {
 public:
  ExamProgress(const VerifyCommand& command, const Exam& exam, u64 n_trials)
      : n_document_(exam.document.size()), n_steps_(command.n_steps), n_trials_(n_trials) {
    n_needles_ = exam.needles.size();
  }
  void begin_trial(u64 idx, const std::string& name) {
    trial_idx_ = idx;
    name_ = name + " (" + std::to_string(idx + 1) + " of " + std::to_string(n_trials_) + "): ";
  }
  void reading(u64 n) { tell("read ", n, n_document_, " tokens", n); }
  void decoding(u64 n) {
    tell("decoded ", n, n_steps_, " tokens", n_document_ + kDecodeWeight * n);
  }
  void asking(u64 n) {
    tell("asked for ", n, n_needles_, " facts",
         n_document_ + kDecodeWeight * (n_steps_ + n * kAnswerTokens));
  }

 private:
  static constexpr u64 kDecodeWeight = 8;  // a decoded token takes about as long as so many read

  void tell(const char* did, u64 n, u64 of, const char* what, u64 n_done) {
    if (!progress_.is_due()) return;
    const u64 n_trial = n_document_ + kDecodeWeight * (n_steps_ + n_needles_ * u64{kAnswerTokens});
    const f64 share = static_cast<f64>(std::min(n_done, n_trial)) / static_cast<f64>(n_trial);
    progress_.show(name_ + did + std::to_string(n) + " of " + std::to_string(of) + what,
                   (static_cast<f64>(trial_idx_) + share) / static_cast<f64>(n_trials_));
  }

  Progress progress_;
  u64 n_document_, n_steps_, n_trials_, n_needles_ = 0, trial_idx_ = 0;
  std::string name_;
};

// Runs a trial with an engine of its own; keeps full attention's logits for the others.
class Examinee {
 public:
  Examinee(const VerifyCommand& command, Config config, const Exam& exam, Trial& trial,
           std::vector<f32>& full_logits, ExamProgress& progress)
      : command_(command),
        exam_(exam),
        trial_(trial),
        full_logits_(full_logits),
        progress_(progress) {
    config.select = trial.select;
    own_ = std::make_unique<OwnEngine>(command.engine.model, config);
    session_ = value_of(own_->get().sessions().create());
    trial.mark = own_->get().status().select_mark;
    trial.has_store = own_->get().plan().tiers.is_on();
  }

  void run() {
    read_document();
    decode_continuation();
    for (u64 i = 0; i < exam_.needles.size(); ++i) {
      progress_.asking(i);
      ++trial_.n_facts;
      trial_.n_right += answers(exam_.needles[i]) ? 1u : 0u;
    }
  }

 private:
  engine::Engine& engine() { return own_->get(); }

  void read_document() {
    value_of(engine().sessions().feed(session_, exam_.document));
    compute_all(engine(), session_,
                [&] { progress_.reading(engine().sessions().state(session_).sequence.n_slots()); });
  }

  void decode_continuation() {
    lab::Probe(engine()).watch_logits(session_, &Examinee::on_logits, this);
    value_of(lab::Probe(engine()).generate(
        session_, {.max_tokens = command_.n_steps, .ignore_end = true}, exam_.continuation));
    u64 n_read = 0;
    f64 seconds = 0;
    // The first row is the document's last, which is exact. In a step without a row the next row
    // waits for its index.
    row_idx_ = 0;
    for (bool done = false; !done;) {
      progress_.decoding(row_idx_);
      const auto begin = SteadyClock::now();
      const engine::StepTrace& trace = step(engine());
      if (row_idx_ > 0) seconds += std::chrono::duration<f64>(SteadyClock::now() - begin).count();
      if (trace.n_rows > 0) {
        if (row_idx_ > 0) {
          n_read += trace.n_slots_chosen;
          ++trial_.n_steps;
        }
        keep(trace.n_slots_chosen > 0);
        ++row_idx_;
      }
      done = drain(engine(), session_);
    }
    lab::Probe(engine()).watch_logits(session_, nullptr, nullptr);
    const model::ModelSpec& spec = engine().spec();
    const f64 n_heads = static_cast<f64>(spec.n_cache_layers) * spec.n_kv_heads;
    trial_.ms_per_token = 1e3 * seconds / std::max(1u, trial_.n_steps);
    trial_.tokens_read = kept_steps_ == 0 ? 0 : static_cast<f64>(n_read) / n_heads / kept_steps_;
  }

  static void on_logits(void* context, u32, std::span<const f32> logits) {
    auto& self = *static_cast<Examinee*>(context);
    self.row_.assign(logits.begin(), logits.end());
  }

  // Keeps a step's logits for full attention, and compares those of steps with selection.
  void keep(bool selected) {
    if (row_.empty()) return;
    if (!are_finite(row_)) throw_not_finite(trial_.name);
    if (trial_.select.is_full()) {
      full_logits_.insert(full_logits_.end(), row_.begin(), row_.end());
    } else if (selected) {
      const std::span<const f32> base(full_logits_.data() + row_idx_ * row_.size(), row_.size());
      trial_.loss.add(base, row_);
      ++kept_steps_;
    }
    row_.clear();
  }

  bool answers(const Needle& needle) {
    value_of(engine().sessions().truncate(session_, static_cast<u32>(exam_.document.size())));
    value_of(engine().sessions().feed(session_, needle.question));
    value_of(engine().sessions().generate(
        session_, {.sampler = {}, .max_tokens = kAnswerTokens, .ignore_end = true}));
    std::string said;
    const auto on_event = [&](const engine::Event&, std::string_view text) { said += text; };
    while (!drain(engine(), session_, on_event)) step(engine());
    return said.find(needle.answer) != std::string::npos;
  }

  const VerifyCommand& command_;
  const Exam& exam_;
  Trial& trial_;
  std::vector<f32>& full_logits_;  // [steps, n_vocab]
  ExamProgress& progress_;
  std::unique_ptr<OwnEngine> own_;
  engine::SessionIdx session_ = 0;
  std::vector<f32> row_;
  u64 row_idx_ = 0;
  u32 kept_steps_ = 0;
};

std::vector<Trial> trials_of(const VerifyCommand& command, const SelectConfig& base) {
  std::vector<Trial> trials(1);
  trials[0].name = "full";
  for (const std::string& preset : compared_select_names(command.presets)) {
    for (const u32 budget : command.budgets) {
      Trial trial;
      const bool is_own = budget == 0;
      trial.name = preset + " " + (is_own ? "own share" : std::to_string(budget));
      trial.select = select_named(base, preset);
      if (!is_own) {
        trial.select.context_divisor = 0;  // absolute, as on a box with a fixed budget
        trial.select.k = budget;
      }
      trial.select.index_delay_tokens = 1;  // the index serves from the second step on
      trial.select.verified = {"none"};     // so that the mark has the weights' hash
      trials.push_back(trial);
    }
  }
  return trials;
}

std::string verdict(const VerifyCommand& command, const Trial& trial, const Trial& full) {
  if (trial.select.is_full()) return "exact";
  if (!trial.selected()) return "read everything: exact at this length";
  return trial.passes(command, full) ? "passed" : trial.why_not(command, full);
}

void print(const VerifyCommand& command, const std::vector<Trial>& trials) {
  std::printf("%-28s %7s %9s %9s %7s %8s %9s  %s\n", "preset, tokens chosen", "read", "KL mean",
              "KL p99", "top-1", "needles", "ms/token", "verdict");
  for (const Trial& trial : trials) {
    const std::string read =
        trial.selected() ? std::to_string(std::llround(trial.tokens_read)) : "all";
    std::printf("%-28s %7s %s %4u/%-3u %9.1f  %s\n", trial.name.c_str(), read.c_str(),
                trial.columns().c_str(), trial.n_right, command.n_needles, trial.ms_per_token,
                verdict(command, trial, trials[0]).c_str());
  }
}

void print_as_json(const VerifyCommand& command, const std::vector<Trial>& trials, u64 n_context) {
  Json json;
  json.begin_object();
  json.key("context_tokens").number(n_context);
  json.key("kl_max").real(command.kl_max);
  json.key("top1_min").real(command.least_top1());
  json.key("needles").number(command.n_needles);
  json.key("trials").begin_array();
  for (const Trial& trial : trials) {
    json.begin_object();
    json.key("name").text(trial.name);
    json.key("method").text(method::method_of(trial.select).name);
    const bool is_share = trial.select.context_divisor > 0;  // then the step's budget depends on it
    json.key("k_tokens").number(is_share ? 0 : trial.select.k);
    json.key("context_divisor").number(trial.select.context_divisor);
    json.key("steps_selected").number(trial.loss.n());
    json.key("tokens_read").real(trial.tokens_read);
    trial.write_loss(json);
    json.key("needles_right").number(trial.n_right);
    json.key("ms_per_token").real(trial.ms_per_token);
    json.key("verdict").text(verdict(command, trial, trials[0]));
    json.end_object();
  }
  json.end_array();
  json.end_object();
  print_json(json);
}

const Trial* best_of(const VerifyCommand& command, const std::vector<Trial>& trials) {
  const Trial* best = nullptr;
  for (const Trial& trial : std::span(trials).subspan(1)) {
    if (!trial.passes(command, trials[0]) || trial.select.lab_method != nullptr) continue;
    if (best == nullptr || trial.tokens_read < best->tokens_read) best = &trial;
  }
  return best;
}

// Writes the passing settings that read least, with this model's mark.
void write_record(const VerifyCommand& command, const Trial* best, Config config) {
  config.select = best->select;
  config.select.verified = best->mark;
  tools::write_record(
      command,
      {best->name + ", over " + std::to_string(config.context_tokens) + " tokens:", best->text()},
      config, {"select.", "kv.type"});
}

// Reports that no trial passed: either everything was read whole, which is exact and only lacks a
// record, or trials failed.
void tell_none(const VerifyCommand& command, const std::vector<Trial>& trials) {
  const auto lossy = std::span(trials).subspan(1);
  const auto is_whole = [](const Trial& trial) { return !trial.selected(); };
  const std::string no_record = no_record_of(command);
  if (std::all_of(lossy.begin(), lossy.end(), is_whole)) {
    if (no_record.empty()) return;
    throw Failure{
        kExitRefused,
        "selection was never used at this length: raise -c, or lower --budgets" + no_record};
  }
  if (std::any_of(lossy.begin(), lossy.end(), is_whole) && no_record.empty()) return;
  const bool is_close = std::any_of(lossy.begin(), lossy.end(), [&](const Trial& trial) {
    return trial.loss.is_within(command);
  });
  if (!trials[0].facts_tell(command) && is_close) throw_facts_tell_nothing(command);
  throw Failure{kExitRefused,
                "no preset passed: keep --select full, or raise --budgets" + no_record};
}

void run(VerifyCommand& command) {
  const auto built_in = built_in_unless_named(command.engine.model);
  check_output(command.record_file, {command.engine.model, command.text_file});
  if (command.reuse) return verify_reuse(command);
  if (command.n_needles > kPlaces.size()) {
    throw Failure{kExitUsage, "--needles: at most " + std::to_string(kPlaces.size())};
  }
  ModelFile model(command.engine.model);
  Config config = command.engine.config();
  if (config.context_tokens == 0) {
    config.context_tokens = std::min<u64>(kContextDefault, model.description().spec.n_ctx_train);
  }
  const u32 n_context = static_cast<u32>(config.context_tokens);
  const Exam exam = exam_of(model, command, n_context);
  config.sessions_max = 1;
  std::vector<Trial> trials = trials_of(command, config.select);
  std::vector<f32> full_logits;
  {
    ExamProgress progress(command, exam, trials.size());
    for (u64 i = 0; i < trials.size(); ++i) {
      progress.begin_trial(i, trials[i].name);
      Examinee(command, config, exam, trials[i], full_logits, progress).run();
    }
  }
  warn_of_unused_store(command.engine.store_dir, std::ranges::any_of(trials, &Trial::has_store));
  command.json ? print_as_json(command, trials, n_context) : print(command, trials);
  const Trial* best = best_of(command, trials);
  if (!command.record_file.empty() && best != nullptr) write_record(command, best, config);
  if (best == nullptr) tell_none(command, trials);
}

}  // namespace

void add_verify(const Command& app) {
  auto command = std::make_shared<VerifyCommand>();
  const Command sub = app.add_subcommand(
      "verify", "measure the loss of selection, or of chunks, on your model and text");
  sub.footer(
      "\nExamples:\n"
      "  tarn verify -m model.gguf --text manual.txt               8192 tokens of it\n"
      "  tarn verify -m model.gguf --text manual.txt -c 32768 --budgets 1024,4096\n"
      "  tarn verify --reuse -m model.gguf --text manual.txt --record chunks.toml\n"
      "\nEach preset and budget reads the text again, and full attention once: that many prompts "
      "of -c tokens. KL and top-1 are over the steps with selection. Needles are facts planted in "
      "the text at even depths, whose digits the model must answer.\n"
      "Exit 0: one passed, or one read everything, as contexts below select.context_min do; with "
      "--record: one passed, and the file is written. 78: none passed. Facts that full attention "
      "does not find either are no pass: with --needles 0 only KL and the best tokens count.\n"
      "\nA verdict holds for the tested length: sinks, local and 2048 chosen tokens are a third of "
      "8192, and 2 % of 131072. A record does not check the length later: verify with the -c that "
      "will be used.\n"
      "\nWith --reuse passages of the text stand in another order, as chunks (tarn run --chunk), "
      "and each of --percents is compared with full prefill of the same tokens. The planted facts "
      "stand across the passages' borders, and of a hundred two may be lost. How long it takes is "
      "printed first. With --record the "
      "smallest percentage that passes is written, 5 at least, and is what --recompute auto takes "
      "from then on.\n");
  command->engine.add_to(sub, "the model's, at most " + std::to_string(kContextDefault) +
                                  "; with --reuse what a prompt needs");
  sub.add_option("--text", command->text_file, "a text like those that the model will read")
      .required();
  sub.add_option("--presets", command->presets, "methods and presets of --select")
      .delimiter(',')
      .is_member(lossy_select_names())
      .capture_default_str();
  sub.add_option("--budgets", command->budgets,
                 "tokens chosen per step, beside sinks and local; 0: the preset's own share")
      .delimiter(',')
      .between(0u, 1u << 20)
      .capture_default_str();
  sub.add_option("--steps", command->n_steps, "tokens decoded after the document")
      .between(4u, 4096u)
      .capture_default_str();
  sub.add_option("--needles", command->n_needles,
                 "number of planted facts; with --reuse 0: none, else one at each border")
      .between(0u, static_cast<u32>(kPlaces.size()))
      .capture_default_str();
  sub.add_option("--kl-max", command->kl_max, "largest mean KL divergence that passes, nats")
      .capture_default_str();
  sub.add_option("--top1-min", command->top1_min, "smallest share of equal best tokens that passes")
      .default_str("0.95, with --reuse 0.9");
  sub.add_flag("--reuse", command->reuse,
               "measure chunks in place of selection: --percents, not --presets and --budgets");
  sub.add_option("--percents", command->percents,
                 "with --reuse: of the chunks' tokens, how many are computed anew")
      .delimiter(',')
      .between(0u, 100u)
      .capture_default_str();
  std::vector<std::string> choices;
  for (const lab::RowScore& score : lab::row_scores()) choices.emplace_back(score.name);
  sub.add_option("--choice", command->choice,
                 "with --reuse: which tokens are computed anew; all but deviation are for "
                 "comparison: the first ones of each passage, or any")
      .is_member(choices)
      .capture_default_str();
  sub.add_option("--passages", command->n_passages, "with --reuse: passages of a prompt")
      .between(2u, 64u)
      .capture_default_str();
  sub.add_option("--passage-tokens", command->passage_tokens,
                 "with --reuse: tokens of each passage, at most")
      .between(32u, 1u << 16)
      .capture_default_str();
  sub.add_option("--prompts", command->n_prompts, "with --reuse: prompts, at most")
      .between(1u, 1000u)
      .capture_default_str();
  sub.add_option(
         "--minutes", command->minutes,
         "with --reuse: minutes that the prompts may take; one prompt is measured in any case")
      .between(1u, 100'000u)
      .capture_default_str();
  sub.add_option("--seed", command->seed, "with --reuse: draws the passages and their order")
      .capture_default_str();
  sub.add_option("--record", command->record_file,
                 "write the passing settings that read least as a configuration; with this file "
                 "as --config, answers say that their loss is measured (JSON: verified)")
      .type_name("FILE");
  sub.add_flag("--json", command->json, "one JSON object on standard output");
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
