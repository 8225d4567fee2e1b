// Goal    `tarn calibrate` writes a configuration that `tarn run` takes, and says what it measured;
//         without one, or where it cannot measure, the remedy is named.
// Method  a small random model and an index of 2 bits; the program as a shell starts it. How good a
//         fit is depends on who else computes, so only its shape is compared.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/control/costs.h"
#include "runtime/lab/probe.h"
#include "runtime/method/pq/iterations.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn::calibrate_native_test {
namespace {

const std::string kIndex = "[select]\ncode_bits = 2\nsink_tokens = 4\nlocal_tokens = 8\n";

void write(const test::TempFile& file, const std::string& text) {
  tools::write_file(file.path(), text.data(), text.size());
}

// It refuses to write what others disturbed, and a machine of tests may be busy.
test::Ended calibrate(const test::SmallModel& model, const char* context,
                      const test::TempFile& index, const test::TempFile& profile) {
  for (u32 i = 0;; ++i) {
    test::Ended ended =
        test::run_tarn({"calibrate", "-m", model.path(), "-c", context, "--share", "40", "--config",
                        index.path(), "--lock", "off", "-t", "1", "-o", profile.path()});
    const bool is_disturbed = ended.err.find("disturbed the measurement") != std::string::npos;
    if (!is_disturbed || i == 4) return ended;
  }
}

TEST_CASE("what it writes is a configuration, and a run with it selects") {
  const test::SmallModel model("llama", "f16");
  const test::TempFile index("index.toml"), profile("profile.toml");
  write(index, kIndex);
  const test::Ended ended = calibrate(model, "601", index, profile);
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
  CHECK(config->box.layer.share_percent == 40);
  CHECK(config->box.layer.update_ps > 0);
  CHECK(config->box.layer.token_ps + config->box.layer.squared_fs > 0);
  write(profile, text + "select.sink_tokens = 4\nselect.local_tokens = 8\nselect.k_tokens = 16\n");
  const test::Ended answer =
      test::run_tarn({"run", "-m", model.path(), "--config", profile.path(), "--select", "pq", "-p",
                      std::string(300, 'a'), "-n", "80", "--lock", "off", "--json"});
  CAPTURE(answer.err);
  CHECK(answer.exit_code == 0);
  CHECK(answer.out.find("\"pq\"") != std::string::npos);
}

struct Line {
  u32 n = 0, n_updates = 0;  // tokens, or rows and updates
  f64 measured = 0, fitted = 0;
};

// Of a table: "WHAT N ..." up to its number, and the first two figures behind its name.
std::vector<Line> lines_of(const std::string& table, const char* format, int n_numbers) {
  std::vector<Line> lines;
  std::istringstream text(table);
  for (std::string row; std::getline(text, row);) {
    Line line;
    const int n_read = std::sscanf(row.c_str(), format, &line.n, &line.n_updates);
    if (n_read != n_numbers) continue;
    REQUIRE(std::sscanf(row.c_str() + 34, "%lf %lf", &line.measured, &line.fitted) == 2);
    lines.push_back(line);
  }
  return lines;
}

// Whatever was measured: least squares leave an error at right angles to what is fitted. Both are
// printed in whole microseconds.
void check_least(const std::vector<Line>& lines) {
  f64 product = 0, rounding = 0;
  for (const Line& line : lines) {
    const f64 error = line.measured - line.fitted;
    product += line.fitted * error;
    rounding += 1.1e-3 * (line.fitted + std::abs(error));
  }
  CHECK(std::abs(product) <= rounding);
}

// The same of pieces, each from one line to the next, whose squared errors count over what they
// took.
void check_least_of_pieces(const std::vector<Line>& lines) {
  f64 product = 0, rounding = 0, measured_before = 0, fitted_before = 0;
  for (const Line& line : lines) {
    const f64 measured = line.measured - measured_before, fitted = line.fitted - fitted_before;
    const f64 ratio = fitted / measured;
    product += fitted * (1 - ratio);
    rounding += 1.1e-3 * (ratio * ratio + std::abs(1 - 2 * ratio));
    measured_before = line.measured;
    fitted_before = line.fitted;
  }
  CHECK(std::abs(product) <= rounding);
}

TEST_CASE(
    "the written coefficients are those of the table, in the units of the rule they are for") {
  const test::SmallModel model("llama", "f16");
  const test::TempFile index("index.toml"), profile("profile.toml");
  write(index, kIndex);
  const test::Ended ended = calibrate(model, "1801", index, profile);
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  CAPTURE(ended.out);
  const Result<Config> config = config_from_toml(tools::read_file(profile.path()), {});
  REQUIRE(config.has_value());
  const LayerCost& cost = config->box.layer;
  const auto ms = [](u64 x, f64 unit) { return 1e3 * unit * static_cast<f64>(x); };

  const std::vector<Line> prefills = lines_of(ended.out, "prefill of %u tokens", 1);
  REQUIRE(prefills.size() == 7);
  for (u64 i = 0; i < prefills.size(); ++i) {
    const f64 s = prefills[i].n;
    CHECK(prefills[i].n == (i == 0 ? 128 : 300 * i));
    if (i > 0) CHECK(prefills[i].measured > prefills[i - 1].measured);    // sums of pieces
    const f64 want = ms(cost.layer_ns, 1e-9) * static_cast<f64>(i + 1) +  // a step for each piece
                     ms(cost.token_ps, 1e-12) * s + ms(cost.squared_fs, 1e-15) * s * s;
    CHECK(std::abs(prefills[i].fitted - want) <= 1e-3);
  }
  CHECK(prefills.back().measured > 5 * prefills[0].measured);  // and not the last pieces
  check_least_of_pieces(prefills);

  const std::vector<Line> jobs = lines_of(ended.out, "clustering %u rows, %u updates", 2);
  REQUIRE(jobs.size() == 14);
  for (const Line& job : jobs) {
    SelectConfig with_number = config->select;
    with_number.iterations = job.n_updates;
    const lab::ClusterWork work = lab::cluster_work(with_number, job.n);
    CHECK(work.n_updates == job.n_updates);
    const f64 want = ms(cost.job_ns, 1e-9) + ms(cost.row_ps, 1e-12) * job.n +
                     ms(cost.update_ps, 1e-12) * work.n_sampled * job.n_updates;
    CHECK(std::abs(job.fitted - want) <= 1e-3);
  }
  check_least(jobs);

  // What it announces for a length is what an engine with this configuration does.
  for (u32 s = 2048; s <= 131'072; s *= 2) {
    std::istringstream text(ended.out);
    u32 n_updates = 0;
    for (std::string row; std::getline(text, row);) {
      u32 n_rows = 0, n = 0;
      const int n_read = std::sscanf(row.c_str(), "%u %*f %u", &n_rows, &n);
      if (n_read == 2 && n_rows == s) n_updates = n;
    }
    CHECK(n_updates == method::iterations(control::resolved(config->select, config->box), s));
  }
}

TEST_CASE("tokens by all KV and by selection, and the disk of a store") {
  const test::SmallModel model("llama", "f16");
  const test::TempFile index("index.toml"), profile("profile.toml");
  const test::TempDir store("calibrate_store");
  write(index, kIndex + "k_tokens = 64\n[store]\nquota_bytes = '64MiB'\n");
  test::Ended ended;
  for (u32 i = 0; i < 5; ++i) {
    ended =
        test::run_tarn({"calibrate", "-m", model.path(), "-c", "601", "--config", index.path(),
                        "--store", store.path(), "--lock", "off", "-t", "1", "-o", profile.path()});
    if (ended.err.find("disturbed the measurement") == std::string::npos) break;
  }
  CAPTURE(ended.out);
  CAPTURE(ended.err);
  if (ended.exit_code == 78 && ended.err.find("has no direct I/O") != std::string::npos) return;
  REQUIRE(ended.exit_code == 0);
  for (const char* said : {"a token behind 497", "by selection, behind 497", "a read of 4096 KiB",
                           "KV is read in", "GB/s of memory"}) {
    CAPTURE(said);
    CHECK(ended.out.find(said) != std::string::npos);
  }
  const Result<Config> config = config_from_toml(tools::read_file(profile.path()), {});
  REQUIRE(config.has_value());
  const BoxConfig& box = config->box;
  CHECK(box.decode_step_ns > 0);
  CHECK(box.select_step_ns > 0);
  CHECK(box.disk_byte_fs + box.disk_request_ns > 0);
  // What is printed is what an engine with this profile does.
  const u32 from = control::selection_pays_from(box);
  const bool is_never = ended.out.find("slower at every length") != std::string::npos;
  CHECK((from == control::kNever) == is_never);
  if (!is_never)
    CHECK(ended.out.find("faster from " + std::to_string(from) + " tokens") != std::string::npos);
  const test::Ended answer = test::run_tarn({"run", "-m", model.path(), "--config", profile.path(),
                                             "--select", "pq", "-p", "abc", "-n", "4"});
  CHECK(answer.exit_code == 0);
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
}  // namespace tarn::calibrate_native_test
