// Goal    what a folder keeps is shown with the space it takes; a damaged file is found, and mended
//         when asked; several sessions go to another folder in one file and go on there with the
//         same words; what is refused says why.
// Method  the program as a shell starts it, on a tiny model; bytes flipped in the store's file.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "runtime/store/record.h"
#include "tests/support/skip.h"
#include "tests/tools/tarn/kept_world.h"
#include "tools/support/input.h"

namespace tarn::store_native_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::has;
using World = test::KeptWorld;

const std::string kText(300, 'a');  // several pages

// A world with a text, two conversations that begin with it, and one that does not.
struct Documents : World {
  Documents() {
    (void)say(here, "book", kText);
    (void)say(here, "alice", kText + " Alice asks:");
    (void)say(here, "bob", kText + " Bob asks:");
    (void)say(here, "list", "A list:");
  }
  std::string path() const { return here.path() + "/sessions.tarn"; }
};

// Two programs print an age, one after the other.
std::string without_ages(const std::string& rows) {
  return std::regex_replace(rows, std::regex(" +[0-9]+ s "), " AGE ");
}

TEST_CASE("ls shows the sessions, the space, and what is evicted first") {
  Documents world;
  const Ended ended = world.store(world.here, {"ls"});
  CAPTURE(ended.out);
  REQUIRE(ended.exit_code == 0);
  for (const char* part :
       {"\nbook ", "\nalice ", "\nbob ", "\nlist ", "complete", " f16 ", "sessions.tarn, ",
        "KV that no session names", "free ", "evicted first",
        "evicted after: new data until this session", "order of use is not on disk"}) {
    CHECK(has(ended.out, part));
  }
  const Ended as_json = world.store(world.here, {"ls", "--json"});
  for (const char* key : {"\"name\": \"book\"", "\"evicted_after_bytes\": ", "\"free_bytes\": ",
                          "\"sessions_bytes\": ", "\"evicted_next\": "}) {
    CHECK(has(as_json.out, key));
  }
  // The view shows the same rows.
  CHECK(has(without_ages(ended.out), without_ages(world.listed(world.here))));
  // Where they differ, it is said how another engine would restore them.
  const char* const kAnew = "sessions of another kv.type than its own anew";
  CHECK_FALSE(has(ended.out, kAnew));
  REQUIRE(test::run_tarn({"run", "-m", world.model.path(), "-p", "Other:", "-n", "2", "-c", "512",
                          "--session", "other", "--kv-type", "q8_0", "--store", world.here.path()})
              .exit_code == 0);
  CHECK(has(world.store(world.here, {"ls"}).out, kAnew));
  CHECK(world.store(world.here, {"rm", "other"}).exit_code == 0);
  // Deleted, a session is gone, and what it alone had is free.
  CHECK(world.store(world.here, {"rm", "list"}).exit_code == 0);
  CHECK_FALSE(has(world.store(world.here, {"ls"}).out, "\nlist "));
  CHECK(world.store(world.here, {"rm", "list"}).exit_code == 78);
}

TEST_CASE("all sessions go to another folder in one file, and go on with the same words") {
  Documents world;
  Ended ended = world.store(world.here, {"pack", "-o", world.file.path()});
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "sessions: 4"));
  // The common beginning is there once.
  u64 n_alone = 0;
  for (const char* name : {"book", "alice", "bob", "list"}) {
    const test::TempFile one("one.pack");
    REQUIRE(world.store(world.here, {"pack", name, "-o", one.path()}).exit_code == 0);
    n_alone += fs::file_size(one.path());
  }
  CHECK(fs::file_size(world.file.path()) < n_alone * 3 / 4);

  ended = world.store(world.there, {"unpack", world.file.path()});
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "session bob: imported"));
  const u64 n_bytes = fs::file_size(world.there.path() + "/sessions.tarn");
  ended = world.store(world.there, {"unpack", world.file.path()});
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "session bob: already there, skipped"));
  CHECK(fs::file_size(world.there.path() + "/sessions.tarn") == n_bytes);
  CHECK(world.store(world.there, {"check"}).exit_code == 0);
  for (const char* name : {"book", "alice", "bob", "list"}) {
    CHECK(world.say(world.there, name, " and then") == world.say(world.here, name, " and then"));
  }
}

