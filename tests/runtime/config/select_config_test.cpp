// Goal    the relations between the selection's keys name what is broken, and the presets are the
//         paper's settings. Ranges: config_test.
// Method  each relation broken alone; what presets give against the paper's figures.
#include <doctest/doctest.h>

#include <string>

#include "runtime/config/config.h"
#include "runtime/method/pq/pq_index.h"

namespace tarn::select_config_test {
namespace {

bool names(const Result<void>& result, const char* key) {
  if (result) return false;
  char text[256];
  format_error(result.error(), text, sizeof text);
  return std::string(text).find(key) != std::string::npos;
}

TEST_CASE("relations between keys") {
  Config config;
  CHECK(config_validate(config).has_value());
  config.select.code_format = CodeFormat::packed, config.select.code_bits = 8;
  CHECK(names(config_validate(config), "select.code_bits"));
  config.select.code_bits = 6;
  CHECK(config_validate(config).has_value());
  CHECK(
      (method::pq_shape(config.select, {128, 128}, 100).format == kernels::PqCodeFormat::packed6));
  config.select.code_bits = 3;
  CHECK(
      (method::pq_shape(config.select, {128, 128}, 100).format == kernels::PqCodeFormat::packed4));
  config = {};
  config.select.method = SelectMethod::quest, config.select.k = 15;
  CHECK(names(config_validate(config), "select.k_tokens"));
  config.select.method = static_cast<SelectMethod>(99);
  CHECK(names(config_validate(config), "select.method"));
}

TEST_CASE("as many updates as the box has time for: only where it was measured") {
  Config config;
  config.select.iterations = 0;
  CHECK(names(config_validate(config), "select.iterations"));
  CHECK(names(config_validate(config), "tarn calibrate"));
  const Result<Config> refused = config_from_toml("[select]\niterations = 0\n", {});
  REQUIRE_FALSE(refused.has_value());
  CHECK(std::string(refused.error().hint).find("tarn calibrate -m MODEL") != std::string::npos);
  const Result<Config> measured = config_from_toml(
      "select.iterations = 0\n"
      "box.profile = '1 422000 2539000 47500 2000000 1 100000 3 0 0 0 0 0 0'\n",
      {});
  REQUIRE(measured.has_value());
  const LayerCost& cost = measured->box.layer;
  CHECK(cost.job_ns == 2'000'000);
  CHECK(cost.row_ps == 1);
  CHECK(cost.update_ps == 100'000);
  CHECK(cost.layer_ns == 422'000);
  CHECK(cost.token_ps == 2'539'000);
  CHECK(cost.squared_fs == 47'500);
  CHECK(cost.share_percent == 3);
  CHECK(measured->select.iterations == 0);
}

TEST_CASE("presets are the paper's settings") {
  for (const SelectPreset preset :
       {SelectPreset::pqcache_longbench, SelectPreset::pqcache_infinitebench,
        SelectPreset::compare_pqcache}) {
    CAPTURE(preset);
    SelectConfig named;
    named.method = SelectMethod::window;
    const SelectConfig config = with_preset(named, preset);
    CHECK(select_config_validate(config).has_value());
    const bool is_wide = preset == SelectPreset::pqcache_infinitebench;
    const method::PqShape shape = method::pq_shape(config, {128, 0}, 1000);
    CHECK(shape.n_subspaces == (is_wide ? 4 : 2));
    CHECK(shape.n_centroids() == (is_wide ? 256 : 64));
    CHECK(method::budget(method::budget_rule(config), 32768).k == 1636);  // half of 32,736 / 10
    CHECK(method::budget(method::budget_rule(config), 672).k == 128);
  }
  CHECK((with_preset({}, SelectPreset::pqcache_longbench).method == SelectMethod::pq));
  SelectConfig quest;
  quest.method = SelectMethod::quest;
  CHECK((with_preset(quest, SelectPreset::compare_pqcache).method == SelectMethod::quest));
}

TEST_CASE("a text names a preset, and goes over it") {
  for (const SelectPreset preset :
       {SelectPreset::none, SelectPreset::pqcache_longbench, SelectPreset::pqcache_infinitebench}) {
    CAPTURE(preset);
    const std::string name = kSelectPresetNames[static_cast<u64>(preset)];
    const Result<Config> config = config_from_toml("[select]\npreset = \"" + name + "\"\n", {});
    REQUIRE(config.has_value());
    const SelectConfig expected = with_preset({}, preset);
    CHECK(config->select.preset == preset);
    CHECK(config->select.method == expected.method);
    CHECK(config->select.n_subspaces == expected.n_subspaces);
    CHECK(config->select.code_bits == expected.code_bits);
    CHECK(config->select.context_divisor == expected.context_divisor);
  }
  // Before the preset's key or behind it.
  for (const char* text : {"[select]\nsubspaces = 8\npreset = \"pqcache-longbench\"\n",
                           "[select]\npreset = \"pqcache-longbench\"\nsubspaces = 8\n"}) {
    const Result<Config> config = config_from_toml(text, {});
    REQUIRE(config.has_value());
    CHECK(config->select.n_subspaces == 8);
    CHECK(config->select.context_divisor == 10);
  }
  const Result<Config> unknown = config_from_toml("[select]\npreset = \"pqcache\"\n", {});
  CHECK(names(unknown ? Result<void>{} : Result<void>(fail(unknown.error())), "select.preset"));
}

TEST_CASE("compare-pqcache compares nothing where everything is read") {
  const Result<Config> alone = config_from_toml("[select]\npreset = \"compare-pqcache\"\n", {});
  REQUIRE_FALSE(alone.has_value());
  CHECK(std::string(alone.error().hint).find("compare-pqcache/pq") != std::string::npos);
  const Result<Config> quest =
      config_from_toml("[select]\npreset = \"compare-pqcache\"\nmethod = \"quest\"\n", {});
  REQUIRE(quest.has_value());
  CHECK((quest->select.method == SelectMethod::quest));
  CHECK(quest->select.context_divisor == 10);
}

}  // namespace
}  // namespace tarn::select_config_test
