// How many sessions the engine opens where neither a file nor an option says so: as many as may run
// and wait, so that a request waits instead of being refused; fewer where these do not fit into the
// budget.
#pragma once

#include <string>

#include "runtime/config/config.h"
#include "tools/tarnd/engine_port.h"

namespace tarn::daemon {

// Throws Failure if there is no plan. `why`: what to lower, if it does not fit.
tarn_plan plan_of(const EngineSource& engine, std::string* why);
// Sets the sessions of `config`, and the engine's text of it. Returns the text with as many
// sessions as may run and wait, because free memory differs from start to start.
std::string choose_sessions(Config& config, EngineSource& engine);
// Prints what the sessions of a plan cost.
void print_sessions(EngineSource engine, Config config, const tarn_plan& plan);

}  // namespace tarn::daemon
