// Goal    a prompt with chunks has the logits that CacheBlend's steps give (METHODS 3.2 and 14.3).
//         K of a chunk is turned to its place, V is as it was computed alone. The tokens whose V
//         differs most are computed anew. A row reads all slots before it. A share of 1 has a
//         prefill's bits. No bit depends on slices, threads or neighbours. (Wherever a chunk's KV
//         was: blend_life.)
// Method  an f64 model with K and V placed in it (tests/support/reference_model.h), and the same
//         with a wrong distance, a wrong choice, a choice of another share: these must be further
//         away. Bits are compared between engines.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"
#include "tests/support/logits.h"
#include "tests/support/reference_model.h"
#include "tests/support/slow_build.h"

namespace tarn::engine::blend_test {
namespace {

using reuse::ChunkSpan;
using test::LogitsRecord;
using test::OpenEngine;
using test::random_ids;
using test::ReferenceModel;
using test::SavedHow;
using test::SavedLife;
using test::SimDisk;
using test::SmallModel;

constexpr u32 kPage = test::kSavedPage, kVocab = 1024, kBos = 1;

// A prompt: ids, and where its chunks are.
struct Prompt {
  std::vector<u32> ids;
  std::vector<ChunkSpan> chunks;
};
struct Passage {
  u64 seed;
  u32 n;
  bool is_chunk;
};

// Passages behind BOS; one of the same seed and length has the same tokens.
Prompt prompt_of(const std::vector<Passage>& passages) {
  Prompt prompt{.ids = {kBos}, .chunks = {}};
  for (const Passage& passage : passages) {
    const u32 begin = static_cast<u32>(prompt.ids.size());
    const auto ids = random_ids(passage.seed, passage.n);
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
    if (passage.is_chunk) prompt.chunks.push_back({begin, begin + passage.n});
  }
  return prompt;
}

// A text, three chunks with another text between two of them, a question.
const std::vector<Passage> kPassages = {{1, 11, false}, {2, 70, true},  {3, 51, true},
                                        {4, 5, false},  {5, 100, true}, {6, 9, false}};
Prompt usual_prompt() { return prompt_of(kPassages); }

SessionIdx feed_parts(Engine& engine, const Prompt& prompt, f32 recompute) {
  const auto session = engine.sessions().create();
  REQUIRE(session.has_value());
  REQUIRE(engine.sessions().feed(*session, prompt.ids, {prompt.chunks, recompute}).has_value());
  return *session;
}

// The logits behind the last token. What is fed is computed before they are watched.
std::vector<f32> last_logits(OpenEngine& open, SessionIdx session, test::Said* said = nullptr) {
  open.run();
  const u32 n_ids = open.engine.sessions().state(session).tokens.n_ids;
  LogitsRecord record;
  lab::Probe(open.engine).watch_logits(session, &LogitsRecord::on_logits, &record);
  REQUIRE(
      open.engine.sessions().generate(session, {.max_tokens = 6, .ignore_end = true}).has_value());
  const test::Said own = test::read_all(open.engine, session);
  if (said != nullptr) *said = own;
  lab::Probe(open.engine).watch_logits(session, nullptr, nullptr);
  std::vector<f32> out;
  for (u64 i = n_ids - 1; i < record.rows.size(); ++i)
    out.insert(out.end(), record.rows[i].begin(), record.rows[i].end());
  return out;
}
std::vector<f32> first_row(const std::vector<f32>& logits) {
  return {logits.begin(), logits.begin() + kVocab};
}

Config config_of(u32 rows_max = 64, const char* isa = "auto", u32 n_threads = 1,
                 KvTypeChoice type = KvTypeChoice::f16) {
  Config config = test::saved_config({.kv_type = type, .rows_max = rows_max}, /*keeps=*/false);
  config.n_threads = n_threads;
  test::set_text(config.isa, isa);
  return config;
}

std::vector<f32> blended(const SmallModel& model, const Prompt& prompt, f32 recompute,
                         const Config& config = config_of()) {
  OpenEngine open(model.path(), config);
  return last_logits(open, feed_parts(open.engine, prompt, recompute));
}
std::vector<f32> prefilled(const SmallModel& model, const Prompt& prompt,
                           const Config& config = config_of()) {
  OpenEngine open(model.path(), config);
  return last_logits(open, open.session_with(prompt.ids));
}

bool same_bits(const std::vector<f32>& a, const std::vector<f32>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(f32)) == 0;
}

// The reference's chunks: whole pages of the ids, behind BOS where the vocabulary begins with it.
struct Placed {
  ReferenceModel::Kv kv;
  std::vector<bool> is_placed;
};
Placed placed(const ReferenceModel& reference, const Prompt& prompt, u32 wrong_by = 0) {
  const ReferenceModel::Kv whole = reference.kv(prompt.ids);
  Placed out{whole, std::vector<bool>(prompt.ids.size(), false)};
  for (const ChunkSpan& chunk : prompt.chunks) {
    std::vector<u32> source;
    if (reference.begins_with_bos()) source.push_back(kBos);
    const u32 n_bos = static_cast<u32>(source.size()), begin = chunk.begin - n_bos;
    source.insert(source.end(), prompt.ids.begin() + chunk.begin, prompt.ids.begin() + chunk.end);
    source.resize(source.size() / kPage * kPage);
    const ReferenceModel::Kv kv = reference.kv(source, begin + wrong_by);
    for (u32 i = n_bos; i < source.size(); ++i) {
      out.is_placed[begin + i] = true;
      for (u64 layer = 0; layer < kv.keys.size(); ++layer) {
        out.kv.keys[layer][begin + i] = kv.keys[layer][i];
        out.kv.values[layer][begin + i] = kv.values[layer][i];
      }
    }
  }
  return out;
}

// Tokens to compute: those without placed KV, and of the others the share whose V of layer 1
// differs most.
std::vector<bool> choice(const ReferenceModel& reference, const Prompt& prompt, const Placed& p,
                         f64 recompute) {
  const ReferenceModel::Kv whole = reference.kv(prompt.ids);
  std::vector<bool> computed(prompt.ids.size());
  std::vector<std::pair<f64, u32>> deviations;
  for (u32 t = 0; t < prompt.ids.size(); ++t) {
    computed[t] = !p.is_placed[t];
    if (computed[t]) continue;
    f64 sum = 0;
    for (u64 i = 0; i < whole.values[1][t].size(); ++i)
      sum += std::pow(whole.values[1][t][i] - p.kv.values[1][t][i], 2);
    deviations.emplace_back(-sum, t);
  }
  std::ranges::sort(deviations);
  const auto n = static_cast<u64>(recompute * static_cast<f64>(deviations.size()));
  for (u64 i = 0; i < n; ++i) computed[deviations[i].second] = true;
  return computed;
}

f64 away(const std::vector<f64>& want, const std::vector<f32>& got) {
  return test::logits_distance(want, got, kVocab, 0.0).relative_l2;
}

// Rounding of f16 KV, of a turned K's f16 and of f32 sums; wrong rules are further away than kFar.
constexpr f64 kNear = 2e-3, kFar = 1e-2;

}  // namespace

