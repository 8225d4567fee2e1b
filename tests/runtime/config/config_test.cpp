// Goal    every key is checked against its range, sizes are read strictly, and a mistyped key finds
// its
//         neighbour.
// Method  tables of texts; ranges are taken from visit() itself and every border is tried from both
// sides;
//         the edit distance is compared with a recursive definition.
#include "runtime/config/config.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/seed.h"

namespace tarn::config_test {
namespace {

std::vector<std::string> all_keys() {
  std::vector<std::string> keys;
  Config{}.visit([&](const char* key, const auto&...) { keys.push_back(key); });
  return keys;
}

TEST_CASE("keys are section.name, unique and numbered in the order of visit") {
  const auto keys = all_keys();
  CHECK(std::set<std::string>(keys.begin(), keys.end()).size() == keys.size());
  CHECK(keys.size() <= kConfigKeysMax);
  for (u32 i = 0; i < keys.size(); ++i) {
    CAPTURE(keys[i]);
    CHECK(std::ranges::count(keys[i], '.') == 1);
    CHECK(key_idx(keys[i]) == i);
    CHECK(keys[i].size() <
          28);  // so that an error has room for it and for what it was mistaken for
  }
  CHECK(key_idx("kv") == kConfigKeysMax);
  CHECK(key_idx("kv.typ") == kConfigKeysMax);
  CHECK(key_idx("kv.types") == kConfigKeysMax);
  CHECK(key_idx("") == kConfigKeysMax);
}

struct SetNumber {  // puts `max` or `min` plus `delta` into the number at `idx`
  u32 idx;
  bool at_max;
  i32 delta;
  bool applied = false;
  std::string key{};
  u32 n_visited = 0;
  template <class Number>
  void operator()(const char* name, Number& field, u64 min, u64 max, const char*) {
    if (n_visited++ != idx) return;
    const u64 border = at_max ? max : min;
    if (delta < 0 && border == 0) return;
    field = static_cast<Number>(border + static_cast<u64>(i64{delta}));
    applied = true;
    key = name;
  }
  void operator()(const char*, auto&, ChoiceNames, const char*) { ++n_visited; }
  void operator()(const char*, bool&, const char*) { ++n_visited; }
  template <u64 n>
  void operator()(const char*, std::array<char, n>&, const char*) {
    ++n_visited;
  }
};

TEST_CASE("the defaults are valid and every number is held to its range") {
  CHECK(config_validate(Config{}).has_value());
  u32 n_applied = 0;
  for (u32 idx = 0; idx < all_keys().size(); ++idx) {
    for (const bool at_max : {false, true}) {
      Config config;
      config.batch_rows_max = 2048;  // keeps the relation to sessions_max out of the way
      SetNumber outside{.idx = idx, .at_max = at_max, .delta = at_max ? 1 : -1};
      config.visit(outside);
      if (!outside.applied) continue;
      ++n_applied;
      CAPTURE(outside.key);
      const Result<void> result = config_validate(config);
      REQUIRE_FALSE(result.has_value());
      CHECK(result.error().status == Status::invalid_config);
      CHECK(outside.key == result.error().detail.c_str());
      CHECK(std::string(result.error().figures[0].name) == "min");
      SetNumber inside{.idx = idx, .at_max = at_max, .delta = 0};
      config.visit(inside);
      if (outside.key == "engine.batch_rows_max") config.sessions_max = 1;
      CHECK(config_validate(config).has_value());
    }
  }
  CHECK(n_applied >= 8);
}

TEST_CASE("choices outside their names and broken relations are refused by name") {
  Config config;
  config.kv_type = static_cast<KvTypeChoice>(3);
  CHECK(std::string(config_validate(config).error().detail.c_str()) ==
        "kv.type = f16 | q8_0 | q4_0");
  config = Config{};
  config.lock = static_cast<LockChoice>(9);
  CHECK(std::string(config_validate(config).error().detail.c_str()) ==
        "memory.lock = off | try | require");
  for (const char* isa : {"", "avx", "avx5122", "AVX2", "sixteen letters!"}) {
    config = Config{};
    config.isa = {};
    std::copy_n(isa, std::strlen(isa), config.isa.begin());  // the last one has no terminator
    const Result<void> result = config_validate(config);
    REQUIRE_FALSE(result.has_value());
    CHECK(std::string(result.error().detail.c_str()) == "cpu.isa = auto | generic | avx2 | avx512");
  }
  config = Config{};
  config.page_tokens = 40;
  CHECK(std::string(config_validate(config).error().detail.c_str()) == "kv.page_tokens");
  config = Config{};
  config.batch_rows_max = 3;
  CHECK(std::string(config_validate(config).error().detail.c_str()) == "engine.batch_rows_max");
}

TEST_CASE("a SHA-256 has 64 hexadecimal digits, or is left out") {
  const std::string digits = "0123456789abcdefABCDEF0123456789abcdefABCDEF0123456789abcdefABCDEF";
  struct Case {
    std::string text;
    bool is_valid;
  };
  const Case kCases[] = {
      {"", true},
      {digits.substr(0, 64), true},
      {digits.substr(0, 63), false},
      {digits.substr(0, 65), false},
      {"0x" + digits.substr(0, 62), false},
      {digits.substr(0, 63) + "g", false},
      {digits.substr(0, 63) + " ", false},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.text);
    const auto config = config_from_toml("[model]\nsha256 = '" + c.text + "'\n", Config{});
    REQUIRE(config.has_value() == c.is_valid);
    if (c.is_valid) {
      CHECK(config->model_sha256.data() == c.text);
    } else {
      CHECK(config.error().status == Status::invalid_config);
      CHECK(std::string(config.error().detail.c_str()) == "model.sha256");
    }
  }
}

TEST_CASE("sizes") {
  struct Case {
    const char* text;
    u64 bytes;
  };
  constexpr u64 kRefused = ~u64{0} - 1;
  constexpr Case kCases[] = {
      {"0", 0},
      {"1", 1},
      {"1048576", kMiB},
      {"17B", 17},
      {"1KiB", kKiB},
      {"512MiB", 512 * kMiB},
      {"6GiB", 6 * kGiB},
      {"4.5GiB", 4608 * kMiB},
      {"0.5KiB", 512},
      {"0.000001MiB", 1},
      {"1.000001TiB", 1024 * kGiB + 1099511},
      {"16777215TiB", 16777215 * (1024 * kGiB)},
      {"18446744073709551615", ~u64{0}},
      {"007KiB", 7 * kKiB},
      {"16777216TiB", kRefused},
      {"18446744073709551616", kRefused},
      {"99999999999999999999999999", kRefused},
      {"17179869183.999999GiB", 17179869183 * kGiB + 1073740750},
      {"", kRefused},
      {" 1", kRefused},
      {"1 ", kRefused},
      {"1 GiB", kRefused},
      {"-1", kRefused},
      {"+1", kRefused},
      {"0x10", kRefused},
      {"1e9", kRefused},
      {"1.5", kRefused},
      {"1.5B", kRefused},
      {".5GiB", kRefused},
      {"1.GiB", kRefused},
      {"1.0000001GiB", kRefused},
      {"1..5GiB", kRefused},
      {"6G", kRefused},
      {"6GB", kRefused},
      {"6gib", kRefused},
      {"6GiBs", kRefused},
      {"GiB", kRefused},
      {"auto", kRefused},
      {"1,5GiB", kRefused},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.text);
    const Result<u64> bytes = parse_bytes(c.text);
    CHECK(bytes.has_value() == (c.bytes != kRefused));
    if (bytes) CHECK(*bytes == c.bytes);
    if (!bytes) CHECK(bytes.error().status == Status::invalid_config);
  }
  CHECK_FALSE(parse_bytes(std::string_view("1\0GiB", 5)).has_value());
}

