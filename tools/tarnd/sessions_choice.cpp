#include "tools/tarnd/sessions_choice.h"

#include <algorithm>
#include <cstdio>

#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"

namespace tarn::daemon {
namespace {

constexpr u32 kSessionsMost = 128, kSessionsLeast = 16;

bool fits(const EngineSource& engine) {
  try {
    std::string why;
    return plan_of(engine, &why).fits != 0;
  } catch (const tools::Failure&) {
    return false;  // such as too little kv.memory_bytes for a step of so many
  }
}

}  // namespace

tarn_plan plan_of(const EngineSource& engine, std::string* why) {
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = engine.model_path.c_str();
  options.config_toml = engine.config_toml.c_str();
  if (!engine.chat_template.empty()) options.chat_template = engine.chat_template.c_str();
  tarn_plan plan = TARN_INIT(tarn_plan);
  tools::check_api(tarn_plan_memory(&options, &plan));
  *why = plan.fits != 0 ? "" : tarn_error_text();
  return plan;
}

std::string choose_sessions(Config& config, EngineSource& engine) {
  config.sessions_max =
      std::min({config.running_max + config.waiting_max, kSessionsMost, config.batch_rows_max});
  std::string most = engine.config_toml = tools::to_toml(config);
  while (config.sessions_max > kSessionsLeast && !fits(engine)) {
    config.sessions_max = std::max(config.sessions_max / 2, kSessionsLeast);
    engine.config_toml = tools::to_toml(config);
  }
  return most;
}

void print_sessions(EngineSource engine, Config config, const tarn_plan& plan) {
  u64 each_bytes = 0;
  if (config.sessions_max > 1) {
    const u32 n = config.sessions_max--;
    engine.config_toml = tools::to_toml(config);
    std::string why;
    each_bytes = plan.total_bytes - plan_of(engine, &why).total_bytes;
    config.sessions_max = n;
  }
  std::printf(
      "%-14s %u open at a time (engine.sessions_max), %llu bytes each; by default as many "
      "as may run and wait, at most %u, and as fit\n",
      "sessions", config.sessions_max, static_cast<unsigned long long>(each_bytes), kSessionsMost);
}

}  // namespace tarn::daemon