TEST_CASE("all tokens computed anew: the bits of a prefill, for each type of KV and slice") {
  const Prompt prompt = usual_prompt();
  for (const char* arch : {"llama", "qwen2", "qwen3"}) {
    if (test::kSlowBuild && arch != std::string("llama")) continue;
    const SmallModel model(arch, "q8_0", 1, 3);
    for (const KvTypeChoice type : {KvTypeChoice::f16, KvTypeChoice::q8_0, KvTypeChoice::q4_0}) {
      for (const u32 rows_max : {4u, 64u, 512u}) {
        CAPTURE(arch);
        CAPTURE(static_cast<u32>(type));
        CAPTURE(rows_max);
        const Config config = config_of(rows_max, "auto", 2, type);
        const auto want = prefilled(model, prompt, config);
        CHECK(same_bits(blended(model, prompt, 1.0f, config), want));
        CHECK_FALSE(same_bits(blended(model, prompt, 0.0f, config), want));
      }
    }
  }
}

TEST_CASE("no token computed anew: full reuse, with K turned to its place") {
  const Prompt prompt = usual_prompt();
  for (const char* arch : {"llama", "qwen2", "qwen3"}) {
    CAPTURE(arch);
    const SmallModel model(arch, "f16", 1, 3);
    const ReferenceModel reference(model.path());
    const auto got = first_row(blended(model, prompt, 0.0f));
    const auto at = [&](u32 wrong_by) {
      const Placed p = placed(reference, prompt, wrong_by);
      return reference.blended_logits(prompt.ids, p.kv, choice(reference, prompt, p, 0));
    };
    CHECK(away(at(0), got) < kNear);
    CHECK(away(at(1), got) > kFar);
    CHECK(away(reference.logits(prompt.ids, prompt.ids.size() - 1), got) > kFar);
  }
}

