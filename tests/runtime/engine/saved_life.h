// An engine's life beside others on one simulated disk: what is said before it ends, and behind it.
#pragma once

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/lab/probe.h"
#include "tests/support/open_engine.h"
#include "tests/support/sim_disk.h"
#include "tools/support/input.h"

namespace tarn::test {

inline constexpr u32 kSavedContext = 1024;
inline constexpr u32 kSavedPage = 16;
inline constexpr const char* kSavedFile = "store/sessions.tarn";

struct SavedHow {
  KvTypeChoice kv_type = KvTypeChoice::f16;
  bool few_frames = false;
  u64 kv_memory_bytes = 0;  // where few_frames is false
  u32 page_tokens = kSavedPage;
  u32 context_tokens = kSavedContext;
  u32 rows_max = 64;
  u32 checkpoint_ms = 0;
  u64 quota_bytes = kGiB;
  u64 daily_write_bytes = 0;
  u64 kept_tokens = 0;
  bool reuses = true;
  SelectConfig select{};
  std::function<void(Config&)> also{};  // sets other keys
};

// Sinks, local ones and a choice of 138 tokens in all.
inline SelectConfig saved_select() {
  SelectConfig select;
  select.method = SelectMethod::pq;
  select.code_bits = 2;
  select.n_subspaces = 2;
  select.n_sinks = 20;
  select.n_local = 70;
  select.k = 48;
  select.iterations = 3;
  select.index_delay_tokens = 4;
  select.context_min = 1;
  return select;
}

inline Config saved_config(const SavedHow& how, bool keeps) {
  Config config = small_config();
  config.context_tokens = how.context_tokens;
  config.page_tokens = how.page_tokens;
  config.sessions_max = 3;
  config.batch_rows_max = how.rows_max;
  config.kv_type = how.kv_type;
  config.select = how.select;
  config.box.layer = how.select.cost;
  config.reuse.prefix = how.reuses;
  if (how.also) how.also(config);
  if (!keeps) return config;
  config.store.sessions = true;
  config.store.checkpoint_ms = how.checkpoint_ms;
  config.store.quota_bytes = how.quota_bytes;
  config.store.daily_write_bytes = how.daily_write_bytes;
  config.store.kept_tokens = how.kept_tokens;
  config.kv_memory_bytes = how.few_frames ? 28 * 8192 : how.kv_memory_bytes;
  set_text(config.store.path, "store");
  return config;
}

// An engine without a store, or with a process' own way to the disk.
struct SavedLife {
  SavedLife(const SmallModel& model, const SavedHow& how)
      : open(model.path(), saved_config(how, /*keeps=*/false)) {}
  SavedLife(const SmallModel& model, const SavedHow& how, SimDisk& disk, const Log& log = {})
      : io(std::make_unique<SimIo>(disk, clock, 64)),
        open(model.path(), saved_config(how, /*keeps=*/true), &clock, io.get(), log) {
    REQUIRE(lab::Probe::archive(open.engine).is_on());
  }
  engine::Engine& engine() { return open.engine; }
  std::vector<u32> generate(engine::SessionIdx session, u32 n, f32 temperature = 0.0f) {
    engine::GenerateParams params{.max_tokens = n, .ignore_end = true};
    params.sampler.temperature = temperature;
    params.sampler.seed = 7;
    REQUIRE(engine().sessions().generate(session, params).has_value());
    const Said said = read_all(engine(), session);
    REQUIRE(said.done.finish == engine::Finish::length);
    return said.tokens;
  }
  engine::SessionIdx restore(const char* name = "talk") {
    const auto restored = engine().sessions().restore(name);
    if (!restored) FAIL(std::string(restored.error().hint));
    CHECK(restored->n_tokens == engine().sessions().state(restored->idx).tokens.n_ids);
    return restored->idx;
  }
  Status why_not(const char* name, std::string* field = nullptr) {
    const auto restored = engine().sessions().restore(name);
    REQUIRE_FALSE(restored.has_value());
    CHECK(std::strlen(restored.error().hint) > 40);
    if (field != nullptr) *field = restored.error().detail.c_str();
    CHECK(engine().status().n_sessions == 0);
    return restored.error().status;
  }

