// What the engine takes of a plan, for plans that are made without one.
#pragma once

#include "runtime/engine/engine_memory.h"

namespace tarn::test {

// A session is of a fixed size here, so that no golden table follows each of its fields.
inline void carve_engine_part(plan::RegionId region, const plan::Plan& plan,
                              const model::ModelSpec& spec, Carver& carver) {
  if (region != plan::RegionId::sessions) {
    return engine::carve_region(region, plan, spec, carver);
  }
  carver.rows<std::byte>("session", plan.sessions_max, 80 * kKiB);
  carver.rows<u32>("ids", plan.sessions_max, plan.context_tokens);
}

}  // namespace tarn::test