TEST_CASE("an engine with the model takes a pack, or refuses it by the field") {
  Documents world;
  REQUIRE(world.store(world.here, {"pack", "-o", world.file.path()}).exit_code == 0);
  struct Case {
    std::vector<std::string> words;
    int exit_code;
    const char* says;
  };
  const Case cases[] = {
      {{"-m", world.other_model.path()}, 78, "another model"},
      {{"-m", world.model.path(), "--kv-type", "q8_0"},
       78,
       "was saved with kv.type = f16; this engine has q8_0"},
      {{"--as", "one"}, 78, "this pack has several"},
      {{"-m", world.model.path()}, 0, "sessions: 4, 4 imported, 0 already there"},
      {{"-m", world.model.path()}, 0, "sessions: 4, 0 imported, 4 already there"},
  };
  for (const Case& c : cases) {
    std::vector<std::string> words = {"unpack", world.file.path()};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const Ended ended = world.store(world.there, words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(has(ended.err, c.says));
    CHECK(fs::exists(world.there.path() + "/sessions.tarn") == (c.exit_code == 0));
  }
}

// Where heads of records of this kind begin.
std::vector<u64> heads_of(const std::string& bytes, store::Kind kind) {
  store::Label label;
  std::memcpy(&label, bytes.data(), sizeof label);
  std::vector<u64> found;
  for (u64 at = store::kFramesBegin; at < bytes.size(); at += label.frame_bytes) {
    store::RecordHead head;
    std::memcpy(&head, bytes.data() + at, sizeof head);
    const bool is_head = std::memcmp(head.magic.data(), "TARNREC1", 8) == 0;
    if (is_head && head.kind == static_cast<u32>(kind)) found.push_back(at);
  }
  return found;
}

TEST_CASE("check finds what is damaged, changes nothing, and with --remove drops it") {
  Documents world;
  Ended ended = world.store(world.here, {"check"});
  CAPTURE(ended.out);
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.out, "no damage"));
  CHECK(has(ended.out, "MB/s"));
  const std::string whole = tools::read_file(world.path());
  const auto groups = heads_of(whole, store::Kind::group);
  const auto manifests = heads_of(whole, store::Kind::manifest);
  struct Case {
    u64 at;
    const char* says;
  };
  const Case cases[] = {
      {groups[0] + 4096 + 100, "KV group in frame"},
      {groups[1] + 200, "damaged or unreadable heads"},
      {manifests[0] + 4096 + 10, "manifest of a session in frame"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.says);
    std::string bytes = whole;
    bytes[c.at] = static_cast<char>(bytes[c.at] ^ 1);
    tools::write_file(world.path(), bytes.data(), bytes.size());
    for (u32 i = 0; i < 2; ++i) {  // looking twice finds the same
      ended = world.store(world.here, {"check"});
      CHECK(ended.exit_code == 74);
      CHECK(has(ended.out, c.says));
      CHECK(has(ended.err, "damaged records: 1"));
      CHECK(has(ended.err, "--remove"));
    }
    CHECK(has(world.store(world.here, {"check", "--json"}).out, "\"damaged\": 1"));
    CHECK(tools::read_file(world.path()) == bytes);
    ended = world.store(world.here, {"check", "--remove"});
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(has(ended.out, c.says));
    ended = world.store(world.here, {"check"});
    CHECK(ended.exit_code == 0);
    CHECK(has(ended.out, "no damage"));
  }
  // What was lost is computed anew.
  tools::write_file(world.path(), whole.data(), whole.size());
  const test::TempFile pack("whole.pack");
  REQUIRE(world.store(world.here, {"pack", "alice", "-o", pack.path()}).exit_code == 0);
  REQUIRE(world.store(world.there, {"unpack", pack.path()}).exit_code == 0);
  std::string bytes = whole;
  bytes[groups[0] + 4096] = static_cast<char>(bytes[groups[0] + 4096] ^ 1);
  tools::write_file(world.path(), bytes.data(), bytes.size());
  ended = world.store(world.here, {"check", "--remove"});
  CHECK(has(ended.out, "session alice has lost KV"));
  CHECK(world.say(world.here, "alice", " go on") == world.say(world.there, "alice", " go on"));
}

