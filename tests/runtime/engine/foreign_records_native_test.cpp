// Goal    a record under the key of a group, whole but of another size, harms nobody: it is not
//         taken for the group, gives way when the group is stored, and an export ends before it.
// Method  a saved session's file on the simulated disk, in which a store that is opened beside
//         the engine puts such records in the place of its own.
#include <doctest/doctest.h>

#include <filesystem>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"
#include "tests/support/store_harness.h"
#include "tests/support/temp_dir.h"

namespace tarn::engine::foreign_records_native_test {
namespace {

using test::create;
using test::first_part;
using test::require_same;
using test::Second;
using test::second_part;
using test::SimDisk;
using test::SmallModel;
using How = test::SavedHow;
using Life = test::SavedLife;

constexpr u32 kPrompt = 490;

// Every group of the file by one of so many bytes, with its key and tokens.
u32 replace_groups(SimDisk& disk, u64 payload_bytes) {
  VirtualClock clock;
  test::SimIo io(disk, clock, 64);
  const auto image = disk.file_bytes(test::kSavedFile);
  store::Label label;
  REQUIRE(store::parse_label(crc32c_ways()[0], std::span(image).first(kSectorBytes), label) ==
          store::LabelState::good);
  test::StoreHarness bench(io, clock, test::kSavedFile,
                           {.file_bytes = image.size(),
                            .frame_bytes = label.frame_bytes,
                            .head_bytes_max = 4 * kSectorBytes});
  REQUIRE(bench.open() == store::Mode::on);
  std::vector<test::TestRecord> records;
  const store::RecordIndex& index = bench.store.index();
  for (u32 i = 0; i < index.n_frames(); ++i) {
    const store::IndexEntry& entry = index.frame(i);
    if (entry.life != store::Life::published || entry.kind != store::Kind::group) continue;
    alignas(8) std::array<std::byte, kSectorBytes> sector;
    std::copy_n(
        image.begin() + static_cast<std::ptrdiff_t>(store::kFramesBegin + i * label.frame_bytes),
        kSectorBytes, sector.begin());
    auto view = store::parse_head(crc32c_ways()[0],
                                  {label.store_id, label.frame_bytes, index.n_frames(), i}, sector);
    REQUIRE((view && store::parse_meta(crc32c_ways()[0], sector, *view)));
    test::TestRecord record = test::record_of(i, {.payload_bytes = payload_bytes, .n_tokens = 0});
    record.key = entry.key;
    record.token_ids.assign(view->token_ids().begin(), view->token_ids().end());
    records.push_back(record);
  }
  for (const test::TestRecord& record : records) {
    REQUIRE(bench.put(record, store::PutArgs::If::replace));
  }
  REQUIRE(bench.flush());
  bench.close();
  return static_cast<u32>(records.size());
}

void save_one(Life& life, const char* name) {
  const SessionIdx session = create(life);
  (void)first_part(life, session, kPrompt);
  REQUIRE(life.engine().sessions().save(session, name).has_value());
  life.engine().sessions().destroy(session);
}

TEST_CASE("a record of another size under a group's key is never taken for the group") {
  const SmallModel model("llama", "q8_0");
  Life whole(model, {});
  const SessionIdx session = create(whole);
  (void)first_part(whole, session, kPrompt);
  const Second want = second_part(whole, session);
  for (const u64 payload_bytes : {u64{4096}, u64{5000}, u64{8192 + 4096}}) {
    CAPTURE(payload_bytes);
    const test::TempDir folder("foreign_records");
    std::filesystem::create_directory(folder.path());
    const std::string file = folder.path() + "/talk.session";
    const How how{.few_frames = true};
    SimDisk disk(1);
    {
      Life life(model, how, disk);
      save_one(life, "talk");
    }
    CHECK(replace_groups(disk, payload_bytes) > 0);
    Life life(model, how, disk);
    const auto exported = test::export_session(life, "talk", file.c_str());
    REQUIRE(exported.has_value());
    CHECK(exported->n_slots == 0);
    CHECK(exported->n_tokens == kPrompt + 20);
    // All of it is computed anew; what is spilled finds its key taken.
    const SessionIdx restored = life.restore();
    CHECK(life.engine().sessions().state(restored).sequence.n_slots() == 0);
    life.open.run();
    require_same(want, second_part(life, restored));
    CHECK(lab::Probe::tiers(life.engine()).mover.stats().bytes_loaded > 0);
    CHECK(lab::Probe::tiers(life.engine()).mover.stats().n_lost == 0);
  }
}

TEST_CASE("an import puts its groups in the place of records of another size") {
  const SmallModel model("llama", "q8_0");
  const test::TempDir folder("foreign_import");
  std::filesystem::create_directory(folder.path());
  const std::string file = folder.path() + "/talk.session";
  SimDisk disk(1);
  {
    Life life(model, {}, disk);
    save_one(life, "talk");
    REQUIRE(test::export_session(life, "talk", file.c_str()).has_value());
  }
  const u32 n_groups = replace_groups(disk, 5000);
  Life life(model, {}, disk);
  const auto imported = life.engine().archive().import_from(file.c_str(), {}, "again");
  REQUIRE(imported.has_value());
  CHECK(imported->n_groups_new == n_groups);
  CHECK(life.engine().sessions().state(life.restore("again")).sequence.n_slots() == kPrompt + 19);
}

}  // namespace
}  // namespace tarn::engine::foreign_records_native_test
