// tarn verify --reuse: how many of chunks' tokens must be computed anew for this model and text,
// against full prefill of the same tokens in the same run.
//
// A prompt has passages of the text in another order. Facts stand across their borders: a passage
// ends with "The speed of pump W4 is", and the next one begins with it, so that neither has
// the fact by itself. What follows the prompt is given: the text that comes after its last passage,
// and a question and its answer for each fact, with the prompt in front of each. All their rows'
// logits are compared. An answer is right where each of its tokens is the best one.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "runtime/lab/probe.h"
#include "runtime/lab/row_scores.h"
#include "tools/support/input.h"
#include "tools/support/json.h"
#include "tools/support/own_engine.h"
#include "tools/support/passages.h"
#include "tools/support/progress.h"
#include "tools/support/stepping.h"
#include "tools/tarn/verify.h"

namespace tarn::tools {
namespace {

using Ids = std::vector<u32>;
using SteadyClock = std::chrono::steady_clock;

constexpr u32 kPercentMin = 5;  // what is recorded at least: a text may not show what others lose

constexpr f64 kFactsLostMax = 0.02;
// As the built-in model's log books have them; any model reads such a sentence.
constexpr std::array kMachines = {"pump", "valve", "boiler", "fan", "motor", "tank", "mixer"};

f64 seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<f64>(SteadyClock::now() - begin).count();
}

void append(Ids& ids, const Ids& more) { ids.insert(ids.end(), more.begin(), more.end()); }

// The tokens that are read behind a prompt. The last ones are the answer; of a continuation there
// is none.
struct Suffix {
  Ids ids;
  u64 n_answer = 0;
};

struct Prompt {
  Ids ids;
  std::vector<reuse::ChunkSpan> chunks;
  std::vector<Suffix> suffixes;
};

class Prompts {
 public:
  Prompts(ModelFile& model, const VerifyCommand& command)
      : model_(model), command_(command), random_(command.seed) {
    passages_ = cut_into_passages(model, read_file(command.text_file), command.passage_tokens);
    // The last one has no text behind it.
    if (passages_.size() > command.n_passages) return;
    throw Failure{kExitRefused, command.text_file + " has " + std::to_string(passages_.size()) +
                                    " passages of " + std::to_string(command.passage_tokens) +
                                    " tokens, " + std::to_string(command.n_passages + 1) +
                                    " are needed: give a longer text, or lower --passage-tokens"};
  }

  Prompt next() {
    std::vector<u64> order(passages_.size() - 1);
    for (u64 i = 0; i < order.size(); ++i) order[i] = i;
    // Not std::shuffle: another library would take other passages.
    for (u64 i = 0; i < command_.n_passages; ++i)
      std::swap(order[i], order[i + random_() % (order.size() - i)]);
    order.resize(command_.n_passages);
    Prompt prompt;
    prompt.ids = model_.encode("", {.add_bos = true});
    Ids answer;
    for (u64 i = 0; i < order.size(); ++i) {
      const u32 begin = static_cast<u32>(prompt.ids.size());
      append(prompt.ids, answer);
      append(prompt.ids, passages_[order[i]].ids);
      if (command_.n_needles > 0 && i + 1 < order.size()) answer = plant(prompt);
      prompt.chunks.push_back({begin, static_cast<u32>(prompt.ids.size())});
    }
    Suffix continuation;
    for (u64 i = order.back() + 1; i < passages_.size(); ++i) {
      append(continuation.ids, passages_[i].ids);
      if (continuation.ids.size() >= command_.n_steps) break;
    }
    continuation.ids.resize(std::min<u64>(continuation.ids.size(), command_.n_steps));
    prompt.suffixes.push_back(std::move(continuation));
    return prompt;
  }

 private:
  // Ends a passage with the first half of a fact; returns the second one.
  Ids plant(Prompt& prompt) {
    const u32 n = n_facts_++;
    const std::string about = std::string("\nThe speed of ") + kMachines[n % kMachines.size()] +
                              " " + static_cast<char>('A' + n * 7 % 26) +
                              std::to_string(1 + n * 5 % 9) + " is";
    Suffix question{.ids = model_.encode(about, {}), .n_answer = 0};
    append(prompt.ids, question.ids);
    Ids code = model_.encode(" " + std::to_string(100 + random_() % 900), {});
    append(question.ids, code);
    question.n_answer = code.size();
    prompt.suffixes.push_back(std::move(question));
    append(code, model_.encode(".\n", {}));
    return code;
  }

