// Goal    tarn-bench --long writes a page that stands alone and says what was measured: its plots
//         have the figures of the runs, inside their axes; each caption has a command that gives
//         them; figures from filled KV say so; what could not be measured is named.
// Method  the program on a small random model, the page taken apart; plots of known points.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <cmath>
#include <cstdlib>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"
#include "tools/tarn-bench/crossover.h"
#include "tools/tarn-bench/shell_quoted.h"
#include "tools/tarn-bench/svg_plot.h"

namespace tarn::bench {
namespace {

u64 count(const std::string& text, const std::string& part) {
  u64 n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// What stands between each `open` and the `close` behind it. By hand: a regular expression takes a
// piece of the stack for each character.
std::vector<std::string> pieces_of(const std::string& text, const std::string& open,
                                   const std::string& close) {
  std::vector<std::string> pieces;
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    at += open.size();
    const size_t end = text.find(close, at);
    REQUIRE(end != std::string::npos);
    pieces.push_back(text.substr(at, end - at));
  }
  return pieces;
}

// Centres of the marks, in drawing order.
std::vector<std::pair<f64, f64>> marks_of(const std::string& svg) {
  std::vector<std::pair<f64, f64>> marks;
  const std::regex mark("<circle cx=\"([0-9.]+)\" cy=\"([0-9.]+)\"");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), mark); it != std::sregex_iterator();
       ++it) {
    marks.emplace_back(std::stod((*it)[1]), std::stod((*it)[2]));
  }
  return marks;
}

TEST_CASE("a plot's marks stand where their values are") {
  const Plot plot{.title = "a < b & c",
                  .x_label = "x",
                  .y_label = "y",
                  .series = {{.name = "one", .points = {{1024, 10}, {2048, 20}, {8192, 40}}},
                             {.name = "none", .points = {}},
                             {.name = "two", .points = {{1024, 30}}}},
                  .limit = 50,
                  .limit_label = "ceiling"};
  const std::string svg = to_svg(plot);
  const auto marks = marks_of(svg);
  REQUIRE(marks.size() == 4);
  // Logarithmic in x: 1K to 2K is half as far as 2K to 8K. Linear in y, from 0 at the bottom.
  CHECK(2 * (marks[1].first - marks[0].first) ==
        doctest::Approx(marks[2].first - marks[1].first).epsilon(0.01));
  const f64 step = marks[0].second - marks[1].second;
  CHECK(step > 10);
  CHECK(marks[1].second - marks[2].second == doctest::Approx(2 * step).epsilon(0.01));
  CHECK(marks[0].second - marks[3].second == doctest::Approx(2 * step).epsilon(0.01));
  CHECK(marks[3].first == marks[0].first);
  for (const auto& [x, y] : marks) {
    CHECK(x > 70);
    CHECK(x < 620);
    CHECK(y > 34);
    CHECK(y < 284);
  }
  CHECK(svg.find("a &lt; b &amp; c") != std::string::npos);
  CHECK(svg.find(">1K<") != std::string::npos);
  CHECK(svg.find(">8K<") != std::string::npos);
  CHECK(svg.find(">none<") == std::string::npos);
  CHECK(svg.find("ceiling") != std::string::npos);
  CHECK(to_svg({.title = "empty"}).find("nothing was measured") != std::string::npos);
}

TEST_CASE("the crossover is where the longest tail of wins begins") {
  using Kind = Crossover::Kind;
  const Series full{.name = "a", .points = {{1024, 10}, {4096, 8}, {16384, 4}, {65536, 2}}};
  const auto found = [&](std::vector<std::pair<f64, f64>> points) {
    return crossover(full, {.name = "b", .points = std::move(points)});
  };
  CHECK(found({}).kind == Kind::unknown);
  CHECK(found({{2048, 9}}).kind == Kind::unknown);
  CHECK(found({{1024, 11}, {4096, 9}}).kind == Kind::always);
  CHECK(found({{1024, 11}, {4096, 8}}).kind == Kind::none);
  // One below at 1,024 and one above at 4,096: half way between their logarithms.
  const Crossover half = found({{1024, 9}, {4096, 9}, {16384, 8}});
  CHECK(half.kind == Kind::at);
  CHECK(half.n_tokens == doctest::Approx(2048));
  // Lost again at 16,384, so what came before is no crossover.
  const Crossover late = found({{1024, 11}, {4096, 9}, {16384, 3}, {65536, 5}});
  CHECK(late.n_tokens == doctest::Approx(16384 * std::sqrt(2.0)));
  CHECK(to_text(half, "a", "b") == "b is faster than a from about 2000 tokens on");
  CHECK(to_text({}, "a", "b").empty());
}

