// Goal    KV on a disk that is slower than computing is computed, also where only reading it shows
//         how slow it is, and no bit of an answer shows it. What is computed anew of chunks follows
//         from length and profile, wherever they lie and whatever the disk did before; with
//         control.quality = "adaptive" from where they lie, and the log says so.
// Method  a disk in virtual time; answers beside an engine that reuses nothing; shares beside
//         control::recompute_share() of the profile's times by hand.
#include <doctest/doctest.h>

#include "runtime/control/costs.h"
#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"

namespace tarn::engine::control_native_test {
namespace {

using test::Answer;
using test::create;
using test::random_ids;
using test::SavedHow;
using test::SavedLife;
using test::SimDisk;
using test::SmallModel;

constexpr u32 kPage = test::kSavedPage, kLayers = 2;
constexpr u32 kProbe = 16 * kPage;                            // 64 requests of two a group
constexpr u32 kOnDisk = 24 * kPage, kDocument = kOnDisk + 1;  // its last token has no KV yet

Answer read(SavedLife& life, SessionIdx session) {
  return test::read_answer(life, session, {.max_tokens = 4, .ignore_end = true});
}

Answer ask(SavedLife& life, const std::vector<u32>& ids) {
  const SessionIdx session = create(life);
  REQUIRE(life.engine().sessions().feed(session, ids).has_value());
  const Answer answer = read(life, session);
  life.engine().sessions().destroy(session);
  return answer;
}

std::vector<u32> document(u64 seed) { return random_ids(seed, kDocument); }
std::vector<u32> asked(u64 seed) {
  std::vector<u32> ids = document(seed);
  const std::vector<u32> question = random_ids(99, 9);
  ids.insert(ids.end(), question.begin(), question.end());
  return ids;
}

Answer alone(const SmallModel& model, u64 seed) {
  SavedLife life(model, {.reuses = false});
  return ask(life, asked(seed));
}

// A life that reads documents with these seeds, saves them, and ends.
void save_documents(const SmallModel& model, const SavedHow& how, SimDisk& disk, u64 n) {
  SavedLife life(model, how, disk);
  for (u64 seed = 1; seed <= n; ++seed) {
    const SessionIdx session = create(life);
    REQUIRE(life.engine().sessions().feed(session, document(seed)).has_value());
    life.open.run();
    REQUIRE(life.engine().sessions().save(session, "document" + std::to_string(seed)).has_value());
    life.engine().sessions().destroy(session);
  }
}

void check(SavedLife& life) {
  const kv::KvCache& kv = lab::Probe::kv(life.engine());
  kv.prefixes().index().check_invariants();
  kv.pool().check_invariants();
}

// Microseconds of a request, and of a token and layer.
SavedHow on_box(f64 request_us, f64 token_us) {
  SavedHow how{.context_tokens = 2048};
  how.also = [=](Config& config) {
    config.box.disk_request_ns = static_cast<u64>(1e3 * request_us);
    config.box.layer.token_ps = static_cast<u64>(1e6 * token_us);
  };
  return how;
}

TEST_CASE(
    "KV on the disk is read where that is faster, else computed while a probe of it is read") {
  struct Case {
    const char* name;
    f64 request_us, token_us;
    u32 n_from_disk;
  };
  constexpr Case kCases[] = {{"no profile", 0, 0, kOnDisk},
                             {"only the disk is known", 1e6, 0, kOnDisk},
                             {"reading is faster", 1, 1000, kOnDisk},
                             {"computing is faster", 1000, 0.001, 0}};
  const SmallModel model("llama", "q8_0");
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    SimDisk disk(1);
    const SavedHow how = on_box(c.request_us, c.token_us);
    save_documents(model, how, disk, 1);
    SavedLife life(model, how, disk);
    const u64 n_rows = life.engine().status().counters.n_prefill_rows;
    const Answer first = ask(life, asked(1));
    CHECK(first == alone(model, 1));
    CHECK(first.reused.n_from_disk == c.n_from_disk);
    CHECK(first.reused.n_from_memory <= kProbe);  // what of the probe came before its rows
    CHECK(life.engine().status().counters.n_prefill_rows - n_rows ==
          asked(1).size() - first.reused.n_tokens());
    CHECK(life.engine().status().kv.moved.n_loads >= kLayers);
    const Answer second = ask(life, asked(1));  // now it is in memory
    CHECK(second == first);
    CHECK(second.reused.n_from_disk == 0);
    check(life);
  }
}

TEST_CASE("a disk that is slower than its profile says is seen to be, and seen again later") {
  constexpr u64 kDocuments = 6;
  const SmallModel model("llama", "q8_0");
  // By the profile 48 reads take 96 us, and 384 tokens 115 us in two layers. The disk's 20 to 200
  // us a read, 32 of them at a time, are more than both.
  const SavedHow how = on_box(1, 0.15);
  SimDisk disk(1);
  save_documents(model, how, disk, kDocuments);
  SavedLife life(model, how, disk);
  for (u64 seed = 1; seed <= kDocuments; ++seed) {
    CAPTURE(seed);
    const Answer answer = ask(life, asked(seed));
    CHECK(answer == alone(model, seed));
    CHECK(answer.reused.n_from_disk == (seed == 1 ? kOnDisk : 0));
  }
  check(life);
}

TEST_CASE(
    "a prompt is computed beside a session whose pages of it lie on the disk, and both go on") {
  const SmallModel model("llama", "q8_0");
  SavedHow how = on_box(1000, 0.001);
  how.kv_memory_bytes = 64 * 8192;
  SimDisk disk(1);
  SavedLife life(model, how, disk);
  const SessionIdx holder = create(life);
  REQUIRE(life.engine().sessions().feed(holder, document(1)).has_value());
  life.open.run();
  for (u64 seed = 2; seed < 8; ++seed) (void)ask(life, asked(seed));
  // Another session with the same document, and more behind it, which the holder comes to as well.
  std::vector<u32> longer = document(1);
  const std::vector<u32> more = random_ids(8, 3 * kPage);
  longer.insert(longer.end(), more.begin(), more.end());
  (void)ask(life, longer);
  check(life);
  REQUIRE(life.engine().sessions().feed(holder, more).has_value());
  life.open.run();
  check(life);
  for (const u64 seed : {u64{4}, u64{5}, u64{6}, u64{7}}) (void)ask(life, asked(seed));
  check(life);
  SavedLife never(model, {.reuses = false});
  const SessionIdx other = create(never);
  REQUIRE(never.engine().sessions().feed(other, longer).has_value());
  CHECK(read(life, holder) == read(never, other));
}

// ---- Chunks -------------------------------------------------------------------------------------

constexpr u32 kPercent = 10, kChunk = 6 * kPage + 3, kBos = 1;

struct Prompt {
  std::vector<u32> ids{kBos};
  std::vector<reuse::ChunkSpan> chunks;
};
Prompt prompt_of(u64 a, u64 b) {
  Prompt prompt;
  for (const u64 seed : {a, b}) {
    const auto begin = static_cast<u32>(prompt.ids.size());
    const std::vector<u32> ids = random_ids(seed, kChunk);
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
    prompt.chunks.push_back({begin, begin + kChunk});
  }
  prompt.ids.insert(prompt.ids.end(), {5, 6, 7});
  return prompt;
}

struct Blended {
  Answer answer;
  f64 share = 0;
};
Blended blend(SavedLife& life, const Prompt& prompt) {
  const SessionIdx session = create(life);
  const Parts parts{.chunks = prompt.chunks, .recompute = Parts::kAuto};
  REQUIRE(life.engine().sessions().feed(session, prompt.ids, parts).has_value());
  Blended out{.answer = read(life, session),
              .share = life.engine().sessions().state(session).approx.decision.share};
  life.engine().sessions().destroy(session);
  return out;
}

SavedHow with_record(const SmallModel& model, SavedHow how, QualityChoice quality) {
  const auto also = how.also;
  how.also = [also, quality](Config& config) {
    also(config);
    config.quality = quality;
    config.reuse.recompute_percent = kPercent;
    config.reuse.verified[0] = 'x';  // no such mark: the weights are hashed, and all is computed
  };
  VerifyMark mark;
  {
    SavedLife life(model, how);
    CHECK(life.engine().status().blend_share == 1);
    mark = lab::Probe(life.engine()).blend_mark(kPercent);
  }
  how.also = [before = how.also, mark](Config& config) {
    before(config);
    config.reuse.verified = mark;
  };
  return how;
}

// Chunks as documents that were read before, in a life of their own.
void save_chunks(const SmallModel& model, const SavedHow& how, SimDisk& disk) {
  SavedLife life(model, how, disk);
  for (u64 seed = 1; seed <= 3; ++seed) {
    std::vector<u32> ids{kBos};
    const std::vector<u32> chunk = random_ids(seed, kChunk);
    ids.insert(ids.end(), chunk.begin(), chunk.end());
    const SessionIdx session = create(life);
    REQUIRE(life.engine().sessions().feed(session, ids).has_value());
    life.open.run();
    REQUIRE(life.engine().sessions().save(session, "chunk" + std::to_string(seed)).has_value());
    life.engine().sessions().destroy(session);
  }
}

TEST_CASE("the share of chunks follows from length and profile, wherever they lie") {
  const SmallModel model("llama", "q8_0");
  const Prompt prompt = prompt_of(1, 2);
  // 12.4 pages in 2 layers at 10 us, two requests each; a prefill of 1 ms or 0.3 ms.
  for (const f64 token_us : {2.5, 0.75}) {
    CAPTURE(token_us);
    const SavedHow how = with_record(model, on_box(5, token_us), QualityChoice::fixed);
    const f64 load_s = 2.0 * kChunk / kPage * kLayers * 10e-6;
    const f64 prefill_s = kLayers * token_us * 1e-6 * static_cast<f64>(prompt.ids.size());
    const f64 want = std::max(0.01 * kPercent, load_s / prefill_s);
    REQUIRE(want < 1);
    SimDisk disk(1);
    save_chunks(model, how, disk);
    SavedLife cold(model, how, disk);
    const Blended first = blend(cold, prompt);
    CHECK(first.share == doctest::Approx(want));
    CHECK(first.answer.reused.n_placed > 0);
    (void)blend(cold, prompt_of(3, 1));
    const Blended again = blend(cold, prompt);  // from memory, after the disk was slow
    CHECK(again.share == first.share);
    CHECK(again.answer == first.answer);
    SavedLife nothing_there(model, how);  // no store: the configured share
    CHECK(blend(nothing_there, prompt).share == doctest::Approx(0.01 * kPercent));
    SimDisk other(2);
    other.script.latency_ns_min = 1'000'000;
    other.script.latency_ns_max = 2'000'000;
    SavedLife restarted(model, how, other);
    const Blended computed = blend(restarted, prompt);
    CHECK(computed.share == first.share);
    CHECK(computed.answer == first.answer);
  }
}

TEST_CASE("adaptive: by where chunks lie, and the log says so") {
  const SmallModel model("llama", "q8_0");
  const SavedHow how = with_record(model, on_box(5, 2.5), QualityChoice::adaptive);
  const Prompt prompt = prompt_of(1, 2);
  SimDisk disk(1);
  save_chunks(model, how, disk);
  std::string text;
  const Log log(
      [](void* to, LogLevel, const char* line) { *static_cast<std::string*>(to) += line; }, &text,
      LogLevel::info);
  SavedLife life(model, how, disk, log);
  // Whole pages that lie on the disk: BOS and the chunk's tokens make so many.
  const u32 n_pages = 2 * ((1 + kChunk) / kPage);
  const f64 load_s = n_pages * kLayers * 10e-6;
  const f64 prefill_s = kLayers * 2.5e-6 * static_cast<f64>(prompt.ids.size());
  const Blended from_disk = blend(life, prompt);
  CHECK(from_disk.share == doctest::Approx(std::max(0.01 * kPercent, load_s / prefill_s)));
  CHECK(text.find("of the chunks is computed anew") != std::string::npos);
  const Blended from_memory = blend(life, prompt);
  CHECK(from_memory.share == doctest::Approx(0.01 * kPercent));
}

}  // namespace
}  // namespace tarn::engine::control_native_test
