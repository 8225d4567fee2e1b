#include "tools/tarn/sample.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>

#include "tools/support/exit_code.h"
#include "tools/support/memory_use.h"
#include "tools/tarn/generation.h"
#include "tools/tarn/report.h"

namespace tarn::tools {
namespace {

constexpr u32 kRecallTokens = 2048;  // of the recall model's document, without -c
constexpr u32 kRoomTokens = 64;      // for a question and its answer

struct Answered {
  const SampleQuestion* question = nullptr;
  GenerationResult result;
  bool ok() const { return result.tokens == question->expected_ids; }
  // The models' words begin with a space.
  std::string answer() const { return result.text.substr(result.text.starts_with(' ') ? 1 : 0); }
};

void print_introduction(const EngineHandle& engine, const Sample& sample) {
  std::printf("machine   %s\n", describe_machine(engine).c_str());
  std::printf("model     %s\n", sample.model.c_str());
  std::printf("document  %zu tokens, %s\n", sample.document_ids.size(), sample.document.c_str());
  const tarn_plan plan = engine.plan();
  std::printf(
      "memory    %s, reserved at start; none is allocated afterwards (tarn plan shows it "
      "all)\n\n",
      format_bytes(plan.total_bytes).c_str());
  if (sample.document_ids.size() >= 2 * kTimeToldTokens) {
    std::printf("time      after %u tokens standard error shows the remaining time\n\n",
                kTimeToldTokens);
  }
  std::fflush(stdout);  // reading may take minutes
}

void print_answers(const EngineHandle& engine, const std::vector<Answered>& answers) {
  for (const Answered& a : answers) {
    std::printf("question  %s\n", a.question->text.c_str());
    std::printf("answer    %s | expected %s | %s\n", a.answer().c_str(),
                a.question->expected.c_str(), a.ok() ? "ok" : "WRONG");
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

// The document and a question once more, as another session would ask.
struct Again {
  GenerationResult result;
  f64 first_s = 0;  // to the first token, the first time
  u64 n_reused() const { return result.n_reused_from_memory + result.n_reused_from_disk; }
};

Again ask_again(const EngineHandle& engine, const Sample& sample, f64 first_s) {
  const ApiSession session(engine.get());
  std::vector<u32> ids = sample.document_ids;
  const SampleQuestion& question = sample.questions[0];
  ids.insert(ids.end(), question.ids.begin(), question.ids.end());
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = static_cast<uint32_t>(question.expected_ids.size());
  return {generate(session, ids, options, {}), first_s};
}

void print_again(const Again& again) {
  std::printf(
      "again     the document asked a second time: %llu of its tokens reused, %.2f s to the "
      "first token, %.2f s the first time\n",
      static_cast<unsigned long long>(again.n_reused()), again.result.prefill_s, again.first_s);
}

// Whether the plan has a part of the KV, or kept sessions, on a disk.
bool uses_disk(const tarn_plan& plan) {
  const std::span regions(plan.regions, plan.n_regions);
  return std::any_of(regions.begin(), regions.end(), [](const tarn_region& region) {
    return std::string_view(region.space) == "disk" && region.bytes > 0;
  });
}

void print_memory(const EngineHandle& engine, std::optional<u64> n_allocations) {
  const tarn_plan plan = engine.plan();
  std::printf("memory    plan %s, peak RSS %s, allocations after READY: %s\n",
              format_bytes(plan.total_bytes).c_str(), format_bytes(peak_rss_bytes()).c_str(),
              n_allocations ? std::to_string(*n_allocations).c_str() : "not counted");
  std::printf(
      "\nNot shown by this run: a large language model (tarn run -m FILE -p TEXT), its speed\n"
      "(tarn-bench -m FILE; tarn synth writes one of a real shape), a GPU%s.\n",
      uses_disk(plan) ? "" : ", KV on a disk");
}

void print_as_json(const EngineHandle& engine, const KeptSession* kept,
                   const std::vector<Answered>& answers, const std::optional<Again>& again) {
  Json json;
  json.begin_object();
  json.key("questions").begin_array();
  for (const Answered& a : answers) {
    json.begin_object();
    json.key("question").text(a.question->text);
    json.key("answer").text(a.answer());
    json.key("expected").text(a.question->expected);
    json.key("ok").boolean(a.ok());
    json.end_object();
  }
  json.end_array();
  write_answer(engine, answers.back().result, json);
  if (again) {
    json.key("again").begin_object();
    json.key("reused_tokens").number(again->n_reused());
    json.key("prefill_s").real(again->result.prefill_s);
    json.key("first_prefill_s").real(again->first_s);
    json.end_object();
  }
  if (kept != nullptr) kept->write(json);
  json.end_object();
  print_json(json);
}

}  // namespace

void run_sample(const EngineOptions& engine_options, const SampleOptions& options) {
  Config config = engine_options.config();
  const u64 room = std::max<u64>(config.context_tokens, 2 * kRoomTokens) - kRoomTokens;
  const u32 n_recall =
      config.context_tokens == 0 ? kRecallTokens : static_cast<u32>(std::min<u64>(room, ~0U));
  std::optional<EngineHandle> engine;
  Sample sample;
  {
    const BuiltInModel model(options.which);  // needed only during loading
    sample = built_in_sample(options.which, model, n_recall);
    const u64 n_needed = sample.document_ids.size() + kRoomTokens;
    if (config.context_tokens == 0) config.context_tokens = n_needed;
    if (config.context_tokens < n_needed) {
      throw Failure{kExitRefused, "the sample takes " + std::to_string(n_needed) +
                                      " tokens, more than -c " +
                                      std::to_string(config.context_tokens) + ": raise -c"};
    }
    config.sessions_max = 2;
    if (options.session.is_kept()) keep_sessions(config);
    EngineOptions with_model = engine_options;
    with_model.model = model.path();
    engine.emplace(with_model, config);
  }
  if (!options.json) print_introduction(*engine, sample);

  std::optional<KeptSession> kept;
  std::optional<ApiSession> own;
  if (options.session.is_kept()) {
    kept.emplace(engine->get(), options.session, config.store.path.data());
  } else {
    own.emplace(engine->get());
  }
  const ApiSession& reader = kept ? kept->api() : *own;
  const bool reads = !kept || !kept->has_read(sample.document_ids);
  const auto begin = std::chrono::steady_clock::now();
  if (reads) {
    check_api(
        tarn_session_feed(reader.get(), sample.document_ids.data(), sample.document_ids.size()));
  }
  const bool is_read = wait_computed(reader, &asked_to_end);
  const f64 read_s = std::chrono::duration<f64>(std::chrono::steady_clock::now() - begin).count();
  if (kept) kept->save();
  if (!is_read) end_as_asked();
  std::vector<Answered> answers;
  std::optional<u64> n_allocations = 0;
  for (const SampleQuestion& question : sample.questions) {
    const ApiSession fork = ApiSession::fork_of(reader);
    tarn_generate_options generate_options = TARN_INIT(tarn_generate_options);
    generate_options.max_tokens = static_cast<uint32_t>(question.expected_ids.size());
    answers.push_back({&question, generate(fork, question.ids, generate_options, {})});
    const std::optional<u64>& n = answers.back().result.n_allocations;
    n_allocations = n && n_allocations ? std::optional<u64>(*n_allocations + *n) : std::nullopt;
  }
  warn_unselected(engine->status().select, engine->status().select_steps);
  std::optional<Again> again;
  if (reads && config.reuse.prefix) {
    again = ask_again(*engine, sample, read_s + answers[0].result.prefill_s);
  }
  if (options.json) return print_as_json(*engine, kept ? &*kept : nullptr, answers, again);
  print_answers(*engine, answers);
  if (again) print_again(*again);
  print_memory(*engine, n_allocations);
}

}  // namespace tarn::tools
