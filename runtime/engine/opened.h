// The facts that an engine was opened with. Fixed from open() to close(); its parts read it.
//
//   thread   any: nothing here changes but the sessions, and those are the engine's thread's
//   memory   the engine's regions, lent from open() to close()
#pragma once

#include <span>

#include "kernels/cpu_table.h"
#include "platform/clock/clock.h"
#include "platform/log/log.h"
#include "runtime/engine/sessions/session.h"
#include "runtime/model/embedding_file.h"
#include "runtime/plan/plan.h"
#include "runtime/reuse/kv_identity.h"
#include "runtime/text/tokenizer.h"

namespace tarn::engine {

struct Opened {
  Clock* clock = nullptr;
  Log log{};
  plan::Plan plan{};
  model::LoadedModel model{};
  text::Encoder text{};
  const kernels::CpuTable* table = nullptr;
  kernels::KvType kv_type = kernels::KvType::f16;
  SelectConfig select{};
  store::Key selection_key{};     // of `select` and the type of KV
  reuse::KvIdentity identity{};   // of the default tenant
  f32 least_share = 1;            // of chunks, computed anew where a call leaves it to the engine
  std::span<Session> sessions{};  // [plan.sessions_max]
  GenerationScratch scratch{};    // of all generations, one at a time

  u32 page_tokens() const { return plan.group_shape.page_tokens; }
};

}  // namespace tarn::engine
