// Goal    KV of a prefix is held once and computed once, by one tenant, and what was asked for
//         again reaches the disk. (No bit of an answer shows it: sim/reuse_random.)
// Method  counts of groups, rows and bytes of the disk; answers beside an engine that reuses
//         nothing.
#include <doctest/doctest.h>

#include "tests/runtime/engine/saved_life.h"

namespace tarn::engine::prefix_reuse_native_test {
namespace {

using test::Answer;
using test::create;
using test::random_ids;
using test::SavedHow;
using test::SavedLife;
using test::SimDisk;
using test::SmallModel;

constexpr u32 kPage = test::kSavedPage;
constexpr u32 kLayers = 2;

std::vector<u32> joined(std::vector<u32> a, const std::vector<u32>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Answer answer(SavedLife& life, SessionIdx session, const std::vector<u32>& ids, u32 n = 6) {
  REQUIRE(life.engine().sessions().feed(session, ids).has_value());
  GenerateParams params{.max_tokens = n, .ignore_end = true};
  params.sampler.temperature = 0.8f;
  params.sampler.seed = 3;
  return test::read_answer(life, session, params);
}

Answer alone(const SmallModel& model, SavedHow how, const std::vector<u32>& ids) {
  how.reuses = false;
  how.few_frames = false;
  SavedLife life(model, how);
  return answer(life, create(life), ids);
}

// A life that reads the document, saves it, and ends.
void save_document(const SmallModel& model, const SavedHow& how, SimDisk& disk,
                   const std::vector<u32>& document) {
  SavedLife life(model, how, disk);
  const SessionIdx session = create(life);
  REQUIRE(life.engine().sessions().feed(session, document).has_value());
  life.open.run();
  REQUIRE(life.engine().sessions().save(session, "document").has_value());
}

u32 groups_in_use(SavedLife& life) {
  const kv::GroupPool& pool = lab::Probe::pool(life.engine());
  return pool.groups_max() - pool.groups_free();
}
u64 bytes_written(SavedLife& life) {
  return lab::Probe::tiers(life.engine()).store.store().stats().bytes_written;
}
void check(SavedLife& life) {
  const kv::KvCache& kv = lab::Probe::kv(life.engine());
  kv.prefixes().index().check_invariants();
  kv.pool().check_invariants();
}

}  // namespace

TEST_CASE("sessions with one prefix hold its KV once, those at the same time too") {
  const SmallModel model("llama", "f16");
  Config config = test::small_config();
  config.page_tokens = kPage;
  config.context_tokens = 1024;
  config.sessions_max = 8;
  config.batch_rows_max = 128;
  const std::vector<u32> prompt = random_ids(1, 20 * kPage + 3);
  for (const bool at_once : {false, true}) {
    CAPTURE(at_once);
    test::OpenEngine open(model.path(), config);
    std::vector<SessionIdx> sessions;
    for (u32 i = 0; i < 3; ++i) {
      sessions.push_back(open.session_with(prompt));
      if (!at_once) open.run();
    }
    open.run();
    const kv::GroupPool& pool = lab::Probe::pool(open.engine);
    CHECK(pool.groups_max() - pool.groups_free() == kLayers * (20 + 3));
    for (u32 i = 3; i < 8; ++i) sessions.push_back(open.session_with(prompt));  // 64 pages in all
    open.run();
    CHECK(pool.groups_max() - pool.groups_free() == kLayers * (20 + 8));
    MESSAGE("8 sessions of ", prompt.size(),
            " tokens: ", (pool.groups_max() - pool.groups_free()) * pool.shape().group_bytes(),
            " bytes of KV, ", kLayers * 21 * pool.shape().group_bytes(), " for one");
    lab::Probe::kv(open.engine).prefixes().index().check_invariants();
  }
}

TEST_CASE("a prompt that a neighbour is computing is not computed again") {
  const SmallModel model("llama", "f16");
  const std::vector<u32> prompt = random_ids(1, 35 * kPage);
  SavedHow how{.rows_max = kPage};
  SavedLife life(model, how);
  const SessionIdx first = create(life);
  REQUIRE(life.engine().sessions().feed(first, prompt).has_value());
  for (u32 i = 0; i < 10; ++i) life.engine().step();
  const SessionIdx second = create(life);
  REQUIRE(life.engine().sessions().feed(second, prompt).has_value());
  CHECK_FALSE(life.engine().sessions().state(second).run.is_admitted);  // until the pages are there
  life.open.run();
  CHECK(life.engine().sessions().state(second).generation.reused.n_tokens() >= 34 * kPage);
  const u64 n_rows = life.engine().status().counters.n_prefill_rows;
  CHECK(n_rows <= prompt.size() + 2 * kPage);  // together hardly more than one alone
  CHECK(answer(life, second, random_ids(2, 5)) ==
        alone(model, how, joined(prompt, random_ids(2, 5))));
}

TEST_CASE("tenants share nothing; without the key nobody does") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> prompt = random_ids(1, 100);
  SavedLife life(model, {});
  const auto of = [&](const char* tenant) {
    return *life.engine().sessions().create({.tenant = tenant});
  };
  CHECK(answer(life, of("a"), prompt).reused.n_tokens() == 0);
  CHECK(answer(life, of("b"), prompt).reused.n_tokens() == 0);
  const SessionIdx again = of("a");
  CHECK(answer(life, again, prompt).reused.n_tokens() == 96);
  life.engine().sessions().destroy(again);
  CHECK(answer(life, of(""), prompt).reused.n_tokens() == 0);
  SavedHow off;
  off.reuses = false;
  SavedLife cold(model, off);
  answer(cold, create(cold), prompt);
  CHECK(answer(cold, create(cold), prompt).reused.n_tokens() == 0);
  CHECK(groups_in_use(cold) == 2 * kLayers * 7);
}

TEST_CASE("pages that a selection touched are never taken") {
  const SmallModel model("llama", "q8_0");
  SavedHow how;
  how.select = test::saved_select();
  const std::vector<u32> document = random_ids(1, 300);
  SimDisk disk(1);
  std::vector<u32> said;
  u32 first_approx = 0;
  {
    SavedLife life(model, how, disk);
    const SessionIdx first = create(life);
    said = answer(life, first, document, 100).tokens;
    first_approx = life.engine().sessions().state(first).approx.first_slot;
    REQUIRE(first_approx < 340);
    REQUIRE(life.engine().sessions().save(first, "talk").has_value());
    const Answer again = answer(life, create(life), joined(document, said));
    CHECK(again.reused.n_from_memory == first_approx / kPage * kPage);
  }
  SavedLife life(model, how, disk);
  const Answer again = answer(life, create(life), joined(document, said));
  CHECK(again.reused.n_from_disk == first_approx / kPage * kPage);
}

TEST_CASE("after a restart a prefix is found on the disk, whoever computed it") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> document = random_ids(1, 400), question = random_ids(2, 9);
  const std::vector<u32> asked = joined(document, question);
  for (const bool few_frames : {false, true}) {
    CAPTURE(few_frames);
    SavedHow how{.few_frames = few_frames};
    const Answer want = alone(model, how, asked);
    SimDisk disk(1);
    save_document(model, how, disk, document);
    SavedLife life(model, how, disk);
    const Answer again = answer(life, create(life), asked);
    CHECK(again == want);
    CHECK(again.reused.n_from_disk == 399 / kPage * kPage);
    // The second to ask finds in memory what has room there.
    const Answer third = answer(life, create(life), asked);
    CHECK(third == want);
    CHECK(third.reused.n_tokens() == asked.size() / kPage * kPage);
    if (!few_frames) CHECK(third.reused.n_from_disk == 0);
    check(life);
  }
}

