// Goal    what a pack holds comes into another store whole, a shared beginning once; a second time
//         is no error; a damaged, cut or foreign pack is refused by its reason, and leaves nothing;
//         of one that a failing disk cuts off whole sessions stay, and a repeat ends the work.
// Method  sessions made without an engine, on simulated disks; each byte of a pack flipped in turn
//         (a slice here, all of them in pack_slow_test), and each length that is shorter.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "tests/fuzz/session_bytes.h"
#include "tests/runtime/reuse/pack_world.h"
#include "tools/support/input.h"

namespace tarn::reuse::pack_test {
namespace {

using test::CopyBench;
using test::PackWorld;

TEST_CASE("a pack comes into another store whole, and a second time nothing is written") {
  PackWorld world;
  const auto packed = world.make_pack();
  CHECK(packed.n_sessions == 3);
  CHECK(packed.file_bytes == world.whole.size());
  CHECK(packed.n_slots == packed.n_tokens - 3);
  const u64 before = world.there.bench().store.stats().bytes_written;
  auto done = world.there.unpack(world.file.path());
  REQUIRE(done.has_value());
  CHECK(done->n_sessions == 3);
  CHECK(done->n_there == 0);
  CHECK(done->n_tokens == packed.n_tokens);
  CHECK(world.there.sessions() == world.here.sessions());
  CHECK(world.there.holds_nothing());
  CHECK(world.there.bench().store.stats().bytes_written > before);

  const u32 n_records = world.there.n_records();
  done = world.there.unpack(world.file.path());
  REQUIRE(done.has_value());
  CHECK(done->n_there == 3);
  CHECK(done->n_groups_new == 0);
  CHECK(world.there.n_records() == n_records);
  CHECK(world.there.holds_nothing());
  const auto checked = world.there.copy().check({});
  REQUIRE(checked.has_value());
  CHECK(checked->n_records == n_records);
  CHECK(checked->n_damaged == 0);
}

TEST_CASE(
    "a beginning that sessions share is in the pack once, and found again without the first") {
  PackWorld world;
  (void)world.make_pack();
  const auto size_of = [&](std::vector<const char*> names) {
    const auto done = world.here.copy().pack({.path = world.file.path().c_str(), .names = names});
    REQUIRE(done.has_value());
    return done->file_bytes;
  };
  const u64 group_bytes = sizeof(SessionGroupHead) + kSectorBytes;
  const u64 heads = 3 * kSectorBytes;  // the pack's own sector, and a session's two
  CHECK(size_of({"book"}) == kSectorBytes + heads + 3 * CopyBench::kLayers * group_bytes);
  // The fork has a page of its own behind two of the book.
  CHECK(size_of({"book", "fork"}) ==
        size_of({"book"}) + 2 * kSectorBytes + CopyBench::kLayers * group_bytes);
  // Not one after the other: twice.
  CHECK(size_of({"book", "list", "fork"}) ==
        world.whole.size() + 2 * CopyBench::kLayers * group_bytes);
  // A store that has the book already takes the fork in as well.
  (void)size_of({"book", "fork"});
  world.there.save({"book", 49});
  const auto done = world.there.unpack(world.file.path());
  REQUIRE(done.has_value());
  CHECK(done->n_there == 1);
  CHECK(world.there.sessions().at("fork") == world.here.sessions().at("fork"));
}

TEST_CASE("what a session lacks in the store is added from the pack, private pages are not") {
  PackWorld world;
  (void)world.make_pack();
  REQUIRE(world.there.unpack(world.file.path()).has_value());
  const auto all = world.there.sessions();
  // A group in the middle of the book goes.
  const auto manifest_key = store::named_key(world.there.store().secret(), {}, "book");
  REQUIRE(world.there.store().find(manifest_key).has_value());
  world.there.erase_group("book", 1);
  CHECK(world.there.sessions().at("book").n_pages_there == 1);
  auto done = world.there.unpack(world.file.path());
  REQUIRE(done.has_value());
  CHECK(done->n_there == 3);
  CHECK(done->n_groups_new == 1);
  CHECK(world.there.sessions() == all);

  PackWorld approx;
  approx.here.save({"lossy", 60, 900, ~u32{0}, 20});
  REQUIRE(approx.here.copy()
              .pack({.path = approx.file.path().c_str(), .names = std::array{"lossy"}})
              .has_value());
  REQUIRE(approx.there.unpack(approx.file.path()).has_value());
  CHECK(approx.there.sessions().at("lossy").n_pages_there == 4);
  approx.there.erase_group("lossy", 2);
  done = approx.there.unpack(approx.file.path());
  REQUIRE(done.has_value());
  CHECK(done->n_groups_new == 0);
  CHECK(approx.there.sessions().at("lossy").n_pages_there == 2);
}

TEST_CASE("private pages are in the pack for each of their sessions") {
  PackWorld world;
  world.here.save({"lossy", 49, 900, ~u32{0}, 20});
  world.here.save({"longer", 65, 900, ~u32{0}, 20});  // with the same private pages
  CHECK(world.here.copy().pack(
      {.path = world.file.path().c_str(), .names = std::array{"lossy", "longer"}}));
  REQUIRE(world.there.unpack(world.file.path()).has_value());
  REQUIRE(world.there.copy().erase("longer").has_value());
  // The first one has keys of its own here by now, which the second does not know.
  const auto done = world.there.unpack(world.file.path());
  REQUIRE(done.has_value());
  CHECK(done->n_there == 1);
  for (const char* name : {"lossy", "longer"}) {
    CHECK(world.there.sessions().at(name) == world.here.sessions().at(name));
  }
}

TEST_CASE("a session that leaves out pages which no other has is refused") {
  const Crc32c& crc = crc32c_ways()[0];
  const auto book = test::session_bytes(crc, {.n_tokens = 49, .n_slots = 48}, "book");
  const auto other =
      test::session_bytes(crc, {.n_tokens = 49, .n_slots = 48, .first_token = 500}, "other");
  PackWorld world;
  const auto refused = [&](const std::vector<std::byte>& bytes) {
    tools::write_file(world.file.path(), bytes.data(), bytes.size());
    const auto done = world.there.unpack(world.file.path());
    REQUIRE_FALSE(done.has_value());
    CHECK(world.there.holds_nothing());
    return done.error();
  };
  CHECK(std::string(refused(test::pack_bytes(crc, {book}, {1})).detail.c_str()) == "first_page");
  CHECK(world.there.n_records() == 0);
  (void)refused(test::pack_bytes(crc, {book, other}, {0, 1}));  // not its beginning
  CHECK(world.there.sessions().count("book") == 1);
  CHECK(world.there.sessions().size() == 1);
}

TEST_CASE("a pack of another model, KV type or arithmetic is refused by the field") {
  PackWorld world;
  (void)world.make_pack();
  struct Case {
    const char* field;
    void (*change)(KvIdentity& identity);
    const char* says;
  };
  const Case cases[] = {
      {"model = ", [](KvIdentity& i) { i.model.low = 1; }, "another model"},
      {"kv.type = f16; this engine has q8_0", [](KvIdentity& i) { i.kv_type = 1; }, "--kv-type"},
      {"kv.page_tokens = 16; this engine has 32", [](KvIdentity& i) { i.page_tokens = 32; },
       "other settings"},
      {"device.kind = cpu; this engine has cuda",
       [](KvIdentity& i) { i.numerics_id = kGpuNumericsId; }, "--device"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.field);
    KvIdentity identity = CopyBench::identity();
    c.change(identity);
    const auto done = world.there.unpack(world.file.path(), {.identity = &identity});
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().status == Status::invalid_request);
    CHECK(std::string(done.error().detail.c_str()).find(c.field) != std::string::npos);
    CHECK(std::string(done.error().hint).find(c.says) != std::string::npos);
    CHECK(world.there.n_records() == 0);
  }
  const KvIdentity same = CopyBench::identity();
  CHECK(world.there.unpack(world.file.path(), {.identity = &same}).has_value());
}

TEST_CASE("sessions of a pack go to their tenants by name, or to one that is named") {
  PackWorld world;
  const auto key_of = [](CopyBench& bench, const char* tenant) {
    return bench.copy().tenant_key(tenant);
  };
  world.here.save({.name = "book", .n_tokens = 49, .tenant = "alice"});
  const store::Key alice = key_of(world.here, "alice");
  const auto pack = [&](std::span<const char* const> names, std::span<const store::Key> tenants) {
    return world.here.copy().pack(
        {.path = world.file.path().c_str(), .names = names, .tenants = tenants});
  };
  CHECK(pack({}, {})->n_sessions == 4);
  CHECK(pack({}, std::span(&alice, 1))->n_sessions == 1);
  CHECK(pack(std::array{"list"}, std::span(&alice, 1)).error().status == Status::not_found);
  REQUIRE(pack(std::array{"book", "book"}, std::array{alice, store::Key{}}).has_value());
  const auto own = world.there.unpack(world.file.path());
  REQUIRE(own.has_value());
  CHECK(own->n_sessions == 2);
  CHECK(world.there.copy().find_record("book", key_of(world.there, "alice")).has_value());
  CHECK(world.there.copy().find_record("book").has_value());
  REQUIRE(pack(std::array{"book"}, std::span(&alice, 1)).has_value());
  CHECK(world.there.unpack(world.file.path())->n_there == 1);  // the same once more
  REQUIRE(world.there.unpack(world.file.path(), {.tenant = "bob"}).has_value());
  CHECK(world.there.copy().find_record("book", key_of(world.there, "bob")).has_value());
  CHECK(world.there.copy().check({})->n_damaged == 0);
}

TEST_CASE("a name that is taken, or given to several, is refused, and nothing is written") {
  PackWorld world;
  (void)world.make_pack();
  world.there.save({"list", 40, 3});  // other tokens
  const u32 n_records = world.there.n_records();
  auto done = world.there.unpack(world.file.path());
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().status == Status::invalid_request);
  CHECK(std::string(done.error().detail.c_str()) == "list");
  done = world.there.unpack(world.file.path(), {.name = "one for all"});
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().status == Status::invalid_request);
  CHECK(world.there.n_records() == n_records);
  // Whoever owns the store may refuse a name, too.
  const auto no = [](void*, const store::Key&, std::string_view name) -> Result<void> {
    if (name != "fork") return {};
    return fail({.status = Status::would_block, .hint = "it is open"});
  };
  REQUIRE(world.there.copy().erase("list").has_value());
  done = world.there.unpack(world.file.path(), {.check_name = no});
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().status == Status::would_block);
  CHECK(world.there.sessions().empty());
}

