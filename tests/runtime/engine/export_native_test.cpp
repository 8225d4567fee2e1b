// Goal    an exported session goes on in another store with the bits of one that never was; a file
//         that is damaged, cut, of another model or other settings is refused and leaves nothing;
//         an export that fails leaves nothing under its name; a deleted session is gone, and what
//         others share stays.
// Method  engines over simulated disks, with a secret each, and a real file between them; every
//         sector and every head of the file with a bit flipped, every kind of lie under a good
//         checksum; a disk that fails in the middle; a limit on the length of files.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"
#include "tests/support/pack_of_one.h"
#include "tests/support/store_invariants.h"
#include "tests/support/temp_dir.h"
#include "tools/support/input.h"

namespace tarn::engine::export_native_test {
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

constexpr u64 kGroupBytes = 8192;  // of the model's KV in f16
constexpr u32 kLayers = 2;

struct Folder {
  Folder() : dir("export_test") { std::filesystem::create_directory(dir.path()); }
  std::string file(const char* name = "talk.session") const { return dir.path() + "/" + name; }
  u64 n_files() const {
    const std::filesystem::directory_iterator all(dir.path());
    return static_cast<u64>(std::distance(begin(all), end(all)));
  }
  test::TempDir dir;
};

void save_one(Life& life, const char* name, u32 n_prompt) {
  const SessionIdx session = create(life);
  (void)first_part(life, session, n_prompt);
  REQUIRE(life.engine().sessions().save(session, name).has_value());
  life.engine().sessions().destroy(session);
}

reuse::ExportDone exported(Life& life, const std::string& path, const char* name = "talk") {
  const auto done = test::export_session(life, name, path.c_str());
  if (!done) FAIL(std::string(done.error().hint));
  return *done;
}

// What a store holds; an import that fails changes nothing of it.
struct Holds {
  u32 n_records = 0, n_free = 0;
  friend bool operator==(const Holds&, const Holds&) = default;
};
Holds holds(Life& life) {
  const store::RecordIndex& index = lab::Probe::tiers(life.engine()).store.store().index();
  test::check_invariants(index);
  return {index.n_records(), index.n_free()};
}

TEST_CASE("an exported session goes on in another store with the bits of one that never was") {
  const SmallModel model("llama", "q8_0");
  for (const KvTypeChoice kv_type : {KvTypeChoice::f16, KvTypeChoice::q8_0, KvTypeChoice::q4_0}) {
    // 19 tokens more are in the KV: no full page, full pages alone, with a tail.
    for (const u32 n_prompt : {3u, 13u, 490u}) {
      CAPTURE(kv_type);
      CAPTURE(n_prompt);
      const How how{.kv_type = kv_type};
      const Folder folder;
      Life whole(model, how);
      const SessionIdx session = create(whole);
      (void)first_part(whole, session, n_prompt);
      const Second want = second_part(whole, session);
      SimDisk disk(1), other_disk(2);
      Life first(model, how, disk);
      save_one(first, "talk", n_prompt);
      const reuse::ExportDone done = exported(first, folder.file());
      CHECK(done.n_tokens == n_prompt + 20);
      CHECK(done.n_slots == n_prompt + 19);
      CHECK(std::filesystem::file_size(folder.file()) == done.file_bytes);
      CHECK(folder.n_files() == 1);
      {
        Life second(model, how, other_disk);
        CHECK(lab::Probe::tiers(first.engine()).store.store().secret() !=
              lab::Probe::tiers(second.engine()).store.store().secret());
        const auto imported =
            second.engine().archive().import_from(folder.file().c_str(), {}, "moved");
        REQUIRE(imported.has_value());
        CHECK(imported->n_tokens == done.n_tokens);
        CHECK(imported->n_groups_new == kLayers * ((n_prompt + 19 + 15) / 16));
        CHECK(second.why_not("talk") == Status::not_found);
      }
      Life third(model, how, other_disk);  // after a restart
      const SessionIdx restored = third.restore("moved");
      CHECK(third.engine().sessions().state(restored).sequence.n_slots() == n_prompt + 19);
      require_same(want, second_part(third, restored));
      CHECK(lab::Probe::tiers(third.engine()).mover.stats().n_lost == 0);
      CHECK(lab::Probe::tiers(third.engine()).mover.stats().bytes_loaded > 0);
    }
  }
}

TEST_CASE("what the store has already is not written again; what it has lost is left out") {
  const SmallModel model("llama", "q8_0");
  const Folder folder;
  SimDisk disk(1);
  Life life(model, {}, disk);
  save_one(life, "talk", 200);
  (void)exported(life, folder.file());
  const Holds before = holds(life);
  const auto again = life.engine().archive().import_from(folder.file().c_str(), {}, "copy");
  REQUIRE(again.has_value());
  CHECK(again->n_groups_new == 0);
  CHECK(holds(life).n_records == before.n_records + 1);
  const auto same = life.engine().archive().import_from(folder.file().c_str(), {}, "");
  REQUIRE(same.has_value());
  CHECK(same->n_there == 1);
  save_one(life, "other", 30);
  const auto taken = life.engine().archive().import_from(folder.file().c_str(), {}, "other");
  REQUIRE_FALSE(taken.has_value());
  CHECK(taken.error().status == Status::invalid_request);
  CHECK(std::string(taken.error().detail.c_str()) == "other");
  // The file takes the place of one that is there.
  CHECK(exported(life, folder.file(), "copy").n_slots == 219);
  CHECK(folder.n_files() == 1);

  // A group in the middle is found damaged: the export fails, and the next one ends before it.
  disk.script.ppm[static_cast<u32>(test::SimFault::flipped_read)] = 200'000;
  Result<reuse::ExportDone> damaged = test::export_session(life, "copy", folder.file("b").c_str());
  disk.script.ppm = {};
  REQUIRE_FALSE(damaged.has_value());
  CHECK(damaged.error().status == Status::io_failed);
  CHECK(folder.n_files() == 1);
  const auto cut = test::export_session(life, "talk", folder.file("b").c_str());
  if (!cut) return;  // its manifest was what was damaged
  CHECK(cut->n_slots < 219);
  CHECK(cut->n_tokens == 220);
  SimDisk other_disk(2);
  Life other(model, {}, other_disk);
  REQUIRE(other.engine().archive().import_from(folder.file("b").c_str(), {}, "").has_value());
  const SessionIdx restored = other.restore();
  CHECK(other.engine().sessions().state(restored).sequence.n_slots() == cut->n_slots);
  other.open.run();  // the rest is computed anew
  CHECK(other.engine().sessions().state(restored).sequence.n_slots() == 219);
}

TEST_CASE("a session of another model, or of other settings, is refused by the field") {
  const SmallModel model("llama", "q8_0"), other_model("llama", "q8_0", 2);
  const Folder folder;
  SimDisk disk(1);
  Life life(model, {}, disk);
  save_one(life, "talk", 100);
  (void)exported(life, folder.file());
  struct Case {
    const SmallModel* model;
    How how;
    const char* field;
    const char* name;
  };
  const std::string long_name(129, 'n');
  const Case cases[] = {
      {&other_model, {}, "saved with model = ", ""},
      {&model, {.kv_type = KvTypeChoice::q8_0}, "kv.type = f16; this engine has q8_0", ""},
      {&model, {.page_tokens = 32}, "kv.page_tokens = 16; this engine has 32", ""},
      {&model, {.context_tokens = 64}, "talk", ""},
      {&model, {}, "", long_name.c_str()},
  };
  for (const Case& c : cases) {
    CAPTURE(c.field);
    SimDisk other_disk(2);
    Life other(*c.model, c.how, other_disk);
    const Holds before = holds(other);
    const auto imported = other.engine().archive().import_from(folder.file().c_str(), {}, c.name);
    REQUIRE_FALSE(imported.has_value());
    CHECK(imported.error().status == Status::invalid_request);
    CHECK(std::string(imported.error().detail.c_str()).find(c.field) != std::string::npos);
    CHECK(std::strlen(imported.error().hint) > 30);
    CHECK(holds(other) == before);
  }
  // An open session's name is its own, whatever lies in the store.
  SimDisk other_disk(2);
  Life other(model, {}, other_disk);
  REQUIRE(other.engine().sessions().autosave(create(other), "talk").has_value());
  const auto taken = other.engine().archive().import_from(folder.file().c_str(), {}, "");
  REQUIRE_FALSE(taken.has_value());
  CHECK(taken.error().status == Status::invalid_request);
  CHECK(other.engine().archive().erase({}, "talk").error().status == Status::invalid_request);
  Life none(model, {});
  CHECK(none.engine().archive().import_from(folder.file().c_str(), {}, "").error().status ==
        Status::invalid_request);
  CHECK(test::export_session(none, "talk", folder.file("x").c_str()).error().status ==
        Status::invalid_request);
  CHECK(test::export_session(life, "nobody", folder.file("x").c_str()).error().status ==
        Status::not_found);
  CHECK(life.engine().archive().import_from("/nowhere/at/all", {}, "").error().status ==
        Status::io_failed);
  CHECK(folder.n_files() == 1);
}

// The same head with other words, and a good checksum.
void put_head(std::string& bytes, reuse::SessionFileHead head) {
  const auto sector = std::as_writable_bytes(std::span(bytes)).first(kSectorBytes);
  reuse::encode_session_head(crc32c_ways()[0], head, sector);
}

TEST_CASE("a damaged file is refused and leaves nothing, wherever it was hit") {
  const SmallModel model("llama", "q8_0");
  const Folder folder;
  SimDisk disk(1), other_disk(2);
  Life life(model, {}, disk);
  save_one(life, "talk", 100);
  (void)exported(life, folder.file());
  save_one(life, "else", 101);
  (void)exported(life, folder.file("else"), "else");
  const std::string whole = test::session_of(tools::read_file(folder.file()));
  const std::string other = test::session_of(tools::read_file(folder.file("else")));
  REQUIRE(whole.size() == other.size());
  const std::string path = folder.file("damaged");
  Life target(model, {}, other_disk);
  const Holds before = holds(target);
  const auto write = [&](const std::string& session) {
    const std::string pack = test::pack_of_one(session);
    tools::write_file(path, pack.data(), pack.size());
  };
  const auto check_refused = [&](const std::string& bytes, Status status = Status::io_failed) {
    write(bytes);
    const auto imported = target.engine().archive().import_from(path.c_str(), {}, "");
    REQUIRE_FALSE(imported.has_value());
    CHECK(imported.error().status == status);
    CHECK(holds(target) == before);
  };
  const u64 groups_begin = 2 * kSectorBytes;
  const u64 group_bytes = sizeof(reuse::SessionGroupHead) + kGroupBytes;
  REQUIRE(whole.size() == groups_begin + kLayers * 8 * group_bytes);
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  // Bits: of each byte of the heads, and one of each sector.
  std::vector<u64> places;
  for (u64 i = 0; i < sizeof(reuse::SessionFileHead); ++i) places.push_back(i);
  for (u64 i = 0; i < sizeof(reuse::SessionGroupHead); ++i) {
    places.push_back(groups_begin + 3 * group_bytes + i);
  }
  for (u64 i = 0; i < whole.size(); i += kSectorBytes) {
    places.push_back(i + random.below(std::min(kSectorBytes, whole.size() - i)));
  }
  for (const u64 at : places) {
    CAPTURE(at);
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
    check_refused(bytes);
  }
  for (const u64 n_bytes :
       {u64{0}, u64{1}, u64{55}, kSectorBytes - 1, kSectorBytes, groups_begin - 1, groups_begin,
        groups_begin + 64, whole.size() - group_bytes, whole.size() - 1}) {
    CAPTURE(n_bytes);
    check_refused(whole.substr(0, n_bytes));
  }
  check_refused(whole + "x");
  // Groups of this file in other places, and of another file.
  for (const u32 distance : {1u, kLayers}) {  // another layer of the page, the layer's next page
    CAPTURE(distance);
    std::string swapped = whole;
    const auto first = swapped.begin() + groups_begin;
    std::swap_ranges(first, first + group_bytes, first + distance * group_bytes);
    check_refused(swapped);
  }
  check_refused(whole.substr(0, groups_begin) + other.substr(groups_begin));
  check_refused(other.substr(0, groups_begin) + whole.substr(groups_begin));

  // Lies under a good checksum.
  reuse::SessionFileHead head;
  std::memcpy(&head, whole.data(), sizeof head);
  using Head = reuse::SessionFileHead;
  const std::function<void(Head&)> lies[] = {
      [](Head& h) { h.n_pages += 1; },
      [](Head& h) { h.n_pages = ~u32{0}; },
      [](Head& h) { h.n_layers = 0; },
      [](Head& h) { h.n_layers = 1; },
      [](Head& h) { h.n_layers = ~u32{0}; },
      [](Head& h) { h.group_bytes = 0; },
      [](Head& h) { h.group_bytes = 4096; },
      [](Head& h) { h.group_bytes += 1; },
      [](Head& h) { h.group_bytes = u64{1} << 40; },
      [](Head& h) { h.manifest_bytes = 0; },
      [](Head& h) { h.manifest_bytes += 8; },
      [](Head& h) { h.manifest_bytes = ~u64{0}; },
      [](Head& h) { h.manifest_crc += 1; },
      [](Head& h) { h.first_page = 1; },
  };
  for (u64 i = 0; i < std::size(lies); ++i) {
    CAPTURE(i);
    std::string bytes = whole;
    Head lie = head;
    lies[i](lie);
    put_head(bytes, lie);
    check_refused(bytes);
    bytes.resize(std::min<u64>(reuse::session_file_bytes(lie), 4 * whole.size()));  // as long
    check_refused(bytes);
  }
  // Fewer pages than the manifest names are none: what the store had lost is computed anew.
  std::string shorter = whole;
  Head fewer = head;
  fewer.n_pages -= 1;
  put_head(shorter, fewer);
  check_refused(shorter);
  shorter.resize(reuse::session_file_bytes(fewer));
  write(shorter);
  CHECK(target.engine().archive().import_from(path.c_str(), {}, "shorter").has_value());
  write(whole);
  CHECK(target.engine().archive().import_from(path.c_str(), {}, "").has_value());
  CHECK(target.engine().sessions().state(target.restore()).sequence.n_slots() == 119);
}

TEST_CASE("a newer format is left alone") {
  alignas(8) std::array<std::byte, kSectorBytes> sector{};
  const Crc32c& crc = crc32c_ways()[0];
  reuse::encode_session_head(crc, {.group_bytes = 4096, .n_layers = 1}, sector);
  const u64 n_bytes = kSectorBytes;
  CHECK(reuse::parse_session_head(crc, sector, n_bytes).has_value());
  reuse::SessionFileHead head;
  std::memcpy(&head, sector.data(), sizeof head);
  for (const u32 version : {0u, 2u}) {
    head.version = version;
    head.head_crc = 0;
    std::memcpy(sector.data(), &head, sizeof head);
    head.head_crc = crc.bytes(sector.data(), sector.size());
    std::memcpy(sector.data(), &head, sizeof head);
    const auto parsed = reuse::parse_session_head(crc, sector, n_bytes);
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().status == (version == 2 ? Status::unsupported : Status::io_failed));
  }
}

