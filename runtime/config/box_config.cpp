#include "runtime/config/box_config.h"

#include <algorithm>
#include <charconv>

#include "platform/base/assert.h"
#include "runtime/config/fixed_text.h"

namespace tarn {
namespace {

// Calls fn(number, min, max) for every number, in the text's order.
template <class Box, class Fn>
void each_number(Box& box, Fn&& fn) {
  u64 format = 1;
  fn(format, 1, 1);
  for (auto* cost : {&box.layer.layer_ns, &box.layer.token_ps, &box.layer.squared_fs,
                     &box.layer.job_ns, &box.layer.row_ps, &box.layer.update_ps}) {
    fn(*cost, 0, kCostMax);
  }
  fn(box.layer.share_percent, 1, 100);
  for (auto* cost : {&box.decode_step_ns, &box.decode_token_ps, &box.select_step_ns,
                     &box.select_token_ps, &box.disk_request_ns, &box.disk_byte_fs}) {
    fn(*cost, 0, kCostMax);
  }
}

}  // namespace

BoxText box_text(const BoxConfig& box) {
  FixedText<std::tuple_size_v<BoxText>> text;
  each_number(box, [&](u64 number, u64, u64) {
    if (!text.view().empty()) text << " ";
    text << number;
  });
  const std::string_view mode = box.power_mode.data();
  if (!mode.empty()) text << " " << mode;
  return text.array();
}

Result<BoxConfig> box_from_text(std::string_view text) {
  BoxConfig box;
  bool is_good = true;
  each_number(box, [&](auto& number, u64 min, u64 max) {
    u64 value = 0;
    const char* const begin = text.data();
    const auto read = std::from_chars(begin, begin + text.size(), value);
    const u64 n = static_cast<u64>(read.ptr - begin);
    const bool ends = n == text.size() || text[n] == ' ';
    is_good = is_good && read.ec == std::errc() && ends && value >= min && value <= max;
    text.remove_prefix(std::min(n + 1, text.size()));
    number = static_cast<std::remove_reference_t<decltype(number)>>(value);
  });
  is_good = is_good && text.size() < box.power_mode.size();
  if (!is_good) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "box.profile",
                 .hint = "this is no profile of this version of Tarn: measure again with tarn "
                         "calibrate -m MODEL -o FILE",
                 .detail = Detail("box.profile")});
  }
  std::ranges::copy(text, box.power_mode.begin());
  return box;
}

}  // namespace tarn
