#include "tools/tarn/eval_logbook.h"

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/lab/probe.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/json.h"
#include "tools/support/logbook.h"
#include "tools/support/model_file.h"
#include "tools/support/own_engine.h"
#include "tools/support/progress.h"
#include "tools/support/stepping.h"
#include "tools/tarn/report.h"
#include "tools/tarn/softmax.h"

namespace tarn::tools {
namespace {

constexpr const char* kProse = "prose";
constexpr u64 kAllLengths = 0;

using Ids = std::vector<u32>;

// A line in token ids.
struct Question {
  Ids prompt, answer;
};

// The answer's ids are those of the whole text after the prompt's, because a model trained on whole
// texts knows no others.
Question encode(ModelFile& model, const LogbookLine& line, const std::string& where) {
  Question question{.prompt = model.encode(line.prompt, {.add_bos = true}), .answer = {}};
  const Ids whole = model.encode(line.prompt + line.answer, {.add_bos = true});
  const bool continues = whole.size() > question.prompt.size() &&
                         std::equal(question.prompt.begin(), question.prompt.end(), whole.begin());
  if (!continues) {
    throw Failure{kExitRefused, where + ": a document of seed " + std::to_string(line.seed) +
                                    ": this vocabulary has a token across the border of prompt "
                                    "and answer; write the log book for this model's vocabulary"};
  }
  question.answer.assign(whole.begin() + static_cast<std::ptrdiff_t>(question.prompt.size()),
                         whole.end());
  return question;
}

// One session for all questions; it keeps the common prefix of their prompts.
class Reader {
 public:
  explicit Reader(engine::Engine& engine)
      : engine_(engine), session_(value_of(engine.sessions().create())) {}

  // Generates after the prompt, as many tokens as the answer has. `next` is the following question:
  // the common prefix of both prompts is a document, fed as an input of its own, so that its index
  // is made once.
  struct Answer {
    Ids ids;
    engine::KvReads kv_reads{};
    bool is_selected() const { return kv_reads.n_select_steps > 0; }
  };
  Answer answer(const Question& question, const Question* next) {
    constexpr u64 kGrid = 64;  // two questions may begin with equal words
    const u64 n_document =
        next == nullptr ? 0 : shared(question.prompt, next->prompt) / kGrid * kGrid;
    if (n_document > 0 && !holds(question.prompt, n_document)) {
      take_up({question.prompt.begin(),
               question.prompt.begin() + static_cast<std::ptrdiff_t>(n_document)});
      say(1);
    }
    take_up(question.prompt);
    return say(question.answer.size());
  }

  // The answer's negative log-likelihood, in nats.
  f64 nll(const Question& question) {
    take_up(question.prompt);
    Scored scored{.ids = &question.answer, .first = question.prompt.size()};
    lab::Probe(engine_).watch_logits(session_, &Reader::score, &scored);
    feed(question.answer);
    lab::Probe(engine_).watch_logits(session_, nullptr, nullptr);
    check_finite(scored.nll, scored.first);
    return scored.nll;
  }

 private:
  Answer say(u64 n_tokens) {
    value_of(engine_.sessions().generate(
        session_, {.sampler = {}, .max_tokens = static_cast<u32>(n_tokens), .ignore_end = true}));
    Answer answer;
    const auto on_event = [&](const engine::Event& event, std::string_view) {
      if (event.type == engine::EventType::token) answer.ids.push_back(event.token.token);
      if (event.type == engine::EventType::done) answer.kv_reads = event.done.kv_reads;
    };
    do {
      step(engine_);
    } while (!drain(engine_, session_, on_event));
    return answer;
  }

  static u64 shared(const Ids& a, const Ids& b) {
    const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return static_cast<u64>(differ.first - a.begin());
  }
  // Whether the session begins with the prompt's first n tokens.
  bool holds(const Ids& prompt, u64 n) const {
    const auto& session = engine_.sessions().state(session_);
    return session.tokens.n_ids >= n &&
           std::equal(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n),
                      session.tokens.ids.begin());
  }

