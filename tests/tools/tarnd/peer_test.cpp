// Goal    Who may ask: users, groups, keys, hosts and origins, by tables.
// Method  Rules made of settings and a key file.
#include "tools/tarnd/peer.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temp_dir.h"
#include "tools/support/exit_code.h"

namespace tarn::daemon::peer_test {
namespace {

class KeyFile {
 public:
  explicit KeyFile(const std::string& text, mode_t mode = 0600) : dir_("tarnd_keys") {
    std::filesystem::create_directory(dir_.path());
    path = dir_.path() + "/keys";
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
  }
  std::string path;

 private:
  test::TempDir dir_;
};

std::string refusal(const std::string& text, mode_t mode = 0600) {
  const KeyFile file(text, mode);
  try {
    read_keys(file.path);
    return "";
  } catch (const tools::Failure& failure) {
    return failure.text;
  }
}

TEST_CASE("key files") {
  const KeyFile file("# comment\nann  key-of-ann\n\nkey-alone # its line is the label\r\n");
  const std::vector<Key> keys = read_keys(file.path);
  REQUIRE(keys.size() == 2);
  CHECK(keys[0].label == "ann");
  CHECK(keys[0].key == "key-of-ann");
  CHECK(keys[1].label == "4");
  CHECK(keys[1].key == "key-alone");
  CHECK_FALSE(refusal("").empty());
  CHECK_FALSE(refusal("# none\n").empty());
  CHECK(refusal(std::string("a K\0EYKEYKEY\n", 13)).find("printable ASCII") != std::string::npos);
  CHECK(refusal("a KÄYKEYKEY\n").find("printable ASCII") != std::string::npos);
  CHECK(refusal("ä KEYKEYKEY\n").empty());
  CHECK(refusal("short\n").find("8 to 256 characters, this one 5") != std::string::npos);
  CHECK_FALSE(refusal("1234567\n").empty());
  CHECK(refusal("12345678\n").empty());
  CHECK(refusal("a long-enough b\n").find(":1: ") != std::string::npos);
  CHECK_FALSE(refusal(std::string(257, 'k')).empty());
  CHECK_FALSE(refusal("long-enough\n", 0644).empty());
  CHECK_FALSE(refusal("long-enough\n", 0660).empty());
  CHECK(refusal("long-enough\n", 0640).empty());
}

TEST_CASE("a key file is a plain file: no device, pipe or folder, and nothing waits for one") {
  const KeyFile file("long-enough\n");
  const std::string pipe = file.path + ".pipe", link = file.path + ".link";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(symlink("/dev/zero", link.c_str()) == 0);
  const std::string folder = file.path.substr(0, file.path.rfind('/'));
  for (const std::string& path : {pipe, link, folder, std::string("/dev/zero")}) {
    CAPTURE(path);
    CHECK_THROWS_AS(read_keys(path), tools::Failure);
  }
}

TEST_CASE("keys in a request") {
  const KeyFile file("ann key-of-ann\nbob key-of-bob\n");
  Settings settings;
  settings.keys_file = file.path;
  const PeerRules rules(settings);
  CHECK(rules.label_of("Bearer key-of-ann", "") == "ann");
  CHECK(rules.label_of("bearer key-of-bob", "") == "bob");
  CHECK(rules.label_of("", "key-of-bob") == "bob");
  CHECK_FALSE(rules.label_of("Bearer key-of-anm", "").has_value());
  CHECK_FALSE(rules.label_of("Bearer key-of-ann ", "").has_value());
  CHECK_FALSE(rules.label_of("Bearer ", "").has_value());
  CHECK_FALSE(rules.label_of("Basic key-of-ann", "").has_value());
  CHECK_FALSE(rules.label_of("", "").has_value());
  CHECK_FALSE(PeerRules(Settings{}).label_of("Bearer ", "").has_value());
}

TEST_CASE("users and groups") {
  Settings settings;
  const Peer ann{.uid = 1001, .groups = {1001, 50}}, root{.uid = 0, .groups = {0}};
  CHECK(PeerRules(settings).allows(ann));
  settings.allow_users = {"1001"};
  CHECK(PeerRules(settings).allows(ann));
  CHECK_FALSE(PeerRules(settings).allows(root));
  settings.allow_users = {"root"};
  CHECK_FALSE(PeerRules(settings).allows(ann));
  CHECK(PeerRules(settings).allows(root));
  settings.allow_groups = {"50"};  // not its first one
  CHECK(PeerRules(settings).allows(ann));
  CHECK(PeerRules(settings).allows({.is_tcp = true}));
  settings.allow_users = {"nobody-of-this-name"};
  CHECK_THROWS_AS(PeerRules{settings}, tools::Failure);
}

TEST_CASE("hosts and origins") {
  Settings settings;
  settings.hosts = {"tarn.example"};
  settings.origins = {"https://app.example"};
  const PeerRules rules(settings);
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]",
                           "10.0.0.7", "tarn.example:443", "Tarn.Example"}) {
    CAPTURE(host);
    CHECK(rules.is_our_host(host));
  }
  for (const char* host : {"", "evil.example", "localhost.evil.example", "tarn.example.evil",
                           "127.0.0.1.evil.example", "[::1", "2130706433"}) {
    CAPTURE(host);
    CHECK_FALSE(rules.is_our_host(host));
  }
  CHECK(rules.is_our_origin(""));
  CHECK(rules.is_our_origin("https://app.example"));
  CHECK(rules.is_our_origin("https://App.Example"));
  CHECK_FALSE(rules.is_our_origin("http://app.example"));
  CHECK_FALSE(rules.is_our_origin("null"));
}

}  // namespace
}  // namespace tarn::daemon::peer_test
