// tarn demo: shows Tarn's purpose with the recall model: a document whose KV is more than eight
// times larger than the engine's whole memory. One process reads it without a break. Another one is
// killed with -9 while it spills, and started again. Then the demo asks for an early line, by full
// attention, by PQCache, and by a window of equal memory. Each part is a process of its own. The
// two readings have separate folders: groups of KV are named by their tokens, so in a shared folder
// the second reading would find all its groups and write nothing.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/step/reading_time.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/model_file.h"
#include "tools/support/own_engine.h"
#include "tools/support/stepping.h"
#include "tools/tarn/built_in.h"
#include "tools/tarn/child_process.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;

constexpr u32 kComparedTokens = 32;  // for the two readings; an answer is shorter
constexpr u32 kRoomTokens = 64;      // for the question and its answer
constexpr u32 kTrialTokens = 8192;
// In a shorter document a window with PQCache's memory would also hold the line that is asked for.
constexpr u32 kDocumentMin = 16384;
constexpr u32 kSelectedTokens = 2048;

struct DemoCommand {
  u32 n_tokens = 131072;  // of context
  u32 n_document = 0;     // 0: as much as fits into the context
  u32 n_threads = 0;
  std::string folder;
};

// Ctrl-C: the parent ends through its destructors, to remove the folder.
volatile std::sig_atomic_t g_interrupted = 0;

// A child's report.
struct Told {
  std::atomic<u32> n_read{0};   // tokens of the document with KV
  std::atomic<u32> n_saved{0};  // of them, in a checkpoint
  std::atomic<u64> spilled_bytes{0};
  u32 n_restored = 0;  // of them, found on disk
  u32 n_answer = 0;
  u32 answer[kComparedTokens] = {};
  u64 plan_bytes = 0, kv_memory_bytes = 0, codes_bytes = 0, group_bytes = 0, n_groups = 0;
  f64 read_s = 0, answer_s = 0;
};

using Child = ChildProcess<Told>;
constexpr auto kToItsEnd = [](const Told&) { return false; };

bool is_running(Child& child) {
  if (g_interrupted != 0) throw Stopped{g_interrupted};
  return child.is_running();
}