  struct Scored {
    const Ids* ids = nullptr;
    u64 first = 0;  // position of the first of them
    f64 nll = 0;
  };

  static void score(void* context, u32 position, std::span<const f32> logits) {
    auto& scored = *static_cast<Scored*>(context);
    const u64 predicted = u64{position} + 1;
    if (predicted < scored.first || predicted >= scored.first + scored.ids->size()) return;
    scored.nll += softmax_of(logits).log_sum - logits[(*scored.ids)[predicted - scored.first]];
  }

  void take_up(const Ids& prompt) {
    const auto& session = engine_.sessions().state(session_);
    const auto have = session.tokens.ids.first(session.tokens.n_ids);
    const auto differ = std::mismatch(have.begin(), have.end(), prompt.begin(), prompt.end());
    // The last token always runs, because its logits are needed.
    const auto n_shared = static_cast<u32>(
        std::min<u64>(static_cast<u64>(differ.first - have.begin()), prompt.size() - 1));
    if (n_shared < session.tokens.n_ids) value_of(engine_.sessions().truncate(session_, n_shared));
    feed(std::span(prompt).subspan(n_shared));
  }

  void feed(std::span<const u32> ids) {
    if (!ids.empty()) value_of(engine_.sessions().feed(session_, ids));
    compute_all(engine_, session_);
  }

  engine::Engine& engine_;
  engine::SessionIdx session_;
};

// Answers of a kind and a length: the number of right ones, of those with selection, and the share
// of the KV that their decode steps read.
struct Tally {
  Rate right;
  u64 n_selected = 0;
  engine::KvReads kv_reads{};
  void count(bool is_right, const engine::KvReads& reads) {
    right.count(is_right);
    n_selected += reads.n_select_steps > 0 ? 1 : 0;
    kv_reads.n_select_steps += reads.n_select_steps;
    kv_reads.n_read += reads.n_read;
    kv_reads.n_visible += reads.n_visible;
  }
};

// Results by kind and by length; kAllLengths sums up a kind.
struct Results {
  std::map<std::string, std::map<u64, Tally>> tallies;
  f64 prose_nll = 0;
  u64 n_prose_tokens = 0;

  f64 perplexity() const {
    return n_prose_tokens == 0 ? NAN : std::exp(prose_nll / static_cast<f64>(n_prose_tokens));
  }
};

// One line {seed, index, kind, expected, given, selected} per answer, to compare engines.
class AnswersFile {
 public:
  explicit AnswersFile(std::string path) : path_(std::move(path)) {}
  void add(u64 index, const LogbookLine& line, const std::string& given, bool is_selected) {
    rapidjson::StringBuffer buffer;
    rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
    writer.StartObject();
    writer.Key("seed"), writer.Uint64(line.seed);
    writer.Key("index"), writer.Uint64(index);
    const auto text = [&](const char* key, const std::string& value) {
      writer.Key(key), writer.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
    };
    text("kind", line.kind);
    text("expected", line.answer);
    text("given", given);
    writer.Key("selected"), writer.Bool(is_selected);
    writer.EndObject();
    text_ += buffer.GetString();
    text_ += '\n';
  }
  void write() const {
    if (!path_.empty()) write_file(path_, text_.data(), text_.size());
  }

