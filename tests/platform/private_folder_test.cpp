// Goal    a folder of private files is made closed, or taken if it is closed and ours; everything
//         else is refused with what to do about it.
// Method  real folders in each state; what was there is as it was afterwards.
#include "platform/io/private_folder.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <set>
#include <string>

#include "tests/support/temp_dir.h"

namespace tarn::private_folder_test {
namespace {

namespace fs = std::filesystem;

mode_t mode_of(const std::string& path) {
  struct stat there {};
  REQUIRE(lstat(path.c_str(), &there) == 0);
  return there.st_mode & 07777;
}

struct Scratch {
  Scratch() : folder("private_folder"), root(folder.path()) { fs::create_directory(root); }
  std::string at(const char* name) const { return (root / name).string(); }
  test::TempDir folder;
  fs::path root;
};

std::string hint_of(const std::string& path) {
  const auto made = make_private_folder(path.c_str());
  return made ? "" : made.error().hint;
}
bool says(const std::string& hint, const char* part) {
  return hint.find(part) != std::string::npos;
}

TEST_CASE("a missing folder is made for its owner alone, whatever the umask, and taken again") {
  const Scratch scratch;
  for (const mode_t mask : {mode_t{0}, mode_t{022}, mode_t{077}}) {
    const std::string path = scratch.at(("made" + std::to_string(mask)).c_str());
    const mode_t before = umask(mask);
    const auto made = make_private_folder(path.c_str());
    umask(before);
    CHECK(made.has_value());
    CHECK(mode_of(path) == 0700);
    CHECK(make_private_folder(path.c_str()).has_value());
  }
}

TEST_CASE("a folder that others may enter is refused, and left as it is") {
  const Scratch scratch;
  for (const mode_t mode : {mode_t{0755}, mode_t{0750}, mode_t{0701}, mode_t{0770}, mode_t{0704}}) {
    CAPTURE(mode);
    const std::string path = scratch.at(("wide" + std::to_string(mode)).c_str());
    REQUIRE(mkdir(path.c_str(), 0700) == 0);
    REQUIRE(chmod(path.c_str(), mode) == 0);
    CHECK(says(hint_of(path), "chmod 700"));
    CHECK(mode_of(path) == mode);
    REQUIRE(chmod(path.c_str(), 0700) == 0);
    CHECK(hint_of(path).empty());
  }
}

TEST_CASE("what is no folder of ours is refused with the remedy") {
  const Scratch scratch;
  const std::string folder = scratch.at("folder"), link = scratch.at("link");
  REQUIRE(make_private_folder(folder.c_str()).has_value());
  fs::create_symlink(folder, link);
  CHECK(says(hint_of(link), "a link"));
  CHECK(says(hint_of(scratch.at("no/parent")), "parent"));
  REQUIRE(fclose(fopen(scratch.at("file").c_str(), "w")) == 0);
  CHECK(says(hint_of(scratch.at("file")), "a link or a file"));
  CHECK(says(hint_of(scratch.at("file/below")), "is a file"));
  CHECK_FALSE(hint_of("").empty());
  if (geteuid() == 0) {
    REQUIRE(chown(folder.c_str(), 12345, 0) == 0);
    CHECK(says(hint_of(folder), "another user"));
  } else {
    CHECK(says(hint_of("/"), "another user"));
  }
}

TEST_CASE("a check makes nothing, and refuses what making would") {
  const Scratch scratch;
  const std::string absent = scratch.at("absent"), open = scratch.at("open");
  CHECK_FALSE(check_private_folder(absent.c_str()).has_value());
  CHECK_FALSE(fs::exists(absent));
  REQUIRE(mkdir(open.c_str(), 0700) == 0);
  CHECK(check_private_folder(open.c_str()).has_value());
  REQUIRE(chmod(open.c_str(), 0711) == 0);
  CHECK_FALSE(check_private_folder(open.c_str()).has_value());
}

TEST_CASE("random bytes are filled in whole, and differ") {
  std::set<u64> seen;
  for (u32 i = 0; i < 64; ++i) {
    std::array<u8, 64> bytes{};
    REQUIRE(fill_random(bytes).has_value());
    for (u64 at = 0; at < bytes.size(); at += 8) {
      u64 word = 0;
      for (u64 b = 0; b < 8; ++b) word = word << 8 | bytes[at + b];
      seen.insert(word);
    }
  }
  CHECK(seen.size() == 64 * 8);
  CHECK(fill_random({}).has_value());
}

}  // namespace
}  // namespace tarn::private_folder_test