TEST_CASE("the tokens whose V differs most are computed anew, over all chunks at once") {
  const Prompt prompt = usual_prompt();
  for (const char* arch : {"llama", "qwen3"}) {
    const SmallModel model(arch, "f16", 1, 3);
    const ReferenceModel reference(model.path());
    const Placed p = placed(reference, prompt);
    const u64 n_placed = static_cast<u64>(std::ranges::count(p.is_placed, true));
    const f32 recompute = arch == std::string("llama") ? 0.15f : 0.5f;
    CAPTURE(arch);
    CAPTURE(recompute);
    OpenEngine open(model.path(), config_of());
    test::Said said;
    const auto got =
        first_row(last_logits(open, feed_parts(open.engine, prompt, recompute), &said));
    const auto computed = choice(reference, prompt, p, recompute);
    const auto chosen = [&](u32 t) { return lab::Probe::blends(open.engine)[0].is_chosen(t); };
    u64 n_other = 0, n_chosen = 0;
    for (u32 t = 0; t < prompt.ids.size(); ++t) {
      n_other += p.is_placed[t] && chosen(t) != computed[t];
      n_chosen += p.is_placed[t] && chosen(t);
    }
    CHECK(n_other == 0);
    CHECK(n_chosen == static_cast<u64>(recompute * static_cast<f32>(n_placed)));
    CHECK(said.done.reused.n_recomputed == n_chosen);
    CHECK(said.done.reused.n_placed == n_placed - n_chosen);
    CHECK(away(reference.blended_logits(prompt.ids, p.kv, computed), got) < kNear);
    auto other = computed;  // as many, the ones that differ least
    for (u32 t = 0; t < prompt.ids.size(); ++t) other[t] = !p.is_placed[t] || !computed[t];
    CHECK(away(reference.blended_logits(prompt.ids, p.kv, other), got) > kFar);
  }
}

TEST_CASE("nearer to the prefill with each share") {
  const Prompt prompt = usual_prompt();
  const SmallModel model("llama", "f16", 1, 3);
  const auto want = prefilled(model, prompt);
  const std::vector<f64> full(want.begin(), want.begin() + kVocab);
  f64 before = HUGE_VAL;
  for (const f32 recompute : {0.0f, 0.15f, 0.5f, 1.0f}) {
    const f64 error = away(full, first_row(blended(model, prompt, recompute)));
    MESSAGE("share ", recompute, ": ", error);
    CHECK(error < before);
    before = error;
  }
  CHECK(before == 0);
}