  ModelFile& model_;
  const VerifyCommand& command_;
  std::mt19937_64 random_;
  std::vector<Passage> passages_;
  u32 n_facts_ = 0;
};

// A percentage of tokens that is computed anew, or full prefill, and its results over all prompts.
struct Trial : Score {
  std::optional<u32> percent{};
  kv::Reused reused{};
  std::vector<f64> seconds{};  // of each prompt

  std::string name() const { return percent ? std::to_string(*percent) + " %" : "full"; }
  bool has_placed() const { return reused.n_placed > 0; }
  bool passes(const VerifyCommand& command, const Trial& full) const {
    const bool is_measured = has_placed() || percent == 100u;
    return is_measured && Score::passes(command, full, static_cast<u32>(n_facts * kFactsLostMax));
  }
  f64 mean_s() const {
    f64 sum = 0;
    for (const f64 s : seconds) sum += s;
    return seconds.empty() ? 0 : sum / static_cast<f64>(seconds.size());
  }
};

class ReuseVerify {
 public:
  ReuseVerify(VerifyCommand& command, const std::string& model_path, Config config)
      : command_(command), own_(model_path, config), n_vocab_(own_.get().spec().n_vocab) {
    warn_of_unused_store(command.engine.store_dir, own_.get().plan().tiers.is_on());
    trials_.emplace_back();
    for (const u32 percent : command.percents) trials_.emplace_back().percent = percent;
    const auto scores = lab::row_scores();
    const auto chosen = std::ranges::find(scores, command.choice, &lab::RowScore::name);
    lab::Probe(own_.get()).score_rows_by(chosen->score);
  }

  std::vector<Trial>& trials() { return trials_; }
  void end_progress() { progress_.clear(); }
  VerifyMark mark(u32 percent) { return lab::Probe(own_.get()).blend_mark(percent); }

  // Seconds that a prompt like this takes with all trials, by what its first passage takes.
  f64 estimate(const Prompt& prompt) {
    doing_ = "estimating the time";
    const reuse::ChunkSpan first = prompt.chunks.front();
    const auto begin = SteadyClock::now();
    read_alone("estimate", Ids(prompt.ids.begin(), prompt.ids.begin() + first.end));
    const f64 token_s = seconds_since(begin) / first.end;
    progress_.clear();
    const f64 n_layers = own_.get().spec().n_layers;
    u64 n_suffix = 0;
    for (const Suffix& suffix : prompt.suffixes) n_suffix += suffix.ids.size();
    f64 n_prompts = 2;  // in full, and each passage alone
    for (const u32 percent : command_.percents) n_prompts += percent / 100.0 + 1.5 / n_layers;
    return token_s * (n_prompts * static_cast<f64>(prompt.ids.size()) +
                      static_cast<f64>(n_suffix * trials_.size()));
  }

  void run(const Prompt& prompt, u64 idx, u64 n_prompts) {
    const u64 n_parts = prompt.chunks.size() + trials_.size();
    u64 n_done = 0;
    const auto begin_part = [&](const std::string& part) {
      doing_ =
          "prompt " + std::to_string(idx + 1) + " of " + std::to_string(n_prompts) + ", " + part;
      share_done_ =
          (static_cast<f64>(idx) + static_cast<f64>(n_done++) / static_cast<f64>(n_parts)) /
          static_cast<f64>(n_prompts);
    };
    for (const reuse::ChunkSpan& chunk : prompt.chunks) {
      begin_part("a passage alone");
      Ids ids(prompt.ids.begin(), prompt.ids.begin() + prompt.chunks[0].begin);  // BOS
      ids.insert(ids.end(), prompt.ids.begin() + chunk.begin, prompt.ids.begin() + chunk.end);
      read_alone("blended", ids);
    }
    full_logits_.clear();
    for (Trial& trial : trials_) {
      begin_part(trial.name());
      run(prompt, trial);
    }
  }

 private:
  engine::Engine& engine() { return own_.get(); }

  void compute(engine::SessionIdx session, u64 n_tokens) {
    compute_all(engine(), session, [&] {
      if (!progress_.is_due()) return;
      const u32 n = engine().sessions().state(session).sequence.n_slots();
      progress_.show(
          doing_ + ": read " + std::to_string(n) + " of " + std::to_string(n_tokens) + " tokens",
          share_done_);
    });
  }

  void read_alone(const char* tenant, const Ids& ids) {
    const auto session = value_of(engine().sessions().create({.tenant = tenant}));
    value_of(engine().sessions().feed(session, ids));
    compute(session, ids.size());
    engine().sessions().destroy(session);
  }

