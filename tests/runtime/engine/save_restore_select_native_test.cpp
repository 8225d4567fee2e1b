// Goal    a kept conversation that was decoded by selection goes on, in another engine, with the
//         bits that it would have had. An engine that selects otherwise, or not at all, computes
//         all of that anew from the tokens, exactly. (Cuts, forks and saves at any moment:
//         sim/select_random.)
// Method  inputs and answers that select, saved and restored over one simulated disk, with frames
//         for all KV and for a part, by several methods, with one codebook and with several; saved
//         where an index is being made, and where it has just come into use; logits as bytes.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "platform/base/checked.h"
#include "tests/fuzz/session_bytes.h"

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"
#include "tests/support/method_rows.h"
#include "tests/support/pack_of_one.h"
#include "tests/support/slow_build.h"
#include "tests/support/temp_dir.h"
#include "tools/support/input.h"

namespace tarn::engine::save_restore_select_native_test {
namespace {

using test::SavedLife;
using test::SimDisk;
using test::SmallModel;

struct Case {
  const char* name;
  SelectMethod method;  // kPq: and by every other trained method
  bool few_frames;
  u32 n_first;  // tokens of the first answer: the swap is 4 after the input's end
  u32 n_turns;  // more of them
  u32 n_last;   // tokens of their answers
  u32 n_cut;    // tokens that are cut off in the end
  u32 n_fed;    // and that are fed, and computed, before it is saved
};
constexpr SelectMethod kPq = SelectMethod::pq;
// clang-format off
constexpr Case kCases[] = {
    {"in memory",                kPq, false, 20, 2, 30, 0, 0},
    {"over a disk",              kPq, true, 20, 2, 30, 0, 0},
    {"being made",               kPq, false, 3, 0, 0, 0, 0},
    {"about to serve",           kPq, false, 4, 0, 0, 0, 0},
    {"come into use",            kPq, true, 6, 0, 0, 0, 0},
    {"a rebuild under way",      kPq, false, 20, 1, 3, 0, 0},
    {"a turn while one is made", kPq, false, 2, 1, 1, 0, 0},
    {"an input at rest",         kPq, false, 20, 1, 30, 0, 70},
    {"cut behind the swap",      kPq, false, 20, 0, 0, 9, 0},
    {"cut before the swap",      kPq, false, 20, 0, 0, 18, 0},
    {"pages",                    SelectMethod::quest, true, 20, 2, 30, 0, 0},
    {"a window",                 SelectMethod::window, false, 20, 2, 30, 0, 0},
};
// clang-format on

test::SavedHow how_of(const Case& c, const char* trained = "pq") {
  SelectConfig select = test::saved_select();
  select.method = c.method;
  if (c.method == kPq) lab::set_method(select, trained);
  return {.few_frames = c.few_frames, .select = select};
}

std::vector<u32> ids_of(SavedLife& life, SessionIdx session) {
  const Session& state = life.engine().sessions().state(session);
  return {state.tokens.ids.begin(), state.tokens.ids.begin() + state.tokens.n_ids};
}

void talk(SavedLife& life, SessionIdx session, const Case& c) {
  REQUIRE(life.engine().sessions().feed(session, test::random_ids(300, 300)).has_value());
  life.generate(session, c.n_first, 0.8f);
  for (u32 turn = 0; turn < c.n_turns; ++turn) {
    const u32 n = turn == 0 ? 141 : 90;
    REQUIRE(life.engine().sessions().feed(session, test::random_ids(n, n)).has_value());
    life.generate(session, c.n_last, 0.8f);
  }
  const u32 n_ids = life.engine().sessions().state(session).tokens.n_ids;
  REQUIRE(life.engine().sessions().truncate(session, n_ids - c.n_cut).has_value());
  if (c.n_fed == 0) return;
  REQUIRE(life.engine().sessions().feed(session, test::random_ids(9, c.n_fed)).has_value());
  life.open.run();
}

// The answer goes on, others come, and in the end it is cut back into its first one.
struct Rest {
  std::vector<u32> answer, from_first;
  test::Second second;
};
Rest go_on(SavedLife& life, SessionIdx session) {
  Rest rest;
  rest.answer = life.generate(session, 13, 0.8f);
  rest.second = test::second_part(life, session);
  REQUIRE(life.engine().sessions().truncate(session, 302).has_value());
  rest.from_first = life.generate(session, 12, 0.8f);
  return rest;
}

TEST_CASE("a kept conversation that selected goes on as if it had never been saved") {
  const SmallModel model("llama", "q8_0");
  test::each_method(&test::MethodRow::trains, [&](const char* trained) {
    for (const Case& c : kCases) {
      if (c.method != kPq && trained != std::string_view("pq")) continue;
      CAPTURE(c.name);
      SimDisk disk(1);
      Rest want;
      u32 first_approx_slot = 0;
      {
        SavedLife first(model, how_of(c, trained), disk);
        const SessionIdx saved = test::create(first);
        talk(first, saved, c);
        first_approx_slot = first.engine().sessions().state(saved).approx.first_slot;
        REQUIRE(first.engine().sessions().save(saved, "talk").has_value());
        want = go_on(first, saved);
      }
      SavedLife second(model, how_of(c, trained), disk);
      const SessionIdx restored = second.restore();
      const Session& state = second.engine().sessions().state(restored);
      CHECK(state.approx.first_slot == first_approx_slot);
      CHECK(state.n_pending() <= 1);
      const Rest got = go_on(second, restored);
      CHECK(want.answer == got.answer);
      test::require_same(want.second, got.second);
      CHECK(want.from_first == got.from_first);
      CHECK(state.approx.is_any());
    }
  });
}

// An exported session whose state was changed under good checksums: nothing that it says of its
// index may do more than make it be forgotten.
void restore_changed(const SmallModel& model, const Case& c) {
  const test::TempDir folder("save_restore_select");
  std::filesystem::create_directory(folder.path());
  const std::string path = folder.path() + "/talk.session";
  u32 n_tokens = 0;
  {
    SimDisk disk(1);
    SavedLife life(model, how_of(c), disk);
    const SessionIdx session = test::create(life);
    talk(life, session, c);
    n_tokens = life.engine().sessions().state(session).tokens.n_ids;
    REQUIRE(life.engine().sessions().save(session, "talk").has_value());
    REQUIRE(test::export_session(life, "talk", path.c_str()).has_value());
  }
  const std::string good = test::session_of(tools::read_file(path));
  reuse::SessionFileHead head;
  std::memcpy(&head, good.data(), sizeof head);
  // Its index stands in front of the answers and the model's name.
  const u64 manifest = store::kSectorBytes;
  u32 model_bytes = 0;  // of its name, behind the answers
  std::memcpy(&model_bytes, good.data() + manifest + 192, sizeof model_bytes);
  const u64 index = manifest + head.manifest_bytes - align_up(model_bytes, 8) -
                    sizeof(reuse::ManifestAnswer) - sizeof(reuse::ManifestIndex);
  std::vector<u64> places;
  for (u64 word = 0; word < 12; ++word) places.push_back(index + word * 4);
  for (const u64 word : {156u, 160u, 164u, 168u, 172u, 176u}) places.push_back(manifest + word);
  u32 n_taken = 0, n_lossy = 0;
  const u32 step = test::kSlowBuild ? 9 : 1;
  for (u64 i = 0; i < places.size() * 8; i += step) {
    CAPTURE(i);
    u32 was = 0;
    std::memcpy(&was, good.data() + places[i / 8], sizeof was);
    const u32 values[] = {0, 1, was - 1, was + 1, n_tokens - 1, n_tokens, n_tokens + 1, ~u32{0}};
    std::string bad = good;
    std::memcpy(bad.data() + places[i / 8], &values[i % 8], sizeof was);
    test::mend_session(crc32c_ways()[0], {}, std::as_writable_bytes(std::span(bad)));
    std::ofstream(path, std::ios::binary) << test::pack_of_one(bad);
    SimDisk disk(2);
    SavedLife life(model, how_of(c), disk);
    Engine& engine = life.engine();
    if (!engine.archive().import_from(path.c_str(), {}, "talk")) continue;
    const auto restored = engine.sessions().restore("talk");
    if (!restored) continue;
    ++n_taken;
    n_lossy += engine.sessions().state(restored->idx).approx.is_any();
    const auto cut_fork = [&](u32 n_left) {
      const auto fork = engine.sessions().fork(restored->idx);
      REQUIRE(fork.has_value());
      REQUIRE(engine.sessions().truncate(*fork, n_left).has_value());
      life.generate(*fork, 9);
      engine.sessions().destroy(*fork);
    };
    if (engine.sessions().state(restored->idx).state == SessionState::computing) life.open.run();
    cut_fork(100);  // before its index is made again
    life.generate(restored->idx, 9);
    REQUIRE(engine.sessions().feed(restored->idx, test::random_ids(1, 120)).has_value());
    life.generate(restored->idx, 9);
    for (const u32 n_left : {320u, 100u}) cut_fork(n_left);
    (void)engine.sessions().save(restored->idx, "talk");
  }
  MESSAGE(n_taken, " restored, ", n_lossy, " of them as they said that they were");
  CHECK(n_taken > n_lossy);
  CHECK(n_lossy > 0);
}

TEST_CASE("a state that no session can have had is restored by nobody, and ends nothing") {
  const SmallModel model("llama", "q8_0");
  restore_changed(model, {"a rebuild under way", kPq, false, 20, 1, 3, 0, 0});
  restore_changed(model, {"one answer", kPq, false, 20, 0, 0, 0, 0});
}

// Records of groups that a store has.
u32 n_groups_kept(SavedLife& life) {
  const store::RecordIndex& index = lab::Probe::tiers(life.engine()).store.store().index();
  u32 n = 0;
  for (u32 frame = 0; frame < index.n_frames(); ++frame) {
    const store::IndexEntry& entry = index.frame(frame);
    n += entry.life == store::Life::published && entry.kind == store::Kind::group;
  }
  return n;
}

TEST_CASE("of a session that selects the store has each page once, and one tail") {
  constexpr u32 kLayers = 2;
  const SmallModel model("llama", "q8_0");
  SimDisk disk(1);
  SavedLife life(model, how_of(kCases[0]), disk);
  const SessionIdx session = test::create(life);
  talk(life, session, kCases[0]);
  for (u32 i = 0; i < 5; ++i) {
    REQUIRE(life.engine().sessions().save(session, "talk").has_value());
    const u32 n_slots = life.engine().sessions().state(session).sequence.n_slots();
    CHECK(n_groups_kept(life) == ceil_div(n_slots, test::kSavedPage) * kLayers);
    // Once more writes its manifest alone.
    const store::StoreStats& stats = lab::Probe::tiers(life.engine()).store.store().stats();
    const u64 n_puts = stats.n_puts;
    REQUIRE(life.engine().sessions().save(session, "talk").has_value());
    CHECK(lab::Probe::tiers(life.engine()).store.store().stats().n_puts == n_puts + 1);
    life.generate(session, 7);
  }
  // Under another name it is another session: the first one's tail stays.
  const u32 n_before = n_groups_kept(life);
  REQUIRE(life.engine().sessions().save(session, "other").has_value());
  CHECK(n_groups_kept(life) > n_before);
}

// What an engine that has never selected says of the same tokens.
TEST_CASE("what an engine cannot use is computed anew from the tokens") {
  struct Other {
    const char* name;
    void (*change)(SelectConfig& select);
  };
  const Other others[] = {
      {"full", [](SelectConfig& select) { select.method = SelectMethod::full; }},
      {"more tokens", [](SelectConfig& select) { select.k = 64; }},
      {"more updates", [](SelectConfig& select) { select.iterations = 5; }},
      {"more parts", [](SelectConfig& select) { select.n_subspaces = 4; }},
  };
  const SmallModel model("llama", "q8_0");
  const Case& c = kCases[1];
  for (const Other& other : others) {
    CAPTURE(other.name);
    SimDisk disk(1);
    std::vector<u32> ids;
    {
      SavedLife first(model, how_of(c), disk);
      const SessionIdx saved = test::create(first);
      talk(first, saved, c);
      ids = ids_of(first, saved);
      REQUIRE(first.engine().sessions().save(saved, "talk").has_value());
    }
    test::SavedHow how = how_of(c);
    other.change(how.select);
    SavedLife whole(model, how);
    const SessionIdx one_input = test::create(whole);
    REQUIRE(whole.engine().sessions().feed(one_input, ids).has_value());
    whole.open.run();
    SavedLife second(model, how, disk);
    const SessionIdx restored = second.restore();
    CHECK_FALSE(second.engine().sessions().state(restored).approx.is_any());
    CHECK(second.engine().sessions().state(restored).sequence.n_slots() >= 288);
    second.open.run();
    const std::vector<u32> answer = whole.generate(one_input, 24);
    CHECK(second.generate(restored, 24) == answer);
    test::require_same(test::second_part(whole, one_input), test::second_part(second, restored));
  }
}

}  // namespace
}  // namespace tarn::engine::save_restore_select_native_test