void wait_for(Child& child) {
  while (is_running(child)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// The work of one process: restores or begins the session, reads, answers.
struct Part {
  Config config{};
  const BuiltInModel* model = nullptr;
  const Sample* sample = nullptr;
  std::string session;  // empty: none is kept
  u32 n_tokens = 0;     // of the document
  u32 n_answer = 0;     // tokens after the question; 0: asks nothing
};

f64 seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<f64>(SteadyClock::now() - begin).count();
}

void read_document(engine::Engine& engine, engine::SessionIdx session, Told& told) {
  const auto begin = SteadyClock::now();
  compute_all(engine, session, [&] {
    const engine::Session& state = engine.sessions().state(session);
    told.n_read = state.sequence.n_slots();
    told.n_saved = state.saved.n_slots;
    told.spilled_bytes = engine.status().kv.moved.bytes_spilled;
  });
  told.read_s = seconds_since(begin);
}

void answer(engine::Engine& engine, engine::SessionIdx session, const SampleQuestion& question,
            u32 n_tokens, Told& told) {
  const auto begin = SteadyClock::now();
  value_of(engine.sessions().feed(session, question.ids));
  value_of(engine.sessions().generate(session,
                                      {.sampler = {}, .max_tokens = n_tokens, .ignore_end = true}));
  const auto on_event = [&](const engine::Event& event, std::string_view) {
    if (event.type == engine::EventType::token && told.n_answer < kComparedTokens)
      told.answer[told.n_answer++] = event.token.token;
  };
  do {
    step(engine);
  } while (!drain(engine, session, on_event));
  told.answer_s = seconds_since(begin);
}

void run_part(const Part& part, Told& told) {
  OwnEngine own(part.model->path(), part.config);
  engine::Engine& engine = own.get();
  const plan::Plan& plan = engine.plan();
  told.plan_bytes = plan.total_bytes;
  told.kv_memory_bytes = plan.of(plan::RegionId::kv_groups).bytes;
  told.codes_bytes = plan.of(plan::RegionId::select_index).bytes;
  told.group_bytes = plan.group_shape.group_bytes();
  told.n_groups = plan.groups_max;
  const auto document = std::span(part.sample->document_ids).first(part.n_tokens);
  std::optional<engine::SessionIdx> session;
  if (!part.session.empty()) {
    const Result<engine::SessionPool::Restored> restored = engine.sessions().restore(part.session);
    if (restored) {
      session = restored->idx;
      told.n_restored = restored->n_computed;
      // An answer is kept too if it took long enough for a checkpoint.
      if (restored->n_tokens > part.n_tokens)
        value_of(engine.sessions().truncate(*session, part.n_tokens));
    } else if (restored.error().status != Status::not_found) {
      throw_failure(restored.error());
    }
  }
  if (!session) {
    session = value_of(engine.sessions().create());
    if (!part.session.empty()) value_of(engine.sessions().autosave(*session, part.session));
    value_of(engine.sessions().feed(*session, document));
  }
  read_document(engine, *session, told);
  if (!part.session.empty() && told.n_restored < part.n_tokens - 1) {
    value_of(engine.sessions().save(*session, part.session));
  }
  if (part.n_answer > 0) answer(engine, *session, part.sample->questions[0], part.n_answer, told);
}

class Demo {
 public:
  explicit Demo(const DemoCommand& command)
      : command_(command),
        model_(BuiltIn::recall),
        sample_(built_in_sample(
            BuiltIn::recall, model_,
            command.n_document != 0 ? command.n_document : command.n_tokens - kRoomTokens)) {}

  void run() {
    introduce();
    const Told& whole = read_whole();
    read_with_a_kill(whole);
    compare_answers();
  }

 private:
  Config config(const std::string& folder) const {
    Config config;
    config.context_tokens = command_.n_tokens;
    config.n_threads = command_.n_threads;
    config.sessions_max = 1;
    config.batch_rows_max = 256;
    config.embedding = EmbeddingChoice::disk;
    config.text_scratch_bytes = 0;        // nothing is tokenized
    config.chat_memory_bytes = 4 * kKiB;  // nothing is rendered
    config.huge_pages = false;
    config.budget_bytes = budget_bytes();
    if (folder.empty()) return config;
    if (folder.size() >= config.store.path.size()) throw Failure{kExitUsage, "--store: too long"};
    std::copy(folder.begin(), folder.end(), config.store.path.begin());
    config.kv_memory_bytes = whole_kv_bytes() / 64;
    config.store.quota_bytes = whole_kv_bytes() * 2;
    config.store.requests_max = 32;
    config.store.sessions = true;
    config.store.checkpoint_ms = checkpoint_ms();
    return config;
  }
  // A part with the folder `name` and a kept session of that name; empty: without either.
  Part part(const std::string& name) const {
    return {.config = config(name.empty() ? "" : folder_of(name)),
            .model = &model_,
            .sample = &sample_,
            .session = name,
            .n_tokens = static_cast<u32>(sample_.document_ids.size()),
            .n_answer = kComparedTokens};
  }
  std::string folder_of(const std::string& name) const {
    return (fs::path(command_.folder) / name).string();
  }
  void make_folder(const std::string& name) const;
  // Two layers of one KV head of 128 elements, K and V, f16.
  u64 whole_kv_bytes() const { return u64{command_.n_tokens} * 2 * 2 * 128 * 2; }
  // The largest whole quarter of a MiB below an eighth of it.
  u64 budget_bytes() const { return (whole_kv_bytes() / 8 - 1) / (kMiB / 4) * (kMiB / 4); }

  // A reading has this many checkpoints, and one a second at least.
  static constexpr u32 kCheckpoints = 16;
  u32 checkpoint_ms() const {
    return static_cast<u32>(std::clamp(reading_s_ * 1000 / kCheckpoints, 1., 1000.));
  }

  void introduce();
  const Told& read_whole();
  void read_with_a_kill(const Told& whole);
  void compare_answers();
  template <class Until>
  void watch(Child& child, const char* what, const Until& until);
  std::string said(const Told& told) const;
  bool is_right(const Told& told) const;

  const DemoCommand& command_;
  BuiltInModel model_;
  Sample sample_;
  f64 reading_s_ = 0;  // that reading the document takes: an estimate
  std::unique_ptr<Child> whole_;
};

void Demo::make_folder(const std::string& name) const {
  if (mkdir(folder_of(name).c_str(), S_IRWXU) != 0) {
    throw Failure{kExitIo, folder_of(name) + ": " + std::strerror(errno)};
  }
}

std::string Demo::said(const Told& told) const {
  ModelFile file(model_.path());
  std::string text;
  for (u32 i = 0; i < told.n_answer; ++i) text += file.piece(told.answer[i]);
  return text.substr(text.starts_with(' ') ? 1 : 0);
}

bool Demo::is_right(const Told& told) const {
  const auto& expected = sample_.questions[0].expected_ids;
  return std::equal(expected.begin(), expected.end(), told.answer, told.answer + told.n_answer);
}

// Follows a child until it ends or `until(its report)`.
template <class Until>
void Demo::watch(Child& child, const char* what, const Until& until) {
  const bool on_terminal = isatty(STDERR_FILENO) != 0;
  while (is_running(child) && !until(child.told())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!on_terminal) continue;
    std::fprintf(stderr, "\r%s: %u of %zu tokens, %s spilled   ", what, child.told().n_read.load(),
                 sample_.document_ids.size(),
                 format_bytes(child.told().spilled_bytes.load()).c_str());
  }
  if (on_terminal) std::fprintf(stderr, "\r%70s\r", "");
}

