// The report of `tarn run` about an answer, as JSON (keys are stable: DESIGN 13) and as lines.
#pragma once

#include <string>

#include "tools/support/engine_options.h"
#include "tools/support/json.h"
#include "tools/tarn/generation.h"

namespace tarn::tools {

// Writes the keys of one answer into an open object: text, tokens, prompt_tokens, ... verified.
void write_answer(const EngineHandle& engine, const GenerationResult& result, Json& json);
// Warns on standard error if an approximate method was asked for, but all KV was read.
void warn_unselected(const char* select, u64 n_select_steps);
// Warns that --recompute auto computed all chunks in full, if no record has a share.
void warn_unblended(const tarn_engine_status& status);
// Prints speeds and memory on standard error.
void print_figures(const EngineHandle& engine, const GenerationResult& result);
// "AMD EPYC, 2 of 2 cores, avx512"
std::string describe_machine(const EngineHandle& engine);

}  // namespace tarn::tools