TEST_CASE("what is not there, or cannot be done, is refused with its reason") {
  World world;
  struct Case {
    std::vector<std::string> words;
    int exit_code;
    const char* says;
  };
  for (const Case& c : {Case{{"ls"}, 74, "there is no such folder"},
                        {{"check"}, 74, "there is no such folder"},
                        {{"pack", "-o", "x"}, 74, "there is no such folder"},
                        {{"unpack", "/nowhere/at/all"}, 74, "/nowhere/at/all"},
                        {{"unpack", world.model.path()}, 74, "the file is no pack"},
                        {{"pack"}, 64, "--output"},
                        {{"rename"}, 64, "rename"},
                        {{}, 74, "there is no such folder"}}) {
    CAPTURE(c.says);
    const Ended ended = world.store(world.here, c.words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(has(ended.err, c.says));
  }
  CHECK_FALSE(fs::exists(world.here.path() + "/sessions.tarn"));
  (void)world.say(world.here, "talk", "A list:");
  CHECK(world.store(world.here, {"pack", "nobody", "-o", world.file.path()}).exit_code == 78);
  CHECK(world.store(world.here, {"pack", "talk", "-o", "/nowhere/at/all"}).exit_code == 74);
  CHECK_FALSE(fs::exists(world.file.path()));
  // A folder without a store is no error to look into.
  REQUIRE(fs::create_directory(world.there.path()));
  fs::permissions(world.there.path(), fs::perms::owner_all);
  CHECK(has(world.store(world.there, {"ls"}).out, "nothing is stored"));
  CHECK(world.store(world.there, {"check"}).exit_code == 0);
  // A session that was packed by itself may get another name.
  REQUIRE(world.store(world.here, {"pack", "talk", "-o", world.file.path()}).exit_code == 0);
  CHECK(world.store(world.there, {"unpack", world.file.path(), "--as", "other"}).exit_code == 0);
  CHECK(has(world.store(world.there, {"ls"}).out, "\nother "));
}

// Gives a folder's sessions to a tenant as well.
void copy_to_tenant(World& world, const std::string& tenant) {
  const test::TempFile pack("tenant.pack");
  REQUIRE(world.store(world.here, {"pack", "--tenant", "", "-o", pack.path()}).exit_code == 0);
  REQUIRE(world.store(world.here, {"unpack", pack.path(), "--tenant", tenant}).exit_code == 0);
}

TEST_CASE("rows of all tenants are shown with their tenant, and what is done names it") {
  World world;
  (void)world.say(world.here, "talk", "A list:");
  copy_to_tenant(world, "uid:0");
  copy_to_tenant(world, "a\x1b[2Jb");
  (void)world.say(world.here, "mine", "A list:");
  const std::string list = world.listed(world.here);
  CHECK(has(list, "name tenant"));
  CHECK(has(list, "talk uid:0"));
  CHECK(has(list, "a\\x1b[2Jb"));
  CHECK_FALSE(has(list, "\x1b"));
  CHECK(has(world.store(world.here, {"--json"}).out, "\"tenant\": \"uid:0\""));
  struct Case {
    std::vector<std::string> words;
    int exit_code;
    const char* says;
  };
  const std::string file = world.file.path();
  const Case cases[] = {
      {{"pack", "-o", file}, 0, "sessions: 4"},
      {{"pack", "-o", file, "--tenant", ""}, 0, "sessions: 2"},
      {{"pack", "-o", file, "--tenant", "uid:0"}, 0, "sessions: 1"},
      {{"pack", "-o", file, "--tenant", "nobody"}, 78, "no sessions to pack"},
      {{"pack", "mine", "-o", file}, 0, "sessions: 1"},
      {{"pack", "talk", "-o", file}, 64, "several tenants have a session talk"},
      {{"pack", "talk", "-o", file, "--tenant", "uid:0"}, 0, "sessions: 1"},
      {{"rm"}, 64, "--all"},
      {{"rm", "talk", "--all"}, 64, "--all"},
      {{"rm", "talk"}, 64, "--tenant"},
      {{"rm", "talk", "--tenant", "nobody"}, 78, "no session of this name"},
      {{"rm", "talk", "--tenant", "uid:0"}, 0, "session talk of uid:0: deleted"},
      {{"rm", "--all", "--tenant", "a\x1b[2Jb"}, 0, "of a\\x1b[2Jb: deleted"},
      {{"unpack", file, "--tenant", "other"}, 0, "session talk of other: imported"},
      {{"rm", "--all"}, 0, "session mine: deleted"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.words[0]);
    CAPTURE(c.says);
    const Ended ended = world.store(world.here, c.words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(has(ended.err, c.says));
  }
  CHECK(has(world.listed(world.here), "no sessions in"));
}

TEST_CASE("a store that another program has open names who can be asked") {
  World world;
  (void)world.say(world.here, "talk", "A list:");
  const int fd = open((world.here.path() + "/sessions.tarn").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(flock(fd, LOCK_EX) == 0);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"ls"}, {"check"}, {"rm", "talk"}}) {
    const Ended ended = world.store(world.here, words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 74);
    CHECK(has(ended.err, "tarn store --socket"));
  }
  close(fd);
  CHECK(world.store(world.here, {"ls"}).exit_code == 0);
}

