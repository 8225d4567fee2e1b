// Goal    `tarn calibrate` writes a configuration that `tarn run` takes, and says what it measured;
//         without one, or where it cannot measure, the remedy is named.
// Method  a small random model and an index of 2 bits; the program as a shell starts it. How good a
//         fit is depends on who else computes, so only its shape is compared.
#include <doctest/doctest.h>

#include <string>

#include "runtime/config/config.h"
#include "runtime/select/iterations.h"
#include "tests/support/open_engine.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn {
namespace {

const std::string kIndex = "[select]\ncode_bits = 2\nsink_tokens = 4\nlocal_tokens = 8\n";

void write(const test::TempFile& file, const std::string& text) {
  tools::write_file(file.path(), text.data(), text.size());
}

TEST_CASE("what it writes is a configuration, and a run with it selects") {
  const test::SmallModel model("llama", "f16");
  const test::TempFile index("index.toml"), profile("profile.toml");
  write(index, kIndex);
  const test::Ended ended =
      test::run_tarn({"calibrate", "-m", model.path(), "-c", "601", "--share", "40", "--config",
                      index.path(), "--lock", "off", "-t", "1", "-o", profile.path()});
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  CAPTURE(ended.out);
  for (const char* said : {"prefill of 600 tokens", "clustering 595 rows, 3 updates",
                           "clustering 95 rows, 9 updates", "131072"}) {
    CAPTURE(said);
    CHECK(ended.out.find(said) != std::string::npos);
  }
  const std::string text = tools::read_file(profile.path());
  CAPTURE(text);
  const Result<Config> config = config_from_toml(text, {});
  REQUIRE(config.has_value());
  CHECK(config->select.iterations == 0);
  CHECK(config->select.code_bits == 2);
  CHECK(config->select.cost.share_percent == 40);
  CHECK(config->select.cost.update_ps > 0);
  CHECK(config->select.cost.token_ps + config->select.cost.squared_fs > 0);
  write(profile, text + "select.sink_tokens = 4\nselect.local_tokens = 8\nselect.k_tokens = 16\n");
  const test::Ended answer =
      test::run_tarn({"run", "-m", model.path(), "--config", profile.path(), "--select", "pq", "-p",
                      std::string(300, 'a'), "-n", "80", "--lock", "off", "--json"});
  CAPTURE(answer.err);
  CHECK(answer.exit_code == 0);
  CHECK(answer.out.find("\"pq\"") != std::string::npos);
}

TEST_CASE("no iterations without a measurement, and no measurement of too few tokens") {
  const test::SmallModel model("llama", "f16");
  const test::TempFile toml("none.toml");
  write(toml, "select.iterations = 0\n");
  const test::Ended run =
      test::run_tarn({"run", "-m", model.path(), "--config", toml.path(), "-p", "a"});
  CHECK(run.exit_code == 78);
  CHECK(run.err.find("tarn calibrate -m MODEL -o FILE") != std::string::npos);
  const test::Ended ended = test::run_tarn({"calibrate", "-m", model.path(), "-c", "400"});
  CHECK(ended.exit_code == 78);
  CHECK(ended.err.find("raise -c to 1090") != std::string::npos);
}

}  // namespace
}  // namespace tarn
