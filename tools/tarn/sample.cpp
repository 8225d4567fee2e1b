#include "tools/tarn/sample.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "tools/support/exit_code.h"
#include "tools/support/memory_use.h"
#include "tools/synth/recall.h"
#include "tools/tarn/report.h"

namespace tarn::tools {
namespace {

constexpr u64 kDocumentSeed = 2026;
constexpr u32 kDocumentTokens = 2048;
constexpr u32 kAnswerWords = 2;
constexpr size_t kQuestions = 3;

struct Answered {
  const synth::RecallQuestion* question = nullptr;
  GenerationResult result;
  bool ok() const { return result.tokens == question->answer_ids; }
  // The model's words are written with a space in front.
  std::string answer() const { return result.text.substr(result.text.empty() ? 0 : 1); }
};

// Questions from the beginning, the middle and the end of the document.
std::vector<const synth::RecallQuestion*> pick(const synth::RecallDocument& document) {
  std::vector<const synth::RecallQuestion*> picked;
  for (size_t i = 0; i < kQuestions; ++i) {
    picked.push_back(&document.questions[i * (document.questions.size() - 1) / (kQuestions - 1)]);
  }
  return picked;
}

void print_introduction(const EngineHandle& engine, const synth::RecallDocument& document) {
  std::printf("machine   %s\n", describe_machine(engine).c_str());
  std::printf(
      "model     built in: an associative-recall model whose weights are computed, not trained\n");
  std::printf("document  %zu tokens, generated; its first words: %.60s ...\n\n",
              document.ids.size(), document.text.c_str());
  std::printf("memory plan (reserved at start, nothing is asked of the system afterwards)\n%s\n",
              format_plan(engine.plan()).c_str());
}

void print_answers(const EngineHandle& engine, const std::vector<Answered>& answers) {
  for (const Answered& a : answers) {
    std::printf("question  what follows '%s' (token %llu)?\n", a.question->key.c_str(),
                static_cast<unsigned long long>(a.question->key_pos));
    std::printf("answer    %s | expected %s | %s\n", a.answer().c_str(), a.question->answer.c_str(),
                a.ok() ? "ok" : "WRONG");
  }
  const tarn_engine_status status = engine.status();
  std::printf(
      "\nspeed     loaded in %.3f s; read %llu rows at %.0f tokens/s; wrote %llu at %.0f "
      "tokens/s\n",
      static_cast<f64>(status.load_ns) * 1e-9,
      static_cast<unsigned long long>(status.n_prefill_rows),
      static_cast<f64>(status.n_prefill_rows) * 1e9 / static_cast<f64>(status.prefill_ns),
      static_cast<unsigned long long>(status.n_decode_rows),
      static_cast<f64>(status.n_decode_rows) * 1e9 / static_cast<f64>(status.decode_ns));
}

void print_memory(const EngineHandle& engine, std::optional<u64> n_allocations) {
  std::printf("memory    plan %s, peak RSS %s, allocations after READY: %s\n",
              format_bytes(engine.plan().total_bytes).c_str(),
              format_bytes(peak_rss_bytes()).c_str(),
              n_allocations ? std::to_string(*n_allocations).c_str() : "not counted");
  std::printf(
      "\nNot shown by this run: a real language model (tarn run -m FILE -p TEXT), its speed\n"
      "(tarn-bench -m FILE; tarn synth writes one of a real shape), a GPU, KV on a disk.\n");
}

void print_as_json(const EngineHandle& engine, const SampleOptions& sample,
                   const std::vector<Answered>& answers) {
  Json json;
  json.begin_object();
  json.key("questions").begin_array();
  for (const Answered& a : answers) {
    json.begin_object();
    json.key("question").text(a.question->key);
    json.key("answer").text(a.answer());
    json.key("expected").text(a.question->answer);
    json.key("ok").boolean(a.ok());
    json.end_object();
  }
  json.end_array();
  write_answer(engine, sample.select, answers.back().result, json);
  json.end_object();
  print_json(json);
}

}  // namespace

BuiltInModel::BuiltInModel() {
  fd_ = memfd_create("tarn-built-in-model", MFD_CLOEXEC);
  if (fd_ < 0) {
    throw Failure{kExitIo,
                  "the system gives no memory file (memfd_create) for the built-in model: "
                  "name a model with -m"};
  }
  path_ = "/proc/self/fd/" + std::to_string(fd_);
  synth::recall_write({.type = kernels::TensorType::f16}, path_);
}

BuiltInModel::~BuiltInModel() { close(fd_); }

void run_sample(const EngineOptions& options, const SampleOptions& sample) {
  Config config = options.config();
  if (config.context_tokens == 0) config.context_tokens = kDocumentTokens + 64;
  config.sessions_max = 2;
  const synth::RecallDocument document =
      synth::recall_document(kDocumentSeed, kDocumentTokens, kAnswerWords);
  std::optional<EngineHandle> engine;
  {
    const BuiltInModel model;  // needed only while it is loaded
    engine.emplace(model.path(), config, options.verbose);
  }
  if (!sample.json) print_introduction(*engine, document);

  const ApiSession reader(engine->get());
  check_api(tarn_session_feed(reader.get(), document.ids.data(), document.ids.size()));
  check_api(tarn_session_wait(reader.get(), -1));
  tarn_generate_options generate_options = TARN_INIT(tarn_generate_options);
  generate_options.max_tokens = kAnswerWords;
  std::vector<Answered> answers;
  std::optional<u64> n_allocations = 0;
  for (const synth::RecallQuestion* question : pick(document)) {
    const ApiSession fork = ApiSession::fork_of(reader);
    answers.push_back({question, generate(fork, {question->key_id}, generate_options, false)});
    const std::optional<u64>& n = answers.back().result.n_allocations;
    n_allocations = n && n_allocations ? std::optional<u64>(*n_allocations + *n) : std::nullopt;
  }
  if (sample.json) return print_as_json(*engine, sample, answers);
  print_answers(*engine, answers);
  print_memory(*engine, n_allocations);
}

}  // namespace tarn::tools
