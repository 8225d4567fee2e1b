// Goal    the selection's keys have ranges that are held, relations that name what is broken, and
//         the paper's settings as presets.
// Method  each number pushed one past both of its ends through visit(); each relation broken alone;
//         what presets give against the paper's figures.
#include "runtime/select/select_config.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <type_traits>

namespace tarn::select {
namespace {

bool names(const Result<void>& result, const char* key) {
  if (result) return false;
  char text[256];
  format_error(result.error(), text, sizeof text);
  return std::string(text).find(key) != std::string::npos;
}

// Sets the idx-th number of visit() to one past an end of its range.
struct Push {
  u32 idx;
  bool above;
  const char* key = nullptr;
  u32 seen = 0;
  void operator()(const char* name, u32& value, u64 min, u64 max, const char* help) {
    CHECK(std::string(help) != "");
    CHECK(value >= min);
    CHECK(value <= max);
    if (seen++ != idx || (!above && min == 0)) return;
    value = static_cast<u32>(above ? max + 1 : min - 1);
    key = name;
  }
  template <class Choice>
  void operator()(const char*, Choice& value, ChoiceNames choices,
                  const char*) requires std::is_enum_v<Choice> {
    CHECK(static_cast<u64>(value) < choices.size());
  }
};

TEST_CASE("every number is held to its range, by name") {
  CHECK(select_config_validate({}).has_value());
  std::set<std::string> keys;
  for (u32 idx = 0; idx < 16; ++idx) {
    for (const bool above : {false, true}) {
      SelectConfig config;
      Push push{idx, above};
      config.visit(push);
      if (push.key == nullptr) continue;
      CAPTURE(push.key);
      keys.insert(push.key);
      CHECK(names(select_config_validate(config), push.key));
    }
  }
  CHECK(keys.size() == 10);
}

TEST_CASE("relations between keys") {
  SelectConfig config;
  config.iterations_min = 9, config.iterations_max = 8;
  CHECK(names(select_config_validate(config), "select.iterations_min"));
  config = {};
  config.code_format = CodeFormat::packed, config.code_bits = 8;
  CHECK(names(select_config_validate(config), "select.code_bits"));
  config.code_bits = 6;
  CHECK(select_config_validate(config).has_value());
  CHECK((config.pq_shape(128, 100).format == kernels::PqCodeFormat::packed6));
  config.code_bits = 3;
  CHECK((config.pq_shape(128, 100).format == kernels::PqCodeFormat::packed4));
  config = {};
  config.method = Method::quest, config.k = 15;
  CHECK(names(select_config_validate(config), "select.k_tokens"));
  config.method = static_cast<Method>(99);
  CHECK(names(select_config_validate(config), "select.method"));
}

TEST_CASE("presets are the paper's settings") {
  for (const char* name : kPresetNames) {
    CAPTURE(name);
    const Result<SelectConfig> config = with_preset({}, name);
    REQUIRE(config.has_value());
    CHECK(select_config_validate(*config).has_value());
    const bool is_wide = std::string(name) == "pqcache-infinitebench";
    const PqShape shape = config->pq_shape(128, 1000);
    CHECK(shape.n_subspaces == (is_wide ? 4 : 2));
    CHECK(shape.n_centroids() == (is_wide ? 256 : 64));
    CHECK(budget(config->budget_rule(), 32768).k == 1636);  // half of a tenth of 32,736
    CHECK(budget(config->budget_rule(), 672).k == 128);
  }
  CHECK((with_preset({}, "pqcache-longbench")->method == Method::pq));
  SelectConfig oracle;
  oracle.method = Method::oracle;
  CHECK((with_preset(oracle, "compare-pqcache")->method == Method::oracle));
  CHECK_FALSE(with_preset({}, "pqcache").has_value());
}

}  // namespace
}  // namespace tarn::select