TEST_CASE("the page stands alone, with a command in each caption and the figures in a table") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile page("long.html"), config("long.toml");
  const std::string toml =
      "[select]\nsink_tokens = 16\nlocal_tokens = 64\ncode_bits = 4\nswap_tokens = 4\n"
      "[kv]\npage_tokens = 16\n";
  tools::write_file(config.path(), toml.data(), toml.size());
  const test::Ended ended = test::run_tarn({"-m",
                                            model.path(),
                                            "--long",
                                            page.path(),
                                            "--fill-kv",
                                            "300,600",
                                            "-n",
                                            "4",
                                            "-r",
                                            "1",
                                            "-p",
                                            "64,128",
                                            "--k-list",
                                            "96,32",
                                            "--config",
                                            config.path(),
                                            "--no-bandwidth",
                                            "-t",
                                            "1",
                                            "-o",
                                            "none"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const std::string html = tools::read_file(page.path());

  const u64 n_plots = count(html, "<svg ");
  CHECK(n_plots == 6);  // speed, bytes, recall, memory, TTFT, TT2T
  CHECK(count(html, "</svg>") == n_plots);
  CHECK(count(html, "<figcaption>") == n_plots);
  // Nothing is fetched: the only address is the name of SVG's name space.
  CHECK(count(html, "http") == count(html, "xmlns=\"http://www.w3.org/2000/svg\""));
  for (const char* word : {"<script", "<link", "<img", "@import", "url("}) {
    CAPTURE(word);
    CHECK(html.find(word) == std::string::npos);
  }
  for (const std::string& caption : pieces_of(html, "<figcaption>", "</figcaption>")) {
    CHECK(caption.find("<code>tarn-bench -m ") != std::string::npos);
  }
  CHECK(html.find("filled, synthetic") != std::string::npos);
  CHECK(count(html, "<p>PQCache, k ") == 2);  // where each is faster than reading everything
  CHECK(count(html, " (KV filled, synthetic).</p>") == 2);
  for (const char* name : {"full, f16", "full, q8_0", "full, q4_0", "PQCache, k 96",
                           "PQCache, k 32", "window, k 96"}) {
    CAPTURE(name);
    CHECK(count(html, std::string("<tr><td>") + name) == 2);  // a row for each context
  }
  CHECK(html.find("Not measured") == std::string::npos);
}

std::string unescaped(std::string text) {
  const std::pair<const char*, const char*> kNames[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  for (const auto& [name, character] : kNames) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      text.replace(at, std::string(name).size(), character);
    }
  }
  return text;
}

// What a shell prints that is given the command of a caption.
rapidjson::Document rows_of(std::string command, const std::string& out_path) {
  const std::string name = "tarn-bench ";
  REQUIRE(command.starts_with(name));
  command.replace(0, name.size(), "'" TARN_PROGRAM "' ");
  CAPTURE(command);
  REQUIRE(std::system((command + " > '" + out_path + "'").c_str()) == 0);
  rapidjson::Document rows;
  rows.Parse(tools::read_file(out_path).c_str());
  REQUIRE(rows.IsArray());
  return rows;
}

