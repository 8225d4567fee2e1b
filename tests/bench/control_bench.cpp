// The gain and cost of the load controller for real (runtime/control): questions about documents
// whose KV lies on the disk, while the box is idle, while other processes read and write the same
// disk, and while one keeps a core busy:
//
//   control_bench --store DIR --config FILE [--model FILE] [--tokens N] [--rounds N] [--hammers N]
//
// FILE is the profile of `tarn calibrate --store DIR`. In each round three engines answer about one
// document of N tokens, in turn: one that always reads, one that always computes, and one that
// decides. Prints for each what passes until the first token and between two tokens, and how the
// controller's prediction compares. Build with -DTARN_BENCH=ON.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/bench/engine_bench.h"
#include "tests/bench/options.h"
#include "tools/support/percentile.h"

namespace tarn {
namespace {

using bench::now_s;
using bench::random_ids;
using engine::Engine;
using engine::SessionIdx;

constexpr u32 kQuestion = 24, kAnswer = 17;
constexpr u64 kHammerBytes = kGiB, kPieceBytes = kMiB;

struct Options {
  std::string model, store, config;
  u32 n_tokens = 4096, n_rounds = 16, n_hammers = 16;
};

struct Phase {
  const char* name;
  bool hammers_disk, hammers_core;
};
constexpr std::array<Phase, 5> kPhases = {{{"idle", false, false},
                                           {"disk", true, false},
                                           {"idle again", false, false},
                                           {"a core", false, true},
                                           {"idle at last", false, false}}};

enum class Choice : u8 { reads, computes, decides };
constexpr std::array<const char*, 3> kChoices = {"always reads", "always computes", "controller"};

// ---- Other processes ----------------------------------------------------------------------------

// Calls the kernel alone: it is the child of a process with threads.
[[noreturn]] void hammer_disk(int file, void* piece, u64 seed) {
  for (u64 at = seed;; at = at * 6364136223846793005u + 1442695040888963407u) {
    const off_t offset =
        static_cast<off_t>((at >> 33) % (kHammerBytes / kPieceBytes) * kPieceBytes);
    const bool writes = (at >> 20 & 1) != 0;
    const ssize_t n = writes ? ::pwrite(file, piece, kPieceBytes, offset)
                             : ::pread(file, piece, kPieceBytes, offset);
    if (n < 0) ::_exit(1);
  }
}

[[noreturn]] void hammer_core() {
  for (volatile u64 n = 0;;) n = n + 1;
}

class Others {
 public:
  Others(const std::string& folder, u32 n_disk, u32 n_core) {
    const std::string path = folder + "/hammered";
    void* piece = std::aligned_alloc(4096, kPieceBytes);
    std::fill_n(static_cast<u8*>(piece), kPieceBytes, u8{7});
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (file_ < 0 || piece == nullptr) std::exit(74);
    for (u64 at = 0; n_disk > 0 && at < kHammerBytes; at += kPieceBytes) {
      if (::pwrite(file_, piece, kPieceBytes, static_cast<off_t>(at)) < 0) std::exit(74);
    }
    for (u32 i = 0; i < n_disk + n_core; ++i) {
      const pid_t child = ::fork();
      if (child == 0) i < n_disk ? hammer_disk(file_, piece, i + 1) : hammer_core();
      children_.push_back(child);
    }
    std::free(piece);
  }
  Others(const Others&) = delete;
  Others& operator=(const Others&) = delete;
  ~Others() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    ::close(file_);
  }