TEST_CASE("a store on read-only media is listed, verified and packed") {
  if (geteuid() != 0) TARN_SKIP("not root: nothing can be mounted");
  World world;
  (void)world.say(world.here, "talk", "A list:");
  fs::permissions(world.here.path(), fs::perms::owner_all | fs::perms::others_read);
  // In a mount namespace of its own.
  const std::string mount = "mount --bind '" + world.here.path() + "' '" + world.here.path() +
                            "' && mount -o remount,ro,bind '" + world.here.path() + "'";
  if (std::system(("unshare -m sh -c \"" + mount + "\" 2>/dev/null").c_str()) != 0)
    TARN_SKIP("no mount namespaces");
  const auto call = [&](const std::string& words) {
    const test::TempFile out("read_only.out");
    const std::string line = "unshare -m sh -c \"" + mount + " && exec '" TARN_PROGRAM "' store " +
                             words + " --store '" + world.here.path() + "'\" >'" + out.path() +
                             "' 2>&1";
    const int status = std::system(line.c_str());
    return std::pair(WEXITSTATUS(status), tools::read_file(out.path()));
  };
  struct Case {
    std::string words;
    int exit_code;
    const char* says;
  };
  const Case cases[] = {{"ls", 0, "\ntalk "},
                        {"check", 0, "no damage"},
                        {"pack -o '" + world.file.path() + "'", 0, "sessions: 1"},
                        {"rm talk", 74, "read-only"}};
  for (const Case& c : cases) {
    CAPTURE(c.words);
    const auto answer = call(c.words);
    const std::string& text = answer.second;
    CAPTURE(text);
    CHECK(answer.first == c.exit_code);
    CHECK(has(text, c.says));
  }
}

}  // namespace
}  // namespace tarn::store_native_test
