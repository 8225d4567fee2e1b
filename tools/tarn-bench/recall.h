// The share of the tokens chosen by exact scores that the index of codes chooses too, for the
// queries of one decoded token and the keys of its context.
#pragma once

#include "runtime/engine/engine.h"

namespace tarn::bench {

// The mean of lab::Probe::recall() over a few KV heads of a few layers; NaN if the session is too
// short for an index. Decodes one more token, whose queries `planter` may change. Throws
// tools::Failure.
f64 recall_against_oracle(engine::Engine& engine, engine::SessionIdx session,
                          step::KvWatch planter);

}  // namespace tarn::bench