 private:
  int file_ = -1;
  std::vector<pid_t> children_;
};

// ---- Questions ----------------------------------------------------------------------------------

struct Asked {
  f64 first_s = 0, token_s = 0;
  u32 n_from_disk = 0;
  control::Decision decision{};
};

Asked ask(Engine& engine, const std::vector<u32>& ids) {
  const bench::Asked asked = bench::ask(engine, ids, kAnswer);
  const Asked out{.first_s = asked.first_s,
                  .token_s = (asked.whole_s - asked.first_s) / (kAnswer - 1),
                  .n_from_disk = asked.reused.n_from_disk,
                  .decision = engine.sessions().state(asked.session).loading};
  engine.sessions().destroy(asked.session);
  return out;
}

std::string folder_of(const Options& options, Choice choice) {
  return options.store + "/control-" + std::to_string(static_cast<u32>(choice));
}

Config config_of(const Options& options, Choice choice) {
  std::ifstream file(options.config);
  std::stringstream profile;
  profile << file.rdbuf();
  Config config;
  if (choice == Choice::decides)
    config = tools::value_of(config_from_toml(profile.str(), config, nullptr));
  config.context_tokens = 2 * u64{options.n_tokens};
  config.budget_bytes = 8 * kGiB;
  config.sessions_max = 2;
  config.reuse.prefix = choice != Choice::computes;
  const std::string folder = folder_of(options, choice);
  std::ranges::copy(folder, config.store.path.begin());
  config.store.sessions = true;
  config.store.quota_bytes = 32 * kGiB;
  config.store.kept_tokens = u64{options.n_rounds} * kPhases.size() * (options.n_tokens + 64);
  return config;
}

// All engines have the same documents, each in a copy.
void save_documents(const Options& options, u32 n) {
  const std::string folder = folder_of(options, Choice::reads), written = folder + "-written";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  {
    tools::OwnEngine own(options.model, config_of(options, Choice::reads));
    Engine& engine = own.get();
    for (u32 i = 0; i < n; ++i) {
      const SessionIdx session = tools::value_of(engine.sessions().create());
      tools::value_of(engine.sessions().feed(
          session, random_ids(i + 1, options.n_tokens, engine.spec().n_vocab)));
      while (engine.has_work()) engine.step();
      tools::value_of(engine.sessions().save(session, "document" + std::to_string(i)));
      engine.sessions().destroy(session);
    }
  }
  std::filesystem::rename(folder, written);
  for (const Choice choice : {Choice::reads, Choice::computes, Choice::decides}) {
    const std::string copy = folder_of(options, choice);
    std::filesystem::remove_all(copy);
    std::filesystem::copy(written, copy, std::filesystem::copy_options::recursive);
    std::filesystem::permissions(copy, std::filesystem::perms::owner_all);
  }
  std::filesystem::remove_all(written);
}

using Rounds = std::array<std::vector<Asked>, 3>;

void print_phase(const char* name, const Rounds& rounds) {
  const auto at = [](const std::vector<Asked>& of, u32 percent, auto&& value) {
    std::vector<f64> values;
    for (const Asked& each : of) values.push_back(value(each));
    return tools::percentile(values, percent);
  };
  const auto first_s = [](const Asked& each) { return each.first_s; };
  const auto token_s = [](const Asked& each) { return each.token_s; };
  const f64 best_s = std::min(at(rounds[0], 50, first_s), at(rounds[1], 50, first_s));
  for (u32 i = 0; i < kChoices.size(); ++i) {
    const auto n_read = std::ranges::count_if(rounds[i], [](const Asked& each) {
      return each.n_from_disk >= each.decision.prompt.n_disk;
    });
    std::printf("| %s | %s | %.0f | %.0f | %.2f | %.2f | %td of %zu |\n", name, kChoices[i],
                1e3 * at(rounds[i], 50, first_s), 1e3 * at(rounds[i], 90, first_s),
                at(rounds[i], 50, first_s) / best_s, 1e3 * at(rounds[i], 50, token_s),
                i == 1 ? 0 : n_read, rounds[i].size());
  }
  const auto of_prediction = [](const Asked& each) {
    const control::Decision& d = each.decision;
    return each.first_s / (d.loads ? d.load_s : d.compute_s);
  };
  std::printf("| %s | of the prediction | %.2f | %.2f | | | |\n", name,
              at(rounds[2], 50, of_prediction), at(rounds[2], 90, of_prediction));
}

int run(const Options& options) {
  save_documents(options, options.n_rounds * static_cast<u32>(kPhases.size()));
  std::array<std::unique_ptr<tools::OwnEngine>, 3> engines;
  for (u32 i = 0; i < engines.size(); ++i)
    engines[i] = std::make_unique<tools::OwnEngine>(options.model,
                                                    config_of(options, static_cast<Choice>(i)));
  std::printf("%u tokens, %u rounds a phase, %u processes at the disk\n", options.n_tokens,
              options.n_rounds, options.n_hammers);
  std::printf(
      "| box | engine | first token p50, ms | p90 | of the best fixed | a token, ms | read |\n"
      "|---|---|---|---|---|---|---|\n");
  u64 document = 0;
  for (const Phase& phase : kPhases) {
    const Others others(options.store, phase.hammers_disk ? options.n_hammers : 0,
                        u32{phase.hammers_core});
    Rounds rounds;
    for (u32 round = 0; round < options.n_rounds; ++round) {
      ++document;
      for (u32 turn = 0; turn < engines.size(); ++turn) {
        const u32 i = (round + turn) % 3;
        Engine& engine = engines[i]->get();
        std::vector<u32> ids = random_ids(document, options.n_tokens, engine.spec().n_vocab);
        for (const u32 id : random_ids(99 + document, kQuestion, engine.spec().n_vocab))
          ids.push_back(id);
        rounds[i].push_back(ask(engine, ids));
      }
    }
    print_phase(phase.name, rounds);
  }
  for (const Choice choice : {Choice::reads, Choice::computes, Choice::decides})
    std::filesystem::remove_all(folder_of(options, choice));
  std::filesystem::remove(options.store + "/hammered");
  return 0;
}

}  // namespace
}  // namespace tarn

int main(int argc, char** argv) {
  using namespace tarn;
  Options options;
  bench::parse_options(argc, argv,
                       {.texts = {{"--model", &options.model},
                                  {"--store", &options.store},
                                  {"--config", &options.config}},
                        .numbers = {{"--tokens", &options.n_tokens},
                                    {"--rounds", &options.n_rounds},
                                    {"--hammers", &options.n_hammers}}});
  if (options.store.empty() || options.config.empty() || options.model.empty()) {
    std::fprintf(stderr, "control_bench: give --model FILE --store DIR --config FILE\n");
    return 64;
  }
  return bench::run_as("control_bench", [&] { return run(options); });
}