u32 slow_distance(std::string_view a, std::string_view b) {
  if (a.empty()) return static_cast<u32>(b.size());
  if (b.empty()) return static_cast<u32>(a.size());
  const std::string_view a_rest = a.substr(1), b_rest = b.substr(1);
  if (a[0] == b[0]) return slow_distance(a_rest, b_rest);
  return 1 + std::min({slow_distance(a_rest, b), slow_distance(a, b_rest),
                       slow_distance(a_rest, b_rest)});
}

// A key that is worth naming: few edits of it away, or with the same last part.
bool is_near(const std::string& name, const std::string& key, u32 distance) {
  const auto last_part = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  return 3 * distance <= key.size() || last_part(name) == last_part(key);
}

TEST_CASE("the nearest key is the one with the fewest edits") {
  CHECK(std::string(nearest_key("kv.contxt_tokens")) == "kv.context_tokens");
  CHECK(std::string(nearest_key("context_tokens")) == "kv.context_tokens");
  CHECK(std::string(nearest_key("memory.budget")) == "memory.budget_bytes");
  CHECK(std::string(nearest_key("cpu.thread")) == "cpu.threads");
  CHECK(std::string(nearest_key("engine.threads")) == "cpu.threads");
  CHECK(std::string(nearest_key("isa")) == "cpu.isa");
  CHECK(std::string(nearest_key("io.backend")) == "io.backend");
  for (const std::string& key : all_keys()) {
    CHECK(nearest_key(key) == key);
    for (size_t i = 0; i < key.size(); ++i) {  // with a byte left out
      std::string name = key;
      name.erase(i, 1);
      CAPTURE(name);
      CHECK(std::string(nearest_key(name)) != "");
    }
  }

  // Short names, because the definition's cost is exponential: a name of up to three bytes.
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 i = 0; i < 40; ++i) {
    std::string name;
    for (u64 n = random.below(4); n > 0; --n) name += "kv.iocpu"[random.below(8)];
    CAPTURE(name);
    const std::string got = nearest_key(name);
    const u32 got_distance = got.empty() ? ~u32{0} : slow_distance(name, got);
    CHECK((got.empty() || is_near(name, got, got_distance)));
    for (const std::string& key : all_keys()) {
      const u32 distance = slow_distance(name, key);
      const bool is_no_nearer = !is_near(name, key, distance) || got_distance <= distance;
      CHECK(is_no_nearer);
    }
  }
}

TEST_CASE("a name that is near to no key gets none, and the error says where keys are listed") {
  for (const std::string name : {"", "nope", "colour", "engine", "a.b.c", "kv.", "."}) {
    CAPTURE(name);
    CHECK(std::string(nearest_key(name)) == "");
  }
  CHECK(std::string(nearest_key(std::string(100000, 'x'))) == "");
  const auto text_of = [](const char* toml) {
    char text[512];
    format_error(config_from_toml(toml, Config{}).error(), text, sizeof text);
    return std::string(text);
  };
  const std::string far = text_of("nope = 1\n");
  CHECK(far.find("nope") != std::string::npos);
  CHECK(far.find("->") == std::string::npos);
  CHECK(far.find("arrow") == std::string::npos);
  CHECK(far.find("configs/README.md") != std::string::npos);
  const std::string near = text_of("[kv]\ncontxt_tokens = 1\n");
  CHECK(near.find("kv.contxt_tokens -> kv.context_tokens") != std::string::npos);
}

}  // namespace
}  // namespace tarn::config_test