 private:
  std::string path_, text_;
};

Results answer_all(engine::Engine& engine, ModelFile& model, const std::vector<LogbookLine>& lines,
                   const std::vector<Question>& questions, AnswersFile& answers) {
  Progress progress;
  Results results;
  Reader reader(engine);
  for (u64 i = 0; i < lines.size(); ++i) {
    if (progress.is_due()) {
      progress.show("question " + std::to_string(i + 1) + " of " + std::to_string(lines.size()),
                    static_cast<f64>(i) / static_cast<f64>(lines.size()));
    }
    const LogbookLine& line = lines[i];
    if (line.kind == kProse) {
      results.prose_nll += reader.nll(questions[i]);
      results.n_prose_tokens += questions[i].answer.size();
      continue;
    }
    const Reader::Answer given =
        reader.answer(questions[i], i + 1 < lines.size() ? &questions[i + 1] : nullptr);
    auto& by_length = results.tallies[line.kind];
    const bool right = given.ids == questions[i].answer;
    by_length[logbook_length(line.n_tokens)].count(right, given.kv_reads);
    by_length[kAllLengths].count(right, given.kv_reads);
    std::string text;
    for (const u32 id : given.ids) text += model.piece(id);
    answers.add(i, line, text, given.is_selected());
  }
  return results;
}

void print(const Results& results) {
  std::printf("%-8s %8s %7s %7s %8s %8s %9s   %s\n", "kind", "tokens", "asked", "right", "selected",
              "KV read", "accuracy", "95 % interval");
  for (const auto& [kind, by_length] : results.tallies) {
    for (const auto& [length, tally] : by_length) {
      const Rate& rate = tally.right;
      const std::string tokens = length == kAllLengths ? "all" : "<=" + std::to_string(length);
      std::printf("%-8s %8s %7llu %7llu %8llu %7.1f%% %8.1f%%   %.1f .. %.1f%%\n",
                  escaped(kind).c_str(), tokens.c_str(), static_cast<unsigned long long>(rate.n),
                  static_cast<unsigned long long>(rate.n_true),
                  static_cast<unsigned long long>(tally.n_selected), 100 * tally.kv_reads.ratio(),
                  100 * rate.share(), 100 * rate.low(), 100 * rate.high());
    }
  }
  if (results.n_prose_tokens > 0) {
    std::printf("perplexity of the prose: %.3f over %llu tokens\n", results.perplexity(),
                static_cast<unsigned long long>(results.n_prose_tokens));
  }
}

void print_as_json(const Results& results) {
  Json json;
  json.begin_object();
  json.key("accuracy").begin_object();
  for (const auto& [kind, by_length] : results.tallies) {
    json.key(kind).begin_object();
    for (const auto& [length, tally] : by_length) {
      const Rate& rate = tally.right;
      json.key(length == kAllLengths ? "all" : std::to_string(length)).begin_object();
      json.key("asked").number(rate.n);
      json.key("right").number(rate.n_true);
      json.key("accuracy").real(rate.share());
      json.key("low").real(rate.low());
      json.key("high").real(rate.high());
      json.key("selected").number(tally.n_selected);
      json.key("select_steps").number(tally.kv_reads.n_select_steps);
      json.key("kv_read_ratio").real(tally.kv_reads.ratio());
      json.end_object();
    }
    json.end_object();
  }
  json.end_object();
  json.key("perplexity").real(results.perplexity());
  json.key("prose_tokens").number(results.n_prose_tokens);
  json.end_object();
  print_json(json);
}

}  // namespace

void run_logbook(const EngineOptions& options, const LogbookCommand& command) {
  check_output(command.answers_file, {options.model, command.file});
  const std::vector<LogbookLine> lines = parse_logbook(read_file(command.file), command.file);
  ModelFile model(options.model);
  std::vector<Question> questions;
  questions.reserve(lines.size());
  u64 n_tokens_max = 0;
  for (const LogbookLine& line : lines) {
    questions.push_back(encode(model, line, command.file));
    const Question& question = questions.back();
    n_tokens_max = std::max(n_tokens_max, question.prompt.size() + question.answer.size());
  }
  Config config = options.config();
  if (config.context_tokens == 0) config.context_tokens = n_tokens_max;
  config.sessions_max = 1;
  OwnEngine own(options.model, config);
  engine::Engine& engine = own.get();
  warn_of_unused_store(options.store_dir, engine.plan().tiers.is_on());
  AnswersFile answers(command.answers_file);
  const Results results = answer_all(engine, model, lines, questions, answers);
  answers.write();
  warn_unselected(engine.status().select, engine.status().counters.kv_reads.n_select_steps);
  if (command.json) return print_as_json(results);
  print(results);
}

}  // namespace tarn::tools
