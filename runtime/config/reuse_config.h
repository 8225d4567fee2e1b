// The configuration of what is not computed twice.
#pragma once

#include "platform/base/types.h"
#include "runtime/config/verify_mark.h"

namespace tarn {

struct ReuseConfig {
  bool prefix = true;
  u32 recompute_percent = 100;
  VerifyMark verified{};

  // Config::visit()'s share of it.
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor& on) {
    on("reuse.prefix", self.prefix,
       "take KV of a prompt's beginning from other sessions of the same tenant, and from the "
       "store; "
       "no token differs");
    on("reuse.recompute_percent", self.recompute_percent, u64{0}, u64{100},
       "of chunks' tokens, how many are computed anew where a request leaves it to the box; counts "
       "where reuse.verified is of this model and these settings, else all are");
    on("reuse.verified", self.verified,
       "what tarn verify --reuse wrote for this model and these settings; empty: chunks are "
       "computed like other text");
  }
};

}  // namespace tarn
