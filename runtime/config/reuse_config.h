// The configuration of what is not computed twice.
#pragma once

#include "platform/base/types.h"

namespace tarn {

struct ReuseConfig {
  bool prefix = true;

  // Config::visit()'s share of it.
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor& on) {
    on("reuse.prefix", self.prefix,
       "take KV of a prompt's beginning from other sessions of the same tenant, and from the "
       "store; "
       "no token differs");
  }
};

}  // namespace tarn
