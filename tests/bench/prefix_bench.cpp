// The gain and cost of reusing prefixes (kv/prefixes.h). Prints a table a part:
//
//   prefix_bench [--model FILE] [--store DIR] [--tokens N] [PART...]
//
//   share     8 sessions with one prefix of N tokens: time to the first token, bytes of KV
//   disk      the prefix is only on the disk: time to the first token, beside reading its bytes,
//             and beside the question's rows over a prefix in memory
//   tenants   two tenants with one prompt, in turn: time to the first token of either
//   lookup    the look-up of 128K tokens of a 32-layer model, all pages in memory
//
// Build with -DTARN_BENCH=ON, link with mimalloc or not.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/kv/kv_cache.h"
#include "runtime/lab/probe.h"
#include "tests/bench/engine_bench.h"
#include "tests/bench/options.h"
#include "tests/support/carved.h"

namespace tarn {
namespace {

using bench::ask;
using bench::Asked;
using bench::now_s;
using bench::random_ids;
using engine::Engine;
using engine::SessionIdx;

std::string model_path, store_dir;
u32 n_tokens = 4096;

f64 median(std::vector<f64> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Config config_of(bool stores) {
  Config config;
  config.context_tokens = 4 * u64{n_tokens};
  config.sessions_max = 8;
  config.budget_bytes = 16 * kGiB;
  if (!stores) return config;
  std::copy(store_dir.begin(), store_dir.end(), config.store.path.begin());
  config.store.quota_bytes = 8 * kGiB;
  config.store.sessions = true;
  return config;
}

// The first token after a prompt. `out`: the session stays.
Asked ask_first(Engine& engine, const std::vector<u32>& ids, SessionIdx* out,
                const char* tenant = "") {
  const Asked asked = ask(engine, ids, 1, tenant);
  if (out != nullptr) {
    *out = asked.session;
  } else {
    engine.sessions().destroy(asked.session);
  }
  return asked;
}

std::vector<u32> with_question(std::vector<u32> document, u64 seed, u32 n_vocab) {
  const std::vector<u32> question = random_ids(seed, 20, n_vocab);
  document.insert(document.end(), question.begin(), question.end());
  return document;
}

void share() {
  tools::OwnEngine own(model_path, config_of(false));
  Engine& engine = own.get();
  const u32 n_vocab = engine.spec().n_vocab;
  const std::vector<u32> document = random_ids(1, n_tokens, n_vocab);
  std::printf(
      "| session | first token, s | of the first one's | reused | KV held, MiB |\n"
      "|---|---|---|---|---|\n");
  f64 first_s = 0;
  for (u32 i = 0; i < 8; ++i) {
    SessionIdx session = 0;
    const Asked asked = ask_first(engine, with_question(document, 10 + i, n_vocab), &session);
    if (i == 0) first_s = asked.first_s;
    const kv::GroupPool& pool = lab::Probe::pool(engine);
    const u64 n_bytes = u64{pool.groups_max() - pool.groups_free()} * pool.shape().group_bytes();
    std::printf("| %u | %.3f | %.2f %% | %u | %.1f |\n", i + 1, asked.first_s,
                100 * asked.first_s / first_s, asked.reused.n_tokens(),
                static_cast<f64>(n_bytes) / kMiB);
  }
}

// MB/s of reading the store's file past the page cache, as much as the prefix takes.
f64 disk_seconds(u64 n_bytes) {
  const std::string path = store_dir + "/" + kSessionsFile;
  const int file = ::open(path.c_str(), O_RDONLY | O_DIRECT);
  if (file < 0) std::exit(74);
  constexpr u64 kPiece = 4 * kMiB;
  void* buffer = std::aligned_alloc(4096, kPiece);
  const f64 start_s = now_s();
  for (u64 at = 0; at < n_bytes; at += kPiece) {
    if (::pread(file, buffer, kPiece, static_cast<off_t>(at)) <= 0) break;
  }
  const f64 took_s = now_s() - start_s;
  std::free(buffer);
  ::close(file);
  return took_s;
}

void disk() {
  std::filesystem::remove(store_dir + "/" + kSessionsFile);
  u32 n_vocab = 0;
  std::vector<u32> document;
  {
    tools::OwnEngine own(model_path, config_of(true));
    n_vocab = own.get().spec().n_vocab;
    document = random_ids(1, n_tokens, n_vocab);
    SessionIdx session = 0;
    const Asked cold = ask_first(own.get(), with_question(document, 2, n_vocab), &session);
    tools::value_of(own.get().save(session, "document"));
    std::printf("computed: first token after %.3f s\n", cold.first_s);
  }
  std::printf(
      "| round | bytes, MiB | bytes at the disk's speed, s | question over memory, s | "
      "first token, s | share of their sum |\n|---|---|---|---|---|---|\n");
  for (u32 round = 0; round < 5; ++round) {
    tools::OwnEngine own(model_path, config_of(true));
    Engine& engine = own.get();
    const kv::GroupShape& shape = lab::Probe::pool(engine).shape();
    const u64 n_bytes = u64{n_tokens / shape.page_tokens} * engine.spec().n_cache_layers *
                        (shape.group_bytes() + store::kSectorBytes);
    const f64 read_s = disk_seconds(n_bytes);
    const Asked asked = ask_first(engine, with_question(document, 100 + round, n_vocab), nullptr);
    const Asked warm = ask_first(engine, with_question(document, 200 + round, n_vocab), nullptr);
    std::printf("| %u | %.1f | %.3f | %.3f | %.3f (%u from the disk) | %.2f |\n", round + 1,
                static_cast<f64>(n_bytes) / kMiB, read_s, warm.first_s, asked.first_s,
                asked.reused.n_from_disk, asked.first_s / (read_s + warm.first_s));
  }
}

void tenants() {
  n_tokens = std::min(n_tokens, 512u);
  tools::OwnEngine own(model_path, config_of(false));
  Engine& engine = own.get();
  std::vector<f64> first, second, same;
  for (u32 round = 0; round < 9; ++round) {
    const std::vector<u32> prompt = random_ids(round, n_tokens, engine.spec().n_vocab);
    const bool swaps = round % 2 == 1;
    const f64 a_s = ask_first(engine, prompt, nullptr, swaps ? "b" : "a").first_s;
    const f64 b_s = ask_first(engine, prompt, nullptr, swaps ? "a" : "b").first_s;
    first.push_back(a_s), second.push_back(b_s);
    same.push_back(ask_first(engine, prompt, nullptr, "a").first_s);
  }
  std::printf("| who asks | median to the first token, s | of 9: least, most |\n|---|---|---|\n");
  const auto row = [](const char* who, const std::vector<f64>& of) {
    const auto [least, most] = std::ranges::minmax(of);
    std::printf("| %s | %.4f | %.4f, %.4f |\n", who, median(of), least, most);
  };
  row("a tenant", first);
  row("another tenant, the same prompt", second);
  row("the first one again", same);
}

void lookup() {
  constexpr u32 kLayers = 32, kPageTokens = 64, kPages = 2048;
  const kv::GroupShape shape{.n_kv_heads = 1, .page_tokens = kPageTokens, .vector_bytes = 2};
  const kv::KvSizes sizes{.shape = shape,
                          .groups_max = kLayers * (kPages + 1),
                          .sessions_max = 2,
                          .n_cache_layers = kLayers,
                          .context_tokens = kPages * kPageTokens,
                          .n_pages = kPages + 1,
                          .reuses = true};
  kv::KvTables tables;
  const auto memory =
      test::carved([&](Carver& carver) { tables = kv::KvTables::carve(carver, sizes); });
  std::vector<std::byte> groups(u64{sizes.groups_max} * shape.group_bytes());
  kv::KvCache kv;
  kv.init({.sizes = sizes, .tables = tables});
  kv.pool().lie_in(groups);
  const std::vector<u32> ids = random_ids(1, kPages * kPageTokens, 128'000);
  const store::Key root{.low = 1, .high = 2};
  std::vector<f64> listed, found;
  for (u32 round = 0; round < 5; ++round) {
    std::array<kv::Sequence, 2> sequences;
    for (u32 i = 0; i < 2; ++i) {
      sequences[i].init(&kv.pool(), kLayers, sizes.context_tokens,
                        Carver::row(tables.sequences, 2, i));
    }
    if (!sequences[0].reserve(kPages * kPageTokens)) std::exit(70);
    sequences[0].commit(kPages * kPageTokens);
    f64 start_s = now_s();
    kv.prefixes().list(sequences[0], root, ids, 0, kPages);
    listed.push_back(1e3 * (now_s() - start_s));
    start_s = now_s();
    const kv::Reused reused = kv.prefixes().take(sequences[1], root, ids);
    found.push_back(1e3 * (now_s() - start_s));
    if (reused.n_from_memory != ids.size()) std::exit(70);
    for (kv::Sequence& sequence : sequences) sequence.clear();
    while (kv.prefixes().index().free_one()) {
    }
  }
  std::printf(
      "128K tokens, 32 layers: look-up and taking %.2f ms, listing %.2f ms (medians of 5)\n",
      median(found), median(listed));
}

int run(int argc, char** argv) {
  const std::vector<std::string> parts =
      bench::parse_options(argc, argv,
                           {.texts = {{"--model", &model_path}, {"--store", &store_dir}},
                            .numbers = {{"--tokens", &n_tokens}}});
  for (const std::string& part : parts) {
    std::printf("\n## %s\n", part.c_str());
    if (part == "share") share();
    if (part == "disk") disk();
    if (part == "tenants") tenants();
    if (part == "lookup") lookup();
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tarn

int main(int argc, char** argv) {
  return tarn::bench::run_as("prefix_bench", [&] { return tarn::run(argc, argv); });
}
