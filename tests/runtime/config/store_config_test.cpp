// Goal    store.* is read as it is written, and what cannot be is refused by name.
// Method  texts of a folder that come through TOML unchanged, and those that would not; relations
//         between keys.
#include "runtime/config/store_config.h"

#include <doctest/doctest.h>

#include <string>

#include "runtime/config/config.h"

namespace tarn::store_config_test {
namespace {

std::string fault(const std::string& toml) {
  const Result<Config> config = config_from_toml(toml, Config{});
  return config ? "" : config.error().detail.c_str();
}

TEST_CASE("a folder comes through unchanged") {
  const std::string longest(255, 'x');
  for (const std::string& folder : {std::string("/var/lib/tarn"), std::string("relative path/~ #1"),
                                    std::string("a"), longest}) {
    CAPTURE(folder);
    std::string toml = "[store]\npath = \"" + folder + "\"\n";
    toml += "quota_bytes = '16GiB'\ndaily_write_bytes = '100GiB'\nframe_bytes = '260KiB'\n";
    const Result<Config> config = config_from_toml(toml, Config{});
    REQUIRE(config.has_value());
    CHECK(config->store.folder() == folder);
    CHECK_FALSE(config->store.is_off());
    CHECK(config->store.quota_bytes == 16 * kGiB);
    CHECK(config->store.daily_write_bytes == 100 * kGiB);
    CHECK(config->store.frame_bytes == 260 * kKiB);
  }
  CHECK(Config{}.store.is_off());
  CHECK(config_from_toml("store.path = ''", Config{})->store.is_off());
}

TEST_CASE("what is no folder, and a store without a size, are refused by name") {
  const char* bad_texts[] = {"\"caf\\u00e9\"", "\"a\\tb\"", "\"a\\u0000b\"", "\"it's\"", "'a\"b'",
                             "'a\\b'",         "'what?'",   "\"\\u007f\"",   "7",        "['a']"};
  for (const char* text : bad_texts) {
    CAPTURE(text);
    CHECK(fault("store.quota_bytes = '1GiB'\nstore.path = " + std::string(text)) == "store.path");
  }
  const std::string too_long(256, 'x');
  CHECK(fault("store.quota_bytes = '1GiB'\nstore.path = '" + too_long + "'") == "store.path");
  CHECK(fault("store.path = 'a'") == "store.quota_bytes");
  CHECK(fault("store.frame_bytes = 4096") == "store.frame_bytes");
  CHECK(fault("store.frame_bytes = 10000") == "store.frame_bytes");
  CHECK(fault("store.frame_bytes = 8192").empty());
  CHECK(fault("store.requests_max = 257") == "store.requests_max");
  CHECK(fault("store.pth = 'a'") == "store.pth -> store.path");
  Config config;
  config.store.path.fill('x');  // set by a program, without an end
  config.store.quota_bytes = kGiB;
  CHECK(std::string(config_validate(config).error().detail.c_str()) == "store.path");
}

}  // namespace
}  // namespace tarn::store_config_test
