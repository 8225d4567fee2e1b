// Goal    who waits for a place finds what the disk has of its prompt in memory when it gets one,
//         in the order of turns, as far as memory has room; and nobody evicts its KV meanwhile. No
//         bit of an answer shows it.
// Method  a disk in virtual time, one place, an answer that runs while documents on the disk wait:
//         after each step, what of each document is in memory. Two documents in memory without a
//         session and room for one of them beside the next prompt: the older one stays, whose
//         session waits.
#include <doctest/doctest.h>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"

namespace tarn::engine::look_ahead_native_test {
namespace {

using step::Priority;
using test::Answer;
using test::random_ids;
using test::read_answer;
using test::SavedHow;
using test::SavedLife;
using test::SimDisk;
using test::SmallModel;

constexpr u32 kPage = test::kSavedPage, kLayers = 2, kFrameBytes = 8192;
constexpr u32 kPages = 24;  // of a document: more groups than reads that are under way
constexpr u32 kRunning = 6 * kPage;

// The document, and a question: no page ends with it.
std::vector<u32> document(u64 seed, bool is_asked = true) {
  std::vector<u32> ids = random_ids(seed, kPages * kPage + 1);
  const std::vector<u32> question = random_ids(99, 7);
  if (is_asked) ids.insert(ids.end(), question.begin(), question.end());
  return ids;
}

SavedHow with_frames(u32 n_frames) {
  SavedHow how{.context_tokens = 2048};
  how.kv_memory_bytes = u64{n_frames} * kFrameBytes;
  how.also = [](Config& config) {
    config.running_max = 1;
    config.sessions_max = 5;
  };
  return how;
}

SessionIdx create_with(SavedLife& life, Priority priority, const std::vector<u32>& ids) {
  const SessionIdx idx = *life.engine().sessions().create({.priority = priority});
  REQUIRE(life.engine().sessions().feed(idx, ids).has_value());
  return idx;
}

void save_documents(const SmallModel& model, const SavedHow& how, SimDisk& disk, u64 n) {
  SavedLife life(model, how, disk);
  for (u64 seed = 1; seed <= n; ++seed) {
    const SessionIdx idx = create_with(life, Priority::interactive, document(seed, false));
    life.open.run();
    REQUIRE(life.engine().sessions().save(idx, "document" + std::to_string(seed)).has_value());
    life.engine().sessions().destroy(idx);
  }
}

Answer alone(const SmallModel& model, const std::vector<u32>& ids) {
  SavedLife life(model, {.reuses = false});
  const SessionIdx idx = create_with(life, Priority::interactive, ids);
  return read_answer(life, idx, {.max_tokens = 4, .ignore_end = true});
}

// Groups of a session's KV that are in memory.
u32 n_here(SavedLife& life, SessionIdx idx) {
  const kv::Sequence& sequence = life.engine().sessions().state(idx).sequence;
  const kv::Residency& residency = lab::Probe::tiers(life.engine()).residency;
  u32 n = 0;
  for (u32 layer = 0; layer < kLayers; ++layer) {
    for (u32 at = 0; at < sequence.n_slots() / kPage; ++at)
      n += residency.where(sequence.group(layer, at).idx) == kv::Where::both;
  }
  return n;
}

TEST_CASE("documents of who waits are read in the order of turns, as far as memory has room") {
  constexpr u32 kGroups = kLayers * kPages, kPinSets = 2 * plan::kTierPinSetGroups;
  struct Case {
    const char* name;
    u32 n_frames;
    std::array<u32, 2> n_here;  // groups of each document, before its turn
  };
  // Both sides of the border: the pin sets, pages of the answer and of each document with its tail.
  constexpr u32 kBeside = kPinSets + kLayers * (kRunning / kPage), kOne = kGroups + kLayers;
  constexpr Case kCases[] = {{"room for both", kBeside + 2 * kOne, {kGroups, kGroups}},
                             {"not for the second", kBeside + 2 * kOne - 1, {kGroups, 0}},
                             {"room for one", kBeside + kOne, {kGroups, 0}},
                             {"not for the first", kBeside + kOne - 1, {0, 0}}};
  const SmallModel model("llama", "q8_0", 1, kLayers);
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    const SavedHow how = with_frames(c.n_frames);
    SimDisk disk(1);
    save_documents(model, how, disk, 2);
    SavedLife life(model, how, disk);
    Engine& engine = life.engine();
    REQUIRE(engine.plan().tiers.pin_set_groups == plan::kTierPinSetGroups);
    disk.script.latency_ns_min = disk.script.latency_ns_max = 500'000;
    const SessionIdx runs = create_with(life, Priority::interactive, random_ids(7, kRunning - 15));
    REQUIRE(engine.sessions().generate(runs, {.max_tokens = 12, .ignore_end = true}).has_value());
    engine.step();
    const std::array<SessionIdx, 2> wait = {create_with(life, Priority::interactive, document(1)),
                                            create_with(life, Priority::interactive, document(2))};
    for (const SessionIdx idx : wait) CHECK(engine.sessions().state(idx).waits());
    u32 n_first_alone = 0;
    while (engine.sessions().state(runs).state == SessionState::generating) {
      engine.step();
      if (engine.sessions().state(wait[0]).run.is_admitted) break;
      const u32 first = n_here(life, wait[0]), second = n_here(life, wait[1]);
      CHECK((second == 0 || first == kGroups));
      n_first_alone += first > 0 && second == 0;
      life.clock.advance_ns(1'000'000);
    }
    CHECK((n_first_alone > 0) == (c.n_here[0] > 0));
    const u64 n_waited = engine.status().kv.moved.n_waited;
    CHECK(std::array{n_here(life, wait[0]), n_here(life, wait[1])} == c.n_here);
    for (u64 i = 0; i < wait.size(); ++i) {
      const Answer answer = read_answer(life, wait[i], {.max_tokens = 4, .ignore_end = true});
      CHECK(answer == alone(model, document(i + 1)));
      CHECK(answer.reused.n_from_disk == kPages * kPage);
      if (c.n_here[i] > 0) CHECK(engine.status().kv.moved.n_waited == n_waited);
    }
    const kv::KvCache& kv = lab::Probe::kv(engine);
    kv.prefixes().index().check_invariants();
    kv.pool().check_invariants();
  }
}

TEST_CASE("KV of who waits is not dropped for what comes before it while older KV of nobody is") {
  constexpr u32 kContextPages = 80;
  struct Case {
    const char* name;
    u32 n_before;            // pages of what comes before
    u32 n_least, n_at_most;  // pages that are not computed again
  };
  constexpr u32 kLeft = kContextPages + 5 - 70;  // a page more for each session
  constexpr Case kCases[] = {{"there is older KV of nobody", 50, kPages, kPages},
                             {"there is not enough of it", 70, 0, kLeft}};
  const SmallModel model("llama", "q8_0", 1, kLayers);
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    SavedHow how = with_frames(0);
    how.context_tokens = kContextPages * kPage;
    SavedLife life(model, how);
    Engine& engine = life.engine();
    for (const u64 seed : {u64{1}, u64{2}}) {
      const SessionIdx idx = create_with(life, Priority::interactive, document(seed, false));
      life.open.run();
      engine.sessions().destroy(idx);
    }
    const SessionIdx runs = create_with(life, Priority::interactive, random_ids(7, kRunning - 15));
    REQUIRE(engine.sessions().generate(runs, {.max_tokens = 10, .ignore_end = true}).has_value());
    engine.step();
    const SessionIdx waits = create_with(life, Priority::background, document(1));
    engine.step();
    CHECK(engine.sessions().state(waits).sequence.n_slots() == kPages * kPage);
    const SessionIdx before =
        create_with(life, Priority::interactive, random_ids(8, c.n_before * kPage));
    while (!engine.sessions().state(before).run.is_admitted) engine.step();
    CHECK(engine.sessions().state(waits).waits());
    const Answer answer = read_answer(life, waits, {.max_tokens = 4, .ignore_end = true});
    CHECK(answer == alone(model, document(1)));
    CHECK(answer.reused.n_tokens() >= c.n_least * kPage);
    CHECK(answer.reused.n_tokens() <= c.n_at_most * kPage);
    const SessionIdx last = create_with(life, Priority::interactive, document(2));
    CHECK(read_answer(life, last, {.max_tokens = 4, .ignore_end = true}).reused.n_tokens() <
          kPages * kPage);
  }
}

}  // namespace
}  // namespace tarn::engine::look_ahead_native_test