// Estimates the time from two short readings.
void Demo::introduce() {
  f64 seconds[2] = {};
  for (const u32 i : {0u, 1u}) {
    Part trial = part("");
    trial.config.budget_bytes = 0;
    trial.config.context_tokens = kTrialTokens + kRoomTokens;
    trial.n_tokens = std::min<u32>(kTrialTokens >> (1 - i), trial.n_tokens);
    trial.n_answer = 0;
    Child child([&](Told& told) { run_part(trial, told); });
    wait_for(child);
    seconds[i] = child.told().read_s;
  }
  const step::ReadingTime time =
      step::reading_time(0, {0.5 * kTrialTokens, seconds[0]}, {kTrialTokens, seconds[1]});
  reading_s_ = time.seconds(0, static_cast<f64>(sample_.document_ids.size()));
  std::printf("document  %zu tokens of a context of %u, whose KV whole takes %s\n",
              sample_.document_ids.size(), command_.n_tokens,
              format_bytes(whole_kv_bytes()).c_str());
  std::printf(
      "memory    %s for weights, KV and all else that the engine plans, less than an eighth of "
      "that\n",
      format_bytes(budget_bytes()).c_str());
  std::printf("disk      %s\n", command_.folder.c_str());
  std::printf("time      about %.0f s, from reading %u tokens: the document is read twice\n\n",
              2.2 * reading_s_, kTrialTokens);
}

const Told& Demo::read_whole() {
  make_folder("whole");
  whole_ = std::make_unique<Child>([this](Told& told) { run_part(part("whole"), told); });
  watch(*whole_, "reading", kToItsEnd);
  const Told& told = whole_->told();
  std::printf(
      "read      in %.0f s with %s of memory (%s of it for KV), %s spilled; the process at "
      "most %s\n",
      told.read_s, format_bytes(told.plan_bytes).c_str(),
      format_bytes(told.kv_memory_bytes).c_str(), format_bytes(told.spilled_bytes.load()).c_str(),
      format_bytes(whole_->peak_bytes()).c_str());
  return told;
}

void Demo::read_with_a_kill(const Told& whole) {
  make_folder("killed");
  const u32 n_kill = static_cast<u32>(sample_.document_ids.size() * 3 / 5);
  u32 n_read = 0;
  u64 spilled_bytes = 0;
  {
    Child child([this](Told& told) { run_part(part("killed"), told); });
    // Without a checkpoint there is nothing to resume from.
    watch(child, "reading again",
          [n_kill](const Told& told) { return told.n_read >= n_kill && told.n_saved > 0; });
    n_read = child.told().n_read;
    spilled_bytes = child.told().spilled_bytes;
    if (!child.kill_now()) {
      throw Failure{kExitRefused,
                    "the second reading ended before it could be killed (was this program stopped "
                    "meanwhile?): start it again"};
    }
  }
  std::printf("killed    with -9 at %u tokens, %s spilled until then\n", n_read,
              format_bytes(spilled_bytes).c_str());
  if (spilled_bytes == 0) throw Failure{kExitInternal, "nothing had been spilled at the kill"};
  Child child([this](Told& told) { run_part(part("killed"), told); });
  watch(child, "going on", kToItsEnd);
  const Told& told = child.told();
  const bool same = told.n_answer == kComparedTokens && whole.n_answer == kComparedTokens &&
                    std::equal(told.answer, told.answer + told.n_answer, whole.answer);
  std::printf(
      "resumed   at %u tokens (%u lost), the rest in %.0f s; the %u tokens after the question "
      "identical: %s\n\n",
      told.n_restored, n_read > told.n_restored ? n_read - told.n_restored : 0, told.read_s,
      told.n_answer, same ? "yes" : "NO");
  if (!same) throw Failure{kExitInternal, "the restarted process gave another answer"};
}