  // Full prefill has another tenant, whose KV no blend finds.
  void run(const Prompt& prompt, Trial& trial) {
    const auto session =
        value_of(engine().sessions().create({.tenant = trial.percent ? "blended" : "full"}));
    const auto begin = SteadyClock::now();
    if (trial.percent) {
      value_of(engine().sessions().feed(session, prompt.ids,
                                        {prompt.chunks, static_cast<f32>(*trial.percent) / 100}));
    } else {
      value_of(engine().sessions().feed(session, prompt.ids));
    }
    compute(session, prompt.ids.size());
    trial.seconds.push_back(seconds_since(begin));
    const kv::Reused reused = engine().sessions().state(session).generation.reused;
    trial.reused.n_placed += reused.n_placed;
    trial.reused.n_recomputed += reused.n_recomputed;
    trial_ = &trial;
    n_rows_ = 0;
    lab::Probe(engine()).watch_logits(session, &ReuseVerify::on_logits, this);
    for (const Suffix& suffix : prompt.suffixes) {
      begin_ = static_cast<u32>(prompt.ids.size() + suffix.ids.size() - suffix.n_answer);
      answer_ = std::span(suffix.ids).last(suffix.n_answer);
      n_best_ = 0;
      value_of(engine().sessions().truncate(session, static_cast<u32>(prompt.ids.size())));
      value_of(engine().sessions().feed(session, suffix.ids));
      compute(session, prompt.ids.size() + suffix.ids.size());
      if (!is_finite_) throw_not_finite(trial.name());
      if (suffix.n_answer == 0) continue;
      ++trial.n_facts;
      trial.n_right += n_best_ == suffix.n_answer ? 1u : 0u;
    }
    engine().sessions().destroy(session);
  }

  static void on_logits(void* context, u32 position, std::span<const f32> logits) {
    static_cast<ReuseVerify*>(context)->take(position, logits);
  }

  void take(u32 position, std::span<const f32> logits) {
    const u64 answer_idx = u64{position} + 1 - begin_;  // of the token that the row predicts
    if (position + 1 >= begin_ && answer_idx < answer_.size()) {
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      n_best_ += static_cast<u64>(best) == answer_[answer_idx] ? 1u : 0u;
    }
    if (!trial_->percent) {
      full_logits_.insert(full_logits_.end(), logits.begin(), logits.end());
    } else if ((n_rows_ + 1) * n_vocab_ <= full_logits_.size()) {
      trial_->loss.add(std::span(full_logits_).subspan(n_rows_ * n_vocab_, n_vocab_), logits);
    }
    ++n_rows_;
    is_finite_ = is_finite_ && are_finite(logits);
  }