  VirtualClock clock;
  std::unique_ptr<SimIo> io;
  OpenEngine open;
};

// What was said: equal where the tokens and the bits of every log-probability are.
struct Answer {
  std::vector<u32> tokens, bits;
  kv::Reused reused;
  friend bool operator==(const Answer& a, const Answer& b) {
    return a.tokens == b.tokens && a.bits == b.bits;
  }
};
inline Answer read_answer(SavedLife& life, engine::SessionIdx session,
                          engine::GenerateParams params) {
  params.sampler.n_top_logprobs = 4;
  REQUIRE(life.engine().sessions().generate(session, params).has_value());
  const Said said = read_all(life.engine(), session);
  REQUIRE(said.done.finish == engine::Finish::length);
  Answer out{.tokens = said.tokens, .bits = {}, .reused = said.done.reused};
  for (const engine::Sampled& sampled : said.sampled) {
    for (u32 i = 0; i < sampled.n_top; ++i)
      out.bits.push_back(std::bit_cast<u32>(sampled.top[i].logprob));
  }
  return out;
}

// What is said and computed before the border, and behind it.
inline std::vector<u32> first_part(SavedLife& life, engine::SessionIdx session, u32 n_prompt) {
  REQUIRE(life.engine().sessions().feed(session, random_ids(n_prompt, n_prompt)).has_value());
  life.open.run();
  return life.generate(session, 20, 0.8f);
}

struct Second {
  std::vector<u32> tokens, forked;
  LogitsRecord logits, fork_logits;
};
inline Second second_part(SavedLife& life, engine::SessionIdx session) {
  Second second;
  engine::Engine& engine = life.engine();
  REQUIRE(engine.sessions().feed(session, random_ids(5, 50)).has_value());
  lab::Probe(engine).watch_logits(session, &LogitsRecord::on_logits, &second.logits);
  second.tokens = life.generate(session, 24, 0.8f);
  life.open.run();
  lab::Probe(engine).watch_logits(session, nullptr, nullptr);
  const auto fork = engine.sessions().fork(session);
  REQUIRE(fork.has_value());
  REQUIRE(engine.sessions()
              .truncate(*fork, engine.sessions().state(*fork).tokens.n_ids - 37)
              .has_value());
  REQUIRE(engine.sessions().feed(*fork, random_ids(6, 20)).has_value());
  lab::Probe(engine).watch_logits(*fork, &LogitsRecord::on_logits, &second.fork_logits);
  second.forked = life.generate(*fork, 10);
  life.open.run();
  lab::Probe(engine).watch_logits(*fork, nullptr, nullptr);
  engine.sessions().destroy(*fork);
  return second;
}

inline engine::SessionIdx create(SavedLife& life) {
  const auto session = life.engine().sessions().create();
  REQUIRE(session.has_value());
  return *session;
}

// What another process finds of a session when the one that keeps it dies now, and nothing else.
struct There {
  std::vector<u32> ids;
  u32 n_computed = 0;
  bool is_cut_off = false;
};
inline There found_after_kill(const SmallModel& model, const SavedHow& how, const SimDisk& image) {
  SimDisk disk = image;
  disk.power_loss({.kept = SimKept::all});
  SavedLife life(model, how, disk);
  const auto restored = life.engine().sessions().restore("talk");
  REQUIRE(restored.has_value());
  const engine::Session& s = life.engine().sessions().state(restored->idx);
  return {{s.tokens.ids.begin(), s.tokens.ids.begin() + s.tokens.n_ids},
          restored->n_computed,
          restored->is_cut_off};
}

// Writes one session to a file: that of a pack of one, without the pack's head and table.
inline Result<reuse::ExportDone> export_session(engine::Engine& engine, const char* name,
                                                const char* path) {
  TARN_TRY(reuse::SessionCopy* const files, engine.archive().files());
  return files->pack({.path = path, .names = std::array{name}});
}
inline Result<reuse::ExportDone> export_session(SavedLife& life, const char* name,
                                                const char* path) {
  return export_session(life.engine(), name, path);
}

// Logits behind the border alone: those before it were not asked for.
inline void require_same(const Second& want, const Second& got) {
  CHECK(want.tokens == got.tokens);
  CHECK(want.forked == got.forked);
  require_same_bits(want.logits, got.logits);
  require_same_bits(want.fork_logits, got.fork_logits);
}

}  // namespace tarn::test
