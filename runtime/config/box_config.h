// The costs of a model on a box, in time by the wall. `tarn calibrate` measures them and writes
// these keys: the box's profile. Integers, so that a text gives back what was written; zeros were
// not measured.
#pragma once

#include <array>

#include "platform/base/types.h"

namespace tarn {

// One layer's cost.
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

  // Config::visit()'s share of it.
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor& on) {
    const auto cost = [&](const char* key, auto& field, const char* help) {
      on(key, field, u64{0}, kCostMax, help);
    };
    on("box.power_mode", self.power_mode,
       "the power mode in which tarn calibrate measured box.* on this box with this model");
    cost("box.prefill_layer_ns", self.layer.layer_ns, "prefill of a layer: each step");
    cost("box.prefill_token_ps", self.layer.token_ps, "and for each token");
    cost("box.prefill_squared_fs", self.layer.squared_fs, "and for each token times the tokens");
    cost("box.cluster_job_ns", self.layer.job_ns, "clustering of a layer");
    cost("box.cluster_row_ps", self.layer.row_ps, "and for each row");
    cost("box.cluster_update_ps", self.layer.update_ps,
         "and for each row that is clustered, and update");
    on("box.cluster_share_percent", self.layer.share_percent, u64{1}, u64{100},
       "what clustering may take of a layer's prefill");
    cost("box.decode_step_ns", self.decode_step_ns, "a token that reads all KV");
    cost("box.decode_token_ps", self.decode_token_ps, "and for each token before it");
    cost("box.select_step_ns", self.select_step_ns, "a token that reads by selection");
    cost("box.select_token_ps", self.select_token_ps, "and for each token before it");
    cost("box.disk_request_ns", self.disk_request_ns, "a read of the store's disk");
    cost("box.disk_byte_fs", self.disk_byte_fs, "and for each byte");
  }
};

}  // namespace tarn
