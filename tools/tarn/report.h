// tools/tarn/report.h
//
// What `tarn run` says about an answer, as JSON (keys are stable: DESIGN 13) and as lines.
#pragma once

#include <string>

#include "tools/support/engine_options.h"
#include "tools/support/json.h"
#include "tools/tarn/generation.h"

namespace tarn::tools {

// The keys of one answer, into an object that is open: text, tokens, prompt_tokens, ... verified.
void write_answer(const EngineHandle& engine, const GenerationResult& result, Json& json);
// On standard error, where a lossy method was asked for and all KV was read all the same.
void warn_unselected(const char* select, u64 n_select_steps);
// Speeds and memory on standard error.
void print_figures(const EngineHandle& engine, const GenerationResult& result);
// "AMD EPYC, 2 of 2 cores, avx512"
std::string describe_machine(const EngineHandle& engine);

}  // namespace tarn::tools
