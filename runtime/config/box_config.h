// The box's profile: what a model costs on it, in time by the wall. `tarn calibrate` measures it
// and writes it as the text of one key, box.profile. Integers, so that a text gives back what was
// written; zeros were not measured.
#pragma once

#include <array>
#include <string_view>

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

// The cost of one layer.
struct LayerCost {
  u64 job_ns = 0;      // its clustering: always,
  u64 row_ps = 0;      // for each row,
  u64 update_ps = 0;   // and for each row of the sample and update
  u64 layer_ns = 0;    // its prefill: each step,
  u64 token_ps = 0;    // for each token,
  u64 squared_fs = 0;  // and for each token and token
  u32 share_percent = 100;
};
inline constexpr u64 kCostMax = 1'000'000'000'000'000;  // an f64 has it exactly

struct BoxConfig {
  std::array<char, 32> power_mode{};
  LayerCost layer{};
  // A step with one row behind n tokens: step_ns + n * token_ps, reading everything and by
  // selection.
  u64 decode_step_ns = 0, decode_token_ps = 0;
  u64 select_step_ns = 0, select_token_ps = 0;
  // Reads of the store's disk, with many of them under way.
  u64 disk_request_ns = 0, disk_byte_fs = 0;
};

// A profile as text, with a space between two parts: 1, which is the format; layer_ns, token_ps,
// squared_fs; job_ns, row_ps, update_ps, share_percent; decode_step_ns, decode_token_ps;
// select_step_ns, select_token_ps; disk_request_ns, disk_byte_fs; power_mode, which may be absent.
using BoxText = std::array<char, 256>;
BoxText box_text(const BoxConfig& box);
// Returns invalid_config for any other text.
Result<BoxConfig> box_from_text(std::string_view text);

}  // namespace tarn