TEST_CASE("a pack that is larger than the store is refused before anything is evicted") {
  PackWorld world(/*n_frames_there=*/12);
  (void)world.make_pack();
  world.there.save({"own", 20, 500});
  const auto own = world.there.sessions();
  const auto done = world.there.unpack(world.file.path());
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().status == Status::would_block);
  CHECK(world.there.sessions() == own);
}

TEST_CASE("pages that open sessions hold need no room of their own") {
  PackWorld world(/*n_frames_there=*/14);  // of the 13 that the pack takes, 6 are held
  (void)world.make_pack();
  world.there.save({"book", 49});
  std::vector<store::RecordRef> held;
  each_record(world.there.store(), [&](store::RecordRef ref, const store::IndexEntry& entry) {
    if (entry.kind == store::Kind::group) held.push_back(ref);
  });
  for (const store::RecordRef ref : held) world.there.store().pin(ref);
  CHECK(held.size() == 6);
  CHECK(world.there.unpack(world.file.path()).has_value());
  CHECK(world.there.sessions() == world.here.sessions());
  for (const store::RecordRef ref : held) world.there.store().unpin(ref);
}

TEST_CASE("a pack that a disk cuts off leaves whole sessions, and a repeat ends the work") {
  u32 n_failed = 0, n_part = 0, n_ended = 0;
  for (u64 seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    PackWorld world(64, seed);
    (void)world.make_pack();
    world.there.save({"own", 49});         // with all tokens of the book
    world.disk_there.script.errors = {5};  // EIO
    world.disk_there.script.ppm[static_cast<u32>(test::SimFault::error)] = 25'000;
    const auto done = world.there.unpack(world.file.path());
    world.disk_there.script.ppm = {};
    CHECK(world.there.holds_nothing());
    if (done) continue;
    ++n_failed;
    const auto sessions = world.there.sessions();
    CHECK(sessions.count("own") == 1);
    n_part += sessions.size() > 1;
    for (const auto& each : sessions) {
      if (each.first == "own") continue;
      CAPTURE(each.first);
      CHECK(each.second == world.here.sessions().at(each.first));
    }
    if (world.there.store().mode() != store::Mode::on) continue;  // it has become read-only
    ++n_ended;
    REQUIRE(world.there.unpack(world.file.path()).has_value());
    for (const auto& [name, session] : world.here.sessions())
      CHECK(world.there.sessions().at(name) == session);
    CHECK(world.there.copy().check({})->n_damaged == 0);
  }
  CHECK(n_failed >= 5);
  CHECK(n_part >= 1);
  CHECK(n_ended >= 1);
}