TEST_CASE("with a store there are its plots too, and the commands give their figures again") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile page("long.html"), config("long one.toml"), out("rows.json");
  const test::TempDir store("long store");
  const std::string toml =
      "[select]\nsink_tokens = 16\nlocal_tokens = 64\ncode_bits = 4\nswap_tokens = 4\n"
      "[kv]\npage_tokens = 16\n";
  tools::write_file(config.path(), toml.data(), toml.size());
  const test::Ended ended = test::run_tarn({"-m",
                                            model.path(),
                                            "--long",
                                            page.path(),
                                            "--fill-kv",
                                            "300,600",
                                            "-n",
                                            "4",
                                            "-r",
                                            "1",
                                            "-p",
                                            "64,128",
                                            "--k-list",
                                            "96,32",
                                            "--config",
                                            config.path(),
                                            "--no-bandwidth",
                                            "-t",
                                            "1",
                                            "--ub",
                                            "48",
                                            "--io",
                                            "threads",
                                            "--isa",
                                            "generic",
                                            "--no-warmup",
                                            "--overlap",
                                            "0.55",
                                            "--store",
                                            store.path(),
                                            "--kv-memory",
                                            "256KiB",
                                            "--budget",
                                            "256MiB",
                                            "--select",
                                            "quest",
                                            "-o",
                                            "jsonl"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const std::string html = tools::read_file(page.path());
  constexpr u64 kOfOneTier = 3 + 2 + 1 + 1;  // numbers of KV, values of k, a window, quest
  CHECK(html.find("Not measured") == std::string::npos);
  // Those of the store: its bytes, their useful share, the hit rate.
  CHECK(count(html, "<svg ") == 9);
  const std::vector<std::string> figures = pieces_of(html, "<figure>", "</figure>");
  const auto figure_of = [&](const std::string& title) {
    for (const std::string& one : figures) {
      if (one.find(">" + title + "<") != std::string::npos) return one;
    }
    return std::string();
  };
  // Whatever runs in memory runs over the disk, too, at both contexts.
  CHECK(marks_of(figure_of("Bytes from the store")).size() == 2 * kOfOneTier);
  CHECK(marks_of(figure_of("Hit rate")).size() >= 2 * 3);
  // Each tier has crossovers of its own.
  for (const char* line : {"PQCache, k 96 is ", "PQCache, k 96, store is "}) {
    CAPTURE(line);
    CHECK(count(html, std::string("<p>") + line) == 1);
  }
  for (const std::string& line : pieces_of(html, "<p>PQCache, k ", "</p>")) {
    CAPTURE(line);
    CHECK((line.find(", store is ") == std::string::npos) ==
          (line.find("full, f16, store") == std::string::npos));
  }
  CHECK(marks_of(figure_of("Useful bytes per byte gathered from the store")).size() >= 2);
  const std::string second = figure_of("Time from the first token to the second (TT2T)");
  CHECK(second.find("select.swap_tokens is 4") != std::string::npos);
  CHECK(second.find("--pg 64,1 --pg 128,1") != std::string::npos);

  std::vector<std::string> lines;  // a row each, in the order of the captions
  for (std::istringstream in(ended.out); std::getline(in, lines.emplace_back());) {
  }
  lines.pop_back();
  const std::string speed = figure_of("Decoding speed");
  u64 n_rows = 0;
  for (const std::string& command : pieces_of(speed, "<code>", "</code>")) {
    const std::string text = unescaped(command);
    CAPTURE(text);
    for (const char* option : {" --ub 48", " --io threads", " --isa generic", " --no-warmup",
                               " --overlap 0.55", " --budget 256MiB", " -r 1 "}) {
      CHECK(text.find(option) != std::string::npos);
    }
    if (n_rows % 6 != 0) {  // one of three is run again
      n_rows += 2;
      continue;
    }
    const rapidjson::Document again = rows_of(text, out.path());
    REQUIRE(again.Size() == 2);
    for (const auto& row : again.GetArray()) {
      REQUIRE(n_rows < lines.size());
      rapidjson::Document want;
      want.Parse(lines[n_rows++].c_str());
      REQUIRE(want.IsObject());
      for (const char* key : {"select", "type_k", "n_depth", "n_ubatch", "n_threads", "isa", "io",
                              "slots_per_head", "kv_bytes_per_token", "recall"}) {
        CAPTURE(key);
        REQUIRE(want.HasMember(key));
        CHECK(want[key] == row[key]);
      }
      CHECK(want["samples_ns"].Size() == row["samples_ns"].Size());
      CHECK(std::string(row["kv"].GetString()).starts_with("filled, synthetic"));
    }
  }
  CHECK(n_rows == 2 * 2 * kOfOneTier);
  CHECK(n_rows == lines.size());
}

TEST_CASE(
    "a configuration with a store of its own is refused: the series in memory would be over it") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile page("long.html"), config("long.toml");
  const test::TempDir store("long_configured");
  const std::string toml = "[store]\npath = '" + store.path() + "'\nquota_bytes = \"64MiB\"\n";
  tools::write_file(config.path(), toml.data(), toml.size());
  const test::Ended ended = test::run_tarn(
      {"-m", model.path(), "--long", page.path(), "--config", config.path(), "--fill-kv", "300"});
  CHECK(ended.exit_code == 64);
  CHECK(ended.err.find("give it a configuration without store.path") != std::string::npos);
}

TEST_CASE("words of a command line are quoted where a shell needs it") {
  CHECK(shell_quoted("/a/b-c_1,2.gguf") == "/a/b-c_1,2.gguf");
  CHECK(shell_quoted("a b") == "'a b'");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("$HOME") == "'$HOME'");
}

TEST_CASE("what cannot be measured is named, and the rest is there") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile page("long.html");

  const test::Ended ended = test::run_tarn({"-m", model.path(), "--long", page.path(), "--fill-kv",
                                            "300", "-n", "2", "-r", "1", "-p", "0", "--k-list", "0",
                                            "--no-bandwidth", "-t", "1", "-o", "none"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const std::string html = tools::read_file(page.path());
  CHECK(html.find("Not measured: PQCache, k 0") != std::string::npos);
  CHECK(ended.err.find("PQCache, k 0 was not measured") != std::string::npos);
  CHECK(count(html, "<tr><td>full, f16") == 1);
}

}  // namespace
}  // namespace tarn::bench