TEST_CASE("what nobody asked for again is dropped, what was hit goes to the disk") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> document = random_ids(1, 300);
  for (const bool few_frames : {false, true}) {
    for (const bool is_hit : {false, true}) {
      CAPTURE(few_frames);
      CAPTURE(is_hit);
      SimDisk disk(1);
      SavedLife life(model, {.few_frames = few_frames, .context_tokens = 640}, disk);
      const u32 n_fit = few_frames ? 100 : 150;  // KV of so many tokens is in memory
      const std::vector<u32> text(document.begin(), document.begin() + n_fit);
      const auto say = [&](const std::vector<u32>& ids) {
        const SessionIdx session = create(life);
        Answer said = answer(life, session, ids);
        life.engine().sessions().destroy(session);
        life.open.run();
        return said;
      };
      const Answer want = say(text);
      if (is_hit) say(text);
      CHECK(bytes_written(life) == 0);
      for (u32 i = 0; i < 8; ++i) say(random_ids(100 + i, n_fit));
      if (!is_hit) CHECK(bytes_written(life) == 0);
      const Answer again = say(text);
      CHECK(again == want);
      if (is_hit) {
        CHECK(again.reused.n_tokens() == n_fit / kPage * kPage);
        CHECK(again.reused.n_from_disk > 0);
      } else {
        CHECK(again.reused.n_tokens() == 0);
      }
      check(life);
    }
  }
}

}  // namespace tarn::engine::prefix_reuse_native_test