TEST_CASE("an import that finds no room, or a disk that fails, leaves no part of a session") {
  const SmallModel model("llama", "q8_0");
  const Folder folder;
  SimDisk disk(1);
  {
    Life life(model, {}, disk);
    save_one(life, "talk", 490);
    (void)exported(life, folder.file());
  }
  const u64 frame_bytes = 3 * kSectorBytes;
  {
    SimDisk small_disk(2);
    // Room for the context, most of which an open session holds.
    Life life(model, {.few_frames = true, .quota_bytes = store::kFramesBegin + 158 * frame_bytes},
              small_disk);
    const SessionIdx own = create(life);
    (void)first_part(life, own, 990);
    const u32 n_records = holds(life).n_records;
    const auto imported = life.engine().archive().import_from(folder.file().c_str(), {}, "");
    REQUIRE_FALSE(imported.has_value());
    CHECK(imported.error().status == Status::would_block);
    life.engine().sessions().destroy(own);
    CHECK(life.why_not("talk") == Status::not_found);
    CHECK(holds(life).n_records <= n_records);
  }
  u32 n_failed = 0, n_well = 0;
  for (u64 seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    SimDisk faulty_disk(seed);
    {
      Life life(model, {}, faulty_disk);
      save_one(life, "own", 20);
      faulty_disk.script.errors = {5};  // EIO
      faulty_disk.script.ppm[static_cast<u32>(test::SimFault::error)] = 15'000;
      const auto imported = life.engine().archive().import_from(folder.file().c_str(), {}, "");
      faulty_disk.script.ppm = {};
      ++(imported ? n_well : n_failed);
      if (!imported) CHECK(imported.error().status == Status::io_failed);
    }
    Life life(model, {}, faulty_disk);  // after a restart
    const auto restored = life.engine().sessions().restore("talk");
    if (restored) {
      CHECK(restored->n_computed == 509);
    } else {
      CHECK(restored.error().status == Status::not_found);
    }
    CHECK(life.engine().sessions().restore("own").has_value());
  }
  CHECK(n_failed >= 3);
  CHECK(n_well >= 1);
}

