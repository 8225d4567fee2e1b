// Goal    a row that selects is attention over exactly the slots that its method names, with K and
//         V of those slots and not of their ranks, each head its own, and the query turned to its
//         token's position, not to the number of slots that are read (METHODS 14.1, A4 and A5).
// Method  a small model's logits against the f64 model under the same rule of what is read: a
//         window, which every head shares, and a random choice, which differs from head to head;
//         and against rules that are wrong by a slot, a head or a row, which must be much further
//         away. (Of Quest's, the codes' and exact choices, other tests have the slots.)
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "platform/base/random_at.h"
#include "runtime/lab/methods.h"
#include "runtime/lab/probe.h"
#include "runtime/method/token_ranges.h"
#include "tests/support/logits.h"
#include "tests/support/open_engine.h"
#include "tests/support/reference_model.h"
#include "tests/support/slow_build.h"

namespace tarn::engine::selected_logits_native_test {
namespace {

using test::OpenEngine;
using test::ReferenceModel;
using test::SmallModel;

constexpr u32 kPrompt = 90, kGenerated = 24, kSinks = 4, kLocal = 8, kChosen = 16, kSwap = 4;
constexpr u32 kVocab = 1024;
constexpr u32 kFirstSelecting = kPrompt + kSwap - 1;  // the position of the first row that selects

Config config_of(const char* method) {
  Config config = test::small_config();
  lab::set_method(config.select, method);
  config.select.code_bits = 2;
  config.select.n_sinks = kSinks;
  config.select.n_local = kLocal;
  config.select.k = kChosen;
  config.select.index_delay_tokens = kSwap;
  return config;
}

// What the engine says, and the logits of every row that selected.
struct Said {
  std::vector<u32> ids;
  std::vector<f32> logits;
};

Said said_of(const SmallModel& model, const char* method) {
  OpenEngine open(model.path(), config_of(method));
  Said said{.ids = test::random_ids(5, kPrompt), .logits = {}};
  const SessionIdx session = open.session_with(said.ids);
  test::LogitsRecord record;
  lab::Probe(open.engine).watch_logits(session, &test::LogitsRecord::on_logits, &record);
  REQUIRE(open.engine.sessions()
              .generate(session, {.max_tokens = kGenerated, .ignore_end = true})
              .has_value());
  const std::vector<u32> tokens = test::read_all(open.engine, session).tokens;
  said.ids.insert(said.ids.end(), tokens.begin(), tokens.end() - 1);
  REQUIRE(record.rows.size() == said.ids.size());
  for (u64 i = kFirstSelecting; i < record.rows.size(); ++i) {
    said.logits.insert(said.logits.end(), record.rows[i].begin(), record.rows[i].end());
  }
  return said;
}

// Centred, relative.
f64 distance(const ReferenceModel& reference, const Said& said,
             const ReferenceModel::Reads& reads) {
  const std::vector<f64> want = reference.logits(said.ids, kFirstSelecting, reads);
  return test::logits_distance(want, said.logits, kVocab, 0.0).relative_l2;
}

u32 kv_heads(const SmallModel& model) {
  OpenEngine open(model.path(), config_of("full"));
  return open.engine.spec().n_kv_heads;
}

// The k best of a head's middle by the hash of the slot, the lowest of equal ones.
std::set<u64> drawn(u32 head, u32 n_tokens) {
  const method::TokenRanges s = method::token_ranges(n_tokens, kSinks, kLocal);
  const u64 seed = random_at(lab::kRandomSeed, head);
  std::vector<std::pair<u64, u64>> ranked;
  for (u64 slot = s.middle_begin; slot < s.middle_end; ++slot) {
    ranked.push_back({~(random_at(seed, slot) >> 40), slot});
  }
  std::sort(ranked.begin(), ranked.end());
  std::set<u64> slots;
  for (u32 i = 0; i < kChosen; ++i) slots.insert(ranked[i].second);
  return slots;
}

// Rounding of f16 KV and of f32 sums reached 2e-4; the nearest wrong rule is 0.02 away.
constexpr f64 kNear = 1e-3, kFar = 1e-2;

TEST_CASE("a window reads the first tokens and the last, and the query keeps its position") {
  const SmallModel model("llama", "f16");
  const ReferenceModel reference(model.path());
  const Said said = said_of(model, "window");
  const auto away = [&](u32 first_selecting, u32 n_sinks, u32 n_last) {
    return distance(reference, said, [&](const ReferenceModel::Read& read) {
      return read.position < first_selecting || read.slot < n_sinks ||
             read.slot + n_last > read.position;
    });
  };
  CHECK(away(kFirstSelecting, kSinks, kLocal + kChosen) < kNear);
  CHECK(away(kFirstSelecting - 1, kSinks, kLocal + kChosen) > kFar);
  CHECK(away(kFirstSelecting + 1, kSinks, kLocal + kChosen) > kFar);
  CHECK(away(kFirstSelecting, kSinks - 1, kLocal + kChosen) > kFar);
  CHECK(away(kFirstSelecting, kSinks + 1, kLocal + kChosen) > kFar);
  CHECK(away(kFirstSelecting, kSinks, kLocal + kChosen - 1) > kFar);
  CHECK(away(kFirstSelecting, kSinks, kLocal + kChosen + 1) > kFar);
  CHECK(away(kFirstSelecting, kSinks, kPrompt + kGenerated) > kFar);  // everything
}

TEST_CASE("of a scattered choice each head reads its own slots, in their places") {
  for (const char* arch : {"llama", "qwen2", "qwen3"}) {
    if (test::kSlowBuild && arch != std::string("llama")) continue;
    CAPTURE(arch);
    const SmallModel model(arch, "f16");
    const u32 n_kv_heads = kv_heads(model);
    const ReferenceModel reference(model.path());
    const Said said = said_of(model, "random");
    const auto away = [&](u32 head_shift, u32 slot_shift) {
      return distance(reference, said, [&](const ReferenceModel::Read& read) {
        if (read.position < kFirstSelecting) return true;
        const u32 n_tokens = static_cast<u32>(read.position) + 1;
        const method::TokenRanges s = method::token_ranges(n_tokens, kSinks, kLocal);
        if (read.slot < s.middle_begin || read.slot >= s.middle_end) return true;
        const u32 head = read.layer * n_kv_heads + read.kv_head;
        return drawn(head + head_shift, n_tokens).count(read.slot + slot_shift) > 0;
      });
    };
    CHECK(away(0, 0) < kNear);
    CHECK(away(1, 0) > kFar);
    CHECK(away(0, 1) > kFar);
  }
}

}  // namespace
}  // namespace tarn::engine::selected_logits_native_test
