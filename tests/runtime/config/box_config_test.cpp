// Goal    a box's profile comes back from its text as it was; any other text is refused.
// Method  the least, the most and a usual profile; each part of its text left out, too large or of
//         other characters; every cut.
#include "runtime/config/box_config.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace tarn::box_config_test {
namespace {

BoxConfig of_numbers(u64 cost, u32 share_percent, std::string_view mode) {
  BoxConfig box{.layer = {cost, cost, cost, cost, cost, cost, share_percent},
                .decode_step_ns = cost,
                .decode_token_ps = cost,
                .select_step_ns = cost,
                .select_token_ps = cost,
                .disk_request_ns = cost,
                .disk_byte_fs = cost};
  std::ranges::copy(mode, box.power_mode.begin());
  return box;
}

TEST_CASE("a profile comes back from its text") {
  const std::string longest(31, 'm');
  for (const BoxConfig& box :
       {BoxConfig{}, of_numbers(kCostMax, 100, longest), of_numbers(12, 3, "MAXN SUPER")}) {
    const BoxText text = box_text(box);
    CAPTURE(text.data());
    const Result<BoxConfig> again = box_from_text(text.data());
    REQUIRE(again.has_value());
    CHECK(std::string(again->power_mode.data()) == box.power_mode.data());
    CHECK(again->layer.share_percent == box.layer.share_percent);
    CHECK(again->disk_byte_fs == box.disk_byte_fs);
    CHECK(box_text(*again) == text);
  }
  const Result<BoxConfig> read =
      box_from_text("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 W");  // each number at its place
  REQUIRE(read.has_value());
  const LayerCost& layer = read->layer;
  CHECK(std::vector<u64>{layer.layer_ns, layer.token_ps, layer.squared_fs, layer.job_ns,
                         layer.row_ps, layer.update_ps, layer.share_percent, read->decode_step_ns,
                         read->decode_token_ps, read->select_step_ns, read->select_token_ps,
                         read->disk_request_ns, read->disk_byte_fs} ==
        std::vector<u64>{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
  CHECK(std::string(read->power_mode.data()) == "15 W");
}

TEST_CASE("any other text is refused, and names the command that makes one") {
  const std::string good = box_text(of_numbers(12, 3, "")).data();
  std::vector<std::string> parts;
  std::istringstream words(good);
  for (std::string word; words >> word;) parts.push_back(word);
  REQUIRE(parts.size() == 14);
  std::vector<std::string> bad = {"", " " + good, good + " " + std::string(32, 'm')};
  for (u64 i = 0; i < parts.size(); ++i) {
    for (const char* other :
         {"", "-1", "+1", "1.5", "0x1", "1000000000000001", "99999999999999999999", "a"}) {
      std::string text;
      for (u64 k = 0; k < parts.size(); ++k)
        text += (k > 0 ? " " : "") + (k == i ? std::string(other) : parts[k]);
      bad.push_back(text);
    }
  }
  for (u64 n = 1; n + 2 < good.size(); ++n) bad.push_back(good.substr(0, n));
  bad.push_back("2" + good.substr(1));                    // a later format
  bad.push_back(box_text(of_numbers(12, 0, "")).data());  // no share
  bad.push_back(box_text(of_numbers(12, 101, "")).data());
  for (const std::string& text : bad) {
    CAPTURE(text);
    const Result<BoxConfig> box = box_from_text(text);
    REQUIRE_FALSE(box.has_value());
    CHECK(box.error().status == Status::invalid_config);
    CHECK(std::string(box.error().hint).find("tarn calibrate") != std::string::npos);
  }
}

}  // namespace
}  // namespace tarn::box_config_test
