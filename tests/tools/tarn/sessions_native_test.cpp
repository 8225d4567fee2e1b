// Goal    what a folder keeps is listed; a session that is exported, and imported into another
//         folder, goes on there as it would have here; a deleted one is gone; what is refused says
//         why, and leaves the folders as they were.
// Method  the program as a shell starts it, on a tiny model.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "tests/tools/tarn/kept_world.h"
#include "tools/support/input.h"

namespace tarn::sessions_native_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::has;
using test::run_tarn;
using World = test::KeptWorld;

// Two listings may lie on both sides of a second.
std::string without_age(const std::string& list) {
  return std::regex_replace(list, std::regex(" +[0-9]+ s "), " ");
}

TEST_CASE("sessions are listed, exported, imported and deleted") {
  World world;
  REQUIRE(fs::create_directory(world.here.path()));
  fs::permissions(world.here.path(), fs::perms::owner_all);
  CHECK(has(world.listed(world.here), "nothing is stored"));
  (void)world.say(world.here, "talk", "Once upon a time there was a rook");
  (void)world.say(world.here, "other one", "A list:");
  const std::string list = world.listed(world.here);
  CAPTURE(list);
  CHECK(has(list, "\ntalk "));
  CHECK(list.find("other one") < list.find("talk"));  // saved last
  CHECK(has(list, " f16 "));
  CHECK(has(list, "complete"));
  CHECK(has(list, "T"));
  CHECK(without_age(world.store(world.here, {"ls"}).out) == without_age(list));
  const Ended as_json = world.store(world.here, {"--json"});
  CHECK(has(as_json.out, "\"name\": \"talk\""));
  CHECK(has(as_json.out, "\"state\": \"complete\""));

  Ended ended = world.store(world.here, {"pack", "talk", "-o", world.file.path()});
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK_FALSE(fs::exists(world.file.path() + ".part"));
  ended = world.store(world.there, {"unpack", world.file.path(), "--as", "moved"});
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(world.listed(world.there), "moved"));
  // By an engine, into a file that must grow for it; then again, and under a name that is taken.
  ended = world.store(world.there, {"unpack", world.file.path(), "-m", world.model.path()});
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  ended = world.store(world.there, {"unpack", world.file.path()});
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "session talk: already there, skipped"));
  const std::string here = world.say(world.here, "talk", " and then");
  CHECK(world.say(world.there, "moved", " and then") == here);
  CHECK(world.say(world.there, "talk", " and then") == here);
  ended = world.store(world.there, {"unpack", world.file.path()});
  CHECK(ended.exit_code == 78);  // it has gone on
  CHECK(has(ended.err, "another session of this name"));

  ended = world.store(world.there, {"rm", "moved"});
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK_FALSE(has(world.listed(world.there), "moved"));
  CHECK(world.store(world.there, {"rm", "moved"}).exit_code == 78);
  CHECK(world.say(world.there, "talk", " again") == world.say(world.here, "talk", " again"));
}

TEST_CASE("a name that would clear the screen is printed as text, by whatever names it") {
  World world;
  const std::string name = "a\x1b[2Jb\r\xc2\x9b", seen = "a\\x1b[2Jb\\x0d\\xc2\\x9b";
  REQUIRE(fs::create_directory(world.here.path()));
  fs::permissions(world.here.path(), fs::perms::owner_all);
  (void)world.say(world.here, name, "Once upon a time");
  std::string all = world.listed(world.here);
  CHECK(has(all, "\n" + seen + " "));
  REQUIRE(world.store(world.here, {"pack", name, "-o", world.file.path()}).exit_code == 0);
  const std::vector<std::vector<std::string>> calls = {{"rm", name}, {"unpack", world.file.path()}};
  for (const auto& call : calls) {
    const Ended ended = world.store(world.here, call);
    CAPTURE(ended.err);
    CHECK(has(ended.err, "session " + seen + ": "));
    all += ended.out + ended.err;
  }
  CHECK(world.store(world.here, {"rm", name}).exit_code == 0);
  const Ended refused = world.store(world.here, {"rm", name});
  CHECK(refused.exit_code == 78);
  all += refused.err;
  for (const char* raw : {"\x1b", "\r", "\xc2\x9b"}) CHECK_FALSE(has(all, raw));
}

