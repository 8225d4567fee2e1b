// tools/tarn-bench/recall.h
//
// How many of the tokens that exact scores would choose the index of codes chooses, for the queries
// of one decoded token and the keys that it meets.
#pragma once

#include "runtime/engine/engine.h"

namespace tarn::bench {

// The mean of lab::Probe::recall() over a few KV heads of a few layers; NaN where the session is
// too short for an index. Decodes one token more, whose queries `planter` may change. Throws
// tools::Failure.
f64 recall_against_oracle(engine::Engine& engine, engine::SessionIdx session,
                          step::KvWatch planter);

}  // namespace tarn::bench