void Demo::compare_answers() {
  const SampleQuestion& question = sample_.questions[0];
  std::printf("question  %s expected: %s\n", question.text.c_str(), question.expected.c_str());
  struct Way {
    const char* name;
    SelectMethod method;
    bool expected;
  };
  const Way ways[] = {{"full attention", SelectMethod::full, true},
                      {"PQCache", SelectMethod::pq, true},
                      {"a window", SelectMethod::window, false}};
  u64 kv_bytes = 0;  // KV of PQCache in memory
  bool as_expected = true;
  for (const Way& way : ways) {
    Part asked = part("whole");
    asked.n_answer = static_cast<u32>(question.expected_ids.size());
    SelectConfig& select = asked.config.select;
    asked.config.batch_rows_max = 16;  // for the question: frees memory for the search
    asked.config.kv_memory_bytes = whole_kv_bytes() / 128;
    asked.config.n_threads = 1;
    select.method = way.method;
    select.n_subspaces = 4;
    select.code_bits = 6;
    select.code_format = CodeFormat::packed;
    select.index_delay_tokens = 1;
    select.k = kSelectedTokens;
    if (way.method == SelectMethod::window) {  // as many tokens as fit into as much memory
      const u64 token_bytes = whole_kv_bytes() / command_.n_tokens;
      select.k = static_cast<u32>(kv_bytes / token_bytes) - select.n_sinks - select.n_local;
    }
    Child child([&](Told& told) { run_part(asked, told); });
    wait_for(child);
    const Told& told = child.told();
    if (way.method == SelectMethod::pq) kv_bytes = told.kv_memory_bytes + told.codes_bytes;
    const bool right = is_right(told);
    as_expected = as_expected && right == way.expected;
    std::printf("%-16s %-24s %s, %.2f s, %s of memory\n", way.name, said(told).c_str(),
                right ? "right" : "wrong", told.answer_s, format_bytes(told.plan_bytes).c_str());
  }
  if (!as_expected) throw Failure{kExitInternal, "the answers are not as expected"};
}

// Removed with the object.
class DemoFolder {
 public:
  explicit DemoFolder(const std::string& parent) {
    std::string path = (fs::path(parent) / "tarn-demo-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) {
      throw Failure{kExitIo, "cannot make a folder in " + parent + ": " + std::strerror(errno)};
    }
    path_ = path;
  }
  ~DemoFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  DemoFolder(const DemoFolder&) = delete;
  DemoFolder& operator=(const DemoFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void run(DemoCommand& command) {
  const DemoFolder folder(command.folder.empty() ? fs::current_path().string() : command.folder);
  command.folder = folder.path();
  for (const int signal : {SIGINT, SIGTERM}) {
    std::signal(signal, [](int number) { g_interrupted = number; });
  }
  Demo(command).run();
}

}  // namespace

void add_demo(const Command& app) {
  auto command = std::make_shared<DemoCommand>();
  const Command sub = app.add_subcommand(
      "demo", "read a document over eight times larger than memory, kill, restart, ask");
  sub.footer(
      "\nExamples:\n"
      "  tarn demo                      131,072 tokens; some minutes, 600 MB of the disk\n"
      "  tarn demo -c 262144 --store /var/tmp\n"
      "\nThe model is the built-in recall model, whose weights are computed.\n");
  sub.add_option("-c,--ctx-size", command->n_tokens, "tokens of context")
      .between(131072u, 262144u)
      .capture_default_str();
  sub.add_option("--document", command->n_document,
                 "tokens of the document (default: what fits into the context beside a question)")
      .between(kDocumentMin, 262080u);
  sub.add_option("-t,--threads", command->n_threads,
                 "worker threads (default: one per physical core)");
  sub.add_option("--store", command->folder,
                 "parent of a temporary folder (default: the current one)")
      .check(is_not_empty);
  sub.callback([command] { run(*command); });
}

}  // namespace tarn::tools