TEST_CASE("an export that may not be written leaves what was there under its name") {
  const SmallModel model("llama", "q8_0");
  const Folder folder;
  SimDisk disk(1);
  Life life(model, {}, disk);
  save_one(life, "talk", 400);
  const std::string old = "an older file";
  tools::write_file(folder.file(), old.data(), old.size());
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const u64 n_bytes : {u64{100}, u64{5000}, u64{100'000}}) {
    CAPTURE(n_bytes);
    rlimit low = limit;
    low.rlim_cur = n_bytes;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);
    const auto done = test::export_session(life, "talk", folder.file().c_str());
    const auto fresh = test::export_session(life, "talk", folder.file("fresh").c_str());
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (const auto& failed : {done, fresh}) {
      REQUIRE_FALSE(failed.has_value());
      CHECK(failed.error().status == Status::io_failed);
      CHECK(std::string(failed.error().hint).find("raise the limit") != std::string::npos);
    }
    CHECK(folder.n_files() == 1);
    CHECK(tools::read_file(folder.file()) == old);
  }
  std::signal(SIGXFSZ, handler);
  (void)exported(life, folder.file());
}

TEST_CASE("a deleted session is gone, also after a restart, and what others share stays") {
  const SmallModel model("llama", "q8_0");
  SimDisk disk(1);
  Second want;
  {
    Life whole(model, {});
    const SessionIdx session = create(whole);
    (void)first_part(whole, session, 200);
    want = second_part(whole, session);
  }
  Life life(model, {}, disk);
  save_one(life, "talk", 200);
  const SessionIdx restored = life.restore();
  REQUIRE(life.engine().sessions().truncate(restored, 100).has_value());
  REQUIRE(life.engine().sessions().feed(restored, test::random_ids(3, 90)).has_value());
  life.open.run();
  REQUIRE(life.engine().sessions().save(restored, "branch").has_value());  // six pages and its own
  const auto open = life.engine().archive().erase({}, "branch");
  REQUIRE_FALSE(open.has_value());
  CHECK(open.error().status == Status::invalid_request);
  life.engine().sessions().destroy(restored);
  const u32 n_before = holds(life).n_records;
  const auto gone = life.engine().archive().erase({}, "branch");
  REQUIRE(gone.has_value());
  CHECK(gone->n_shared == kLayers * 6);
  CHECK(gone->n_erased == kLayers * 6 + 1);  // 189 slots are twelve pages
  CHECK(holds(life).n_records == n_before - kLayers * 6 - 1);
  CHECK(life.why_not("branch") == Status::not_found);
  CHECK(life.engine().archive().erase({}, "branch").error().status == Status::not_found);
  require_same(want, second_part(life, life.restore()));
  life.open.engine.close();
  Life after(model, {}, disk);
  CHECK(after.why_not("branch") == Status::not_found);
  require_same(want, second_part(after, after.restore()));
}

}  // namespace
}  // namespace tarn::engine::export_native_test
