// Goal    an index outlives the engine that made it: what takes a session up reads its codes and
//         finds its extents, and reads no KV for it. Its records go with the session that they are
//         of, and with the index. (Damaged or lost ones: sim/select_random.)
// Method  engines one behind the other over one simulated disk, in one order of extents and in two;
//         what was read and written is counted, and so are the records that are there.
#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/selected_answers.h"
#include "tests/support/sim_disk.h"
#include "tests/support/slow_build.h"
#include "tests/support/temp_dir.h"

namespace tarn::engine::save_restore_index_native_test {
namespace {

using namespace test_selected;
using test::SimDisk;

Config saved_config(Memory memory, const char* method = "pq") {
  Config config = config_of(method, memory);
  config.store.sessions = true;
  config.store.checkpoint_ms = 0;
  config.select.index_delay_tokens = 4;
  return config;
}

struct Life {
  Life(const SmallModel& model, const Config& config, SimDisk& disk)
      : io(disk, clock, 64), open(model.path(), config, &clock, &io) {
    REQUIRE(engine().plan().tiers.extents.is_on());
  }
  Engine& engine() { return open.engine; }
  const kv::ExtentStats& extents() { return lab::Probe::tiers(engine()).extents.stats(); }
  u32 n_heads() { return engine().plan().select.n_heads; }
  SessionIdx talk(u32 n = 20) {
    const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
    (void)say(engine(), session, n);
    return session;
  }
  SessionIdx restore() {
    const auto restored = engine().sessions().restore("talk");
    REQUIRE(restored.has_value());
    return restored->idx;
  }
  struct Kept {
    u64 n_codebooks = 0, n_extents = 0;
  };
  Kept kept() {
    const store::RecordIndex& index = lab::Probe::tiers(engine()).store.store().index();
    Kept kept;
    for (u32 i = 0; i < index.n_frames(); ++i) {
      if (index.frame(i).life != store::Life::published) continue;
      kept.n_codebooks += index.frame(i).kind == store::Kind::codebook;
      kept.n_extents += index.frame(i).kind == store::Kind::extent;
    }
    return kept;
  }