  VerifyCommand& command_;
  OwnEngine own_;
  u64 n_vocab_;
  std::vector<Trial> trials_;
  std::vector<f32> full_logits_;  // of the prompt's rows, in the order of their suffixes
  Progress progress_;
  std::string doing_;
  f64 share_done_ = 0;  // of all prompts
  // The trial under way.
  Trial* trial_ = nullptr;
  u64 n_rows_ = 0;
  u32 begin_ = 0;  // where its suffix's answer begins
  std::span<const u32> answer_{};
  u64 n_best_ = 0;
  bool is_finite_ = true;
};

std::string verdict(const VerifyCommand& command, const Trial& trial, const Trial& full) {
  if (!trial.percent) return "exact";
  if (!trial.has_placed()) return "placed nothing: exact";
  return trial.passes(command, full) ? "passed" : trial.why_not(command, full);
}

void print(const VerifyCommand& command, const std::vector<Trial>& trials) {
  std::printf("%-6s %9s %9s %7s %9s %9s %9s %11s  %s\n", "anew", "KL mean", "KL p99", "top-1",
              "facts", "placed", "computed", "s a prompt", "verdict");
  for (const Trial& trial : trials) {
    std::printf("%-6s %s %4u/%-4u %9u %9u %11.2f  %s\n", trial.name().c_str(),
                trial.columns().c_str(), trial.n_right, trial.n_facts, trial.reused.n_placed,
                trial.reused.n_recomputed, trial.mean_s(),
                verdict(command, trial, trials[0]).c_str());
  }
}

void print_as_json(const VerifyCommand& command, const std::vector<Trial>& trials, u64 n_prompts) {
  Json json;
  json.begin_object();
  json.key("prompts").number(n_prompts);
  json.key("passages").number(command.n_passages);
  json.key("passage_tokens").number(command.passage_tokens);
  json.key("kl_max").real(command.kl_max);
  json.key("top1_min").real(command.least_top1());
  json.key("trials").begin_array();
  for (const Trial& trial : trials) {
    json.begin_object();
    json.key("percent").number(trial.percent.value_or(100));
    json.key("rows").number(trial.loss.n());
    trial.write_loss(json);
    json.key("facts_right").number(trial.n_right);
    json.key("facts").number(trial.n_facts);
    json.key("placed").number(trial.reused.n_placed);
    json.key("recomputed").number(trial.reused.n_recomputed);
    json.key("prompt_s").real(trial.mean_s());
    json.key("verdict").text(verdict(command, trial, trials[0]));
    json.end_object();
  }
  json.end_array();
  json.end_object();
  print_json(json);
}

// The smallest one that passes, where all larger ones do.
const Trial* best_of(const VerifyCommand& command, const std::vector<Trial>& trials) {
  const Trial* best = nullptr;
  for (u64 i = trials.size() - 1; i > 0 && trials[i].passes(command, trials[0]); --i)
    best = &trials[i];
  return best;
}

void write_record(const VerifyCommand& command, ReuseVerify& verify, const Trial& best,
                  Config config) {
  config.reuse.recompute_percent = std::max(kPercentMin, *best.percent);
  config.reuse.verified = verify.mark(config.reuse.recompute_percent);
  tools::write_record(command,
                      {"of chunks' tokens " + best.name() + " computed anew, " +
                           std::to_string(best.seconds.size()) + " prompts of " +
                           std::to_string(command.n_passages) + " passages of " +
                           std::to_string(command.passage_tokens) + " tokens:",
                       best.text()},
                      config,
                      {"reuse.recompute_percent", "reuse.verified", "kv.type", "kv.page_tokens"});
}

void tell_none(const VerifyCommand& command, const std::vector<Trial>& trials) {
  const std::string no_record = no_record_of(command);
  const auto has_placed = [](const Trial& trial) { return trial.has_placed(); };
  if (std::ranges::none_of(trials, has_placed)) {
    throw Failure{kExitRefused,
                  "no KV was placed, since no passage has a whole page behind BOS: raise "
                  "--passage-tokens, or lower kv.page_tokens" +
                      no_record};
  }
  const Trial& last = trials.back();
  if (last.loss.is_within(command) && !trials[0].facts_tell(command))
    throw_facts_tell_nothing(command);
  throw Failure{
      kExitRefused,
      "No percentage kept the answers; every token is computed. Try larger --percents" + no_record};
}

u64 n_prompts_in(const VerifyCommand& command, f64 prompt_s) {
  const f64 n_in_time = 60.0 * command.minutes / prompt_s;
  const u64 n = std::clamp<u64>(static_cast<u64>(n_in_time), 1, command.n_prompts);
  std::fprintf(stderr,
               "prompts: %llu, of %u passages of %u tokens, in full and with %zu percentages; "
               "about %.0f min\n",
               static_cast<unsigned long long>(n), command.n_passages, command.passage_tokens,
               command.percents.size(), std::ceil(static_cast<f64>(n) * prompt_s / 60));
  return n;
}

}  // namespace

void verify_reuse(VerifyCommand& command) {
  if (!command.record_file.empty() && command.choice != "deviation") {
    throw Failure{kExitUsage, "--choice " + command.choice +
                                  " is for comparison, and has no record: leave out --record"};
  }
  std::ranges::sort(command.percents);
  ModelFile model(command.engine.model);
  Prompts prompts(model, command);
  Prompt prompt = prompts.next();
  Config config = command.engine.config();
  config.sessions_max = 1;
  config.reuse.verified = {"none"};  // so that marks have the weights' hash
  if (config.context_tokens == 0) {
    // The prompt, its passages' own KV, and what a blend holds of a passage and a check.
    config.context_tokens =
        3 * (prompt.ids.size() + command.n_steps + 2 * config.page_tokens * command.n_passages);
  }
  ReuseVerify verify(command, command.engine.model, config);
  const u64 n_prompts = n_prompts_in(command, verify.estimate(prompt));
  for (u64 i = 0; i < n_prompts; ++i) {
    if (i > 0) prompt = prompts.next();
    verify.run(prompt, i, n_prompts);
  }
  verify.end_progress();
  const std::vector<Trial>& trials = verify.trials();
  command.json ? print_as_json(command, trials, n_prompts) : print(command, trials);
  const Trial* best = best_of(command, trials);
  if (best == nullptr) return tell_none(command, trials);
  if (!command.record_file.empty()) write_record(command, verify, *best, config);
}

}  // namespace tarn::tools