TEST_CASE("an import that is refused changes no session, and says where the file has grown") {
  World world;
  (void)world.say(world.here, "talk", "Once upon a time there was a rook");
  REQUIRE(world.store(world.here, {"pack", "talk", "-o", world.file.path()}).exit_code == 0);
  const std::string path = world.there.path() + "/sessions.tarn";
  const std::string whole = tools::read_file(world.file.path());
  struct Case {
    std::vector<std::string> words;
    u64 n_bytes;  // of the file
    u64 flipped;  // byte; 0: none
    int exit_code;
    const char* says;
  };
  const Case cases[] = {
      {{"-m", world.other_model.path()}, whole.size(), 0, 78, "was saved with model = "},
      {{"-m", world.model.path(), "--kv-type", "q8_0"},
       whole.size(),
       0,
       78,
       "kv.type = f16; this engine has q8_0"},
      {{"-m", "/nowhere.gguf"}, whole.size(), 0, 74, "/nowhere.gguf"},
      {{}, whole.size() - 1, 0, 74, "damaged"},
      {{}, whole.size(), whole.size() - 5, 74, "damaged"},
      {{}, whole.size(), 5000, 74, "damaged"},
      {{"--as", std::string(129, 'n')}, whole.size(), 0, 78, "1 to 128 bytes"},
  };
  for (const bool has_file : {false, true}) {
    if (has_file) (void)world.say(world.there, "own", "A list:");
    for (const Case& c : cases) {
      CAPTURE(has_file);
      CAPTURE(c.says);
      std::string bytes = whole.substr(0, c.n_bytes);
      if (c.flipped > 0) bytes[c.flipped] = static_cast<char>(bytes[c.flipped] ^ 1);
      tools::write_file(world.file.path(), bytes.data(), bytes.size());
      const u64 n_before = has_file ? fs::file_size(path) : 0;
      std::vector<std::string> words = {"unpack", world.file.path()};
      words.insert(words.end(), c.words.begin(), c.words.end());
      const Ended ended = world.store(world.there, words);
      CAPTURE(ended.err);
      CHECK(ended.exit_code == c.exit_code);
      CHECK(has(ended.err, c.says));
      CHECK(fs::exists(path) == has_file);
      if (has_file) CHECK((fs::file_size(path) > n_before) == has(ended.err, "the store keeps"));
      if (has_file) CHECK_FALSE(has(world.listed(world.there), "talk"));
    }
  }
  CHECK(has(world.listed(world.there), "own"));
}

// Files that this process and its children write have so many bytes at most; more is an error, as
// on a full disk.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t n_bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit small{.rlim_cur = n_bytes, .rlim_max = before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  }
  ~SmallFiles() {
    static_cast<void>(setrlimit(RLIMIT_FSIZE, &before_));
    static_cast<void>(std::signal(SIGXFSZ, handler_));
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_CASE("an import that finds no room in a new folder leaves it as it was, and comes in later") {
  World world;
  world.say(world.here, "talk", "The first sentence of a long conversation about the sea.");
  REQUIRE(world.store(world.here, {"pack", "talk", "-o", world.file.path()}).exit_code == 0);
  const fs::path made = fs::path(world.there.path()) / "sessions.tarn";
  for (const rlim_t n_bytes : {4096u, 12288u}) {
    CAPTURE(n_bytes);
    Ended ended;
    {
      const SmallFiles small(n_bytes);
      ended = world.store(world.there, {"unpack", world.file.path()});
    }
    CAPTURE(ended.err);
    CHECK(ended.exit_code != 0);
    CHECK(ended.exit_code < 128);
    CHECK_FALSE(fs::exists(made));
    CHECK(has(world.listed(world.there), "nothing is stored"));
  }
  std::ofstream(made).close();  // as one that was killed before it wrote
  CHECK(world.store(world.there, {"unpack", world.file.path()}).exit_code == 0);
  CHECK(has(world.listed(world.there), "talk"));
}

TEST_CASE("what is not there, or cannot be written, is refused with its reason") {
  World world;
  struct Case {
    std::vector<std::string> words;
    int exit_code;
    const char* says;
  };
  const Case cases[] = {
      {{}, 74, "there is no such folder"},
      {{"ls"}, 74, "there is no such folder"},
      {{"rm", "nobody"}, 74, "there is no such folder"},
      {{"pack", "nobody", "-o", world.file.path()}, 74, "there is no such folder"},
      {{"unpack", "/nowhere/at/all"}, 74, "/nowhere/at/all"},
      {{"unpack", world.model.path()}, 74, "the file is no pack"},
      {{"pack", "talk"}, 64, "--output"},
      {{"rename", "talk"}, 64, "rename"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.says);
    const Ended ended = world.store(world.here, c.words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(has(ended.err, c.says));
  }
  CHECK_FALSE(fs::exists(world.here.path()));
  CHECK(run_tarn({"store"}).exit_code == 64);
  (void)world.say(world.here, "talk", "A list:");
  CHECK(world.store(world.here, {"pack", "talk", "-o", "/nowhere/at/all"}).exit_code == 74);
  CHECK(world.store(world.here, {"pack", "nobody", "-o", world.file.path()}).exit_code == 78);
  CHECK_FALSE(fs::exists(world.file.path()));
}

TEST_CASE("a folder that run refuses is refused for all that is done with its sessions") {
  World world;
  (void)world.say(world.here, "talk", "A list:");
  REQUIRE(world.store(world.here, {"pack", "talk", "-o", world.file.path()}).exit_code == 0);
  fs::permissions(world.here.path(), fs::perms::owner_all | fs::perms::group_exec);
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"ls"},
                                                {"pack", "talk", "-o", world.file.path()},
                                                {"unpack", world.file.path(), "--as", "copy"},
                                                {"rm", "talk"}}) {
    const Ended ended = world.store(world.here, words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 74);
    CHECK(has(ended.err, "chmod 700"));
  }
  fs::permissions(world.here.path(), fs::perms::owner_all);
  CHECK(has(world.listed(world.here), "talk"));
}

}  // namespace
}  // namespace tarn::sessions_native_test