  VirtualClock clock;
  test::SimIo io;
  OpenEngine open;
};

struct Said {
  std::vector<u32> tokens;
  LogitsRecord logits;
};

Said go_on(Life& life, SessionIdx session, u32 n = 30) {
  Said said;
  lab::Probe(life.engine()).watch_logits(session, &LogitsRecord::on_logits, &said.logits);
  said.tokens = say(life.engine(), session, n);
  lab::Probe(life.engine()).watch_logits(session, nullptr, nullptr);
  return said;
}

void require_same(const Said& want, const Said& got) {
  CHECK(want.tokens == got.tokens);
  test::require_same_bits(want.logits, got.logits);
}

// Says how a kept conversation goes on, which is on the disk then.
Said keep_one(const SmallModel& model, const Config& config, SimDisk& disk) {
  Life life(model, config, disk);
  const SessionIdx session = life.talk();
  REQUIRE(life.engine().sessions().save(session, "talk").has_value());
  CHECK(life.extents().bytes_written > 0);
  CHECK(life.kept().n_codebooks == life.n_heads());
  return go_on(life, session);
}

TEST_CASE("an index that is restored is read, and no KV for it") {
  const SmallModel model("llama", "q8_0");
  test::each_method(&test::MethodRow::trains, [&](const char* method) {
    const bool is_pq = method == std::string_view("pq");
    for (const CodeFormat format : {CodeFormat::bytes, CodeFormat::packed}) {
      if (!is_pq && format != CodeFormat::bytes) continue;
      for (const Memory memory : {Memory::ample, Memory::roomy}) {
        CAPTURE(static_cast<u32>(memory));
        Config config = saved_config(memory, method);
        config.select.code_format = format;
        SimDisk disk(1);
        const Said want = keep_one(model, config, disk);
        for (u32 restart = 0; restart < 3; ++restart) {
          Life life(model, config, disk);
          const SessionIdx session = life.restore();
          require_same(want, go_on(life, session));
          CHECK(life.extents().n_codebooks_read == life.n_heads());
          CHECK(life.extents().bytes_written == 0);  // a layer that is trained again is written
          CHECK(life.extents().n_lost == 0);
          if (!is_pq) continue;
          CHECK(life.extents().n_adopted == life.n_heads());
          CHECK(life.extents().bytes_used > 0);
          const u64 n_groups = life.engine().sessions().state(session).sequence.n_groups();
          const kv::MoverStats stats = lab::Probe::tiers(life.engine()).mover.stats();
          // Sinks, local ones and the last one of each layer; a clustering reads all several times.
          CHECK(stats.n_loads < life.engine().spec().n_cache_layers * n_groups / 2);
        }
      }
    }
  });
}

TEST_CASE("records of an index go with it, and with its session") {
  const SmallModel model("llama", "q8_0");
  const Config config = saved_config(Memory::roomy);
  SimDisk disk(1);
  {
    Life life(model, config, disk);
    const SessionIdx session = life.talk();
    CHECK(life.kept().n_codebooks == life.n_heads());
    CHECK(life.kept().n_extents > 0);
    life.engine().sessions().destroy(session);  // it has no name
    CHECK(life.kept().n_codebooks == 0);
    CHECK(life.kept().n_extents == 0);
    (void)life.talk();
  }
  Life life(model, config, disk);
  CHECK(life.kept().n_codebooks == 0);  // nor had that one, at the close
  CHECK(life.kept().n_extents == 0);
  const SessionIdx session = life.talk();
  const u64 n_extents = life.kept().n_extents;
  REQUIRE(life.engine().sessions().feed(session, test::random_ids(9, 950)).has_value());
  (void)say(life.engine(), session, 20);  // made anew, of twice as many
  CHECK(life.kept().n_codebooks == life.n_heads());
  CHECK(life.kept().n_extents > n_extents);
  CHECK(life.kept().n_extents < 3 * n_extents);
  REQUIRE(life.engine().sessions().save(session, "talk").has_value());
  const auto fork = life.engine().sessions().fork(session);
  REQUIRE(fork.has_value());
  life.engine().sessions().destroy(*fork);
  life.engine().sessions().destroy(session);
  CHECK(life.kept().n_codebooks == life.n_heads());
  CHECK(life.kept().n_extents > 0);
  REQUIRE(life.engine().archive().erase({}, "talk").has_value());
  CHECK(life.kept().n_codebooks == 0);
  CHECK(life.kept().n_extents == 0);
}

TEST_CASE("a close leaves nothing that no manifest names") {
  const SmallModel model("llama", "q8_0");
  const Config config = saved_config(Memory::roomy);
  SimDisk disk(1);
  {
    Life life(model, config, disk);
    const SessionIdx session = life.open.session_with(test::random_ids(7, kPrompt));
    (void)say(life.engine(), session, 2);  // triggered, and not in use
    REQUIRE(life.engine().sessions().save(session, "talk").has_value());
    life.open.run();
    CHECK(life.kept().n_codebooks == life.n_heads());
  }
  Life life(model, config, disk);
  CHECK(life.kept().n_codebooks == 0);
  CHECK(life.kept().n_extents == 0);
  const SessionIdx session = life.restore();
  (void)say(life.engine(), session, 20);
  CHECK(life.kept().n_codebooks == life.n_heads());
  life.engine().sessions().destroy(session);  // and had no checkpoint since
  CHECK(life.kept().n_codebooks == 0);
  CHECK(life.kept().n_extents == 0);
}

TEST_CASE("an imported session's index gets a name that the next start finds") {
  const SmallModel model("llama", "q8_0");
  Config config = saved_config(Memory::roomy);
  const test::TempDir folder("kept_import");
  std::filesystem::create_directories(folder.path());
  const std::string path = folder.path() + "/talk.session";
  SimDisk disk(1);
  const Said want = keep_one(model, config, disk);
  config.store.checkpoint_ms = 3;
  for (const bool is_first : {true, false}) {
    CAPTURE(is_first);
    Life life(model, config, disk);
    if (is_first) {
      REQUIRE(test::export_session(life.engine(), "talk", path.c_str()).has_value());
      REQUIRE(life.engine().archive().import_from(path.c_str(), {}, "copy").has_value());
    }
    const auto restored = life.engine().sessions().restore("copy");
    REQUIRE(restored.has_value());
    CHECK_FALSE(restored->is_cut_off);
    life.open.run();
    CHECK((life.extents().bytes_written == 0) == !is_first);
    CHECK(life.extents().n_codebooks_read == (is_first ? 0 : life.n_heads()));
    if (!is_first) require_same(want, go_on(life, restored->idx));
  }
}

}  // namespace
}  // namespace tarn::engine::save_restore_index_native_test