TEST_CASE("a pack with a flipped byte is refused, wherever it is, and leaves nothing") {
  PackWorld world;
  (void)world.make_pack();
  world.flip_each(/*stride=*/61);
  const u64 heads = pack_sessions_begin(3);
  for (u64 at = 0; at < heads; at += 5) world.flip(at);
}

TEST_CASE("a pack that is cut at any length, or longer, is refused") {
  PackWorld world;
  (void)world.make_pack();
  for (u64 n = world.whole.size() - 1; n + 1 > 0; n -= std::min<u64>(n + 1, 17)) {
    std::filesystem::resize_file(world.file.path(), n);
    CAPTURE(n);
    world.require_refused();
    if (n == 0) break;
  }
  const std::string longer = world.whole + '\0';
  tools::write_file(world.file.path(), longer.data(), longer.size());
  world.require_refused();
}

// A pack whose head and table are right for what they say.
struct Lie {
  const char* what;
  void (*tell)(PackHead& head, std::vector<PackEntry>& table);
};

TEST_CASE("lies under good checksums are refused") {
  PackWorld world;
  (void)world.make_pack();
  const Lie lies[] = {
      {"no sessions", [](PackHead& h, std::vector<PackEntry>&) { h.n_sessions = 0; }},
      {"more sessions", [](PackHead& h, std::vector<PackEntry>&) { h.n_sessions = 4; }},
      {"too many", [](PackHead& h, std::vector<PackEntry>&) { h.n_sessions = ~u32{0}; }},
      {"fewer sessions",
       [](PackHead& h, std::vector<PackEntry>& t) { h.n_sessions = 2, t.pop_back(); }},
      {"shorter", [](PackHead& h, std::vector<PackEntry>&) { h.n_bytes -= 1; }},
      {"an entry too long", [](PackHead&, std::vector<PackEntry>& t) { t[1].n_bytes += 64; }},
      {"an entry of everything",
       [](PackHead&, std::vector<PackEntry>& t) { t[0].n_bytes = ~u64{0}; }},
      {"bytes moved",
       [](PackHead&, std::vector<PackEntry>& t) { t[0].n_bytes += 64, t[1].n_bytes -= 64; }},
      {"another head", [](PackHead&, std::vector<PackEntry>& t) { t[1].head_crc += 1; }},
      {"reserved", [](PackHead&, std::vector<PackEntry>& t) { t[1].reserved = 1; }},
      {"the first two exchanged",
       [](PackHead&, std::vector<PackEntry>& t) { std::swap(t[0], t[1]); }},
  };
  for (const Lie& lie : lies) {
    CAPTURE(lie.what);
    world.tell(lie.tell);
    world.require_refused();
  }
  world.tell([](PackHead&, std::vector<PackEntry>&) {}, /*crc_error=*/1);
  world.require_refused();
  world.tell([](PackHead&, std::vector<PackEntry>&) {});
  CHECK(world.there.unpack(world.file.path()).has_value());
}

TEST_CASE("a pack of a later version is refused as such") {
  alignas(8) std::array<std::byte, kSectorBytes> sector{};
  const Crc32c& crc = crc32c_ways()[0];
  encode_pack_head(crc, {.n_bytes = 3 * kSectorBytes, .n_sessions = 1}, sector);
  CHECK(parse_pack_head(crc, sector, 3 * kSectorBytes).has_value());
  PackHead head;
  std::memcpy(&head, sector.data(), sizeof head);
  for (const u32 version : {0u, 2u}) {
    head.version = version;
    head.head_crc = 0;
    std::memcpy(sector.data(), &head, sizeof head);
    head.head_crc = crc.bytes(sector.data(), sector.size());
    std::memcpy(sector.data(), &head, sizeof head);
    const auto parsed = parse_pack_head(crc, sector, 3 * kSectorBytes);
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().status == (version == 2 ? Status::unsupported : Status::io_failed));
  }
}

}  // namespace
}  // namespace tarn::reuse::pack_test