TEST_CASE("slices, threads, ISA and a neighbour change no bit") {
  const Prompt prompt = usual_prompt();
  const SmallModel model("llama", "q4_k", 1, 3);
  for (const KvTypeChoice type : {KvTypeChoice::f16, KvTypeChoice::q8_0}) {
    const auto want = blended(model, prompt, 0.3f, config_of(64, "generic", 1, type));
    for (const u32 rows_max : {4u, 7u, 512u}) {
      CAPTURE(rows_max);
      CHECK(same_bits(blended(model, prompt, 0.3f, config_of(rows_max, "auto", 2, type)), want));
    }
    OpenEngine open(model.path(), config_of(16, "auto", 2, type));
    const SessionIdx beside = open.session_with(random_ids(9, 100));
    REQUIRE(open.engine.sessions()
                .generate(beside, {.max_tokens = 100, .ignore_end = true})
                .has_value());
    const SessionIdx session = feed_parts(open.engine, prompt, 0.3f);
    CHECK(same_bits(last_logits(open, session), want));
  }
}

TEST_CASE("the next chunk is read from the disk while one is computed") {
  const Prompt prompt = prompt_of(
      {{1, 11, false}, {2, 80, true}, {3, 80, true}, {4, 80, true}, {5, 80, true}, {6, 9, false}});
  const SmallModel model("llama", "q8_0", 1, 3);
  SimDisk disk(3);
  {
    SavedLife life(model, {}, disk);
    for (const ChunkSpan& chunk : prompt.chunks) {
      std::vector<u32> ids{kBos};
      ids.insert(ids.end(), prompt.ids.begin() + chunk.begin, prompt.ids.begin() + chunk.end);
      const SessionIdx session = life.open.session_with(ids);
      life.open.run();
      REQUIRE(life.engine().sessions().save(session, std::to_string(chunk.begin)).has_value());
      life.engine().sessions().destroy(session);
    }
  }
  SavedLife life(model, {}, disk);
  Engine& engine = life.engine();
  const SessionIdx session = feed_parts(engine, prompt, 0.2f);
  std::vector<u64> n_read(prompt.chunks.size());  // bytes, in the steps that compute a chunk
  while (engine.has_work()) {
    const u32 before = engine.sessions().state(session).sequence.n_slots();
    const u64 n = engine.step().disk.bytes_read;
    const u32 after = engine.sessions().state(session).sequence.n_slots();
    for (u64 c = 0; c < n_read.size(); ++c) {
      const bool is_under_way = before < prompt.chunks[c].end && after > prompt.chunks[c].begin;
      if (is_under_way && after > before) n_read[c] += n;
    }
  }
  const kv::GroupShape& shape = lab::Probe::pool(engine).shape();
  const u64 chunk_bytes = u64{81 / kPage} * engine.spec().n_cache_layers * shape.payload_bytes();
  CAPTURE(n_read[0]);
  CAPTURE(n_read.back());
  CHECK(n_read[0] >= chunk_bytes);  // most of its own, and the next one's
  CHECK(n_read.back() == 0);
}

TEST_CASE("other orders take the chunks' pages; a changed token does not") {
  const SmallModel model("llama", "q8_0", 1, 3);
  OpenEngine open(model.path(), config_of());
  const auto n_computed = [&](const Prompt& prompt) {
    const u64 before = open.engine.status().counters.n_prefill_rows;
    const SessionIdx session = feed_parts(open.engine, prompt, 0.0f);
    (void)last_logits(open, session);
    open.engine.sessions().destroy(session);
    return open.engine.status().counters.n_prefill_rows - before;
  };
  const u64 cold = n_computed(usual_prompt());
  const Prompt turned = prompt_of(
      {{1, 11, false}, {5, 100, true}, {3, 51, true}, {4, 5, false}, {2, 70, true}, {6, 9, false}});
  const u64 warm = n_computed(turned);
  Prompt changed = turned;
  changed.ids[changed.chunks[0].begin + 40] ^= 1;
  const u64 missed = n_computed(changed);
  const u32 n_pages = (101 / kPage + 52 / kPage + 71 / kPage) * kPage, n_chunks = 3;
  CHECK(warm == turned.ids.size() - (n_pages - n_chunks));
  CHECK(cold - warm == n_pages);
  CHECK(missed - warm == (101 / kPage - 41 / kPage) * kPage);
}

TEST_CASE("blended KV is nobody's prefix, and exact KV is not replaced by it") {
  const Prompt prompt = usual_prompt();
  const SmallModel model("llama", "q8_0", 1, 3);
  const auto want = prefilled(model, prompt);
  OpenEngine open(model.path(), config_of());
  const SessionIdx session = feed_parts(open.engine, prompt, 0.1f);
  const auto approximate = last_logits(open, session);
  const SessionIdx exact = open.session_with(prompt.ids);
  test::Said said;
  CHECK(same_bits(last_logits(open, exact, &said), want));
  CHECK(said.done.reused.n_tokens() <= prompt.chunks[0].begin);
  // And the other way around: the whole prompt is there, and the chunks are blended all the same.
  open.engine.sessions().destroy(session);
  CHECK(same_bits(last_logits(open, feed_parts(open.engine, prompt, 0.1f)), approximate));
}

TEST_CASE(
    "answers select behind a blend, with the same tokens from a disk; a next input keeps it") {
  const Prompt prompt = usual_prompt();
  const SmallModel model("llama", "q8_0", 1, 3);
  for (const bool exact_answers : {false, true}) {
    CAPTURE(exact_answers);
    SavedHow how{.select = test::saved_select()};
    how.select.exact_answers = exact_answers;
    std::vector<std::vector<u32>> tokens;
    for (const bool on_disk : {false, true}) {
      SimDisk disk(3);
      auto life = on_disk ? std::make_unique<SavedLife>(model, how, disk)
                          : std::make_unique<SavedLife>(model, how);
      const SessionIdx session = feed_parts(life->engine(), prompt, 0.2f);
      tokens.push_back(life->generate(session, 20));
      const u64 n_rows = life->engine().status().counters.n_prefill_rows;
      REQUIRE(life->engine().sessions().feed(session, random_ids(8, 10)).has_value());
      const auto more = life->generate(session, 20);
      tokens.back().insert(tokens.back().end(), more.begin(), more.end());
      // The question and the answer at most: what was blended stays.
      CHECK(life->engine().status().counters.n_prefill_rows - n_rows < 9 + 20 + 10 + 8);
      CHECK(life->engine().status().counters.kv_reads.n_select_steps > 20);
    }
    CHECK(tokens[0] == tokens[1]);
  }
}

TEST_CASE("a first chunk at its own prefix is exact, and of one prompt nothing is approximate") {
  const SmallModel model("llama", "q8_0", 1, 3);
  const Prompt alone = prompt_of({{2, 70, true}, {6, 9, false}});
  OpenEngine open(model.path(), config_of());
  test::Said said;
  CHECK(same_bits(last_logits(open, feed_parts(open.engine, alone, 0.0f), &said),
                  prefilled(model, alone)));
  CHECK(said.done.reused.n_placed == 0);
  const Prompt two = prompt_of({{2, 70, true}, {3, 51, true}, {6, 9, false}});
  CHECK(same_bits(last_logits(open, feed_parts(open.engine, two, 0.0f), &said),
                  blended(model, two, 0.0f)));
  CHECK(said.done.reused.n_from_memory == 70 / kPage * kPage);
  CHECK(said.done.reused.n_placed == 52 / kPage * kPage - 1);
}

TEST_CASE("a prompt whose last rows are transplanted ends without a row of its own") {
  const SmallModel model("llama", "q8_0");
  for (const u32 n_more : {0u, 1u, 5u}) {  // behind the last whole page of the chunk
    CAPTURE(n_more);
    OpenEngine open(model.path(), config_of());
    const SessionIdx session =
        feed_parts(open.engine, prompt_of({{1, 11, false}, {2, 4 * kPage + n_more, true}}), 0);
    open.run();
    const Session& state = open.engine.sessions().state(session);
    CHECK(state.state == SessionState::idle);
    CHECK_FALSE(state.is_admitted());
    CHECK(state.n_computable() == 0);
  }
}

}  // namespace tarn::engine::blend_test
